"""Payment attempts: each is one try to collect an invoice, committed before the provider is called.

An attempt is the only one of its invoice in flight (partial unique index), and is found again at the provider by its
receipt when an answer is lost: nothing is collected twice.
"""

from datetime import datetime, timedelta
from typing import Any

from billing.buyers import profiles
from billing.models import Invoice, Mandate, PaymentAttempt
from billing.payment_models import ATTEMPT
from billing.payments.provider import Payer
from gateway import ids
from gateway.ids import uuid7

RESULT_AFTER = {
    Mandate.Method.UPI: timedelta(hours=30),
    Mandate.Method.CARD: timedelta(hours=72),
    Mandate.Method.EMANDATE: timedelta(days=5),
}
"""How long a debit may take before the provider is asked without a notice."""
LINK_CHECK = timedelta(hours=6)
"""How often a payment link's result is asked for."""
RESUME_AFTER = timedelta(minutes=5)
"""When an attempt goes on that was written down and, after a crash, not asked for."""


def insert(
    invoice: Invoice,
    kind: str,
    at: datetime,
    *,
    provider: str,
    mandate: Mandate | None = None,
    amount_paise: int = 0,
    **more: Any,
) -> PaymentAttempt:
    """A new attempt to collect what is due of an invoice, or another amount."""
    key = uuid7()
    return PaymentAttempt.objects.create(
        id=key,
        invoice=invoice,
        mandate=mandate,
        provider=provider,
        kind=kind,
        amount_paise=amount_paise or invoice.amount_due_paise,
        receipt=ids.encode(ATTEMPT, key),
        created_at=at,
        next_check_at=at + RESUME_AFTER,
        **more,
    )


def payer_of(invoice: Invoice) -> Payer:
    profile = profiles.profile_of(invoice.tenant)
    return Payer(
        name=profile.legal_name or invoice.tenant.name,
        email=profiles.email_of(invoice.tenant) or "",
        contact=profile.phone,
    )
