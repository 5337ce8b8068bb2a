"""Warnings of billing on the home page."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.urls import reverse

from billing import buyers, restriction, tenant_overview
from billing.mails import BEFORE_THE_INVOICE, MANDATE_DAYS, TRIAL_DAYS
from billing.models import Mandate
from billing.pricing.money import rupees
from billing.pricing.periods import Period, indian_date
from billing.tenant_overview import Overview
from console.visit import LIVE
from console.warnings import HomeWarning
from gateway.clock import now
from tenants.models import Tenant


def of_billing(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """The warnings of billing on the home page, only in the live environment. Billing also sends them by mail."""
    if not settings.BILLING_ENABLED or environment != LIVE or tenant.billing_status is None:
        return []
    at = now()
    seen = tenant_overview.of(tenant, at)
    return [*_overdue(seen, at), *_trial(seen, at), *_mandate(seen, at), *_profile(seen, at)]


def next_invoice(tenant: Tenant) -> dict[str, Any] | None:
    """The amount due now in paise, and the charge of the next invoice. None when billing is off."""
    if not settings.BILLING_ENABLED or tenant.billing_status is None:
        return None
    seen = tenant_overview.of(tenant, now())
    return {"due": seen.amount_due_paise, "charge": seen.next_charge}


def _overdue(seen: Overview, at: datetime) -> Iterator[HomeWarning]:
    """Warn of overdue invoices, with the reason of the last failed debit, or of the restriction on new numbers."""
    late = [invoice.amount_due_paise for invoice in seen.unpaid if invoice.overdue_since is not None]
    page, due = reverse("console_billing"), rupees(sum(late))
    if seen.tenant.billing_restricted:
        text = f"{due} is long overdue: no further number can be connected until it is paid."
        yield HomeWarning(text, "Pay now", page, "bad")
    elif seen.tenant.billing_status == Tenant.BillingStatus.PAST_DUE:
        closes = restriction.restricts_at(seen.tenant.id) or at
        text = f"{due} is overdue. From {indian_date(closes)} no further number can be connected."
        yield HomeWarning(f"{text}{_last_failure(seen)}", "Pay now", page, "bad")


def _last_failure(seen: Overview) -> str:
    reason = tenant_overview.debit_failed_because(seen)
    return f" The last debit failed: {reason}." if reason else ""


def _trial(seen: Overview, at: datetime) -> Iterator[HomeWarning]:
    """Warn of the trial's end in the last days of the trial, unless autopay is set up or cannot be."""
    ends = seen.tenant.trial_ends_at
    trying = seen.tenant.billing_status == Tenant.BillingStatus.TRIALING
    ready = seen.mandate is not None and seen.mandate.status == Mandate.Status.ACTIVE
    ready = ready or not buyers.can_set_up_autopay(seen.billing_profile)
    if trying and not ready and ends is not None and at < ends <= at + timedelta(days=max(TRIAL_DAYS)):
        text = f"Your trial ends on {indian_date(ends)}. Set up autopay, so that invoices are paid automatically."
        yield HomeWarning(text, "Set up autopay", reverse("console_billing"))


def _mandate(seen: Overview, at: datetime) -> Iterator[HomeWarning]:
    """Warn of a mandate that ends soon or is too small for the next invoice."""
    mandate, page = seen.mandate, reverse("console_billing")
    if mandate is None or mandate.status != Mandate.Status.ACTIVE:
        return
    if mandate.expires_at is not None and mandate.expires_at <= at + timedelta(days=max(MANDATE_DAYS)):
        text = f"Your autopay mandate ends on {indian_date(mandate.expires_at)}."
        yield HomeWarning(text, "Set up a new one", page)
    if seen.next_charge is not None and seen.next_charge.debit_paise > mandate.max_amount_paise:
        text = (
            f"The next invoice, {rupees(seen.next_charge.total_paise)}, is above the limit of your autopay mandate, "
            f"{rupees(mandate.max_amount_paise)}."
        )
        yield HomeWarning(text, "Raise the limit", page)


def _profile(seen: Overview, at: datetime) -> Iterator[HomeWarning]:
    """Warn of an incomplete billing profile, from ten days before the next invoice."""
    period, charge = Period.of(at), seen.next_charge
    charged = charge is not None and charge.numbers > 0 and charge.period == str(period)
    if charged and period.end - BEFORE_THE_INVOICE <= at and buyers.missing(seen.billing_profile):
        text = "The billing profile lacks details that the next invoice needs."
        yield HomeWarning(text, "Complete it", reverse("console_billing_profile"))
