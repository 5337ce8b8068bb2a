"""Invoices in the results of the staff search, a tenant's newest invoices on the tenant's page, and the pages of the
rows of billing that audit entries name.
"""

from collections.abc import Iterator

from billing.models import CreditNote, Invoice, PlanVersion, StaffAct
from billing.pricing.money import rupees
from tenants.models import Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.search import Hit, Line, register_finder, register_lines, register_target

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


register_target("invoice", Invoice)
register_target("credit_note", CreditNote)
register_target("plan_version", PlanVersion)
register_target("staff_act", StaffAct)
