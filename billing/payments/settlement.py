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
from billing.models import BalanceTransfer, Invoice, PaymentAttempt
from billing.payments.provider import Payment

_ATTEMPT, _INVOICE = PaymentAttempt.Status, Invoice.Status


def apply_payments(*, attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Apply an attempt's payments at the provider: a captured one decides, else one in progress, else the failure."""
    captured = [payment for payment in payments if payment.status == "captured"]
    processing = [payment for payment in payments if payment.status == "processing"]
    if captured:
        _collected(attempt_id, captured, at)
    elif processing:
        note_processing(attempt_id=attempt_id, payment_id=processing[-1].id, at=at)
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


def _collected(attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Count what was captured and what was refunded of it. Both only grow, so a stale answer changes nothing."""
    captured = sum(payment.amount_paise for payment in payments)
    refunded = sum(payment.refunded_paise for payment in payments)
    known = PaymentAttempt.objects.filter(captured_paise__gte=captured, refunded_paise__gte=refunded)
    # Nearly always, when the billing run looks at collected payments again: nothing is locked for that.
    if known.filter(pk=attempt_id).exists():
        return
    with transaction.atomic():
        invoice, attempt = _locked(attempt_id)
        captured = max(attempt.captured_paise, captured)
        refunded = max(attempt.refunded_paise, refunded)
        if (captured, refunded) == (attempt.captured_paise, attempt.refunded_paise):
            return
        more = captured - refunded - attempt.kept_paise
        if attempt.status != _ATTEMPT.CAPTURED:
            attempt.status, attempt.completed_at, attempt.error = _ATTEMPT.CAPTURED, at, None
            attempt.provider_payment_id = payments[0].id
        attempt.captured_paise, attempt.refunded_paise = captured, refunded
        attempt.save(
            update_fields=[
                "status",
                "provider_payment_id",
                "captured_paise",
                "refunded_paise",
                "completed_at",
                "error",
            ]
        )
        _add_paid(invoice, more, at)
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)


def _add_paid(invoice: Invoice, more: int, at: datetime) -> None:
    """Change what was paid for a locked invoice. What is refunded beyond it is missing at the invoice that replaced it,
    for which the money counted.
    """
    missing = max(0, -(invoice.amount_paid_paise + more))
    invoice.amount_paid_paise += more + missing
    restate(invoice, at)
    invoice.save(update_fields=["amount_paid_paise", *RESTATED])
    if missing:
        newer = Invoice.objects.select_for_update(of=("self",)).get(replaces=invoice)
        BalanceTransfer.objects.create(from_invoice=invoice, to_invoice=newer, amount_paise=-missing, at=at)
        _add_paid(newer, -missing, at)


RESTATED = ("status", "paid_at", "overdue_since", "reopened_at", "reminders_sent")
"""The columns that `restate` may change."""


def restate(invoice: Invoice, at: datetime) -> None:
    """Set the status of a locked invoice after its amounts changed; the caller saves RESTATED."""
    if invoice.amount_due_paise == 0:
        if invoice.status in Invoice.UNPAID:
            invoice.status = _INVOICE.PAID if invoice.amount_paid_paise else _INVOICE.VOID
            invoice.paid_at = at if invoice.amount_paid_paise else None
    elif invoice.status == _INVOICE.PAID:
        invoice.status, invoice.paid_at, invoice.reopened_at = _INVOICE.OPEN, None, at
        invoice.overdue_since, invoice.reminders_sent = None, 0
    elif invoice.status == _INVOICE.PROCESSING and not _debit_in_flight(invoice):
        invoice.status = _INVOICE.FAILED if invoice.overdue_since else _INVOICE.OPEN


def _debit_in_flight(invoice: Invoice) -> bool:
    return PaymentAttempt.objects.filter(
        invoice=invoice, kind=PaymentAttempt.Kind.AUTOPAY, status__in=PaymentAttempt.IN_FLIGHT
    ).exists()


def _locked(attempt_id: UUID) -> tuple[Invoice, PaymentAttempt]:
    attempt = PaymentAttempt.objects.only("invoice_id").get(pk=attempt_id)
    invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=attempt.invoice_id)
    return invoice, PaymentAttempt.objects.select_for_update(of=("self",)).get(pk=attempt_id)
