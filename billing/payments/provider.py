"""Payment provider interface: mandates, debits, payment links, and signed notices. `razorpay.py` implements it.

Calls are made outside transactions. A call without an answer raises `ProviderUnreachable`, and its outcome is unknown.
A refused call raises `ProviderRefused`. If the provider refuses the service's own keys or account, a row in the
database records this, and `/v1/admin/health` shows it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

import structlog
from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string
from rest_framework import serializers

from billing.error_isolation import Unanswered
from billing.models import PaymentAttempt, ProviderEvent, ProviderTrouble
from gateway.api.errors import RateLimited, ServiceError
from gateway.clock import now
from gateway.monitoring import admin_health

_DAY = timedelta(days=1)

PaymentStatus = Literal["processing", "captured", "failed"]

REASONS = {
    "insufficient_funds": "the account has too little money",
    "payment_timed_out": "the bank did not answer in time",
    "notification_failed": "the bank could not announce the debit",
    "token_paused": "the mandate is paused",
    "token_cancelled": "the mandate was cancelled",
    "token_not_confirmed": "the mandate is not active",
    "amount_exceeds_maximum": "the amount is above the limit of the mandate",
    "payment_declined": "the bank declined",
}
"""Texts for payers, by the provider's code of the reason."""


class ProviderUnreachable(ServiceError, Unanswered):
    """No answer. The request may or may not have been carried out."""

    status = 502
    code = "payment_provider_unreachable"
    message = "The payment provider did not answer. Try again in a minute; nothing is charged twice."
    hint = "Repeat in a minute; nothing is charged twice."
    repeat = "yes"


class NotCarriedOut(ProviderUnreachable):
    """The provider did not carry out the request: it was not reached, or had no time. The request may be repeated."""


class ProviderRefusesService(NotCarriedOut):
    """The provider refuses the service's own keys or account. The operator has to act, not the tenant."""

    message = "Payments are not available at the moment. Try again later; nothing is charged."


class ProviderRefused(ServiceError):
    """The provider refused the request. `reason` is the provider's code."""

    status = 502
    code = "payment_provider_refused"
    message = "The payment provider refused the request."
    hint = "Correct what details.provider names, or report the request_id to us."
    repeat = "after correcting it"

    def __init__(self, *, provider_code: str, reason: str | None, text: str) -> None:
        self.error = {"code": provider_code, "reason": reason, "message": text}
        super().__init__(details={"provider": self.error})


def own_error(reason: str, message: str) -> dict[str, str]:
    """An error of the service itself in the form of the provider's errors, for an attempt or a refund that ended
    without an answer of the provider.
    """
    return {"code": reason, "reason": reason, "message": message}


@dataclass(frozen=True, slots=True)
class Payer:
    """The payer's name and addresses, for the provider."""

    name: str
    email: str
    contact: str


@dataclass(frozen=True, slots=True)
class MandateRegistration:
    """The ids and the URL of an approval page. `Mandate` stores them."""

    provider_registration_id: str
    provider_order_id: str
    provider_customer_id: str
    authorization_url: str


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment of an order or a link."""

    id: str
    status: PaymentStatus
    amount_paise: int
    refunded_paise: int = 0
    """The sum of its processed refunds."""
    token_id: str | None = None
    error: Mapping[str, Any] | None = None
    currency: str = "INR"


@dataclass(frozen=True, slots=True)
class MandateState:
    """A mandate at the provider. `status` is a value of Mandate.Status."""

    token_id: str
    status: str
    instrument: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefundState:
    """A refund at the provider."""

    id: str
    receipt: str | None
    status: Literal["processing", "processed", "failed"]
    amount_paise: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A payment link: the provider's page to pay one amount."""

    id: str
    url: str
    status: Literal["live", "paid", "ended"]
    payments: Sequence[Payment] = ()
    order_id: str | None = None
    """The order of its payments, which notices of a payment name. None before the payer opens the page."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settlement that the provider paid to the bank account. `utr` is the bank's reference."""

    id: str
    amount_paise: int
    utr: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Settled:
    """An item of a settlement: a payment, a refund, or another entry of the provider. Stored as `SettledItem`."""

    entity_id: str
    settlement_id: str
    type: str
    amount_paise: int
    fee_paise: int
    tax_paise: int
    net_paise: int


@dataclass(frozen=True, slots=True)
class Notice:
    """The type and the ids of one webhook call. The state of these objects is read from the provider, so order and
    repetition do not matter.
    """

    type: str
    """The provider's name for this type of notice."""
    ids: frozenset[str]
    """All ids that the notice names: of payments, orders, links, tokens. The provider never uses an id twice."""
    is_settlement: bool = False


class PaymentProvider(Protocol):
    """A payment provider. Amounts are paise. The service chooses a unique `receipt` for each object, and finds the
    object by it when the answer was lost.
    """

    name: str

    def register_mandate(
        self, *, payer: Payer, method: str, max_amount_paise: int, receipt: str, expires_at: datetime
    ) -> MandateRegistration: ...

    def cancel_registration(self, registration_id: str) -> None: ...

    def mandate(self, *, customer_id: str, token_id: str) -> MandateState: ...

    def cancel_mandate(self, *, customer_id: str, token_id: str, method: str) -> None: ...

    def create_order(self, *, receipt: str, amount_paise: int, invoice_number: str) -> str: ...

    def find_order(self, receipt: str) -> str | None: ...

    def debit(
        self,
        *,
        order_id: str,
        payer: Payer,
        customer_id: str,
        token_id: str,
        amount_paise: int,
        description: str,
    ) -> str: ...

    def payments_of(self, order_id: str) -> list[Payment]: ...

    def payment(self, payment_id: str) -> Payment: ...

    def refund(self, *, payment_id: str, amount_paise: int, receipt: str) -> RefundState: ...

    def refunds_of(self, payment_id: str) -> list[RefundState]: ...

    def settlements(self) -> Iterator[Settlement]: ...

    def settled_of(self, settlement: Settlement) -> list[Settled]: ...

    def create_link(
        self,
        *,
        payer: Payer,
        amount_paise: int,
        reference: str,
        description: str,
        expires_at: datetime,
        return_url: str | None,
    ) -> Link: ...

    def find_link(self, reference: str) -> Link | None: ...

    def link(self, link_id: str) -> Link: ...

    def cancel_link(self, link_id: str) -> None: ...

    def is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool: ...

    def event_id(self, headers: Mapping[str, str]) -> str: ...

    def read_notice(self, body: bytes) -> Notice: ...


PAGES_A_DAY = 3
"""The maximum number of pages requested from the provider in a day: per tenant for mandates, per invoice for payments.
"""


def require_pages_left(made: QuerySet[Any], at: datetime, what: str) -> None:
    """Raise RateLimited when `PAGES_A_DAY` rows of `made` were created in the last 24 hours. The error text calls the
    rows `what`.
    """
    today = made.filter(created_at__gt=at - _DAY).order_by("created_at").values_list("created_at", flat=True)
    if len(today) >= PAGES_A_DAY:
        raise RateLimited(
            f"At most {PAGES_A_DAY} {what} can be begun in a day. Use the one that waits.",
            details={"limit": PAGES_A_DAY},
            headers={"Retry-After": str(int((today[0] + _DAY - at).total_seconds()) + 1)},
        )


PROVIDERS = {"razorpay": "billing.payments.razorpay.Razorpay"}
"""The class of each provider by its name in rows, routes and PAYMENT_PROVIDER."""


def provider(name: str | None = None) -> PaymentProvider:
    """The provider called `name`. Without a name, the provider for new mandates and links (PAYMENT_PROVIDER)."""
    made: PaymentProvider = import_string(PROVIDERS[name or settings.PAYMENT_PROVIDER])()
    return made


log = structlog.get_logger(__name__)


def record_trouble(provider: str, *, status: int, text: str, call: str = "") -> None:
    """Record that the provider refused the service itself: all its calls, or one."""
    ProviderTrouble.objects.bulk_create(
        [ProviderTrouble(provider=provider, since=now(), status=status, text=text[:300], call=call)],
        ignore_conflicts=True,
    )
    log.error("payment_provider_refuses_service", provider=provider, status=status)


def clear_trouble(provider: str, call: str) -> None:
    """Record that the provider accepted a call."""
    if ProviderTrouble.objects.filter(pk=provider, call__in=("", call)).delete()[0]:
        log.info("payment_provider_accepts_service", provider=provider)


class BillingHealthOut(serializers.Serializer[Any]):
    provider_refuses_since = serializers.DateTimeField(allow_null=True)
    notices_waiting = serializers.IntegerField()
    payments_unknown = serializers.IntegerField()


@admin_health.register(billing=BillingHealthOut())
def _provider_health() -> dict[str, Any]:
    trouble = ProviderTrouble.objects.order_by("since").first()
    return {
        "billing": {
            "provider_refuses_since": trouble.since if trouble else None,
            "notices_waiting": ProviderEvent.objects.filter(processed_at__isnull=True).count(),
            "payments_unknown": PaymentAttempt.objects.filter(status=PaymentAttempt.Status.UNKNOWN).count(),
        }
    }
