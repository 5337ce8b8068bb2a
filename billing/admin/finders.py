"""Invoices in the results of the staff search, and a tenant's newest invoices on the tenant's page."""

from collections.abc import Iterator

from billing.models import Invoice
from billing.pricing.money import rupees
from tenants.models import Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.search import Hit, Line, register_finder, register_lines

INVOICES_SHOWN = 6


@register_finder("billing.view_invoice")
def _invoices(text: str) -> Iterator[Hit]:
    for invoice in Invoice.objects.filter(number=text.upper()).select_related("tenant"):
        note = f"{invoice.tenant.name}, {rupees(invoice.total_paise)}, {invoice.get_status_display()}"
        yield Hit("Invoice", invoice.number, note, change_url(Invoice, invoice.pk))


@register_lines("billing.view_invoice")
def _lines(tenant: Tenant) -> Iterator[Line]:
    for invoice in Invoice.objects.for_tenant(tenant.id).order_by("-id")[:INVOICES_SHOWN]:
        text = f"{invoice.number}, {rupees(invoice.total_paise)} ({invoice.get_status_display()})"
        yield Line("Invoice", text, change_url(Invoice, invoice.pk))
