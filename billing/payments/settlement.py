"""Settlement: applies a payment's result to the attempt, its invoice and its tenant, in one transaction.

The only writer of results. Locks in the order invoice, attempt, tenant. Results only move forward, so a
repeated, late or reordered one is harmless: captured money stays captured, and a failed attempt may still be captured
(a late authorisation), never the other way round.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from billing import restriction
from billing.models import Invoice, PaymentAttempt
from billing.payments.provider import Payment

_ATTEMPT, _INVOICE = PaymentAttempt.Status, Invoice.Status


def apply_payments(*, attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Apply what the provider says of an attempt: one captured payment decides, else one still going, else failure."""
    captured = [payment for payment in payments if payment.status == "captured"]
    going = [payment for payment in payments if payment.status == "processing"]
    if captured:
        total = sum(payment.amount_paise for payment in captured)
        _captured(attempt_id, captured[0].id, total, at)
    elif going:
        note_processing(attempt_id=attempt_id, payment_id=going[-1].id, at=at)
    elif payments:
        fail(attempt_id=attempt_id, error=payments[-1].error, payment_id=payments[-1].id, at=at)


def note_processing(*, attempt_id: UUID, payment_id: str, at: datetime) -> None:
    """The provider accepted the payment; the result comes later."""
    with transaction.atomic():
        invoice, attempt = _locked(attempt_id)
        if attempt.status not in PaymentAttempt.IN_FLIGHT:
            return
        attempt.status, attempt.provider_payment_id = _ATTEMPT.PROCESSING, payment_id
        attempt.save(update_fields=["status", "provider_payment_id"])
        if attempt.kind == PaymentAttempt.Kind.AUTOPAY and invoice.status in Invoice.UNPAID:
            invoice.status = _INVOICE.PROCESSING
            invoice.save(update_fields=["status"])


def fail(
    *, attempt_id: UUID, error: Mapping[str, Any] | None, at: datetime, payment_id: str | None = None
) -> None:
    """An attempt ended without money. A failed debit makes the invoice overdue; a link that ran out does not."""
    with transaction.atomic():
        invoice, attempt = _locked(attempt_id)
        if attempt.status not in PaymentAttempt.IN_FLIGHT:
            return
        attempt.status, attempt.completed_at, attempt.error = _ATTEMPT.FAILED, at, error
        attempt.provider_payment_id = payment_id or attempt.provider_payment_id
        attempt.save(update_fields=["status", "completed_at", "error", "provider_payment_id"])
        if attempt.kind == PaymentAttempt.Kind.AUTOPAY and invoice.status in Invoice.UNPAID:
            invoice.status = _INVOICE.FAILED
            invoice.overdue_since = invoice.overdue_since or at
            invoice.save(update_fields=["status", "overdue_since"])
            restriction.refresh(tenant_id=invoice.tenant_id, at=at)


def _captured(attempt_id: UUID, payment_id: str, amount_paise: int, at: datetime) -> None:
    with transaction.atomic():
        invoice, attempt = _locked(attempt_id)
        more = amount_paise - attempt.captured_paise
        if more <= 0:
            return
        attempt.status, attempt.provider_payment_id = _ATTEMPT.CAPTURED, payment_id
        attempt.captured_paise, attempt.completed_at, attempt.error = amount_paise, at, None
        attempt.save(
            update_fields=["status", "provider_payment_id", "captured_paise", "completed_at", "error"]
        )
        invoice.amount_paid_paise += more
        close_if_settled(invoice, at)
        invoice.save(update_fields=["amount_paid_paise", "status", "paid_at"])
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)


def close_if_settled(invoice: Invoice, at: datetime) -> None:
    """Set the status of a locked invoice after money or credit came in; the caller saves `status` and `paid_at`."""
    if invoice.amount_due_paise == 0 and invoice.status in Invoice.UNPAID:
        invoice.status = _INVOICE.PAID if invoice.amount_paid_paise else _INVOICE.VOID
        invoice.paid_at = at if invoice.amount_paid_paise else None
    elif invoice.status == _INVOICE.PROCESSING:
        invoice.status = _INVOICE.FAILED if invoice.overdue_since else _INVOICE.OPEN


def _locked(attempt_id: UUID) -> tuple[Invoice, PaymentAttempt]:
    attempt = PaymentAttempt.objects.only("invoice_id").get(pk=attempt_id)
    invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=attempt.invoice_id)
    return invoice, PaymentAttempt.objects.select_for_update(of=("self",)).get(pk=attempt_id)
