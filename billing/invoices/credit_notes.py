"""Credit notes: staff correct an issued invoice with them; the invoice itself never changes.

Called by the staff admin. Written with an audit entry in one transaction. Refused while a debit is in flight, because
the debit would collect what is no longer owed.
"""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import plan, restriction
from billing.invoices.invoice_numbers import take_number
from billing.models import CreditNote, Invoice, PaymentAttempt
from billing.money import rounded_share
from billing.payments import charging, settlement
from gateway.api.errors import Conflict, InvalidRequest
from tenants import audit


def issue(
    *, invoice_id: UUID, total_paise: int, reason: str, at: datetime, actor_user_id: int | None = None
) -> CreditNote:
    """Credit an invoice, in part or whole; `total_paise` is with GST.

    Raises InvalidRequest beyond what is not credited yet, Conflict while a payment is in flight.
    """
    charging.end_link(invoice=Invoice.objects.get(pk=invoice_id), at=at)
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        left = invoice.total_paise - invoice.credited_paise
        if not 0 < total_paise <= left:
            raise InvalidRequest.of(total_paise=f"Must be from 1 to {left} paise.")
        in_flight = PaymentAttempt.objects.filter(invoice=invoice, status__in=PaymentAttempt.IN_FLIGHT)
        if in_flight.exists():
            raise Conflict("A payment of this invoice is in flight: wait for its result.")
        taxable = _taxable_part(invoice, total_paise, everything=total_paise == left)
        number, _year = take_number(prefix=settings.BILLING_CREDIT_NOTE_PREFIX, at=at)
        note = CreditNote.objects.create(
            invoice=invoice,
            number=number,
            issued_at=at,
            reason=reason,
            taxable_paise=taxable,
            tax_paise=total_paise - taxable,
            total_paise=total_paise,
            issued_by=actor_user_id,
        )
        invoice.credited_paise += total_paise
        settlement.restate(invoice, at)
        invoice.save(update_fields=["credited_paise", *settlement.RESTATED])
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)
        audit.record(
            action="billing.credit",
            target_type="invoice",
            target_id=invoice.public_id,
            tenant_id=invoice.tenant_id,
            actor_user_id=actor_user_id,
            details={"credit_note": number, "total_paise": total_paise, "reason": reason},
        )
    return note


def _taxable_part(invoice: Invoice, total_paise: int, *, everything: bool) -> int:
    """The part without GST; the last credit takes what is left, so the credits of an invoice sum up to it exactly."""
    if everything:
        before = invoice.credit_notes.values_list("taxable_paise", flat=True)
        return invoice.subtotal_paise - sum(before)
    return rounded_share(total_paise, 100, 100 + plan.GST_PERCENT)
