"""Template filters of billing: amounts in rupees, and months and dates in Indian form."""

from typing import Any

from django import template

from billing.invoices import documents
from billing.models import Invoice
from billing.pricing.money import rupees
from billing.pricing.periods import Period, indian_date
from gateway.clock import now

register = template.Library()
register.filter("rupees", rupees)
register.filter("indian_date", indian_date)


@register.filter
def month_name(period: str) -> str:
    """`2026-11` as `November 2026`."""
    return Period.parse(period).name


@register.inclusion_tag("console/billing/invoice_status.html")
def payment_badge(invoice: Invoice) -> dict[str, Any]:
    """A coloured badge: paid, open or overdue."""
    return {"payment": documents.payment_state(invoice, now())}
