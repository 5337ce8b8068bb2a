"""Payment links: the page of an invoice at the provider, made when somebody wants to pay, ended before a correction."""

from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction

from billing.models import Invoice, PaymentAttempt
from billing.payments import attempts, refreshing
from billing.payments.attempts import LINK_CHECK
from billing.payments.provider import ProviderRefused, ProviderUnreachable, provider
from gateway.api.errors import Conflict

log = structlog.get_logger(__name__)

Kind, Status = PaymentAttempt.Kind, PaymentAttempt.Status

LINK_LIFETIME = timedelta(hours=24)


class InvoiceNotPayable(Conflict):
    """The invoice is paid or void, or a debit is in flight."""

    code = "invoice_not_payable"
    message = "This invoice cannot be paid now."
    hint = (
        "GET /v1/billing/invoices/{invoice_id} shows its state; a debit that is in flight ends within days."
    )
    repeat = "no"


def pay_now(*, invoice: Invoice, at: datetime, return_url: str | None = None) -> PaymentAttempt:
    """The live payment link of an unpaid invoice, made when there is none.

    Raises InvoiceNotPayable (paid, void, or a debit in flight), ProviderUnreachable, ProviderRefused.
    """
    refreshing.look_at_failed(invoice.pk, at)
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
                attempt = attempts.insert(
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
        refreshing.refresh(attempt.id, at)
        attempt.refresh_from_db()
        if attempt.status == Status.FAILED and attempt.payment_url is not None:
            return pay_now(invoice=invoice, at=at, return_url=return_url)
        if attempt.payment_url is None:
            raise ProviderUnreachable
    return attempt


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
    refreshing.refresh(attempt.id, at)
