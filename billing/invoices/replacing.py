"""Replacing an invoice whose buyer was wrong: a credit note of all that is left, and a new invoice for the same month.

Called by the staff admin, after the billing profile was corrected. What was paid counts for the new invoice.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from billing import restriction
from billing.buyers import profiles
from billing.invoices import credit_notes, issuing
from billing.models import BalanceTransfer, BillingSnapshot, Invoice
from billing.payments import payment_links, settlement
from gateway.api.errors import Conflict
from tenants import audit


def replace(*, invoice_id: UUID, reason: str, at: datetime, actor_user_id: int | None = None) -> Invoice:
    """Credit what is left of an invoice and issue its month anew, with the profile as it is now.

    Raises Conflict for one that was replaced or credited in full, or has a payment in flight.
    """
    payment_links.end_link(invoice=Invoice.objects.get(pk=invoice_id), at=at)
    with transaction.atomic():
        snapshot = BillingSnapshot.objects.select_for_update(of=("self",)).get(invoices=invoice_id)
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        left = invoice.total_paise - invoice.credited_paise
        if left == 0 or Invoice.objects.filter(replaces=invoice).exists():
            raise Conflict("This invoice was replaced or credited already.")
        credit_notes.write(invoice, total_paise=left, reason=reason, at=at, actor_user_id=actor_user_id)
        profile = profiles.profile_of(snapshot.tenant)
        new = issuing.create(snapshot=snapshot, profile=profile, at=at, replaces=invoice)
        _move_balance(invoice, new, at)
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)
        audit.record(
            action="billing.replace",
            target_type="invoice",
            target_id=invoice.public_id,
            tenant_id=invoice.tenant_id,
            actor_user_id=actor_user_id,
            details={"replaced_by": new.number, "reason": reason},
        )
    return new


def _move_balance(old: Invoice, new: Invoice, at: datetime) -> None:
    moved = min(old.amount_paid_paise, new.total_paise)
    if moved:
        BalanceTransfer.objects.create(from_invoice=old, to_invoice=new, amount_paise=moved, at=at)
        old.amount_paid_paise -= moved
        new.amount_paid_paise += moved
        settlement.restate(new, at)
        new.save(update_fields=["amount_paid_paise", *settlement.RESTATED])
    if old.amount_paid_paise == 0:
        old.status, old.paid_at = Invoice.Status.VOID, None
    old.save(update_fields=["amount_paid_paise", "credited_paise", *settlement.RESTATED])
