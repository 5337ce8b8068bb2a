"""Refunds: staff pay a tenant's balance back through the payment that created it, with an audit entry.

A refund is committed before the provider is called. It is the attempt's only refund in flight, and is found by its
receipt when an answer is lost. So nothing is refunded twice. The invoice's amounts are derived from the processed
refunds at the provider (`attempts.py`), which include refunds on the provider's dashboard.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db import Error, IntegrityError, transaction

from billing import ledger, restriction
from billing.error_isolation import each
from billing.models import REFUND, PaymentAttempt, Refund
from billing.payments import attempts, corrections
from billing.payments.provider import (
    NotCarriedOut,
    ProviderRefused,
    ProviderUnreachable,
    RefundState,
    own_error,
    provider,
)
from billing.pricing.money import SMALLEST_PAISE, rupees
from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest
from gateway.ids import uuid7

log = structlog.get_logger(__name__)

Status = Refund.Status

RETRY_CHECK = timedelta(hours=1)
GIVEN_UP_AFTER = timedelta(hours=24)
"""How long the provider may still process a refund that it does not know yet."""


def pay_back(
    *, attempt_id: UUID, amount_paise: int, at: datetime, actor_user_id: int | None = None
) -> Refund:
    """Refund the tenant's balance from a captured attempt, in part or in full.

    Raises InvalidRequest for more than the balance or the amount that the attempt collected. Raises Conflict for an
    attempt that was not made at the provider or has a refund in flight. When the provider does not answer, or an error
    follows its answer, the refund stays in flight and the billing run checks it again.
    """
    with ledger.locked_attempt(attempt_id) as (invoice, attempt):
        if (
            attempt.kind not in {PaymentAttempt.Kind.AUTOPAY, PaymentAttempt.Kind.LINK}
            or not attempt.captured_paise
        ):
            raise Conflict("Only a payment that the provider collected can be paid back through it.")
        most = min(ledger.available_paise(invoice.tenant_id), attempt.kept_paise)
        if not SMALLEST_PAISE <= amount_paise <= most:
            raise InvalidRequest.of(
                amount=f"From {rupees(SMALLEST_PAISE)} to {rupees(max(0, most))} can be paid back."
            )
        refund = _insert(attempt, amount_paise, at, actor_user_id)
        paid = {"refund": refund.public_id, "attempt": attempt.public_id, "amount_paise": amount_paise}
        corrections.record(invoice, "billing.refund", actor_user_id, **paid)
    # The stored refund may be paid from now on. So no error may look to the caller as if nothing was done.
    try:
        refresh(refund.id, at)
    except ProviderUnreachable as error:
        log.warning("refund_waits", refund_id=refund.public_id, error=error.code)
    except Exception:
        log.exception("refund_waits", refund_id=refund.public_id)
    with suppress(Error):
        refund.refresh_from_db()
    return refund


def _insert(attempt: PaymentAttempt, amount_paise: int, at: datetime, actor_user_id: int | None) -> Refund:
    key = uuid7()
    try:
        with transaction.atomic():
            return Refund.objects.create(
                id=key,
                attempt=attempt,
                amount_paise=amount_paise,
                receipt=ids.encode(REFUND, key),
                created_at=at,
                next_check_at=at + RETRY_CHECK,
                requested_by=actor_user_id,
            )
    except IntegrityError:
        raise Conflict("A refund of this payment is in flight: wait for its result.") from None


def refresh(refund_id: UUID, at: datetime) -> None:
    """Request a refund, or read its result from the provider. Raises ProviderUnreachable."""
    refund = Refund.objects.select_related("attempt__invoice__tenant").get(pk=refund_id)
    payment_id = refund.attempt.provider_payment_id
    assert payment_id is not None  # noqa: S101 - the attempt was captured
    try:
        state = _ask(refund, payment_id)
    except ProviderRefused as refusal:
        _end(refund, Status.FAILED, at, error=refusal.error)
        return
    if state is None:
        if refund.created_at + GIVEN_UP_AFTER > at:
            raise ProviderUnreachable
        _end(refund, Status.FAILED, at, error=own_error("not_received", "It never arrived."))
        return
    Refund.objects.filter(pk=refund_id, status__in=Refund.IN_FLIGHT).update(
        provider_refund_id=state.id, status=Status.PROCESSING
    )
    # The ledger is updated before the refund ends, so the refunded amount is never available for a second refund.
    attempts.refresh(refund.attempt_id, at)
    if state.status != "processing":
        _end(refund, Status(state.status), at)


def _ask(refund: Refund, payment_id: str) -> RefundState | None:
    """The refund at the provider. None while the provider does not know it.

    Only the process that changes the status from `created` to `unknown` requests the refund.
    """
    pay = provider(refund.attempt.provider)
    known = [state for state in pay.refunds_of(payment_id) if state.receipt == refund.receipt]
    if known:
        return known[0]
    claimed = Refund.objects.filter(pk=refund.pk, status=Status.CREATED).update(status=Status.UNKNOWN)
    if not claimed:
        return None
    try:
        return pay.refund(payment_id=payment_id, amount_paise=refund.amount_paise, receipt=refund.receipt)
    except NotCarriedOut:
        Refund.objects.filter(pk=refund.pk, status=Status.UNKNOWN).update(status=Status.CREATED)
        raise


def _end(refund: Refund, status: Status, at: datetime, *, error: object = None) -> None:
    """End a refund. The part of the balance that was not paid back pays unpaid invoices again."""
    tenant_id = refund.attempt.invoice.tenant_id
    with ledger.account(tenant_id):
        Refund.objects.filter(pk=refund.pk, status__in=Refund.IN_FLIGHT).update(
            status=status, completed_at=at, error=error
        )
        restriction.use_balance(tenant_id, at)


def reconcile(at: datetime) -> int:
    """Check every refund in flight whose next check is due. Returns how many were checked."""
    due = list(
        Refund.objects.filter(status__in=Refund.IN_FLIGHT, next_check_at__lte=at).values_list("id", flat=True)
    )

    def ask(refund_id: UUID) -> bool:
        Refund.objects.filter(pk=refund_id).update(next_check_at=at + RETRY_CHECK)
        refresh(refund_id, at)
        return True

    return each(due, ask, step="refunds")
