"""The payment provider's book: orders, payments, tokens and links, and the outcomes of debits.

A scenario decides how debits end. The payer's e-mail (`name+scenario@…`) or the control API chooses the scenario. The
clock shows real time plus the hours added by `POST /sim/clock/advance`. Until the first such call, a debit's 25 hours
pass in five seconds. Rows have the members of Razorpay's entities (`contract.py`). Members that begin with `_` are
internal to the book.
"""

import asyncio
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.payments.contract import entity

HOUR = 3600
COMPRESSION = 25 * HOUR / 5
LIMIT_WITHOUT_OTP = 1_500_000
IST = timedelta(hours=5, minutes=30)
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
    """The provider refuses a call with 400, a description and a reason."""

    def __init__(self, description: str, reason: str = "input_validation_failed") -> None:
        super().__init__(description)
        self.description, self.reason = description, reason


@dataclass
class Book:
    """All objects of the provider. `publish(event, payload, scenario)` sends a webhook."""

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
    settlements: dict[str, Row] = field(default_factory=dict)
    settled: list[Row] = field(default_factory=list)
    scenarios: dict[str, str] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    """The times at which pending payments are decided, by the book's clock."""
    timers: set[asyncio.TimerHandle] = field(default_factory=set)
    is_advanced: bool = False
    """Whether the clock was ever advanced, even by zero hours. Once it was, no timer ends a payment."""

    def clear(self) -> None:
        """Delete everything and reset the clock to real time."""
        self._cancel_timers()
        for known in (
            self.customers,
            self.orders,
            self.payments,
            self.tokens,
            self.links,
            self.refunds,
            self.registrations,
            self.settlements,
        ):
            known.clear()
        self.settled.clear()
        self.scenarios.clear()
        self.due.clear()
        self.offset = 0.0
        self.is_advanced = False

    def _cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()

    def now(self) -> int:
        """Seconds since 1970 by the book's clock."""
        return int(time.time() + self.offset)

    def scenario_of(self, email: str) -> str:
        """The scenario of a payer. In order of precedence: the scenario set for the address, the tag in the address,
        the scenario set for all payers, `ok`.
        """
        tag = email.partition("@")[0].partition("+")[2]
        return self.scenarios.get(email) or (tag if tag in SCENARIOS else self.scenarios.get("*", "ok"))

    def advance(self, hours: float) -> None:
        """Advance the clock, and process all pending payments and links that have become due, in order."""
        self.offset += hours * HOUR
        self.is_advanced = True
        self._cancel_timers()
        while ripe := sorted((at, key) for key, at in self.due.items() if at <= self.now()):
            self.decide(ripe[0][1])
        for link in self.links.values():
            if link["status"] == "created" and 0 < link["expire_by"] <= self.now():
                link |= {"status": "expired", "expired_at": self.now()}
                self.publish("payment_link.expired", {"payment_link": link}, self.scenario_of(_email(link)))
        for row in self.registrations.values():
            if row["status"] == "issued" and row["expire_by"] and row["expire_by"] <= self.now():
                row |= {"status": "expired", "expired_at": self.now()}
                email = row["customer_details"]["email"]
                self.publish("invoice.expired", {"invoice": row}, self.scenario_of(email))

    def customer(self, details: Row) -> Row:
        """The customer with this email address, created on first use."""
        for known in self.customers.values():
            if known["email"] == details.get("email"):
                return known
        made: Row = {"id": _id("cust"), "entity": "customer", **details}
        self.customers[str(made["id"])] = made
        return made

    def order(self, amount: int, receipt: str, customer_id: str | None = None) -> Row:
        """Create an order."""
        made = entity(
            "order",
            id=_id("order"),
            amount=amount,
            amount_due=amount,
            currency="INR",
            receipt=receipt,
            status="created",
            customer_id=customer_id,
            created_at=self.now(),
        )
        self.orders[made["id"]] = made
        return made

    def payment(self, order: Row, amount: int, method: str, payer: str, **more: Any) -> Row:
        """Create a pending payment of an order."""
        made = entity(
            "payment",
            id=_id("pay"),
            amount=amount,
            currency="INR",
            status="created",
            order_id=order["id"],
            method=method,
            created_at=self.now(),
            _payer=payer,
            **more,
        )
        order["attempts"] += 1
        self.payments[made["id"]] = made
        return made

    def register(self, body: Row) -> Row:
        """Create a registration link for a mandate. Without a given end, the mandate never ends."""
        wanted = body["subscription_registration"]
        customer = self.customer(dict(body["customer"]))
        order = self.order(body["amount"], body["receipt"], customer["id"])
        key = _id("inv")
        made = entity(
            "invoice",
            id=key,
            status="issued",
            type="link",
            receipt=body["receipt"],
            invoice_number=body["receipt"],
            order_id=order["id"],
            customer_id=customer["id"],
            customer_details=customer,
            short_url=f"{self.base_url()}/sim/mandate/{key}",
            expire_by=body.get("expire_by"),
            amount=body["amount"],
            amount_due=body["amount"],
            currency=body["currency"],
            currency_symbol="₹",
            description=body["description"],
            sms_status="pending" if body.get("sms_notify", True) else None,
            email_status="pending" if body.get("email_notify", True) else None,
            issued_at=self.now(),
            created_at=self.now(),
            _method=wanted["method"],
            _max_amount=wanted.get("max_amount", 100_000_000),
        )
        self.registrations[key] = made
        return made

    def cancel_registration(self, key: str) -> Row:
        """End a registration link that nobody approved."""
        row = self.registrations[key]
        if row["status"] != "issued":
            raise RefusedError(f"Invoice cannot be cancelled as it is in {row['status']} state")
        row |= {"status": "cancelled", "cancelled_at": self.now()}
        return row

    def answer_mandate(self, registration: Row, *, approved: bool) -> Row:
        """Approve or decline a mandate as the payer. Returns the payment of the registration."""
        customer, order = self.customers[registration["customer_id"]], self.orders[registration["order_id"]]
        scenario = self.scenario_of(customer["email"])
        method = registration["_method"]
        payment = self.payment(
            order,
            order["amount"],
            method,
            customer["email"],
            customer_id=customer["id"],
            email=customer["email"],
            invoice_id=registration["id"],
        )
        if not approved:
            self.fail(payment, "payment_cancelled", "The payer declined.")
            return payment
        token = entity(
            "token",
            id=_id("token"),
            method=method,
            recurring=True,
            recurring_details={"status": "confirmed", "failure_reason": None},
            used_at=self.now(),
            created_at=self.now(),
            _customer=customer["id"],
            _cap=registration["_max_amount"],
            **_instrument(method, customer["email"]),
        )
        if method != "upi":  # a UPI token has no end; only an e-mandate's token has a limit
            token["expired_at"] = self.now() + 10 * 365 * 24 * HOUR
        if method == "emandate":
            token["max_amount"] = registration["_max_amount"]
        self.tokens[token["id"]] = token
        registration |= {"status": "paid", "payment_id": payment["id"], "paid_at": self.now()}
        payment["token_id"] = token["id"]
        self.capture(payment)
        self.publish("token.confirmed", {"token": token}, scenario)
        payload = {"payment": payment, "order": order, "invoice": registration}
        self.publish("invoice.paid", payload, scenario)
        return payment

    def debit(self, body: Row) -> Row:
        """Create a recurring payment with a token. The payment succeeds or fails about a day later."""
        order, token = self.orders.get(body["order_id"]), self.tokens.get(body["token"])
        if order is None or token is None or token["_customer"] != body["customer_id"]:
            raise RefusedError("The order or the token does not exist.")
        if order["status"] == "paid":
            raise RefusedError("Order already paid.", "order_already_paid")
        if token["recurring_details"]["status"] != "confirmed":
            raise RefusedError("The token is not confirmed.", "token_not_confirmed")
        amount, scenario = int(body["amount"]), self.scenario_of(body["email"])
        if amount > token["_cap"] or (scenario == "over_15000" and amount > LIMIT_WITHOUT_OTP):
            raise RefusedError("The amount exceeds the mandate's limit.", "amount_exceeds_maximum")
        payment = self.payment(
            order,
            amount,
            token["method"],
            body["email"],
            token_id=token["id"],
            customer_id=token["_customer"],
            email=body["email"],
        )
        hours = _DEBIT_HOURS[token["method"]] + (12 if scenario == "peak_hour_hold" else 0)
        self.wait(payment, hours)
        if scenario != "notification_failed":
            self.announce(order["id"], token["id"], "delivered", scenario)
        return payment

    def announce(self, order_id: str, token_id: str, status: str, scenario: str) -> None:
        """Record whether the bank notified the payer of a debit."""
        notification = entity(
            "notification",
            id=_id("notification"),
            order_id=order_id,
            token_id=token_id,
            status=status,
            payment_after=self.now(),
        )
        self.publish(f"order.notification.{status}", {"notification": notification}, scenario)

    def wait(self, payment: Row, hours: float) -> None:
        """End a payment once the book's clock has advanced by `hours`. If nobody ever advances the clock, a timer ends
        the payment after `hours` divided by COMPRESSION.
        """
        key = payment["id"]
        self.due[key] = self.now() + hours * HOUR
        if not self.is_advanced:
            loop = asyncio.get_running_loop()
            self.timers.add(loop.call_later(hours * HOUR / COMPRESSION, self.decide, key))

    def decide(self, payment_id: str) -> None:
        """End a pending payment according to its payer's scenario."""
        if self.due.pop(payment_id, None) is None:
            return
        payment = self.payments[payment_id]
        scenario = self.scenario_of(payment["_payer"])
        if scenario == "late_auth" and payment["status"] == "created":
            self.fail(payment, "payment_timed_out", "The bank did not answer in time.")
            self.wait(payment, 24)
        elif scenario == "insufficient_funds":
            self.fail(payment, "insufficient_funds", "The account has too little money.")
        elif scenario == "notification_failed":
            self.announce(payment["order_id"], payment["token_id"], "failed", scenario)
            self.fail(payment, "notification_failed", "The payer could not be notified.")
        elif scenario in {"token_paused", "token_cancelled"}:
            self.fail(payment, scenario, "The mandate does not stand any more.")
            self.change_token(payment["token_id"], scenario.removeprefix("token_"))
        else:
            self.capture(payment)

    def capture(self, payment: Row) -> None:
        """Capture a payment. A failed payment can be captured too (late authorisation)."""
        order = self.orders[payment["order_id"]]
        base = payment["amount"] * 2 // 100
        tax = base * 18 // 100
        payment |= {"status": "captured", "captured": True, "fee": base + tax, "tax": tax}
        payment |= dict.fromkeys(("error_code", "error_reason", "error_description"))
        order |= {"status": "paid", "amount_paid": payment["amount"], "amount_due": 0}
        scenario = self.scenario_of(payment["_payer"])
        payload = {"payment": payment, "order": order}
        events = ["payment.authorized", "payment.captured", "order.paid"]
        for event in reversed(events) if scenario == "out_of_order" else events:
            self.publish(event, payload, scenario)

    def fail(self, payment: Row, reason: str, description: str) -> None:
        """Fail a payment."""
        payment |= {
            "status": "failed",
            "error_code": "BAD_REQUEST_ERROR",
            "error_reason": reason,
            "error_description": description,
        }
        self.publish("payment.failed", {"payment": payment}, self.scenario_of(payment["_payer"]))

    def refund(self, payment: Row, amount: int, receipt: str | None) -> Row:
        """Refund a captured payment in part or in full."""
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
        made = entity(
            "refund",
            id=key,
            amount=amount,
            currency="INR",
            payment_id=payment["id"],
            receipt=receipt,
            status="processed",
            speed_requested="normal",
            speed_processed="normal",
            created_at=self.now(),
        )
        self.refunds[key] = made
        payload = {"refund": made, "payment": payment}
        scenario = self.scenario_of(payment["_payer"])
        for event in ("refund.created", "refund.processed"):
            self.publish(event, payload, scenario)
        return made

    def change_token(self, token_id: str, status: str) -> None:
        """Pause, cancel or confirm a token at the bank."""
        token = self.tokens[token_id]
        token["recurring_details"]["status"] = status
        email = self.customers[token["_customer"]]["email"]
        self.publish(f"token.{status}", {"token": token}, self.scenario_of(email))

    def link(self, body: Row) -> Row:
        """Create a payment link. A reference can be used only once."""
        reference = body["reference_id"]
        if any(known["reference_id"] == reference for known in self.links.values()):
            raise RefusedError(f"payment link with given reference_id ({reference}) already exists")
        key = _id("plink")
        made = entity(
            "payment_link",
            id=key,
            amount=body["amount"],
            currency="INR",
            reference_id=reference,
            description=body.get("description", ""),
            status="created",
            short_url=f"{self.base_url()}/sim/pay/{key}",
            expire_by=body.get("expire_by", 0),
            customer=dict(body["customer"]),
            payments=None,
            created_at=self.now(),
            **{name: body[name] for name in ("callback_url", "callback_method") if name in body},
        )
        self.links[key] = made
        return made

    def answer_link(self, link: Row, *, approved: bool) -> Row | None:
        """Pay or decline a link as the payer. A link that ended or was paid accepts no payment."""
        if link["status"] != "created":
            return None
        order = self.orders.get(link.get("order_id", "")) or self.order(link["amount"], link["reference_id"])
        link["order_id"] = order["id"]
        payment = self.payment(order, link["amount"], "upi", _email(link))
        if not approved:
            self.fail(payment, "payment_declined", "The bank declined.")
            return payment
        paid = entity(
            "link_payment",
            payment_id=payment["id"],
            plink_id=link["id"],
            amount=payment["amount"],
            method="upi",
            status="captured",
            created_at=self.now(),
        )
        link["payments"] = [paid]
        link |= {"status": "paid", "amount_paid": payment["amount"]}
        self.capture(payment)
        payload = {"payment_link": link, "payment": payment, "order": order}
        self.publish("payment_link.paid", payload, self.scenario_of(_email(link)))
        return payment

    def settle(self) -> Row | None:
        """Pay the collected amount, less fees and refunds, to the merchant's bank account. None if there is nothing to
        settle.
        """
        known = {row["entity_id"] for row in self.settled}
        paid = [row for row in self.payments.values() if row["captured"] and row["id"] not in known]
        returned = [row for row in self.refunds.values() if row["id"] not in known]
        net = sum(row["amount"] - row["fee"] for row in paid) - sum(row["amount"] for row in returned)
        if not (paid or returned):
            return None
        made = entity(
            "settlement",
            id=_id("setl"),
            amount=net,
            status="processed",
            utr=secrets.token_hex(8).upper(),
            created_at=self.now(),
        )
        self.settlements[made["id"]] = made
        for row in paid:
            self._item(
                made, row, "payment", credit=row["amount"] - row["fee"], fee=row["fee"], tax=row["tax"]
            )
        for row in returned:
            self._item(made, row, "refund", debit=row["amount"], payment_id=row["payment_id"])
        self.publish("settlement.processed", {"settlement": made}, self.scenarios.get("*", "ok"))
        return made

    def _item(self, settlement: Row, row: Row, kind: str, **amounts: Any) -> None:
        self.settled.append(
            entity(
                "settled_item",
                entity_id=row["id"],
                type=kind,
                amount=row["amount"],
                currency="INR",
                settled=True,
                created_at=row["created_at"],
                settled_at=settlement["created_at"],
                settlement_id=settlement["id"],
                settlement_utr=settlement["utr"],
                order_id=row.get("order_id"),
                **amounts,
            )
        )

    def settled_on(self, year: int, month: int, day: int | None) -> list[Row]:
        """The items settled in a month, or on a day of the month, in Indian time."""
        wanted = (year, month, day)
        found = []
        for row in self.settled:
            local = datetime.fromtimestamp(row["settled_at"], UTC) + IST
            if (local.year, local.month, day and local.day) == wanted:
                found.append(row)
        return found


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
