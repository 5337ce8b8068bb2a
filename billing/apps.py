"""Django app of billing."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        from billing import checks  # noqa: F401 - registers the checks of the settings
        from billing.console import entries, finders  # noqa: F401 - register its part of the console
        from billing.payments import trouble  # noqa: F401 - adds its section to the health report
        from billing.pricing.money import rupees
        from billing.staff import cards  # noqa: F401 - registers its part of the staff dashboard
        from billing.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
        from tenants.wording.audit_words import register_unit

        register_unit("paise", rupees)
