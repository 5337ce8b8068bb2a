"""Django app of billing, an add-on. The other apps also work without it (BILLING_INSTALLED off)."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        from billing import (
            buyers,
            checks,  # noqa: F401 - registers the checks of the settings
        )
        from billing.payments import (
            mandates,
            provider,  # noqa: F401 - adds its section to the health report
        )
        from tenants.signals import application_corrected, tenant_closing

        application_corrected.connect(buyers.on_application_corrected, dispatch_uid="profiles")
        tenant_closing.connect(buyers.on_tenant_closing, dispatch_uid="last_profile")
        tenant_closing.connect(mandates.on_tenant_closing, dispatch_uid="mandates")
