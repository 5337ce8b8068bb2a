"""Settlement: applies a payment's result to the attempt, its invoice and its tenant, in one transaction.

The only writer of results. Locks in the order tenant, invoice, attempt, and books what was collected or refunded.
Results only move forward, so a repeated, late or reordered one is harmless: captured money stays captured, and a failed
attempt may still be captured (a late authorisation), never the other way round.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from billing import ledger, restriction
from billing.models import Invoice, PaymentAttempt
from billing.payments.provider import Payment
from billing.pricing.plan import CURRENCY

log = structlog.get_logger(__name__)

_ATTEMPT, _INVOICE = PaymentAttempt.Status, Invoice.Status


def apply_payments(*, attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Apply an attempt's payments at the provider: a captured one decides, else one in progress, else the failure."""
    for payment in payments:
        if payment.currency != CURRENCY:
            log.error("payment_of_another_currency", payment_id=payment.id, currency=payment.currency)
    payments = [payment for payment in payments if payment.currency == CURRENCY]
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
    with ledger.locked_attempt(attempt_id) as (invoice, attempt):
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
    with ledger.locked_attempt(attempt_id) as (invoice, attempt):
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
        ledger.set_off(invoice.tenant_id, at)


def _collected(attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Count what was captured and what was refunded of it. Both only grow, so a stale answer changes nothing."""
    captured = sum(payment.amount_paise for payment in payments)
    refunded = sum(payment.refunded_paise for payment in payments)
    known = PaymentAttempt.objects.filter(captured_paise__gte=captured, refunded_paise__gte=refunded)
    # Nearly always, when the billing run looks at collected payments again: nothing is locked for that.
    if known.filter(pk=attempt_id).exists():
        return
    with ledger.locked_attempt(attempt_id) as (invoice, attempt):
        captured = max(attempt.captured_paise, captured)
        refunded = max(attempt.refunded_paise, refunded)
        if (captured, refunded) == (attempt.captured_paise, attempt.refunded_paise):
            return
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
        ledger.book_attempt(attempt, invoice, at)
        ledger.settle(invoice, at)
        ledger.set_off(invoice.tenant_id, at)
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)
