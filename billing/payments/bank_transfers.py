"""Bank transfers: payments that reach the bank account directly, recorded by staff with an audit entry."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from billing import restriction
from billing.models import Invoice, PaymentAttempt
from billing.payments import charging, settlement
from billing.payments.models import ATTEMPT
from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest
from gateway.ids import uuid7
from tenants import audit


def record(
    *, invoice_id: UUID, amount_paise: int, reference: str, at: datetime, actor_user_id: int | None = None
) -> PaymentAttempt:
    """Record a payment of an invoice, whole or in part; `reference` is the bank's (UTR).

    Raises InvalidRequest for more than is due, Conflict while another payment is in flight.
    """
    charging.end_link(invoice=Invoice.objects.get(pk=invoice_id), at=at)
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)
        if not 0 < amount_paise <= invoice.amount_due_paise:
            raise InvalidRequest.of(amount_paise=f"Must be from 1 to {invoice.amount_due_paise} paise.")
        if PaymentAttempt.objects.filter(invoice=invoice, status__in=PaymentAttempt.IN_FLIGHT).exists():
            raise Conflict("A payment of this invoice is in flight: wait for its result.")
        key = uuid7()
        payment = PaymentAttempt.objects.create(
            id=key,
            invoice=invoice,
            kind=PaymentAttempt.Kind.MANUAL,
            status=PaymentAttempt.Status.CAPTURED,
            amount_paise=amount_paise,
            captured_paise=amount_paise,
            receipt=ids.encode(ATTEMPT, key),
            provider_payment_id=reference,
            created_at=at,
            next_check_at=at,
            completed_at=at,
        )
        invoice.amount_paid_paise += amount_paise
        settlement.close_if_settled(invoice, at)
        invoice.save(update_fields=["amount_paid_paise", "status", "paid_at"])
        restriction.refresh(tenant_id=invoice.tenant_id, at=at)
        audit.record(
            action="billing.payment",
            target_type="invoice",
            target_id=invoice.public_id,
            tenant_id=invoice.tenant_id,
            actor_user_id=actor_user_id,
            details={"amount_paise": amount_paise, "reference": reference},
        )
    return payment
