"""Payment attempts. Each attempt tries once to collect an invoice, and is refreshed from the provider until it ends.

An attempt is committed before the provider is called. It is the invoice's only attempt in flight (partial unique
index), and is found by its receipt when an answer is lost. So nothing is collected twice. `refresh` is called when an
attempt begins (`debits.py`, `payment_links.py`), after a notice (`provider_notices.py`), and by `billing_run.py`.

`apply_payments` is the only writer of results. In one transaction it updates the attempt, its invoice and its tenant,
and posts the amounts that were collected or refunded. It locks the rows in the order tenant, invoice, attempt. Results
only move forward, so a repeated, late or reordered result is harmless. A failed attempt may still become captured (a
late authorisation). A captured attempt never becomes failed.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Q, QuerySet

from billing import buyers, ledger, restriction
from billing.error_isolation import each
from billing.models import ATTEMPT, Invoice, Mandate, PayLink, PaymentAttempt
from billing.payments import mandates
from billing.payments.provider import (
    Link,
    NotCarriedOut,
    Payer,
    Payment,
    ProviderRefused,
    ProviderUnreachable,
    own_error,
    provider,
)
from billing.pricing.money import CURRENCY
from gateway import ids
from gateway.ids import uuid7

log = structlog.get_logger(__name__)

Kind, Status, Method = PaymentAttempt.Kind, PaymentAttempt.Status, Mandate.Method

RESULT_AFTER = {
    Mandate.Method.UPI: timedelta(hours=30),
    Mandate.Method.CARD: timedelta(hours=72),
    Mandate.Method.EMANDATE: timedelta(days=5),
}
"""How long a debit may take. After that, the result is read from the provider even without a notice."""
LINK_CHECK = timedelta(hours=6)
"""Interval at which the result of a payment link is checked."""
RESUME_AFTER = timedelta(minutes=5)
"""When to resume an attempt that was stored but not requested from the provider, because of a crash."""
RETRY_CHECK = timedelta(hours=1)
FAILED_CHECK = timedelta(hours=24)
LATE_FOR = timedelta(days=30)
"""How long a failed debit or link may still become paid (late authorisation)."""
CHECK_COLLECTED = timedelta(days=7)
REFUNDABLE_FOR = timedelta(days=180)
"""How long collected payments are rechecked, because they can be refunded on the provider's dashboard."""
COLLECTED_AT_ONCE = 200
"""The maximum number of collected payments that one run checks."""


def insert(
    invoice: Invoice, kind: str, at: datetime, *, amount_paise: int = 0, **more: Any
) -> PaymentAttempt:
    """Create an attempt to collect the amount due of an invoice, or another amount."""
    key = uuid7()
    return PaymentAttempt.objects.create(
        id=key,
        invoice=invoice,
        kind=kind,
        amount_paise=amount_paise or invoice.amount_due_paise,
        receipt=ids.encode(ATTEMPT, key),
        created_at=at,
        next_check_at=at + RESUME_AFTER,
        **more,
    )


def payer_of(invoice: Invoice) -> Payer:
    profile = buyers.profile_of(invoice.tenant)
    return Payer(
        name=profile.legal_name or invoice.tenant.name,
        email=buyers.email_of(invoice.tenant) or "",
        contact=profile.phone,
    )


def refresh(attempt_id: UUID, at: datetime) -> None:
    """Continue an attempt, or read its result from the provider. Raises ProviderUnreachable."""
    attempt = PaymentAttempt.objects.select_related("invoice__tenant", "mandate").get(pk=attempt_id)
    try:
        if attempt.kind == Kind.LINK:
            _refresh_link(attempt, at)
        elif attempt.kind == Kind.AUTOPAY:
            _refresh_debit(attempt, at)
    except ProviderRefused as refusal:
        if attempt.provider_payment_id is None:
            fail(attempt_id=attempt.id, error=refusal.error, at=at)
        _read_mandate_of_failed(attempt, at)
        raise
    except NotCarriedOut:
        PaymentAttempt.objects.filter(pk=attempt.pk, status__in=PaymentAttempt.IN_FLIGHT).update(
            next_check_at=at + RETRY_CHECK
        )
        raise
    except ProviderUnreachable:
        PaymentAttempt.objects.filter(pk=attempt.pk, status=Status.CREATED).update(
            status=Status.UNKNOWN, next_check_at=at + RETRY_CHECK
        )
        raise
    _read_mandate_of_failed(attempt, at)


def _read_mandate_of_failed(attempt: PaymentAttempt, at: datetime) -> None:
    """Read the mandate of a debit that has just failed. The reason may be that the mandate has ended."""
    if attempt.mandate_id is None or attempt.status not in PaymentAttempt.IN_FLIGHT:
        return
    if PaymentAttempt.objects.filter(pk=attempt.pk, status=Status.FAILED).exists():
        mandates.sync_after_failure(attempt.mandate_id, at)


def refresh_quietly(attempt_id: UUID, at: datetime) -> None:
    """Refresh one of many attempts. A refusal is only logged, because the attempt has ended or will be
    checked again.
    """
    try:
        refresh(attempt_id, at)
    except ProviderRefused as error:
        log.warning("payment_attempt_refused", attempt_id=ids.encode(ATTEMPT, attempt_id), error=error.code)


def recheck_failed(invoice_id: UUID, at: datetime) -> None:
    """Check failed debits before money is requested again, because a bank may have paid late."""
    failed = PaymentAttempt.objects.filter(invoice_id=invoice_id, kind=Kind.AUTOPAY, status=Status.FAILED)
    for attempt_id in list(failed.values_list("id", flat=True)):
        refresh(attempt_id, at)


def reconcile(at: datetime) -> int:
    """Check attempts in flight that should have ended. Also check the failed debits and links of unpaid invoices daily.
    Check collected payments weekly, because they may have been refunded. Returns the number of checked attempts.
    """
    failed = PaymentAttempt.objects.filter(
        Q(kind=Kind.AUTOPAY) | Q(kind=Kind.LINK, provider_link_id__isnull=False),
        status=Status.FAILED,
        invoice__status__in=Invoice.UNPAID,
        created_at__gt=at - LATE_FOR,
    )
    collected = PaymentAttempt.objects.filter(
        status=Status.CAPTURED, kind__in=[Kind.AUTOPAY, Kind.LINK], created_at__gt=at - REFUNDABLE_FOR
    )
    in_flight = PaymentAttempt.objects.filter(status__in=PaymentAttempt.IN_FLIGHT)
    due = [
        *_due(in_flight.exclude(kind=Kind.LINK), RETRY_CHECK, at),
        *_due(in_flight.filter(kind=Kind.LINK), LINK_CHECK, at),
        *_due(failed, FAILED_CHECK, at),
        *_due(collected, CHECK_COLLECTED, at)[:COLLECTED_AT_ONCE],
    ]

    def ask(attempt: tuple[UUID, timedelta]) -> bool:
        attempt_id, again = attempt
        PaymentAttempt.objects.filter(pk=attempt_id).update(next_check_at=at + again)
        refresh_quietly(attempt_id, at)
        return True

    return each(due, ask, step="looked_up")


def _due(attempts: QuerySet[PaymentAttempt], again: timedelta, at: datetime) -> list[tuple[UUID, timedelta]]:
    """Attempts whose next check is due, each with `again`, the time until the check after that."""
    found = attempts.filter(next_check_at__lte=at).order_by("next_check_at").values_list("id", flat=True)
    return [(attempt_id, again) for attempt_id in found]


def _refresh_debit(attempt: PaymentAttempt, at: datetime) -> None:
    """Create the order, then the debit. An attempt requests its debit at most once, even when the answer is lost."""
    mandate, pay = attempt.mandate, provider(attempt.provider)
    assert mandate is not None and mandate.provider_token_id and mandate.provider_customer_id  # noqa: S101, PT018 - an autopay attempt has an active mandate
    order_id = attempt.provider_order_id
    if order_id is None and attempt.status not in PaymentAttempt.IN_FLIGHT:
        return
    if order_id is None:
        order_id = pay.find_order(attempt.receipt) or pay.create_order(
            receipt=attempt.receipt,
            amount_paise=attempt.amount_paise,
            invoice_number=attempt.invoice.number,
        )
        PaymentAttempt.objects.filter(pk=attempt.pk, provider_order_id__isnull=True).update(
            provider_order_id=order_id
        )
        order_id = PaymentAttempt.objects.values_list("provider_order_id", flat=True).get(pk=attempt.pk)
        assert order_id is not None  # noqa: S101 - stored above
    asked_now = PaymentAttempt.objects.filter(
        pk=attempt.pk, scheduled_for__isnull=True, status__in=PaymentAttempt.IN_FLIGHT
    ).update(scheduled_for=at, next_check_at=at + RESULT_AFTER[Method(mandate.method)])
    if asked_now:
        try:
            payment_id = pay.debit(
                order_id=order_id,
                payer=payer_of(attempt.invoice),
                customer_id=mandate.provider_customer_id,
                token_id=mandate.provider_token_id,
                amount_paise=attempt.amount_paise,
                description=f"Invoice {attempt.invoice.number}",
            )
        except NotCarriedOut:
            # No debit was requested, so it may be requested again.
            PaymentAttempt.objects.filter(pk=attempt.pk).update(scheduled_for=None)
            raise
        record_processing(attempt_id=attempt.id, payment_id=payment_id, at=at)
        return
    payments = pay.payments_of(order_id)
    apply_payments(attempt_id=attempt.id, payments=payments, at=at)
    waited = attempt.created_at + RESULT_AFTER[Method(mandate.method)] <= at
    if not payments and attempt.scheduled_for is not None and waited:
        error = own_error("not_received", "The debit never reached the provider.")
        fail(attempt_id=attempt.id, error=error, at=at)


def _refresh_link(attempt: PaymentAttempt, at: datetime) -> None:
    pay = provider(attempt.provider)
    if attempt.provider_link_id is None:
        link = _make_link(attempt)
        PaymentAttempt.objects.filter(pk=attempt.pk, provider_link_id__isnull=True).update(
            provider_link_id=link.id, payment_url=link.url, next_check_at=at + LINK_CHECK
        )
        PaymentAttempt.objects.filter(pk=attempt.pk, status=Status.UNKNOWN).update(status=Status.CREATED)
    else:
        link = pay.link(attempt.provider_link_id)
    if link.order_id:
        unnamed = PaymentAttempt.objects.filter(pk=attempt.pk, provider_order_id__isnull=True)
        unnamed.update(provider_order_id=link.order_id)
    paid = [payment for payment in link.payments if payment.status == "captured"]
    begun = [payment for payment in link.payments if payment.status == "processing"]
    if paid:
        apply_payments(attempt_id=attempt.id, payments=paid, at=at)
    elif link.status != "ended":
        return
    elif begun and at < attempt.created_at + RESULT_AFTER[Method.UPI]:
        # It may still be captured. An abandoned payment never ends.
        record_processing(attempt_id=attempt.id, payment_id=begun[-1].id, at=at)
    else:
        error = own_error("link_ended", "The payment link ended unpaid.")
        fail(attempt_id=attempt.id, error=error, at=at)


def _make_link(attempt: PaymentAttempt) -> Link:
    """The attempt's link at the provider. Finds a link that an unanswered or simultaneous call created."""
    assert attempt.expires_at is not None  # noqa: S101 - a link has an end
    pay = provider(attempt.provider)
    if attempt.status == Status.UNKNOWN and (found := pay.find_link(attempt.receipt)):
        return found
    try:
        return pay.create_link(
            payer=payer_of(attempt.invoice),
            amount_paise=attempt.amount_paise,
            reference=attempt.receipt,
            description="All open invoices" if attempt.pays_all else f"Invoice {attempt.invoice.number}",
            expires_at=attempt.expires_at,
            return_url=attempt.return_url or f"{PayLink.url_of(attempt.invoice)}/returned",
        )
    except ProviderRefused:
        if found := pay.find_link(attempt.receipt):
            return found
        raise


log = structlog.get_logger(__name__)

_ATTEMPT, _INVOICE = PaymentAttempt.Status, Invoice.Status


def apply_payments(*, attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Apply an attempt's payments at the provider. Captured payments take precedence, then a payment in progress, then
    the failure.
    """
    for payment in payments:
        if payment.currency != CURRENCY:
            log.error("payment_of_another_currency", payment_id=payment.id, currency=payment.currency)
    payments = [payment for payment in payments if payment.currency == CURRENCY]
    captured = [payment for payment in payments if payment.status == "captured"]
    processing = [payment for payment in payments if payment.status == "processing"]
    if captured:
        _collected(attempt_id, captured, at)
    elif processing:
        record_processing(attempt_id=attempt_id, payment_id=processing[-1].id, at=at)
    elif payments:
        fail(attempt_id=attempt_id, error=payments[-1].error, payment_id=payments[-1].id, at=at)


def record_processing(*, attempt_id: UUID, payment_id: str, at: datetime) -> None:
    """Store that the provider accepted the payment. The result comes later."""
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
    """End an attempt that collected nothing. A failed debit makes the invoice overdue. An expired link does not."""
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
        restriction.use_balance(invoice.tenant_id, at)


def _collected(attempt_id: UUID, payments: list[Payment], at: datetime) -> None:
    """Store the captured and refunded amounts. Both only grow, so a stale answer changes nothing."""
    captured = sum(payment.amount_paise for payment in payments)
    refunded = sum(payment.refunded_paise for payment in payments)
    known = PaymentAttempt.objects.filter(captured_paise__gte=captured, refunded_paise__gte=refunded)
    # Usually the billing run finds a collected payment unchanged. So this case must not lock anything.
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
        restriction.use_balance(invoice.tenant_id, at)
