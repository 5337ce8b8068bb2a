"""Client of Razorpay over `requests`: recurring payments by registration links, orders and tokens, and payment links.

Paths and members are those of Razorpay's API reference, stored in `simulator/payments/contract.json`. The simulator
rejects members that the reference of a call does not name, and answers null for unknown values. Razorpay itself
notifies the payer, debits about a day later and retries (its coupled flow).
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal
from unicodedata import normalize

import orjson
import requests
from django.conf import settings
from urllib3.exceptions import NewConnectionError

from billing.payments import provider
from billing.payments.provider import (
    Link,
    MandateRegistration,
    MandateState,
    NotCarriedOut,
    Notice,
    Payer,
    Payment,
    PaymentStatus,
    ProviderRefused,
    ProviderRefusesService,
    ProviderUnreachable,
    RefundState,
    Settled,
    Settlement,
)
from billing.pricing.money import CURRENCY, SMALLEST_PAISE
from gateway.clock import IST
from gateway.database.transactions import leave_database

TIMEOUT_SECONDS = 20.0

_TOKEN_STATUS = {
    "initiated": "pending",
    "confirmed": "active",
    "rejected": "rejected",
    "cancellation_initiated": "cancelled",
    "cancelled": "cancelled",
    "paused": "paused",
}
_PAYMENT_STATUS: dict[str, PaymentStatus] = {
    "captured": "captured",
    "refunded": "captured",
    "failed": "failed",
}
_REFUND_STATUS: dict[str, Literal["processing", "processed", "failed"]] = {
    "pending": "processing",
    "processed": "processed",
    "failed": "failed",
}
_ABOUT_THE_ACCOUNT = re.compile(
    r"api key|authenticat|merchant|not (enabled|activated|allowed) (for|on) (your|the|this) account"
    r"|account (is|has been) (not activated|suspended|disabled|blocked)|feature is not",
    re.IGNORECASE,
)
"""Matches the description of a refusal that is about the service's account rather than the payer."""
_NAMED = ("id", "payment_id", "order_id", "token_id")
"""Members of a notice's entities that are ids."""
_EVENT, _ID = re.compile(r"[a-z_.]{3,60}"), re.compile(r"\w{3,64}", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 .'/@()]")
SHORTEST_NAME, LONGEST_NAME, LONGEST_EMAIL = 3, 50, 64
_IN_PATH = re.compile(r"/(pay|order|cust|token|plink|inv)_\w+")
"""Ids in the path of a call."""
_LINK_ENDED = {"expired", "cancelled"}


class Razorpay:
    """The client of Razorpay, without state."""

    name = "razorpay"

    def register_mandate(
        self, *, payer: Payer, method: str, max_amount_paise: int, receipt: str, expires_at: datetime
    ) -> MandateRegistration:
        """Create a registration link. The payer approves on Razorpay's page (UPI by app or QR, card, or net banking).

        The service redirects the payer to the page, so Razorpay sends no SMS and no mail. It does not redirect back.
        """
        # UPI and cards have rules for each frequency. Razorpay's reference of e-mandates has no member `frequency`.
        frequency = {} if method == "emandate" else {"frequency": "as_presented"}
        made = self._call(
            "POST",
            "subscription_registration/auth_links",
            {
                "customer": _customer(payer),
                "type": "link",
                "amount": 0 if method == "emandate" else SMALLEST_PAISE,
                "currency": CURRENCY,
                "description": "Autopay for monthly invoices",
                "receipt": receipt,
                "expire_by": int(expires_at.timestamp()),
                "sms_notify": False,
                "email_notify": False,
                "subscription_registration": {
                    "method": method,
                    "max_amount": max_amount_paise,
                    **frequency,
                },
            },
        )
        return MandateRegistration(made["id"], made["order_id"], made["customer_id"], made["short_url"])

    def cancel_registration(self, registration_id: str) -> None:
        """End a registration link that was not approved. Razorpay refuses when the link was approved."""
        self._call("POST", f"invoices/{registration_id}/cancel", {})

    def mandate(self, *, customer_id: str, token_id: str) -> MandateState:
        """The mandate of a token."""
        token = self._call("GET", f"customers/{customer_id}/tokens/{token_id}")
        status = str((token.get("recurring_details") or {}).get("status") or "initiated")
        return MandateState(
            token_id=token["id"],
            status=_TOKEN_STATUS.get(status, "pending"),
            instrument=_instrument(token),
            expires_at=_moment(token["expired_at"]) if token.get("expired_at") else None,
        )

    def cancel_mandate(self, *, customer_id: str, token_id: str, method: str) -> None:
        """End a mandate. A UPI mandate is cancelled. If only its token were deleted, the mandate would stay active at
        the bank.
        """
        token = f"customers/{customer_id}/tokens/{token_id}"
        if method == "upi":
            self._call("PUT", f"{token}/cancel")
        else:
            self._call("DELETE", token)

    def create_order(self, *, receipt: str, amount_paise: int, invoice_number: str) -> str:
        """Create an order for one debit."""
        body = {
            "amount": amount_paise,
            "currency": CURRENCY,
            "receipt": receipt,
            "payment_capture": True,
            "notes": {"invoice": invoice_number},
        }
        return str(self._call("POST", "orders", body)["id"])

    def find_order(self, receipt: str) -> str | None:
        """The id of the order with a receipt, or None. Called after the answer to the order's creation was lost."""
        items = self._call("GET", "orders", query={"receipt": receipt})["items"]
        return str(items[0]["id"]) if items else None

    def debit(
        self,
        *,
        order_id: str,
        payer: Payer,
        customer_id: str,
        token_id: str,
        amount_paise: int,
        description: str,
    ) -> str:
        """Request a debit of the token. The result comes a day or more later."""
        body = {
            "email": payer.email,
            "contact": payer.contact,
            "amount": amount_paise,
            "currency": CURRENCY,
            "order_id": order_id,
            "customer_id": customer_id,
            "token": token_id,
            "recurring": True,
            "description": description,
        }
        return str(self._call("POST", "payments/create/recurring", body)["razorpay_payment_id"])

    def payments_of(self, order_id: str) -> list[Payment]:
        """Every payment of an order, oldest first."""
        items = self._call("GET", f"orders/{order_id}/payments")["items"]
        return [self._paid(item) for item in sorted(items, key=lambda item: item.get("created_at", 0))]

    def payment(self, payment_id: str) -> Payment:
        """One payment."""
        return self._paid(self._call("GET", f"payments/{payment_id}"))

    def _paid(self, item: Mapping[str, Any]) -> Payment:
        """A payment with its processed refunds. `amount_refunded` also has refunds that the bank may still reject."""
        payment = _payment(item)
        if not item.get("amount_refunded"):
            return payment
        done = [refund for refund in self.refunds_of(payment.id) if refund.status == "processed"]
        return replace(payment, refunded_paise=sum(refund.amount_paise for refund in done))

    def refund(self, *, payment_id: str, amount_paise: int, receipt: str) -> RefundState:
        """Refund a captured payment in part or in full."""
        body = {"amount": amount_paise, "receipt": receipt, "speed": "normal"}
        return _refund(self._call("POST", f"payments/{payment_id}/refund", body))

    def refunds_of(self, payment_id: str) -> list[RefundState]:
        """Every refund of a payment."""
        found = self._call("GET", f"payments/{payment_id}/refunds", query={"count": "100"})
        return [_refund(item) for item in found["items"]]

    def settlements(self) -> Iterator[Settlement]:
        """All settlements that reached the bank, newest first."""
        for row in self._pages("settlements", {}, 100):
            if row["status"] == "processed":
                yield Settlement(row["id"], int(row["amount"]), row["utr"], _moment(row["created_at"]))

    def settled_of(self, settlement: Settlement) -> list[Settled]:
        """The items of a settlement. Razorpay lists items by day, and a settlement's items are in the lists of its day
        and of the following day.
        """
        found: dict[str, Settled] = {}
        for days in (0, 1):
            day = (settlement.at + timedelta(days=days)).astimezone(IST)
            when = {"year": str(day.year), "month": f"{day.month:02d}", "day": f"{day.day:02d}"}
            for row in self._pages("settlements/recon/combined", when, 1000):
                if row["settlement_id"] == settlement.id and row["currency"] == CURRENCY:
                    found[row["entity_id"]] = Settled(
                        entity_id=row["entity_id"],
                        settlement_id=settlement.id,
                        type=row["type"],
                        amount_paise=int(row["amount"]),
                        fee_paise=int(row["fee"]),
                        tax_paise=int(row["tax"]),
                        net_paise=int(row["credit"]) - int(row["debit"]),
                    )
        return list(found.values())

    def _pages(self, path: str, query: Mapping[str, str], size: int) -> Iterator[dict[str, Any]]:
        """All items of a list, read in pages of `size`."""
        for skip in count(step=size):
            items = self._call("GET", path, query={**query, "count": str(size), "skip": str(skip)})["items"]
            yield from items
            if len(items) < size:
                return

    def create_link(
        self,
        *,
        payer: Payer,
        amount_paise: int,
        reference: str,
        description: str,
        expires_at: datetime,
        return_url: str | None,
    ) -> Link:
        """Create a payment link for one amount."""
        body = {
            "amount": amount_paise,
            "currency": CURRENCY,
            "reference_id": reference,
            "description": description,
            "expire_by": int(expires_at.timestamp()),
            "customer": _customer(payer),
            "notify": {"sms": False, "email": False},
            **({"callback_url": return_url, "callback_method": "get"} if return_url else {}),
        }
        return self._link(self._call("POST", "payment_links", body))

    def find_link(self, reference: str) -> Link | None:
        """The link with a reference. None when there is no such link."""
        found = self._call("GET", "payment_links", query={"reference_id": reference})["payment_links"]
        return self._link(found[0]) if found else None

    def link(self, link_id: str) -> Link:
        """A link and its payments. Razorpay's link does not contain refunds, so each payment is read too."""
        found = self._link(self._call("GET", f"payment_links/{link_id}"))
        return replace(found, payments=[self.payment(payment.id) for payment in found.payments])

    def cancel_link(self, link_id: str) -> None:
        """End an unpaid link. Razorpay refuses when the link was paid."""
        self._call("POST", f"payment_links/{link_id}/cancel", {})

    def is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether a notice has the HMAC-SHA256 of its exact bytes under one of the webhook's secrets."""
        signature = headers.get("X-Razorpay-Signature", "")
        return any(
            hmac.compare_digest(
                hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode(), signature.encode()
            )
            for secret in settings.RAZORPAY_WEBHOOK_SECRETS
            if secret
        )

    def event_id(self, headers: Mapping[str, str]) -> str:
        """The id of a notice. A repeated notice has the same id."""
        return headers.get("X-Razorpay-Event-Id", "")

    def read_notice(self, body: bytes) -> Notice:
        """The ids that a notice names. Raises ValueError for a body that is not a notice."""
        notice = orjson.loads(body)
        if not isinstance(notice, dict) or not _EVENT.fullmatch(str(notice.get("event"))):
            raise ValueError("not a notice")
        payload = notice.get("payload")
        entities: dict[str, Mapping[str, Any]] = {
            name: part["entity"]
            for name, part in (payload.items() if isinstance(payload, dict) else ())
            if isinstance(part, dict) and isinstance(part.get("entity"), dict)
        }
        named = (part.get(name) for part in entities.values() for name in _NAMED)
        ids = frozenset(value for value in named if isinstance(value, str) and _ID.fullmatch(value))
        return Notice(notice["event"], ids, is_settlement="settlement" in entities)

    def _link(self, made: Mapping[str, Any]) -> Link:
        payments = [
            Payment(
                str(item["payment_id"]),
                _PAYMENT_STATUS.get(item["status"], "processing"),
                int(item["amount"]),
            )
            for item in made.get("payments") or ()
        ]
        status = made["status"]
        return Link(
            id=made["id"],
            url=made["short_url"],
            status="paid" if status == "paid" else "ended" if status in _LINK_ENDED else "live",
            payments=payments,
            order_id=made.get("order_id"),
        )

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        leave_database()
        call = f"{method} {_IN_PATH.sub('', path)}"
        try:
            answer = requests.request(
                method,
                f"{settings.RAZORPAY_BASE_URL}/{path}",
                params=query,
                json=body,
                auth=(settings.RAZORPAY_KEY_ID, settings.RAZORPAY_KEY_SECRET),
                timeout=TIMEOUT_SECONDS,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            problem = NotCarriedOut if _was_not_sent(error) else ProviderUnreachable
            raise problem(details={"reason": type(error).__name__}) from None
        if answer.status_code == 429:
            raise NotCarriedOut(details={"provider_status": answer.status_code})
        if answer.status_code >= 500:
            raise ProviderUnreachable(details={"provider_status": answer.status_code})
        if answer.status_code in {401, 403}:
            provider.record_trouble(self.name, status=answer.status_code, text=answer.reason or "")
            raise ProviderRefusesService(details={"provider_status": answer.status_code})
        if answer.status_code == 204:
            provider.clear_trouble(self.name, call)
            return {}
        try:
            read = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            raise ProviderUnreachable(details={"provider_status": answer.status_code}) from None
        if answer.status_code >= 300 or not isinstance(read, dict):
            refusal = read.get("error") if isinstance(read, dict) else None
            refusal = refusal if isinstance(refusal, dict) else {}
            if _ABOUT_THE_ACCOUNT.search(str(refusal.get("description") or "")):
                provider.record_trouble(
                    self.name, status=answer.status_code, text=str(refusal["description"]), call=call
                )
                raise ProviderRefusesService(details={"provider_status": answer.status_code})
            raise ProviderRefused(
                provider_code=str(refusal.get("code") or answer.status_code),
                reason=refusal.get("reason"),
                text=str(refusal.get("description") or "refused"),
            )
        provider.clear_trouble(self.name, call)
        return read


def _was_not_sent(error: requests.RequestException) -> bool:
    """Whether a request failed before the connection was open."""
    cause = error.args[0] if error.args else None
    return isinstance(error, requests.ConnectTimeout) or isinstance(
        getattr(cause, "reason", None), NewConnectionError
    )


def _customer(payer: Payer) -> dict[str, str]:
    """The payer as Razorpay takes one: a name of 3 to 50 ASCII characters, and no empty or long address."""
    plain = normalize("NFKD", payer.name.replace("&", " and ")).encode("ascii", "ignore").decode()
    name = " ".join(_NOT_IN_NAMES.sub(" ", plain).split())[:LONGEST_NAME].strip()
    email = payer.email if len(payer.email) <= LONGEST_EMAIL else ""
    known = {
        "name": name if len(name) >= SHORTEST_NAME else "Customer",
        "email": email,
        "contact": payer.contact,
    }
    return {member: value for member, value in known.items() if value}


def _payment(item: Mapping[str, Any]) -> Payment:
    status = _PAYMENT_STATUS.get(item["status"], "processing")
    error = None
    if status == "failed":
        error = {
            "code": item.get("error_code"),
            "reason": item.get("error_reason"),
            "message": item.get("error_description"),
        }
    return Payment(
        id=item["id"],
        status=status,
        amount_paise=int(item["amount"]),
        token_id=item.get("token_id"),
        error=error,
        currency=item["currency"],
    )


def _refund(item: Mapping[str, Any]) -> RefundState:
    status = _REFUND_STATUS.get(item["status"], "processing")
    return RefundState(item["id"], item.get("receipt"), status, int(item["amount"]))


def _instrument(token: Mapping[str, Any]) -> str | None:
    """The masked instrument of a token: `g***@okaxis`, `Visa •••• 4242`, or the bank."""
    if vpa := token.get("vpa"):
        return f"{str(vpa.get('username', ''))[:1]}***@{vpa.get('handle', '')}"
    if card := token.get("card"):
        return f"{card.get('network', 'Card')} •••• {card.get('last4', '')}"
    return str(token["bank"]) if token.get("bank") else None


def _moment(epoch_seconds: int) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, UTC)
