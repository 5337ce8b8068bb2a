"""Debits of autopay mandates. The billing run starts due debits, one at a time for each mandate."""

from datetime import UTC, datetime, time, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Min, Q

from billing.error_isolation import each
from billing.models import Invoice, Mandate, PaymentAttempt
from billing.payments import attempts
from billing.pricing.money import SMALLEST_PAISE
from gateway.clock import IST

Kind, Method = PaymentAttempt.Kind, Mandate.Method

FIRST_DEBIT = time(9)
"""Earliest time of a debit request, IST (NPCI's rule for AutoPay)."""
RETRY_DAYS = (3, 7)
"""Days after the first failure on which a mandate's debit is retried. Cards are not retried."""
_AT_THE_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def charge_due(at: datetime) -> int:
    """Start every due debit. Returns how many were started. Before 09:00 IST no debit is started.

    A mandate has at most one debit in flight, for its oldest invoice. The bank announces each debit to the payer, and
    NPCI forbids a second debit until the first has ended.
    """
    if at.astimezone(IST).time() < FIRST_DEBIT:
        return 0
    active = Mandate.objects.filter(status=Mandate.Status.ACTIVE).order_by("id")
    return each(list(active), lambda mandate: _debit_oldest(mandate, at), step="debits")


def is_debited(invoice: Invoice, mandate: Mandate) -> bool:
    """Whether a debit of an invoice is in flight, or will be started by its tenant's active mandate."""
    if invoice.status == Invoice.Status.PROCESSING:
        return True
    if not 0 < invoice.amount_due_paise <= mandate.max_amount_paise:
        return False
    return _debit_is_due(invoice, mandate, _AT_THE_END_OF_TIME)


def _debit_oldest(mandate: Mandate, at: datetime) -> bool:
    """Start the debit of the oldest invoice with a due debit, unless the mandate has a debit in flight."""
    if _busy(mandate):
        return False
    unpaid = Invoice.objects.for_tenant(mandate.tenant_id).unpaid().exclude(status=Invoice.Status.PROCESSING)
    for invoice in unpaid.order_by("id"):
        if invoice.amount_due_paise > mandate.max_amount_paise or not _debit_is_due(invoice, mandate, at):
            continue
        attempts.recheck_failed(invoice.pk, at)
        attempt_id = _begin_debit(invoice.pk, mandate, at)
        if attempt_id is not None:
            attempts.refresh_quietly(attempt_id, at)
            return True
    return False


def _busy(mandate: Mandate) -> bool:
    in_flight = PaymentAttempt.objects.filter(status__in=PaymentAttempt.IN_FLIGHT)
    of_everything = Q(pays_all=True, invoice__tenant_id=mandate.tenant_id)
    return in_flight.filter(Q(mandate=mandate) | of_everything).exists()


def _begin_debit(invoice_id: UUID, mandate: Mandate, at: datetime) -> UUID | None:
    """Create the attempt of a due debit. None when no debit is due, or when the invoice or the mandate has an attempt
    in flight.

    Locks the mandate's row, so two runs cannot start two debits of one mandate.
    """
    with transaction.atomic():
        mandate = Mandate.objects.select_for_update(of=("self",), no_key=True).get(pk=mandate.pk)
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        if mandate.status != Mandate.Status.ACTIVE or _busy(mandate):
            return None
        if invoice.status not in {Invoice.Status.OPEN, Invoice.Status.FAILED}:
            return None
        if not SMALLEST_PAISE <= invoice.amount_due_paise <= mandate.max_amount_paise:
            return None
        if not _debit_is_due(invoice, mandate, at):
            return None
        invoice.retries_started = _retries_due(invoice, mandate, at)
        attempt = attempts.insert(invoice, Kind.AUTOPAY, at, provider=mandate.provider, mandate=mandate)
        invoice.status = Invoice.Status.PROCESSING
        invoice.save(update_fields=["status", "retries_started"])
    return attempt.id


def _debit_is_due(invoice: Invoice, mandate: Mandate, at: datetime) -> bool:
    """Whether an invoice has nothing in flight, and its first debit by this mandate or its next retry is due.

    An invoice that a refund reopened is never debited automatically, because staff refunded that money on purpose.
    """
    if invoice.reopened_at is not None:
        return False
    begun = PaymentAttempt.objects.filter(invoice=invoice)
    if begun.filter(status__in=PaymentAttempt.IN_FLIGHT).exists():
        return False
    retry = _retries_due(invoice, mandate, at) > invoice.retries_started
    return retry or not begun.filter(mandate=mandate).exists()


def _retries_due(invoice: Invoice, mandate: Mandate, at: datetime) -> int:
    """How many retries by this mandate are due, counted from its first failed debit of the invoice."""
    if mandate.method == Method.CARD:
        return 0
    failed = PaymentAttempt.objects.filter(
        invoice=invoice, mandate=mandate, status=PaymentAttempt.Status.FAILED
    )
    since = failed.aggregate(first=Min("completed_at"))["first"]
    return sum(since + timedelta(days=days) <= at for days in RETRY_DAYS) if since else 0
