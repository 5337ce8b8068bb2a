"""Django app of sending, batches, media, templates and incoming notifications."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from gateway import web_start
        from messaging import checks  # noqa: F401 - registers the checks of the settings
        from messaging.batches import monitoring  # noqa: F401 - adds its metrics
        from messaging.console import (
            entries,  # noqa: F401 - registers its pages and first steps
            explanation,  # noqa: F401 - explains the upstream's codes in the request log
            finders,  # noqa: F401 - registers its part of the search
        )
        from messaging.sending import replay
        from messaging.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search

        web_start.register(replay.start)
