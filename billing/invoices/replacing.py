"""Replacing an invoice whose buyer was wrong: a credit note of all that is left, and a new invoice for the same month.

Called by the staff admin, after the billing profile was corrected. What was paid is the customer's balance then, which
pays the new invoice; what was credited before, for another reason, is credited of the new one too.
"""

from datetime import datetime
from uuid import UUID

from billing.buyers import profiles
from billing.invoices import credit_notes, issuing
from billing.models import BillingSnapshot, Invoice
from billing.payments import corrections
from billing.payments.corrections import correcting
from gateway.api.errors import Conflict


def replace(*, invoice_id: UUID, reason: str, at: datetime, actor_user_id: int | None = None) -> Invoice:
    """Credit what is left of an invoice and issue its month again, with the current profile.

    Raises Conflict for one that was replaced or credited in full, or has a payment in flight.
    """
    with correcting(invoice_id, at) as invoice:
        snapshot = BillingSnapshot.objects.select_for_update(of=("self",)).get(invoices=invoice_id)
        before = invoice.credited_paise
        left = invoice.total_paise - before
        if left == 0 or Invoice.objects.filter(replaces=invoice).exists():
            raise Conflict("This invoice was replaced or credited already.")
        credit_notes.write(invoice, total_paise=left, reason=reason, at=at, actor_user_id=actor_user_id)
        profile = profiles.profile_of(snapshot.tenant)
        new = issuing.create(snapshot=snapshot, profile=profile, at=at, replaces=invoice)
        if before:
            # What was credited of the old one for another reason is the customer's still.
            credit_notes.write(
                new,
                total_paise=min(before, new.total_paise),
                reason=f"Credited of {invoice.number}, which this invoice replaces",
                at=at,
                actor_user_id=actor_user_id,
            )
        Invoice.objects.filter(pk=invoice.pk).update(status=Invoice.Status.VOID, paid_at=None)
        corrections.record(invoice, "billing.replace", actor_user_id, replaced_by=new.number, reason=reason)
    new.refresh_from_db()
    return new
