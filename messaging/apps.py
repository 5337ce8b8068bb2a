"""Django app of sending, batches, media, templates and incoming notifications."""

from django.apps import AppConfig
from django.db.models.signals import post_save


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from messaging import (
            checks,  # noqa: F401 - registers the checks of the settings
            erasure,
            opt_outs,
        )
        from messaging.batches import monitoring  # noqa: F401 - adds its metrics
        from phone_numbers.models import PhoneNumber
        from tenants.signals import tenant_closing

        post_save.connect(opt_outs.on_number_stored, sender=PhoneNumber, dispatch_uid="opt_outs")
        tenant_closing.connect(erasure.on_tenant_closing, dispatch_uid="batches_and_events")
