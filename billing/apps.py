"""Django app of billing."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Billing"

    def ready(self) -> None:
        from billing import checks  # noqa: F401 - registers the checks of the settings
        from billing.payments import trouble  # noqa: F401 - adds its section to the health report
