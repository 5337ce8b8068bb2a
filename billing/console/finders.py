"""Invoices in the console's search."""

from collections.abc import Iterator

from django.urls import reverse

from billing.models import Invoice
from gateway.roles import Area
from tenants.console.frame import Visit
from tenants.console.search import Hit, finds


@finds(Area.BILLING)
def _invoices(visit: Visit, text: str) -> Iterator[Hit]:
    for invoice in Invoice.objects.for_tenant(visit.tenant.id).filter(number=text.upper()):
        yield Hit("Invoice", invoice.number, reverse("console_invoice", args=[invoice.pk]))
