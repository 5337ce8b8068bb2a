"""The payment provider's book: orders, payments, tokens, links; and what becomes of a debit when its time comes.

A scenario, chosen by the payer's e-mail (`name+scenario@…`) or over the control API, decides how debits end. Time is
the real one plus what `POST /sim/clock/advance` added; until that is called, 25 hours of a debit pass in five seconds.
"""

import asyncio
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HOUR = 3600
COMPRESSION = 25 * HOUR / 5
LIMIT_WITHOUT_OTP = 1_500_000
SCENARIOS = (
    "ok",
    "insufficient_funds",
    "late_auth",
    "duplicate_webhook",
    "out_of_order",
    "webhook_lost",
    "bad_signature",
    "timeout_after_accept",
    "500",
    "token_paused",
    "token_cancelled",
    "notification_failed",
    "peak_hour_hold",
    "over_15000",
)
_DEBIT_HOURS = {"upi": 25, "card": 36, "emandate": 48}
_ALPHABET = string.ascii_letters + string.digits

Row = dict[str, Any]


class RefusedError(Exception):
    """The provider's 400: a description and its reason."""

    def __init__(self, description: str, reason: str = "input_validation_failed") -> None:
        super().__init__(description)
        self.description, self.reason = description, reason


@dataclass
class Book:
    """The whole state; `publish(event, payload, scenario)` sends a webhook."""

    publish: Callable[[str, dict[str, Row], str], None]
    base_url: Callable[[], str]
    offset: float = 0.0
    customers: dict[str, Row] = field(default_factory=dict)
    orders: dict[str, Row] = field(default_factory=dict)
    payments: dict[str, Row] = field(default_factory=dict)
    tokens: dict[str, Row] = field(default_factory=dict)
    links: dict[str, Row] = field(default_factory=dict)
    refunds: dict[str, Row] = field(default_factory=dict)
    registrations: dict[str, Row] = field(default_factory=dict)
    scenarios: dict[str, str] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    """When a payment that waits is decided, by the book's clock."""
    timers: set[asyncio.TimerHandle] = field(default_factory=set)

    def clear(self) -> None:
        """Forget everything; the clock is the real one again."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        for known in (
            self.customers,
            self.orders,
            self.payments,
            self.tokens,
            self.links,
            self.refunds,
            self.registrations,
        ):
            known.clear()
        self.scenarios.clear()
        self.due.clear()
        self.offset = 0.0

    def now(self) -> int:
        """Seconds since 1970 by the book's clock."""
        return int(time.time() + self.offset)

    def scenario_of(self, email: str) -> str:
        """The scenario of a payer: set for the address, in its tag, set for everybody, or `ok`."""
        tag = email.partition("@")[0].partition("+")[2]
        return self.scenarios.get(email) or (tag if tag in SCENARIOS else self.scenarios.get("*", "ok"))

    def advance(self, hours: float) -> None:
        """Move the clock on; what became due happens, in order."""
        self.offset += hours * HOUR
        while ripe := sorted((at, key) for key, at in self.due.items() if at <= self.now()):
            self.decide(ripe[0][1])
        for link in self.links.values():
            if link["status"] == "created" and link["expire_by"] <= self.now():
                link["status"] = "expired"
                self.publish("payment_link.expired", {"payment_link": link}, self.scenario_of(_email(link)))

    def customer(self, details: Row) -> Row:
        """The customer with these details, made when new."""
        for known in self.customers.values():
            if known["email"] == details.get("email"):
                return known
        made: Row = {"id": _id("cust"), "entity": "customer", **details}
        self.customers[str(made["id"])] = made
        return made

    def order(self, amount: int, receipt: str, customer_id: str | None = None) -> Row:
        """A new order."""
        made: Row = {
            "id": _id("order"),
            "entity": "order",
            "amount": amount,
            "amount_paid": 0,
            "currency": "INR",
            "receipt": receipt,
            "status": "created",
            "customer_id": customer_id,
            "created_at": self.now(),
        }
        self.orders[made["id"]] = made
        return made

    def payment(self, order: Row, amount: int, method: str, **more: Any) -> Row:
        """A new payment of an order, not decided yet."""
        made = {
            "id": _id("pay"),
            "entity": "payment",
            "amount": amount,
            "currency": "INR",
            "status": "created",
            "order_id": order["id"],
            "method": method,
            "captured": False,
            "amount_refunded": 0,
            "error_code": None,
            "error_description": None,
            "error_reason": None,
            "created_at": self.now(),
            **more,
        }
        self.payments[made["id"]] = made
        return made

    def register(self, body: Row) -> Row:
        """A registration link for a mandate."""
        wanted = body["subscription_registration"]
        customer = self.customer(dict(body["customer"]))
        order = self.order(int(body["amount"]), body["receipt"], customer["id"])
        key = _id("inv")
        made = {
            "id": key,
            "entity": "invoice",
            "status": "issued",
            "order_id": order["id"],
            "customer_id": customer["id"],
            "short_url": f"{self.base_url()}/sim/mandate/{key}",
            "expire_by": self.now() + 7 * 24 * HOUR,
            "method": wanted.get("method", "upi"),
            "max_amount": int(wanted["max_amount"]),
            "callback_url": body.get("callback_url"),
        }
        self.registrations[key] = made
        return made

    def answer_mandate(self, registration: Row, *, approved: bool) -> Row:
        """The payer approves or declines; returns the payment of the registration."""
        customer, order = self.customers[registration["customer_id"]], self.orders[registration["order_id"]]
        scenario = self.scenario_of(customer["email"])
        method = registration["method"]
        payment = self.payment(
            order, order["amount"], method, customer_id=customer["id"], email=customer["email"]
        )
        if not approved:
            self.fail(payment, "payment_cancelled", "The payer declined.")
            return payment
        token = {
            "id": _id("token"),
            "entity": "token",
            "customer_id": customer["id"],
            "method": method,
            "max_amount": registration["max_amount"],
            "recurring": True,
            "recurring_details": {"status": "confirmed", "failure_reason": None},
            "expired_at": self.now() + 10 * 365 * 24 * HOUR,
            **_instrument(method, customer["email"]),
        }
        self.tokens[token["id"]] = token
        registration["status"], payment["token_id"] = "paid", token["id"]
        self.capture(payment)
        self.publish("token.confirmed", {"token": token}, scenario)
        return payment

    def debit(self, body: Row) -> Row:
        """A recurring payment of a token; decided a day or so later."""
        order, token = self.orders.get(body["order_id"]), self.tokens.get(body["token"])
        if order is None or token is None or token["customer_id"] != body["customer_id"]:
            raise RefusedError("The order or the token does not exist.")
        if order["status"] == "paid":
            raise RefusedError("Order already paid.", "order_already_paid")
        if token["recurring_details"]["status"] != "confirmed":
            raise RefusedError("The token is not confirmed.", "token_not_confirmed")
        amount, scenario = int(body["amount"]), self.scenario_of(body["email"])
        if amount > token["max_amount"] or (scenario == "over_15000" and amount > LIMIT_WITHOUT_OTP):
            raise RefusedError("The amount exceeds the mandate's limit.", "amount_exceeds_maximum")
        payment = self.payment(
            order,
            amount,
            token["method"],
            token_id=token["id"],
            customer_id=token["customer_id"],
            email=body["email"],
        )
        hours = _DEBIT_HOURS[token["method"]] + (12 if scenario == "peak_hour_hold" else 0)
        self.wait(payment, hours)
        if scenario != "notification_failed":
            self.publish(
                "order.notification.delivered", {"notification": {"order_id": order["id"]}}, scenario
            )
        return payment

    def wait(self, payment: Row, hours: float) -> None:
        """Decide a payment after this many hours of the book's clock, or their share of seconds."""
        key = payment["id"]
        self.due[key] = self.now() + hours * HOUR
        if self.offset == 0:
            loop = asyncio.get_running_loop()
            self.timers.add(loop.call_later(hours * HOUR / COMPRESSION, self.decide, key))

    def decide(self, payment_id: str) -> None:
        """A waiting payment ends, as its payer's scenario says."""
        if self.due.pop(payment_id, None) is None:
            return
        payment = self.payments[payment_id]
        scenario = self.scenario_of(payment["email"])
        if scenario == "late_auth" and payment["status"] == "created":
            self.fail(payment, "payment_timed_out", "The bank did not answer in time.")
            self.wait(payment, 24)
        elif scenario == "insufficient_funds":
            self.fail(payment, "insufficient_funds", "The account has too little money.")
        elif scenario == "notification_failed":
            self.publish(
                "order.notification.failed", {"notification": {"order_id": payment["order_id"]}}, scenario
            )
            self.fail(payment, "notification_failed", "The payer could not be notified.")
        elif scenario in {"token_paused", "token_cancelled"}:
            self.fail(payment, scenario, "The mandate does not stand any more.")
            self.change_token(payment["token_id"], scenario.removeprefix("token_"))
        else:
            self.capture(payment)

    def capture(self, payment: Row) -> None:
        """The money is there; also after a failure (a late authorisation)."""
        order = self.orders[payment["order_id"]]
        payment |= {"status": "captured", "captured": True, "error_code": None, "error_reason": None}
        order |= {"status": "paid", "amount_paid": payment["amount"]}
        scenario = self.scenario_of(payment["email"])
        payload = {"payment": payment, "order": order}
        events = ["payment.authorized", "payment.captured", "order.paid"]
        for event in reversed(events) if scenario == "out_of_order" else events:
            self.publish(event, payload, scenario)

    def fail(self, payment: Row, reason: str, description: str) -> None:
        """There is no money."""
        payment |= {
            "status": "failed",
            "error_code": "BAD_REQUEST_ERROR",
            "error_reason": reason,
            "error_description": description,
        }
        self.publish("payment.failed", {"payment": payment}, self.scenario_of(payment["email"]))

    def refund(self, payment: Row, amount: int, receipt: str | None) -> Row:
        """Give back a part of a captured payment, by API or on the dashboard."""
        if not payment["captured"]:
            raise RefusedError("The payment has not been captured.", "payment_not_captured")
        if not 0 < amount <= payment["amount"] - payment["amount_refunded"]:
            raise RefusedError("The refund amount is greater than what is left.", "refund_amount_too_high")
        if receipt and any(known["receipt"] == receipt for known in self.refunds.values()):
            raise RefusedError("A refund with this receipt exists.", "duplicate_receipt")
        payment["amount_refunded"] += amount
        if payment["amount_refunded"] == payment["amount"]:
            payment["status"] = "refunded"
        key = _id("rfnd")
        made = {
            "id": key,
            "entity": "refund",
            "amount": amount,
            "currency": "INR",
            "payment_id": payment["id"],
            "receipt": receipt,
            "status": "processed",
            "created_at": self.now(),
        }
        self.refunds[key] = made
        payload = {"refund": made, "payment": payment}
        scenario = self.scenario_of(payment["email"])
        for event in ("refund.created", "refund.processed"):
            self.publish(event, payload, scenario)
        return made

    def change_token(self, token_id: str, status: str) -> None:
        """A token is paused, cancelled or confirmed at the bank's side."""
        token = self.tokens[token_id]
        token["recurring_details"]["status"] = status
        email = self.customers[token["customer_id"]]["email"]
        self.publish(f"token.{status}", {"token": token}, self.scenario_of(email))

    def link(self, body: Row) -> Row:
        """A payment link; its reference is used once."""
        reference = body["reference_id"]
        if any(known["reference_id"] == reference for known in self.links.values()):
            raise RefusedError(f"payment link with given reference_id ({reference}) already exists")
        key = _id("plink")
        made = {
            "id": key,
            "entity": "payment_link",
            "amount": int(body["amount"]),
            "amount_paid": 0,
            "currency": "INR",
            "reference_id": reference,
            "status": "created",
            "short_url": f"{self.base_url()}/sim/pay/{key}",
            "expire_by": int(body["expire_by"]),
            "callback_url": body.get("callback_url"),
            "customer": dict(body["customer"]),
            "payments": [],
            "created_at": self.now(),
        }
        self.links[key] = made
        return made

    def answer_link(self, link: Row, *, approved: bool) -> Row | None:
        """The payer pays or is declined; a link that ended, or was paid, takes no money."""
        if link["status"] != "created":
            return None
        order = self.orders.get(link.get("order_id", "")) or self.order(link["amount"], link["reference_id"])
        link["order_id"] = order["id"]
        payment = self.payment(order, link["amount"], "upi", email=_email(link))
        if not approved:
            self.fail(payment, "payment_declined", "The bank declined.")
            return payment
        link["payments"] = [{"payment_id": payment["id"], "amount": payment["amount"], "status": "captured"}]
        link |= {"status": "paid", "amount_paid": payment["amount"]}
        self.capture(payment)
        payload = {"payment_link": link, "payment": payment, "order": order}
        self.publish("payment_link.paid", payload, self.scenario_of(_email(link)))
        return payment


def _email(link: Row) -> str:
    return str(link["customer"].get("email", ""))


def _instrument(method: str, email: str) -> Row:
    if method == "card":
        return {"card": {"network": "Visa", "last4": "4242"}}
    if method == "emandate":
        return {"bank": "HDFC"}
    return {"vpa": {"username": email.partition("@")[0] or "payer", "handle": "okaxis"}}


def _id(prefix: str) -> str:
    return f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(14))}"
