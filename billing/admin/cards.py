"""Billing's cards on the first page of the staff admin: late payments, and incomplete billing profiles."""

from typing import Any

from django.conf import settings
from django.db.models import Q
from django.urls import reverse

from billing.mails import BEFORE_THE_INVOICE
from billing.models import INDIA, BillingProfile, Invoice, StaffAct, end_of_term
from billing.pricing.periods import Period
from billing.usage import BILLED
from gateway.clock import now
from tenants.models import Tenant
from tenants.staff.dashboard import Card, register_cards


@register_cards
def _cards(report: dict[str, Any]) -> list[Card]:
    if not settings.BILLING_ENABLED:
        return []
    at = now()
    soon = Period.of(at).end - BEFORE_THE_INVOICE <= at
    return [
        Card(
            "Invoices overdue",
            Invoice.objects.unpaid().annotate(ends=end_of_term()).filter(ends__lt=at).count(),
            "Accounting shows how late",
            reverse("admin:billing_invoice_accounting"),
            True,
        ),
        Card(
            "Waiting for a second person",
            StaffAct.objects.filter(status=StaffAct.Status.WAITING).count(),
            "payments and corrections that were requested",
            reverse("admin:billing_staffact_changelist") + "?status__exact=waiting",
            True,
        ),
        Card(
            "Buyer data missing",
            incomplete_profiles(),
            "the next invoices are issued on the 1st",
            reverse("admin:billing_billingprofile_changelist"),
            soon,
        ),
    ]


def incomplete_profiles() -> int:
    """The number of billed tenants whose profile lacks the name, the address or the city, or in India the State, the
    PIN or the tax id.
    """
    lacking = Q(legal_name="") | Q(address="") | Q(city="")
    in_india = Q(country=INDIA) & (Q(state_code="") | Q(pin="") | Q(tax_id=""))
    billed = BillingProfile.objects.filter(
        tenant__sandbox=False, tenant__billing_status__in=BILLED, tenant__status=Tenant.Status.ACTIVE
    )
    return billed.filter(lacking | in_india).count()
