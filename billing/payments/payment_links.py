"""Payment links: pages of the provider for an invoice. A link is created when a payer asks for it, and ended before a
correction.
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from billing.models import Invoice, PaymentAttempt
from billing.payments import attempts
from billing.payments.provider import (
    ProviderRefused,
    ProviderUnreachable,
    provider,
    require_pages_left,
)
from billing.pricing.money import SMALLEST_PAISE
from gateway.api.errors import Conflict

log = structlog.get_logger(__name__)

Kind, Status, _LIVE = PaymentAttempt.Kind, PaymentAttempt.Status, PaymentAttempt.IN_FLIGHT

LINK_LIFETIME = timedelta(hours=24)


class InvoiceNotPayable(Conflict):
    """The invoice is paid or void, or a debit or another payment is in flight."""

    code = "invoice_not_payable"
    message = "This invoice cannot be paid now."
    hint = (
        "GET /v1/billing/invoices/{invoice_id} shows its state; a payment that is in flight ends within days."
    )
    repeat = "no"


def pay_now(*, invoice: Invoice, at: datetime, return_url: str | None = None) -> PaymentAttempt:
    """The live payment link of an unpaid invoice, created if there is none. Ends a link that pays all due invoices.

    Raises InvoiceNotPayable (paid, void, or a payment in flight), RateLimited after `PAGES_A_DAY` links of the invoice,
    ProviderUnreachable, ProviderRefused.
    """
    live = _live_link(invoice)
    if live is None or live.pays_all:
        _require_link_left(invoice, at)
    _end(PaymentAttempt.objects.filter(pays_all=True, invoice__tenant_id=invoice.tenant_id), at)
    attempts.recheck_failed(invoice.pk, at)
    return _link(invoice, at, return_url)


def payable(tenant_id: UUID) -> list[Invoice]:
    """Invoices that a tenant can pay now, oldest first: those without a debit in flight."""
    unpaid = Invoice.objects.for_tenant(tenant_id).owing().exclude(status=Invoice.Status.PROCESSING)
    return list(unpaid.order_by("issued_at", "id"))


def pay_all(*, tenant_id: UUID, at: datetime) -> PaymentAttempt:
    """The live payment link for all invoices that a tenant can pay now. Its attempt belongs to the oldest invoice. The
    excess becomes the tenant's balance, which pays the other invoices.

    Raises Conflict when nothing is due, and the errors of `pay_now`.
    """
    for invoice in payable(tenant_id):
        attempts.recheck_failed(invoice.pk, at)
    oldest, total = _all_due(tenant_id)
    live = PaymentAttempt.objects.filter(status__in=_LIVE, invoice=oldest, pays_all=True)
    if not live.filter(amount_paise=total).exists():
        _require_link_left(oldest, at)
        for invoice in payable(tenant_id):
            end_link(invoice=invoice, at=at)
        # A link may have been paid before it ended.
        oldest, total = _all_due(tenant_id)
    return _link(oldest, at, None, total)


def _all_due(tenant_id: UUID) -> tuple[Invoice, int]:
    """The oldest invoice that a tenant can pay now, and the amount due of all these invoices. Raises Conflict if there
    is none.
    """
    if not (due := payable(tenant_id)):
        raise Conflict("Nothing is due.")
    return due[0], sum(invoice.amount_due_paise for invoice in due)


def _require_link_left(invoice: Invoice, at: datetime) -> None:
    """Raise RateLimited if the invoice got `PAGES_A_DAY` links in the last 24 hours. Call this before another link is
    ended. Otherwise a tenant at the limit would have no link to pay with.
    """
    made = PaymentAttempt.objects.filter(invoice=invoice, payment_url__isnull=False)
    require_pages_left(made, at, "payments of an invoice")


def _live_link(invoice: Invoice) -> PaymentAttempt | None:
    """The attempt in flight of an invoice, which is a link. Raises InvoiceNotPayable for an invoice that cannot be paid
    by link now.
    """
    attempt = PaymentAttempt.objects.filter(invoice=invoice, status__in=_LIVE).first()
    payable = invoice.status in Invoice.UNPAID and invoice.amount_due_paise >= SMALLEST_PAISE
    if not payable or (attempt and attempt.kind != Kind.LINK):
        raise InvoiceNotPayable(
            details={"status": invoice.status, "in_flight": attempt.public_id if attempt else None}
        )
    return attempt


def _link(invoice: Invoice, at: datetime, return_url: str | None, of_all: int = 0) -> PaymentAttempt:
    try:
        with transaction.atomic():
            invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice.pk)
            attempt = _live_link(invoice)
            if begun := _begun_elsewhere(invoice, of_all).first():
                raise InvoiceNotPayable(details={"status": invoice.status, "in_flight": begun.public_id})
            if attempt is None:
                _require_link_left(invoice, at)
                attempt = attempts.insert(
                    invoice,
                    Kind.LINK,
                    at,
                    provider=settings.PAYMENT_PROVIDER,
                    return_url=return_url,
                    amount_paise=of_all,
                    pays_all=bool(of_all),
                    expires_at=at + LINK_LIFETIME,
                )
    except IntegrityError:
        raise InvoiceNotPayable(details={"status": invoice.status, "in_flight": None}) from None
    is_over = attempt.status == Status.PROCESSING or (attempt.expires_at and attempt.expires_at <= at)
    if attempt.payment_url is None or is_over:
        attempts.refresh(attempt.id, at)
        attempt.refresh_from_db()
        if attempt.status == Status.FAILED and attempt.payment_url is not None:
            return _link(invoice, at, return_url, of_all)
        if attempt.status == Status.PROCESSING:
            raise InvoiceNotPayable(details={"status": invoice.status, "in_flight": attempt.public_id})
        if attempt.payment_url is None:
            raise ProviderUnreachable
    return attempt


def _begun_elsewhere(invoice: Invoice, of_all: int) -> QuerySet[PaymentAttempt]:
    """Links of other invoices that ended during a payment, which may still pay this invoice, or with `of_all` one of
    the invoices that a tenant can pay now.
    """
    covers = Q(pays_all=True) | Q(invoice__status__in=Invoice.UNPAID) if of_all else Q(pays_all=True)
    begun = PaymentAttempt.objects.filter(
        covers, kind=Kind.LINK, status=Status.PROCESSING, invoice__tenant_id=invoice.tenant_id
    )
    return begun.exclude(invoice=invoice)


def in_flight(invoice: Invoice) -> QuerySet[PaymentAttempt]:
    """The attempts in flight that may pay an invoice: its own, and one for all invoices of its tenant."""
    of_all = Q(pays_all=True, invoice__tenant_id=invoice.tenant_id)
    return PaymentAttempt.objects.filter(Q(invoice=invoice) | of_all, status__in=_LIVE)


def end_link(*, invoice: Invoice, at: datetime) -> None:
    """End the live link of an invoice and the tenant's link for all invoices, so that the invoice's amount may change.
    Records a payment that was made before the link ended.
    """
    _end(in_flight(invoice), at)


def _end(attempts_of: QuerySet[PaymentAttempt], at: datetime) -> None:
    for attempt in attempts_of.filter(kind=Kind.LINK, status__in=_LIVE):
        if attempt.provider_link_id is not None:
            try:
                provider(attempt.provider).cancel_link(attempt.provider_link_id)
            except ProviderRefused:
                log.info("payment_link_not_cancelled", attempt_id=attempt.public_id)
        attempts.refresh(attempt.id, at)
