"""The payment provider: its paths, the payer's pages, scenarios, the clock, signed webhooks with retries."""

import hashlib
import hmac
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from aiohttp import ClientConnectionError, encode_basic_auth, web
from aiohttp.test_utils import TestServer

from simulator.config import Config
from simulator.payments import book
from simulator.payments.app import PAYMENTS
from simulator.payments.book import SCENARIOS
from simulator.payments.contract import CONTRACT
from simulator.tests.conftest import Graph, until

AUTH = encode_basic_auth(Config().razorpay_key_id, Config().razorpay_key_secret)


class Payer:
    """A client that acts as the merchant and as the payer."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    async def call(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        async with self.graph.client.request(
            method, f"/v1/{path}", json=body, headers={"Authorization": options.pop("auth", AUTH)}, **options
        ) as answer:
            return answer.status, await answer.json()

    async def mandate(
        self, email: str = "a@shop.example", method: str = "upi", choice: str = "approve"
    ) -> dict[str, Any]:
        status, made = await self.call(
            "POST",
            "subscription_registration/auth_links",
            {
                "customer": {"name": "A", "email": email, "contact": "+919845012345"},
                "type": "link",
                "amount": 100,
                "currency": "INR",
                "description": "Autopay",
                "receipt": "m1",
                "subscription_registration": {
                    "method": method,
                    "max_amount": 1_500_000,
                    **({} if method == "emandate" else {"frequency": "as_presented"}),
                },
            },
        )
        assert status == 200, made
        page = f"/sim/mandate/{made['id']}"
        async with self.graph.client.get(page) as shown:
            assert "Approve" in await shown.text()
        async with self.graph.client.post(page, data={"answer": choice}, allow_redirects=False) as answer:
            assert answer.status == 200, "its page leads nowhere"
        return made

    async def debit(
        self, mandate: dict[str, Any], email: str = "a@shop.example", amount: int = 59_000
    ) -> tuple[int, dict[str, Any], str]:
        _, order = await self.call("POST", "orders", {"amount": amount, "currency": "INR", "receipt": "r1"})
        state = await self.graph.control("GET", "payments")
        body = {
            "email": email,
            "contact": "+919845012345",
            "amount": amount,
            "currency": "INR",
            "order_id": order["id"],
            "customer_id": mandate["customer_id"],
            "token": state["tokens"][-1]["id"],
            "recurring": True,
        }
        status, made = await self.call("POST", "payments/create/recurring", body)
        return status, made, order["id"]

    async def webhooks(self) -> list[str]:
        return [hook["event"] for hook in (await self.graph.control("GET", "payments"))["webhooks"]]


@pytest.fixture
async def payer(graph: Graph) -> Payer:
    """A payer whose debits end only when the test advances the clock."""
    await graph.control("POST", "clock/advance", {"hours": 0})
    return Payer(graph)


async def test_keys_are_checked(payer: Payer) -> None:
    status, body = await payer.call("GET", "orders", auth=encode_basic_auth("rzp_sim_gateway", "wrong"))
    assert (status, body["error"]["code"]) == (401, "BAD_REQUEST_ERROR")


async def test_a_debit_ends_when_the_clock_has_moved_on(payer: Payer) -> None:
    mandate = await payer.mandate()
    _, made, order_id = await payer.debit(mandate)
    _, before = await payer.call("GET", f"orders/{order_id}/payments")
    assert [row["status"] for row in before["items"]] == ["created"]
    await payer.graph.control("POST", "clock/advance", {"hours": 24})
    await payer.graph.control("POST", "clock/advance", {"hours": 2})
    _, after = await payer.call("GET", f"orders/{order_id}/payments")
    assert [(row["id"], row["status"]) for row in after["items"]] == [
        (made["razorpay_payment_id"], "captured")
    ]
    assert (await payer.webhooks())[-3:] == ["payment.authorized", "payment.captured", "order.paid"]


async def test_debits_end_by_themselves_until_the_clock_is_advanced(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer = Payer(graph)
    the_book = graph.client.app[PAYMENTS].book
    payments = the_book.payments

    async def debit(seconds: float) -> str:
        """Create a debit that ends after `seconds` of real time, unless the clock is advanced. Returns its id."""
        monkeypatch.setattr(book, "COMPRESSION", 25 * book.HOUR / seconds)
        _, made, _ = await payer.debit(mandate)
        return str(made["razorpay_payment_id"])

    mandate = await payer.mandate()
    first = await debit(0.05)
    await until(lambda: payments[first]["status"] == "captured")
    second = await debit(3600)
    assert the_book.timers
    await graph.control("POST", "clock/advance", {"hours": 1})
    third = await debit(3600)
    assert not the_book.timers
    assert [payments[key]["status"] for key in (second, third)] == ["created", "created"]
    await graph.control("POST", "clock/advance", {"hours": 24})
    assert [payments[key]["status"] for key in (second, third)] == ["captured", "created"]


@pytest.mark.parametrize(
    ("scenario", "events", "status"),
    [
        ("insufficient_funds", ["payment.failed"], "failed"),
        ("late_auth", ["payment.failed"], "failed"),
        ("notification_failed", ["order.notification.failed", "payment.failed"], "failed"),
        ("token_paused", ["payment.failed", "token.paused"], "failed"),
        ("token_cancelled", ["payment.failed", "token.cancelled"], "failed"),
        ("peak_hour_hold", [], "created"),
        ("webhook_lost", [], "captured"),
        ("out_of_order", ["order.paid", "payment.captured", "payment.authorized"], "captured"),
        (
            "duplicate_webhook",
            [name for name in ("payment.authorized", "payment.captured", "order.paid") for _ in range(2)],
            "captured",
        ),
    ],
)
async def test_scenarios_by_the_tag_of_the_address(
    payer: Payer, scenario: str, events: list[str], status: str
) -> None:
    assert scenario in SCENARIOS
    email = f"a+{scenario}@shop.example"
    mandate = await payer.mandate(email)
    before = len(await payer.webhooks())
    _, _, order_id = await payer.debit(mandate, email)
    await payer.graph.control("POST", "clock/advance", {"hours": 26})
    _, found = await payer.call("GET", f"orders/{order_id}/payments")
    assert [row["status"] for row in found["items"]] == [status]
    announced = {"notification_failed": 0, "webhook_lost": 0, "duplicate_webhook": 2}.get(scenario, 1)
    assert (await payer.webhooks())[before:] == ["order.notification.delivered"] * announced + events


async def test_answers_that_are_spoiled(payer: Payer) -> None:
    await payer.graph.control("POST", "scenario", {"scenario": "500"})
    order = {"amount": 100, "currency": "INR", "receipt": "r"}
    assert (await payer.call("POST", "orders", order))[0] == 500
    assert (await payer.graph.control("GET", "payments"))["orders"] == []
    await payer.graph.control("POST", "scenario", {"scenario": "timeout_after_accept"})
    with pytest.raises(ClientConnectionError):
        await payer.call("POST", "orders", order)
    _, found = await payer.call("GET", "orders?receipt=r")
    assert found["count"] == 1, "it was done all the same"


async def test_above_the_limit_is_refused(payer: Payer) -> None:
    status, body, _ = await payer.debit(await payer.mandate(), amount=1_500_001)
    assert (status, body["error"]["reason"]) == (400, "amount_exceeds_maximum")


async def test_a_declined_mandate_makes_no_token(payer: Payer) -> None:
    await payer.mandate(choice="decline")
    assert (await payer.graph.control("GET", "payments"))["tokens"] == []
    await payer.mandate(choice="abandon")
    assert (await payer.graph.control("GET", "payments"))["tokens"] == []


async def test_a_link_is_paid_once_and_returns_with_a_signature(payer: Payer) -> None:
    body = {
        "amount": 59_000,
        "reference_id": "pat_1",
        "expire_by": 2**33,
        "customer": {"email": "a@shop.example"},
        "callback_url": "https://shop.example/paid",
    }
    _, link = await payer.call("POST", "payment_links", body)
    assert (await payer.call("POST", "payment_links", body))[0] == 400, "a reference is used once"
    page = f"/sim/pay/{link['id']}"
    async with payer.graph.client.post(page, data={"answer": "decline"}) as declined:
        assert "declined" in await declined.text()
    async with payer.graph.client.post(page, data={"answer": "approve"}, allow_redirects=False) as paid:
        query = dict(part.split("=") for part in paid.headers["Location"].partition("?")[2].split("&"))
    signed = f"{link['id']}|pat_1|paid|{query['razorpay_payment_id']}"
    wanted = hmac.new(Config().razorpay_key_secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    assert query["razorpay_signature"] == wanted
    _, known = await payer.call("GET", f"payment_links/{link['id']}")
    assert (known["status"], known["amount_paid"]) == ("paid", 59_000)
    assert (await payer.call("POST", f"payment_links/{link['id']}/cancel"))[0] == 400


async def test_webhooks_are_signed_and_repeated_until_answered(payer: Payer) -> None:
    received: list[tuple[bytes, str, str]] = []

    async def take(request: web.Request) -> web.Response:
        headers = request.headers
        received.append(
            (await request.read(), headers["X-Razorpay-Signature"], headers["X-Razorpay-Event-Id"])
        )
        return web.Response(status=500 if len(received) == 1 else 200)

    app = web.Application()
    app.router.add_post("/hook", take)
    server = TestServer(app)
    await server.start_server()
    await payer.graph.control("PUT", "payments", {"webhook_url": str(server.make_url("/hook"))})
    await payer.mandate(choice="decline")
    await until(lambda: len(received) == 2)
    await server.close()
    assert received[0] == received[1]
    body, signature, _ = received[0]
    secret = Config().razorpay_webhook_secret.encode()
    assert signature == hmac.new(secret, body, hashlib.sha256).hexdigest()
    assert json.loads(body)["event"] == "payment.failed"


async def test_bad_controls_are_refused_and_reset_clears_the_orders(payer: Payer) -> None:
    async with payer.graph.client.post("/sim/scenario", json={"scenario": "luck"}) as answer:
        assert answer.status == 400
    async with payer.graph.client.post("/sim/clock/advance", json={"hours": -1}) as answer:
        assert answer.status == 400
    async with payer.graph.client.get("/sim/mandate/inv_x") as answer:
        assert answer.status == 404
    await payer.mandate()
    await payer.graph.control("POST", "payments/reset")
    assert (await payer.graph.control("GET", "payments"))["orders"] == []


async def test_payments_are_refunded_by_the_api_and_on_the_dashboard(payer: Payer) -> None:
    _, made, _ = await payer.debit(await payer.mandate())
    payment_id = made["razorpay_payment_id"]
    path = f"payments/{payment_id}/refund"
    assert (await payer.call("POST", path, {"amount": 100}))[0] == 400, "not captured yet"
    await payer.graph.control("POST", "clock/advance", {"hours": 26})
    before = len(await payer.webhooks())
    status, refund = await payer.call("POST", path, {"amount": 9_000, "receipt": "rfd_1"})
    assert (status, refund["status"], refund["receipt"]) == (200, "processed", "rfd_1")
    assert (await payer.call("POST", path, {"amount": 100, "receipt": "rfd_1"}))[0] == 400, (
        "a receipt is used once"
    )
    assert (await payer.call("POST", path, {"amount": 50_001}))[0] == 400, "more than is left"
    await payer.graph.control("POST", "refund", {"payment_id": payment_id, "amount": 50_000})
    _, payment = await payer.call("GET", f"payments/{payment_id}")
    assert (payment["status"], payment["amount_refunded"]) == ("refunded", 59_000)
    _, listed = await payer.call("GET", f"payments/{payment_id}/refunds")
    assert [row["receipt"] for row in listed["items"]] == ["rfd_1", None]
    assert (await payer.webhooks())[before:] == ["refund.created", "refund.processed"] * 2


def shape_of(name: str) -> dict[str, Any]:
    return {key: kind for key, kind in CONTRACT["entities"][name]["members"].items() if not key.endswith("?")}


async def test_rows_have_every_member_of_their_page_and_null_where_nothing_is_known(payer: Payer) -> None:
    made = await payer.mandate(choice="abandon")
    assert set(shape_of("invoice")) <= set(made)
    assert made["expire_by"] is made["payment_id"] is made["cancelled_at"] is None
    mandate = await payer.mandate()
    _, _, order_id = await payer.debit(mandate)
    await payer.graph.control("POST", "clock/advance", {"hours": 26})
    _, payments = await payer.call("GET", f"orders/{order_id}/payments")
    body = {"amount": 59_000, "reference_id": "pat_1", "customer": {"email": "a@shop.example"}}
    _, link = await payer.call("POST", "payment_links", body)
    assert link["payments"] is None
    await payer.graph.control("POST", "refund", {"payment_id": payments["items"][0]["id"], "amount": 100})
    state = await payer.graph.control("GET", "payments")
    for name in ("order", "payment", "token", "refund", "payment_link"):
        for row in state[f"{name}s"]:
            assert set(shape_of(name)) <= set(row), name
            assert not [key for key in row if key.startswith("_")]
    assert "max_amount" not in state["tokens"][0], "tokens of UPI have none"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("orders", {"amount": 100, "currency": "INR", "callback_url": "https://x.example"}, "callback_url"),
        ("orders", {"amount": 99, "currency": "INR"}, "amount"),
        ("orders", {"amount": "100", "currency": "INR"}, "amount"),
        ("orders", {"amount": 100}, "currency"),
        ("payment_links", {"amount": 100, "customer": {"mail": "a@shop.example"}}, "mail"),
        ("payment_links", {"amount": 40}, "amount"),
        ("subscription_registration/auth_links", {"subscription_registration": {"method": "x"}}, "method"),
        ("payments/pay_1/refund", {"amount": 99}, "amount"),
    ],
)
async def test_what_a_page_does_not_name_is_refused(
    payer: Payer, path: str, body: dict[str, Any], field: str
) -> None:
    status, answered = await payer.call("POST", path, body)
    assert (status, answered["error"]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("method", "more"),
    [("upi", {"callback_url": "https://shop.example"}), ("emandate", {"frequency": "as_presented"})],
)
async def test_a_registration_takes_only_the_members_of_its_method(
    payer: Payer, method: str, more: dict[str, str]
) -> None:
    wanted = {"method": method, "max_amount": 1_500_000}
    body = {
        "customer": {"name": "A", "email": "a@shop.example", "contact": "+919845012345"},
        "type": "link",
        "amount": 100,
        "currency": "INR",
        "description": "Autopay",
        "receipt": "m1",
        "subscription_registration": wanted if method == "upi" else {**wanted, **more},
        **(more if method == "upi" else {}),
    }
    status, answered = await payer.call("POST", "subscription_registration/auth_links", body)
    assert status == 400
    assert "not required and should not be sent" in answered["error"]["description"]


async def test_a_deleted_token_of_upi_lives_on_at_the_bank_and_a_cancelled_one_does_not(payer: Payer) -> None:
    mandate = await payer.mandate()
    token = (await payer.graph.control("GET", "payments"))["tokens"][0]["id"]
    path = f"customers/{mandate['customer_id']}/tokens/{token}"
    assert (await payer.call("DELETE", path))[1] == {"deleted": True}
    assert (await payer.call("GET", path))[1]["recurring_details"]["status"] == "confirmed"
    assert (await payer.call("PUT", f"{path}/cancel"))[1] == {"status": "cancellation_initiated"}
    assert (await payer.call("GET", path))[1]["recurring_details"]["status"] == "cancelled"


async def test_what_was_collected_is_settled_once_less_fees_and_refunds(payer: Payer) -> None:
    _, made, _ = await payer.debit(await payer.mandate(), amount=59_000)
    await payer.graph.control("POST", "clock/advance", {"hours": 26})
    await payer.graph.control("POST", "refund", {"payment_id": made["razorpay_payment_id"], "amount": 9_000})
    settled = (await payer.graph.control("POST", "settle"))["settlement"]
    day = datetime.fromtimestamp(settled["created_at"], timezone(timedelta(hours=5, minutes=30)))
    query = f"year={day.year}&month={day.month}&day={day.day}"
    _, found = await payer.call("GET", f"settlements/recon/combined?{query}")
    assert [(row["type"], row["amount"], row["fee"]) for row in found["items"]] == [
        ("payment", 100, 2),
        ("payment", 59_000, 1_392),
        ("refund", 9_000, 0),
    ]
    assert settled["amount"] == sum(row["credit"] - row["debit"] for row in found["items"])
    _, listed = await payer.call("GET", "settlements")
    assert [row["id"] for row in listed["items"]] == [settled["id"]]
    assert (await payer.graph.control("POST", "settle"))["settlement"] is None
    assert (await payer.webhooks())[-1] == "settlement.processed"
