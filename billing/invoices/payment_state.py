"""Whether an invoice is paid, open or overdue, in the same words on pages, on paper and in the staff admin."""

from datetime import datetime
from typing import NamedTuple

from billing.models import Invoice
from billing.pricing.periods import indian_date

OVERDUE = "overdue"
_TEXTS = {
    Invoice.Status.OPEN: "To be paid",
    Invoice.Status.PROCESSING: "Payment under way",
    Invoice.Status.FAILED: "Payment failed",
    Invoice.Status.VOID: "Cancelled",
}


class PaymentState(NamedTuple):
    """The invoice's status, or `overdue`, with its words."""

    code: str
    text: str


def of(invoice: Invoice, at: datetime) -> PaymentState:
    """Return the state at a moment. A payment under way is shown as such, after the due date too."""
    status = Invoice.Status(invoice.status)
    if status is Invoice.Status.PAID:
        return PaymentState(status, f"Paid on {indian_date(invoice.paid_at)}" if invoice.paid_at else "Paid")
    if status in {Invoice.Status.OPEN, Invoice.Status.FAILED} and invoice.pay_by <= at:
        return PaymentState(OVERDUE, f"Overdue since {indian_date(invoice.pay_by)}")
    return PaymentState(status, _TEXTS[status])
