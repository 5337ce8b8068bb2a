"""Collecting invoices: debits of the mandate, payment links, and look-ups of their results at the provider.

Called by `billing_run.py` (debits, look-ups of what no notice told), by `POST …/pay` and the pay page (links), by
`notices.py` (a notice came). An attempt is committed before the provider is called, is the only one in flight
(partial unique index), and is found again by its receipt when an answer is lost: nothing is collected twice.
"""

from datetime import datetime, time, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from billing import pay_links, profiles
from billing.isolation import each
from billing.models import Invoice, Mandate, PaymentAttempt
from billing.payment_models import ATTEMPT
from billing.payments import settlement
from billing.payments.provider import (
    Link,
    Payer,
    ProviderRefused,
    ProviderRefusesService,
    ProviderUnreachable,
    provider,
)
from gateway import ids
from gateway.api.errors import Conflict
from gateway.ids import uuid7
from tenants.tenants import IST

log = structlog.get_logger(__name__)

Kind, Status, Method = PaymentAttempt.Kind, PaymentAttempt.Status, Mandate.Method

FIRST_DEBIT = time(9)
"""From when on debits are asked for, IST (NPCI's rule for AutoPay)."""
RETRY_DAYS = (3, 7)
"""Days after the first failure on which a debit is tried again; cards are not."""
RESULT_AFTER = {
    Method.UPI: timedelta(hours=30),
    Method.CARD: timedelta(hours=72),
    Method.EMANDATE: timedelta(days=5),
}
"""How long a debit may take before the provider is asked without a notice."""
LINK_LIFETIME = timedelta(hours=24)
LINK_CHECK = timedelta(hours=6)
RETRY_CHECK = timedelta(hours=1)
FAILED_CHECK = timedelta(hours=24)
LATE_FOR = timedelta(days=30)
"""How long a failed debit may still turn out to be paid (late authorisation)."""


class InvoiceNotPayable(Conflict):
    """The invoice is paid or void, or a debit is in flight."""

    code = "invoice_not_payable"
    message = "This invoice cannot be paid now."
    hint = (
        "GET /v1/billing/invoices/{invoice_id} shows its state; a debit that is in flight ends within days."
    )
    repeat = "no"


CHECK_COLLECTED = timedelta(days=7)
REFUNDABLE_FOR = timedelta(days=180)
"""How long a collected payment may be given back on the provider's dashboard, and is looked at again for it."""
COLLECTED_AT_ONCE = 200
"""How many collected payments one run looks at."""


def charge_due(at: datetime) -> int:
    """Start every debit that is due; returns how many began. Before 09:00 IST none does.

    A mandate has one debit in flight, that of its oldest invoice; the next follows when it ended. The bank announces
    each debit to the payer, and NPCI forbids a second one before the first ended.
    """
    if at.astimezone(IST).time() < FIRST_DEBIT:
        return 0
    active = list(Mandate.objects.filter(status=Mandate.Status.ACTIVE).order_by("id"))
    return each(active, lambda mandate: _debit_oldest(mandate, at), step="debits")


def _debit_oldest(mandate: Mandate, at: datetime) -> bool:
    """Start the debit of the oldest invoice that one is due for, unless the mandate has one in flight."""
    if _busy(mandate):
        return False
    unpaid = Invoice.objects.for_tenant(mandate.tenant_id).unpaid().exclude(status=Invoice.Status.PROCESSING)
    for invoice in unpaid.order_by("id"):
        if invoice.amount_due_paise > mandate.max_amount_paise or not _debit_is_due(invoice, mandate, at):
            continue
        _look_at_failed(invoice.pk, at)
        attempt_id = _begin_debit(invoice.pk, mandate, at)
        if attempt_id is not None:
            _quietly(attempt_id, at)
            return True
    return False


def _busy(mandate: Mandate) -> bool:
    return PaymentAttempt.objects.filter(mandate=mandate, status__in=PaymentAttempt.IN_FLIGHT).exists()


def _begin_debit(invoice_id: UUID, mandate: Mandate, at: datetime) -> UUID | None:
    """Insert the attempt when one is due; None when not, or when the invoice or the mandate has one in flight.

    The mandate's row is locked, so two runs cannot debit two invoices of it at once.
    """
    with transaction.atomic():
        mandate = Mandate.objects.select_for_update(of=("self",), no_key=True).get(pk=mandate.pk)
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        if mandate.status != Mandate.Status.ACTIVE or _busy(mandate):
            return None
        if invoice.status not in {Invoice.Status.OPEN, Invoice.Status.FAILED}:
            return None
        if not 0 < invoice.amount_due_paise <= mandate.max_amount_paise:
            return None
        if not _debit_is_due(invoice, mandate, at):
            return None
        invoice.retries_started = max(invoice.retries_started, _retries_due(invoice, mandate, at))
        attempt = _insert(
            invoice,
            Kind.AUTOPAY,
            at,
            provider=mandate.provider,
            mandate=mandate,
            result_after=RESULT_AFTER[Method(mandate.method)],
        )
        invoice.status = Invoice.Status.PROCESSING
        invoice.save(update_fields=["status", "retries_started"])
    return attempt.id


def _debit_is_due(invoice: Invoice, mandate: Mandate, at: datetime) -> bool:
    """Nothing in flight, and the first debit of this mandate or a retry that has not begun.

    An invoice that a refund made due again is never debited by itself: a person gave that money back.
    """
    if invoice.reopened_at is not None:
        return False
    attempts = PaymentAttempt.objects.filter(invoice=invoice)
    if attempts.filter(status__in=PaymentAttempt.IN_FLIGHT).exists():
        return False
    retry = _retries_due(invoice, mandate, at) > invoice.retries_started
    return retry or not attempts.filter(mandate=mandate).exists()


def _look_at_failed(invoice_id: UUID, at: datetime) -> None:
    """Ask again about failed debits before money is asked for anew: a bank may have paid after all."""
    failed = PaymentAttempt.objects.filter(invoice_id=invoice_id, kind=Kind.AUTOPAY, status=Status.FAILED)
    for attempt_id in list(failed.values_list("id", flat=True)):
        refresh(attempt_id, at)


def _retries_due(invoice: Invoice, mandate: Mandate, at: datetime) -> int:
    since = invoice.overdue_since
    if since is None or mandate.method == Method.CARD:
        return 0
    return sum(since + timedelta(days=days) <= at for days in RETRY_DAYS)


def _insert(
    invoice: Invoice,
    kind: str,
    at: datetime,
    *,
    provider: str,
    result_after: timedelta,
    mandate: Mandate | None = None,
    **more: str | None,
) -> PaymentAttempt:
    key = uuid7()
    return PaymentAttempt.objects.create(
        id=key,
        invoice=invoice,
        mandate=mandate,
        provider=provider,
        kind=kind,
        amount_paise=invoice.amount_due_paise,
        receipt=ids.encode(ATTEMPT, key),
        created_at=at,
        next_check_at=at + result_after,
        **more,
    )


def pay_now(*, invoice: Invoice, at: datetime, return_url: str | None = None) -> PaymentAttempt:
    """The live payment link of an unpaid invoice, made when there is none.

    Raises InvoiceNotPayable (paid, void, or a debit in flight), ProviderUnreachable, ProviderRefused.
    """
    _look_at_failed(invoice.pk, at)
    try:
        with transaction.atomic():
            invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice.pk)
            attempt = PaymentAttempt.objects.filter(
                invoice=invoice, status__in=PaymentAttempt.IN_FLIGHT
            ).first()
            if invoice.status not in Invoice.UNPAID or (attempt and attempt.kind != Kind.LINK):
                raise InvoiceNotPayable(
                    details={"status": invoice.status, "in_flight": attempt.public_id if attempt else None}
                )
            if attempt is None:
                attempt = _insert(
                    invoice,
                    Kind.LINK,
                    at,
                    provider=settings.PAYMENT_PROVIDER,
                    result_after=LINK_CHECK,
                    return_url=return_url,
                )
                attempt.expires_at = at + LINK_LIFETIME
                attempt.save(update_fields=["expires_at"])
    except IntegrityError:
        raise InvoiceNotPayable(details={"status": invoice.status, "in_flight": None}) from None
    if attempt.payment_url is None or (attempt.expires_at and attempt.expires_at <= at):
        refresh(attempt.id, at)
        attempt.refresh_from_db()
        if attempt.status == Status.FAILED and attempt.payment_url is not None:
            return pay_now(invoice=invoice, at=at, return_url=return_url)
        if attempt.payment_url is None:
            raise ProviderUnreachable
    return attempt


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
            settlement.fail(attempt_id=attempt.id, error=refusal.error, at=at)
        raise
    except ProviderRefusesService:
        PaymentAttempt.objects.filter(pk=attempt.pk, status__in=PaymentAttempt.IN_FLIGHT).update(
            next_check_at=at + RETRY_CHECK
        )
        raise
    except ProviderUnreachable:
        PaymentAttempt.objects.filter(pk=attempt.pk, status=Status.CREATED).update(
            status=Status.UNKNOWN, next_check_at=at + RETRY_CHECK
        )
        raise


def _refresh_debit(attempt: PaymentAttempt, at: datetime) -> None:
    """Order, then debit; the debit is asked for once in an attempt's life, whatever becomes of the answer."""
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
    ).update(scheduled_for=at)
    if asked_now:
        try:
            payment_id = pay.debit(
                order_id=order_id,
                payer=_payer(attempt.invoice),
                customer_id=mandate.provider_customer_id,
                token_id=mandate.provider_token_id,
                amount_paise=attempt.amount_paise,
                description=f"Invoice {attempt.invoice.number}",
            )
        except ProviderRefusesService:
            # Refused before it was looked at: nothing was asked for, so it may be asked for again.
            PaymentAttempt.objects.filter(pk=attempt.pk).update(scheduled_for=None)
            raise
        settlement.note_processing(attempt_id=attempt.id, payment_id=payment_id, at=at)
        return
    payments = pay.payments_of(order_id)
    settlement.apply_payments(attempt_id=attempt.id, payments=payments, at=at)
    waited = attempt.created_at + RESULT_AFTER[Method(mandate.method)] <= at
    if not payments and attempt.scheduled_for is not None and waited:
        error = {
            "code": "not_received",
            "reason": "not_received",
            "message": "The debit never reached the provider.",
        }
        settlement.fail(attempt_id=attempt.id, error=error, at=at)


def _refresh_link(attempt: PaymentAttempt, at: datetime) -> None:
    pay = provider(attempt.provider)
    if attempt.provider_link_id is None:
        link = _make_link(attempt)
        PaymentAttempt.objects.filter(pk=attempt.pk, provider_link_id__isnull=True).update(
            provider_link_id=link.id, payment_url=link.url
        )
        PaymentAttempt.objects.filter(pk=attempt.pk, status=Status.UNKNOWN).update(status=Status.CREATED)
    else:
        link = pay.link(attempt.provider_link_id)
    paid = [payment for payment in link.payments if payment.status == "captured"]
    if paid:
        settlement.apply_payments(attempt_id=attempt.id, payments=paid, at=at)
    elif link.status == "ended":
        error = {"code": "link_ended", "reason": "link_ended", "message": "The payment link ended unpaid."}
        settlement.fail(attempt_id=attempt.id, error=error, at=at)


def _make_link(attempt: PaymentAttempt) -> Link:
    """The attempt's link at the provider; one that an unanswered or a simultaneous call made is found again."""
    assert attempt.expires_at is not None  # noqa: S101 - a link has an end
    pay = provider(attempt.provider)
    if attempt.status == Status.UNKNOWN and (found := pay.find_link(attempt.receipt)):
        return found
    try:
        return pay.create_link(
            payer=_payer(attempt.invoice),
            amount_paise=attempt.amount_paise,
            reference=attempt.receipt,
            description=f"Invoice {attempt.invoice.number}",
            expires_at=attempt.expires_at,
            return_url=attempt.return_url or pay_links.url_of(attempt.invoice),
        )
    except ProviderRefused:
        if found := pay.find_link(attempt.receipt):
            return found
        raise


def end_link(*, invoice: Invoice, at: datetime) -> None:
    """End an invoice's live link, so that its amount may change. A payment made meanwhile is recorded."""
    attempt = PaymentAttempt.objects.filter(
        invoice=invoice, kind=Kind.LINK, status__in=PaymentAttempt.IN_FLIGHT
    ).first()
    if attempt is None:
        return
    if attempt.provider_link_id is not None:
        try:
            provider(attempt.provider).cancel_link(attempt.provider_link_id)
        except ProviderRefused:
            log.info("payment_link_not_cancelled", attempt_id=attempt.public_id)
    refresh(attempt.id, at)


def reconcile(at: datetime) -> int:
    """Ask about every attempt in flight that should have ended, daily about failed debits of unpaid invoices, and
    weekly about collected payments, of which some may have been given back. Returns how many were asked about.
    """
    failed = PaymentAttempt.objects.filter(
        status=Status.FAILED,
        kind=Kind.AUTOPAY,
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
        _quietly(attempt_id, at)
        return True

    return each(due, ask, step="looked_up")


def _due(attempts: QuerySet[PaymentAttempt], again: timedelta, at: datetime) -> list[tuple[UUID, timedelta]]:
    """The attempts whose next check is due, with when they are checked after that."""
    found = attempts.filter(next_check_at__lte=at).order_by("next_check_at").values_list("id", flat=True)
    return [(attempt_id, again) for attempt_id in found]


def _quietly(attempt_id: UUID, at: datetime) -> None:
    """Refresh one of many: a refusal is logged, it ended the attempt or will be asked about again."""
    try:
        refresh(attempt_id, at)
    except ProviderRefused as error:
        log.warning("payment_attempt_refused", attempt_id=ids.encode(ATTEMPT, attempt_id), error=error.code)


def _payer(invoice: Invoice) -> Payer:
    profile = profiles.profile_of(invoice.tenant)
    return Payer(
        name=profile.legal_name or invoice.tenant.name,
        email=profiles.email_of(invoice.tenant) or "",
        contact=profile.phone,
    )
