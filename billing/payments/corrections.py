"""Corrections of an invoice by staff, with an audit entry. A correction first ends the invoice's live payment link."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from billing import ledger, restriction
from billing.models import Invoice
from billing.payments import payment_links
from gateway.api.errors import Conflict
from tenants import audit


@contextmanager
def correcting(invoice_id: UUID, at: datetime) -> Iterator[Invoice]:
    """Lock an invoice within its tenant's ledger. At the end, the tenant's balance and restriction are updated.

    Raises Conflict while a payment of the invoice, or of all invoices of its tenant, is in flight. Raises
    ProviderUnreachable when the link cannot be ended.
    """
    invoice = Invoice.objects.get(pk=invoice_id)
    payment_links.end_link(invoice=invoice, at=at)
    with ledger.account(invoice.tenant_id):
        invoice = ledger.locked(invoice_id)
        if payment_links.in_flight(invoice).exists():
            raise Conflict("A payment of this invoice is in flight: wait for its result.")
        yield invoice
        restriction.use_balance(invoice.tenant_id, at)


def record(invoice: Invoice, action: str, actor_user_id: int | None, **details: Any) -> None:
    """Write the audit entry of an act on an invoice."""
    audit.record(
        action=action,
        target_type="invoice",
        target_id=invoice.public_id,
        tenant_id=invoice.tenant_id,
        actor_user_id=actor_user_id,
        details=details,
    )
