"""Django app of sending, batches, media, templates and incoming notifications."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from gateway import web_start
        from messaging import checks  # noqa: F401 - registers the checks of the settings
        from messaging.batches import monitoring  # noqa: F401 - adds its metrics
        from messaging.console import entries, finders  # noqa: F401 - register its part of the console
        from messaging.sending import replay
        from messaging.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search

        web_start.register(replay.start)
