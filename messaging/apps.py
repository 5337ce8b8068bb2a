"""Django app of sending, batches, media, templates and incoming notifications."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from gateway import web_start
        from messaging import checks, send_replay, staff_finders  # noqa: F401 - they register themselves
        from messaging.batches import monitoring  # noqa: F401 - adds its metrics
        from messaging.console import entries, finders  # noqa: F401 - register its part of the console

        web_start.register(send_replay.start)
