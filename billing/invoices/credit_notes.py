"""Credit notes: staff correct an issued invoice with them. The invoice itself never changes.

Called by the staff admin. One transaction writes the note and an audit entry. A note is rejected while a debit is in
flight, because the debit would collect an amount that is no longer owed.
"""

from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Sum

from billing import einvoices, ledger
from billing.models import CreditNote, CreditNoteLine, Invoice
from billing.payments import bank_transfers, corrections
from billing.payments.corrections import correcting
from billing.pricing import gst
from billing.pricing.money import rupees
from gateway.api.errors import Conflict, InvalidRequest
from gateway.clock import IST


def issue(
    *, invoice_id: UUID, total_paise: int, reason: str, at: datetime, actor_user_id: int | None = None
) -> CreditNote:
    """Credit an invoice in part or in full. `total_paise` includes GST.

    Raises InvalidRequest when less than this amount is left to credit, and Conflict while a payment is in flight.
    """
    with correcting(invoice_id, at) as invoice:
        return write(invoice, total_paise=total_paise, reason=reason, at=at, actor_user_id=actor_user_id)


def cancel(
    *,
    invoice_id: UUID,
    reason: str,
    at: datetime,
    cancelled_at: datetime | None = None,
    actor_user_id: int | None = None,
) -> CreditNote:
    """Credit an invoice in full after staff cancelled its registration at the portal, at the latest at `cancelled_at`
    (default `at`).

    The portal allows a cancellation for a day. GSTR-1 then has both documents only in table 13, and the credit note is
    not registered.

    Raises Conflict for an invoice that is not registered or was registered more than a day ago. Raises the errors of
    `issue`.
    """
    cancelled_at = cancelled_at or at
    with correcting(invoice_id, at) as invoice:
        if not einvoices.is_cancellable(invoice, cancelled_at) or invoice.credited_paise:
            raise Conflict(
                "Only a registration of the last 24 hours, with nothing credited, can be cancelled."
            )
        Invoice.objects.filter(pk=invoice_id).update(irn_cancelled_at=cancelled_at)
        return write(
            invoice, total_paise=invoice.total_paise, reason=reason, at=at, actor_user_id=actor_user_id
        )


def write(
    invoice: Invoice, *, total_paise: int, reason: str, at: datetime, actor_user_id: int | None
) -> CreditNote:
    """Write a credit note for a locked invoice and post it, within `correcting`. Raises InvalidRequest like `issue`."""
    left = invoice.total_paise - invoice.credited_paise
    if not 0 < total_paise <= left:
        raise InvalidRequest.of(amount=f"Must be from ₹0.01 to {rupees(left)}, which is not credited yet.")
    credited = invoice.credit_notes.aggregate(taxable=Sum("taxable_paise"), tax=Sum("tax_paise"))
    tax_paise = gst.credited_tax(
        total_paise=total_paise,
        taxable_left=invoice.subtotal_paise - (credited["taxable"] or 0),
        taxes_left=invoice.taxes.total_paise - (credited["tax"] or 0),
        intra_state=bool(invoice.cgst_paise),
        percent=invoice.gst_percent,
    )
    if at >= _last_credit(invoice.issued_at):
        tax_paise, reason = 0, f"{reason[:400]}. {CreditNote.WITHOUT_TAX}"
    number, _year, issued_at = ledger.take_number(
        model=CreditNote, prefix=settings.BILLING_CREDIT_NOTE_PREFIX, at=at
    )
    note = CreditNote.objects.create(
        invoice=invoice,
        number=number,
        issued_at=issued_at,
        reason=reason,
        taxable_paise=total_paise - tax_paise,
        tax_paise=tax_paise,
        total_paise=total_paise,
        issued_by=actor_user_id,
    )
    CreditNoteLine.objects.bulk_create(_lines(invoice, note))
    invoice.credited_paise += total_paise
    ledger.book_credit(note, invoice)
    bank_transfers.lower_tds(invoice, note.taxable_paise, at)
    ledger.settle(invoice, at)
    details = {"credit_note": number, "total_paise": total_paise, "reason": reason}
    corrections.record(invoice, "billing.credit", actor_user_id, **details)
    return note


def _lines(invoice: Invoice, note: CreditNote) -> list[CreditNoteLine]:
    """The lines of a credit note: the invoice's lines if the note credits the whole invoice, else one line."""
    lines = list(invoice.lines.all())
    rows = [("Part of the monthly price", lines[0].sac, note.taxable_paise)]
    if note.taxable_paise == invoice.subtotal_paise:
        rows = [(line.description, line.sac, line.amount_paise) for line in lines]
    return [
        CreditNoteLine(credit_note=note, description=description, sac=sac, amount_paise=paise)
        for description, sac, paise in rows
    ]


def _last_credit(issued_at: datetime) -> datetime:
    """The first moment at which a credit note can no longer lower the tax of an invoice: after the 30 November that
    follows its financial year (CGST Act section 34(2)).
    """
    local = issued_at.astimezone(IST)
    return datetime(local.year + (local.month >= 4), 12, 1, tzinfo=IST).astimezone(UTC)
