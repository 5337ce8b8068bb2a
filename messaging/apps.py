"""Django app of sending, batches, media, templates and incoming notifications."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from messaging import (
            checks,  # noqa: F401 - registers the checks of the settings
            erasure,
        )
        from messaging.batches import monitoring  # noqa: F401 - adds its metrics
        from tenants.signals import tenant_closing

        tenant_closing.connect(erasure.on_tenant_closing, dispatch_uid="batches_and_events")
