"""Bank transfers and tax deducted at source: what staff record by hand, with an audit entry."""

from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from billing import restriction
from billing.models import BankTransfer, Invoice, PaymentAttempt
from billing.payment_models import ATTEMPT
from billing.payments import payment_links, settlement
from billing.pricing.money import rounded_share, rupees
from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest
from gateway.ids import uuid7
from tenants import audit

TDS_PERCENT = 10
"""The rate of section 194J of the Income-tax Act."""


def record(
    *, invoice_id: UUID, amount_paise: int, reference: str, at: datetime, actor_user_id: int | None = None
) -> PaymentAttempt:
    """Record a payment of an invoice, whole or in part; `reference` is the bank's (UTR), unique per tenant.

    Raises InvalidRequest for more than is due and for a reference that was recorded before, Conflict while another
    payment is in flight.
    """
    reference = " ".join(reference.split()).upper()
    payment_links.end_link(invoice=Invoice.objects.get(pk=invoice_id), at=at)
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        if not 0 < amount_paise <= invoice.amount_due_paise:
            raise InvalidRequest.of(
                amount=f"Must be from ₹0.01 to {rupees(invoice.amount_due_paise)}, which is due."
            )
        if PaymentAttempt.objects.filter(invoice=invoice, status__in=PaymentAttempt.IN_FLIGHT).exists():
            raise Conflict("A payment of this invoice is in flight: wait for its result.")
        attempt = _insert(invoice, amount_paise, reference, at)
        _record(attempt, "billing.payment", actor_user_id, {"reference": reference})
    return attempt


def record_tds(
    *, invoice_id: UUID, amount_paise: int, certificate: str, at: datetime, actor_user_id: int | None = None
) -> PaymentAttempt:
    """Record the tax that a buyer deducted at source, with the number of its certificate (Income-tax Act, Form 16A).

    It counts as paid, once per invoice and at most 10 % of the taxable value. Raises InvalidRequest and Conflict.
    """
    payment_links.end_link(invoice=Invoice.objects.get(pk=invoice_id), at=at)
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        most = min(invoice.amount_due_paise, rounded_share(invoice.subtotal_paise, TDS_PERCENT, 100))
        if not 0 < amount_paise <= most:
            raise InvalidRequest.of(
                amount=f"At most {rupees(most)}: {TDS_PERCENT} % of the taxable value, and what is due."
            )
        attempts = PaymentAttempt.objects.filter(invoice=invoice)
        if attempts.filter(status__in=PaymentAttempt.IN_FLIGHT).exists():
            raise Conflict("A payment of this invoice is in flight: wait for its result.")
        if attempts.filter(kind=PaymentAttempt.Kind.TDS).exists():
            raise Conflict("Tax deducted at source was recorded for this invoice already.")
        attempt = _captured(invoice, PaymentAttempt.Kind.TDS, amount_paise, certificate.strip().upper(), at)
        _record(attempt, "billing.tds", actor_user_id, {"certificate": certificate})
    return attempt


def _record(attempt: PaymentAttempt, action: str, actor_user_id: int | None, details: dict[str, str]) -> None:
    """Count an attempt in its invoice, whose row is locked, and in its tenant's restriction, with an audit entry."""
    invoice, at = attempt.invoice, attempt.created_at
    invoice.amount_paid_paise += attempt.amount_paise
    settlement.restate(invoice, at)
    invoice.save(update_fields=["amount_paid_paise", *settlement.RESTATED])
    restriction.refresh(tenant_id=invoice.tenant_id, at=at)
    audit.record(
        action=action,
        target_type="invoice",
        target_id=invoice.public_id,
        tenant_id=invoice.tenant_id,
        actor_user_id=actor_user_id,
        details={"amount_paise": attempt.amount_paise, **details},
    )


def _captured(invoice: Invoice, kind: str, amount_paise: int, reference: str, at: datetime) -> PaymentAttempt:
    key = uuid7()
    return PaymentAttempt.objects.create(
        id=key,
        invoice=invoice,
        kind=kind,
        status=PaymentAttempt.Status.CAPTURED,
        amount_paise=amount_paise,
        captured_paise=amount_paise,
        receipt=ids.encode(ATTEMPT, key),
        provider_payment_id=reference,
        created_at=at,
        next_check_at=at,
        completed_at=at,
    )


def _insert(invoice: Invoice, amount_paise: int, reference: str, at: datetime) -> PaymentAttempt:
    """The attempt with its reference. Transfers that are older than the table have theirs on the attempt."""
    known = PaymentAttempt.objects.filter(
        invoice__tenant_id=invoice.tenant_id,
        kind=PaymentAttempt.Kind.MANUAL,
        provider_payment_id__iexact=reference,
    )
    used = InvalidRequest.of(
        reference="This reference was recorded before. If one transfer paid two invoices, add /2 to it."
    )
    if known.exists():
        raise used
    try:
        with transaction.atomic():
            attempt = _captured(invoice, PaymentAttempt.Kind.MANUAL, amount_paise, reference, at)
            BankTransfer.objects.create(attempt=attempt, tenant_id=invoice.tenant_id, reference=reference)
    except IntegrityError:
        raise used from None
    return attempt
