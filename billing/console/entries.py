"""Billing in the console: its entry in the navigation, and what the home page warns of."""

from django.conf import settings
from django.urls import reverse

from billing import overview, profiles
from billing.early_warnings import BEFORE_THE_INVOICE
from billing.pricing.money import rupees
from billing.pricing.periods import Period
from gateway.clock import now
from tenants.console.frame import LIVE, HomeWarning, Page, register, warns
from tenants.models import Tenant

register(pages=[Page("Billing", "console_billing", "/console/billing", 85)])


@warns
def warnings(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """An overdue payment, a restriction, a profile that the next invoice needs. Billing knows no test environment."""
    if not settings.BILLING_ENABLED or environment != LIVE or tenant.billing_status is None:
        return []
    at = now()
    seen = overview.of(tenant, at)
    page = reverse("console_billing")
    found = []
    if tenant.billing_restricted:
        due = rupees(seen.amount_due_paise)
        text = f"{due} are long overdue: no further number can be connected until they are paid."
        found.append(HomeWarning(text, "Pay now", page, "bad"))
    elif tenant.billing_status == Tenant.BillingStatus.PAST_DUE:
        found.append(HomeWarning(f"{rupees(seen.amount_due_paise)} are overdue.", "Pay now", page, "bad"))
    charged = seen.next_charge is not None and seen.next_charge.numbers > 0
    if charged and Period.of(at).end - BEFORE_THE_INVOICE <= at and profiles.missing(seen.billing_profile):
        text = "The billing profile lacks something that the next invoice needs."
        found.append(HomeWarning(text, "Complete it", reverse("console_billing_profile")))
    return found
