"""Django app of billing, an add-on: without BILLING_INSTALLED everything else works without it."""

from collections.abc import Mapping
from typing import ClassVar

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Billing"
    left_behind: ClassVar[Mapping[str, str]] = {
        "billing_closedmonth": "each cell closes the months of its own books",
        "billing_invoiceseries": "each cell has series of its own",
        "billing_providerevent": "notices of the payment provider to this cell",
        "billing_providertrouble": "this cell's connection to the payment provider",
        "billing_settleditem": "what the payment provider settled to this cell",
    }
    """Tables that do not move to another cell with a tenant (`messaging/tenant_moves.py`)."""

    def ready(self) -> None:
        from billing import checks  # noqa: F401 - registers the checks of the settings
        from billing.payments import (
            mandates,
            provider,  # noqa: F401 - adds its section to the health report
        )
        from tenants.signals import tenant_closing

        tenant_closing.connect(mandates.on_tenant_closing, dispatch_uid="mandates")
