"""The client against Razorpay's documented contract, and with answers that the simulator never gives."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import responses
from django.conf import settings as service
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from billing.models import LedgerEntry, ProviderTrouble
from billing.payments import mandates
from billing.payments.provider import (
    MandateState,
    NotCarriedOut,
    Payer,
    Payment,
    ProviderRefused,
    ProviderRefusesService,
    ProviderUnreachable,
    Settled,
    Settlement,
)
from billing.payments.razorpay import Razorpay
from billing.tests.test_payments import mandate_of
from gateway.api.errors import ServiceError
from tenants.models import Tenant

pytestmark = pytest.mark.django_db

API = "https://razorpay.example/v1"
ORDERS = f"{API}/orders"
BLOCKED = {"error": {"code": "BAD_REQUEST_ERROR", "description": "Your account is blocked"}}
UNREACHED = MaxRetryError(None, ORDERS, NewConnectionError(None, "refused"))  # type: ignore[arg-type]
NO_AMOUNT = {"error": {"code": "BAD_REQUEST_ERROR", "description": "The amount is too low", "reason": "low"}}


@pytest.fixture(autouse=True)
def _elsewhere(settings: Any) -> None:
    settings.RAZORPAY_BASE_URL = "https://razorpay.example/v1"


@pytest.mark.parametrize(
    ("answer", "error", "is_trouble"),
    [
        ({"status": 500, "json": NO_AMOUNT}, ProviderUnreachable, False),
        ({"status": 429, "json": NO_AMOUNT}, NotCarriedOut, False),
        ({"status": 200, "body": "<html>"}, ProviderUnreachable, False),
        ({"body": requests.ConnectTimeout()}, NotCarriedOut, False),
        ({"body": requests.ConnectionError(UNREACHED)}, NotCarriedOut, False),
        ({"body": requests.ConnectionError(ProtocolError("reset"))}, ProviderUnreachable, False),
        ({"body": requests.ReadTimeout()}, ProviderUnreachable, False),
        ({"status": 300, "json": {}}, ProviderRefused, False),
        ({"status": 302, "headers": {"Location": ORDERS}, "json": {}}, ProviderRefused, False),
        ({"status": 200, "json": []}, ProviderRefused, False),
        ({"status": 400, "json": NO_AMOUNT}, ProviderRefused, False),
        ({"status": 401, "json": {}}, ProviderRefusesService, True),
        ({"status": 403, "json": {}}, ProviderRefusesService, True),
        ({"status": 400, "json": BLOCKED}, ProviderRefusesService, True),
    ],
)
@responses.activate
def test_an_answer_is_a_refusal_only_when_it_says_so(
    answer: dict[str, Any], error: type[ServiceError], is_trouble: bool
) -> None:
    asked = responses.post(ORDERS, **answer)
    with pytest.raises(error) as raised:
        Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1")
    assert type(raised.value) is error
    assert asked.call_count == 1, "and nothing is asked twice"
    assert ProviderTrouble.objects.exists() is is_trouble


@responses.activate
def test_what_the_provider_said_of_the_account_is_stored() -> None:
    said = "Your account is blocked. " * 20
    responses.post(ORDERS, status=400, json={"error": {**BLOCKED["error"], "description": said}})
    with pytest.raises(ProviderRefusesService):
        Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1")
    trouble = ProviderTrouble.objects.get()
    assert (trouble.provider, trouble.status, trouble.text) == ("razorpay", 400, said[:300])


@responses.activate
def test_trouble_is_over_with_the_next_answer() -> None:
    responses.post(ORDERS, status=401, json={})
    responses.post(ORDERS, json={"id": "order_1"})
    with pytest.raises(ProviderRefusesService):
        Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1")
    assert Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1") == "order_1"
    assert not ProviderTrouble.objects.exists()


@responses.activate
def test_trouble_with_one_product_ends_with_the_next_success_of_the_same_call() -> None:
    denied = {
        "error": {"code": "BAD_REQUEST_ERROR", "description": "Recurring is not enabled on your account"}
    }
    debit = f"{API}/payments/create/recurring"
    responses.post(debit, status=400, json=denied)
    responses.post(debit, json={"razorpay_payment_id": "pay_1"})
    responses.get(f"{API}/settlements", json={"items": []})
    with pytest.raises(ProviderRefusesService):
        CALLS["debit"]()
    assert list(CLIENT.settlements()) == []
    assert ProviderTrouble.objects.get().call == "POST payments/create/recurring"
    CALLS["debit"]()
    assert not ProviderTrouble.objects.exists()


CONTRACT = json.loads((service.BASE_DIR / "simulator" / "payments" / "contract.json").read_text())
"""Members, types and nulls in Razorpay's documentation. The simulator uses the same file."""
PAYER = Payer("Asha Traders", "bills@shop.example", "+919845012345")
LATER = datetime(2026, 12, 8, tzinfo=UTC)
CLIENT = Razorpay()


def register(method: str) -> object:
    return CLIENT.register_mandate(
        payer=PAYER, method=method, max_amount_paise=1_500_000, receipt="mnd_1", expires_at=LATER
    )


CALLS: dict[str, Callable[[], Any]] = {
    **{f"register_{method}": partial(register, method) for method in ("upi", "card", "emandate")},
    "cancel_registration": lambda: CLIENT.cancel_registration("inv_1"),
    "create_order": lambda: CLIENT.create_order(receipt="pat_1", amount_paise=59_000, invoice_number="WG/1"),
    "list_orders": lambda: CLIENT.find_order("pat_1"),
    "order_payments": lambda: CLIENT.payments_of("order_1"),
    "debit": lambda: CLIENT.debit(
        order_id="order_1",
        payer=PAYER,
        customer_id="cust_1",
        token_id="token_1",
        amount_paise=59_000,
        description="Invoice",
    ),
    "get_payment": lambda: CLIENT.payment("pay_1"),
    "get_token": lambda: CLIENT.mandate(customer_id="cust_1", token_id="token_1"),
    "cancel_token": lambda: CLIENT.cancel_mandate(customer_id="cust_1", token_id="token_1", method="upi"),
    "delete_token": lambda: CLIENT.cancel_mandate(customer_id="cust_1", token_id="token_1", method="card"),
    "refund": lambda: CLIENT.refund(payment_id="pay_1", amount_paise=100, receipt="rfd_1"),
    "payment_refunds": lambda: CLIENT.refunds_of("pay_1"),
    "create_link": lambda: CLIENT.create_link(
        payer=PAYER,
        amount_paise=59_000,
        reference="pat_1",
        description="Invoice",
        expires_at=LATER,
        return_url="https://shop.example/done",
    ),
    "list_links": lambda: CLIENT.find_link("pat_1"),
    "get_link": lambda: CLIENT.link("plink_1"),
    "cancel_link": lambda: CLIENT.cancel_link("plink_1"),
    "list_settlements": lambda: list(CLIENT.settlements()),
    "settled_items": lambda: CLIENT.settled_of(Settlement("setl_1", 100, "UTR1", LATER)),
}
"""The client's calls, by their names in the contract."""


def documented(shape: Any, *, full: bool) -> Any:
    """An answer of a documented shape: with every member (`full`), or with only the required members and all nulls."""
    if isinstance(shape, list):
        return {"entity": "collection", "count": 1, "items": [documented(shape[0], full=full)]}
    if isinstance(shape, str):
        shape = CONTRACT["entities"][shape]["members"]
    made: dict[str, Any] = {}
    for name, kind in shape.items():
        if name.endswith("?") and not full:
            continue
        made[name.removesuffix("?")] = _value(name.removesuffix("?"), kind, full=full)
    return made


def _value(name: str, kind: Any, *, full: bool) -> Any:
    if isinstance(kind, list):
        return [documented(kind[0], full=full)]
    if isinstance(kind, dict):
        return documented(kind, full=full)
    if kind.endswith("|null") and not full:
        return None
    examples = {"status": "created", "currency": "INR", "id": "id_1", "event": "order.paid"}
    kinds = {"integer": 1595491014, "string": examples.get(name, "text"), "boolean": False, "object": {}}
    return kinds.get(kind.removesuffix("|null"), [])


def assert_documented(members: dict[str, Any], body: dict[str, Any], within: str = "") -> None:
    """Check that a request has the required members, no unknown ones, and no amount below the minimum."""
    known = {name.removesuffix("?"): kind for name, kind in members.items()}
    assert set(body) <= set(known), f"{within}: {set(body) - set(known)} is/are not required"
    assert {name for name in members if not name.endswith("?")} <= set(body), within
    for name, value in body.items():
        kind = known[name]
        if isinstance(kind, dict):
            assert_documented(kind, value, f"{within}.{name}")
            continue
        wanted, _, least = kind.partition(">=")
        assert type(value) is {"integer": int, "string": str, "boolean": bool, "object": dict}[wanted], name
        assert not least or int(str(value)) >= int(least), name


@pytest.mark.parametrize("full", [False, True], ids=["every null", "every member"])
@pytest.mark.parametrize("call", CALLS)
@responses.activate
def test_each_call_asks_what_its_page_names_and_reads_what_its_page_shows(call: str, full: bool) -> None:
    contract = CONTRACT["calls"][call]
    method, path = contract["request"].split(" /v1/")
    url = re.compile("https://razorpay.example/v1/" + path.replace("{}", "[a-z0-9_]+") + r"(\?.*)?$")
    responses.add(method, url, json=documented(contract["answer"], full=full))
    refunds = re.compile(r"https://razorpay.example/v1/payments/\w+/refunds")
    responses.get(refunds, json=documented(CONTRACT["calls"]["payment_refunds"]["answer"], full=full))
    CALLS[call]()
    asked = responses.calls[0].request
    query = parse_qs(urlsplit(str(asked.url)).query)
    assert query.keys() <= set(contract.get("query", [])), "a query that the page does not name"
    body = json.loads(asked.body or "{}")
    assert_documented(contract.get("body", {}), body)
    if call.startswith("register"):
        assert (body["sms_notify"], body["email_notify"]) == (False, False), "nobody is sent an SMS"
        assert body["expire_by"] == int(LATER.timestamp())


@pytest.mark.parametrize(
    ("payer", "customer"),
    [
        (PAYER, {"name": "Asha Traders", "email": "bills@shop.example", "contact": "+919845012345"}),
        (
            Payer("Sri Lakshmi Logistics, Warehousing & Allied Services (India) Pvt", "", ""),
            {"name": "Sri Lakshmi Logistics Warehousing and Allied Servi"},
        ),
        (Payer("Café D'Arc", f"{'a' * 56}@shop.example", ""), {"name": "Cafe D'Arc"}),
        (Payer("आशा ट्रेडर्स", "", ""), {"name": "Customer"}),
    ],
    ids=["known", "long", "accents", "script"],
)
@responses.activate
def test_a_payer_is_named_as_the_provider_takes_names(payer: Payer, customer: dict[str, str]) -> None:
    """Razorpay takes 3 to 50 ASCII characters, and refuses a call with an empty address."""
    made = responses.post(
        f"{API}/payment_links", json=documented(CONTRACT["calls"]["create_link"]["answer"], full=True)
    )
    CLIENT.create_link(
        payer=payer,
        amount_paise=59_000,
        reference="pat_1",
        description="Invoice",
        expires_at=LATER,
        return_url=None,
    )
    assert json.loads(made.calls[0].request.body or "")["customer"] == customer


@pytest.mark.parametrize("full", [False, True], ids=["every null", "every member"])
@pytest.mark.parametrize("event", CONTRACT["notices"])
def test_each_notice_names_what_it_is_about(event: str, full: bool) -> None:
    payload: dict[str, Any] = {
        name: {"entity": {**documented(name, full=full), "id": f"{name}_1"}}
        for name in CONTRACT["notices"][event]
    }
    payload["created_at"] = 1595456636  # a member of the payload in notices, not of an entity
    for name, member in (("payment", "order_id"), ("invoice", "order_id"), ("notification", "order_id")):
        if name in payload:
            payload[name]["entity"][member] = f"{name}_order"
    if "refund" in payload:
        payload["refund"]["entity"]["payment_id"] = "pay_refunded"
    notice = CLIENT.read_notice(json.dumps({"entity": "event", "event": event, "payload": payload}).encode())
    named = {
        "payment": notice.ids >= {"payment_1"},
        "token": notice.ids >= {"token_1"},
        "order": notice.ids >= {"order_1"},
        "invoice": notice.ids >= {"invoice_order"},
        "notification": notice.ids >= {"notification_order"},
        "payment_link": notice.ids >= {"payment_link_1"},
        "refund": notice.ids >= {"pay_refunded"},
        "settlement": True,
    }
    assert all(named[name] for name in CONTRACT["notices"][event])


@pytest.mark.parametrize("event", ["order.paid\0", "", 7, None, "x" * 61])
def test_what_names_no_event_is_no_notice(event: Any) -> None:
    with pytest.raises(ValueError, match="not a notice"):
        CLIENT.read_notice(json.dumps({"event": event}).encode())


def test_ids_that_are_none_are_dropped() -> None:
    payload = {"payment": {"entity": {"id": "pay_\0", "order_id": 7, "token_id": ["x"]}}}
    notice = CLIENT.read_notice(json.dumps({"event": "payment.captured", "payload": payload}).encode())
    assert not (notice.ids)


@pytest.mark.parametrize("rows", [0, 99, 100, 101, 250])
@responses.activate
def test_a_list_is_read_to_its_end_in_pages(rows: int) -> None:
    def page(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        query = parse_qs(urlsplit(str(request.url)).query)
        skip, most = int(query["skip"][0]), int(query["count"][0])
        items = [
            {"id": f"setl_{place}", "status": "processed", "amount": 1, "utr": "U", "created_at": 1}
            for place in range(skip, min(skip + most, rows))
        ]
        return 200, {}, json.dumps({"items": items})

    responses.add_callback(responses.GET, "https://razorpay.example/v1/settlements", callback=page)
    assert [each.id for each in Razorpay().settlements()] == [f"setl_{place}" for place in range(rows)]


PAID = {"id": "pay_1", "amount": 59_000, "currency": "INR", "amount_refunded": 300, "token_id": "token_1"}
REFUNDS = [
    {"id": f"rfnd_{status}", "amount": amount, "status": status}
    for status, amount in (("processed", 100), ("pending", 200), ("failed", 400))
]
SAID = {"error_code": "BAD", "error_reason": "payment_declined", "error_description": "Declined"}
FAILED = {"code": "BAD", "reason": "payment_declined", "message": "Declined"}


@pytest.mark.parametrize(
    ("status", "read", "error"),
    [
        ("created", "processing", None),
        ("authorized", "processing", None),
        ("captured", "captured", None),
        ("refunded", "captured", None),
        ("failed", "failed", FAILED),
        ("unheard_of", "processing", None),
    ],
)
@responses.activate
def test_the_status_of_a_payment_is_read(status: str, read: str, error: dict[str, str] | None) -> None:
    responses.get(f"{API}/payments/pay_1", json={**PAID, **SAID, "status": status})
    responses.get(f"{API}/payments/pay_1/refunds", json={"items": REFUNDS})
    assert CLIENT.payment("pay_1") == Payment("pay_1", read, 59_000, 100, "token_1", error)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "read"),
    [
        ("created", "live"),
        ("partially_paid", "live"),
        ("paid", "paid"),
        ("expired", "ended"),
        ("cancelled", "ended"),
    ],
)
@responses.activate
def test_the_status_of_a_link_is_read_and_the_refunds_of_its_payments(status: str, read: str) -> None:
    payment = {"payment_id": "pay_1", "status": "captured", "amount": 59_000}
    made = {"id": "plink_1", "short_url": "https://rzp.example/l", "status": status, "payments": [payment]}
    responses.get(f"{API}/payment_links/plink_1", json=made)
    responses.get(f"{API}/payments/pay_1", json={**PAID, "status": "captured"})
    responses.get(f"{API}/payments/pay_1/refunds", json={"items": REFUNDS})
    link = CLIENT.link("plink_1")
    assert (link.id, link.url, link.status) == ("plink_1", "https://rzp.example/l", read)
    assert [payment.refunded_paise for payment in link.payments] == [100]


@pytest.mark.parametrize(
    ("token", "status", "instrument"),
    [
        ({"recurring_details": {"status": "initiated"}}, "pending", None),
        ({"recurring_details": None, "vpa": None}, "pending", None),
        ({"recurring_details": {"status": "unheard_of"}}, "pending", None),
        ({"recurring_details": {"status": "rejected"}}, "rejected", None),
        ({"recurring_details": {"status": "paused"}}, "paused", None),
        ({"recurring_details": {"status": "cancellation_initiated"}}, "cancelled", None),
        ({"recurring_details": {"status": "cancelled"}, "bank": "HDFC"}, "cancelled", "HDFC"),
        (
            {"recurring_details": {"status": "confirmed"}, "card": {"network": "Visa", "last4": "4242"}},
            "active",
            "Visa •••• 4242",
        ),
        (
            {"recurring_details": {"status": "confirmed"}, "vpa": {"username": "gita", "handle": "okaxis"}},
            "active",
            "g***@okaxis",
        ),
    ],
)
@responses.activate
def test_the_state_of_a_mandate_is_read_and_its_account_is_masked(
    token: dict[str, Any], status: str, instrument: str | None
) -> None:
    ends = int(LATER.timestamp())
    responses.get(
        f"{API}/customers/cust_1/tokens/token_1", json={"id": "token_1", "expired_at": ends, **token}
    )
    found = CLIENT.mandate(customer_id="cust_1", token_id="token_1")
    assert found == MandateState("token_1", status, instrument, LATER)


@responses.activate
def test_a_mandate_is_of_the_payment_that_approved_it_which_is_posted_once_captured(tenant: Tenant) -> None:
    made = [
        {**PAID, "id": f"pay_{place}", "token_id": token, "status": status, "created_at": place}
        for place, token, status in (
            (3, "token_3", "captured"),
            (1, "token_1", "failed"),
            (4, None, "failed"),
        )
    ]
    responses.get(f"{API}/orders/order_1/payments", json={"items": made})
    responses.get(re.compile(rf"{API}/payments/pay_\d/refunds"), json={"items": []})
    responses.get(f"{API}/customers/cust_1/tokens/token_3", json={"id": "token_3"})
    mandate = mandate_of(tenant, "pending", provider_order_id="order_1", provider_customer_id="cust_1")
    mandates.sync(mandate.pk, LATER)
    mandate.refresh_from_db()
    assert mandate.provider_token_id == "token_3"
    assert [entry.text for entry in LedgerEntry.objects.all()] == ["pay_3"]


@responses.activate
def test_a_failed_try_on_the_page_leaves_the_mandate_to_the_payment_that_approves_it(tenant: Tenant) -> None:
    tries = [{**PAID, "id": "pay_1", "token_id": "token_1", "status": "failed", "created_at": 1}]
    responses.get(f"{API}/orders/order_1/payments", json={"items": tries})
    responses.get(re.compile(rf"{API}/payments/pay_\d/refunds"), json={"items": []})
    said = {"token_1": "rejected", "token_2": "confirmed"}
    for token, status in said.items():
        url = f"{API}/customers/cust_1/tokens/{token}"
        responses.get(url, json={"id": token, "recurring_details": {"status": status}})
    mandate = mandate_of(tenant, "pending", provider_order_id="order_1", provider_customer_id="cust_1")
    mandates.sync(mandate.pk, mandate.created_at)
    mandate.refresh_from_db()
    assert (mandate.status, mandate.provider_token_id) == ("pending", None)
    tries.append({**tries[0], "id": "pay_2", "token_id": "token_2", "status": "captured", "created_at": 2})
    responses.replace(responses.GET, f"{API}/orders/order_1/payments", json={"items": tries})
    mandates.sync(mandate.pk, mandate.created_at)
    mandate.refresh_from_db()
    assert (mandate.status, mandate.provider_token_id) == ("active", "token_2")


@pytest.mark.parametrize(
    ("status", "read"),
    [
        ("pending", "processing"),
        ("processed", "processed"),
        ("failed", "failed"),
        ("unheard_of", "processing"),
    ],
)
@responses.activate
def test_the_status_of_a_refund_is_read(status: str, read: str) -> None:
    rows = [{"id": "rfnd_1", "receipt": "rfd_1", "status": status, "amount": 100}]
    responses.get(f"{API}/payments/pay_1/refunds", json={"items": rows})
    [found] = CLIENT.refunds_of("pay_1")
    assert (found.id, found.receipt, found.status, found.amount_paise) == ("rfnd_1", "rfd_1", read, 100)


@responses.activate
def test_a_settlement_has_its_items_of_two_indian_days() -> None:
    """Settled on 8 December at 23:00 UTC, which is 9 December in India."""
    row = {"type": "payment", "currency": "INR", "settlement_id": "setl_1", "amount": 100, "fee": 3, "tax": 1}
    by_day = {
        "09": [
            {**row, "entity_id": "pay_1", "credit": 97, "debit": 0},
            {**row, "entity_id": "pay_other", "settlement_id": "setl_2", "credit": 97, "debit": 0},
        ],
        "10": [
            {**row, "entity_id": "pay_1", "credit": 97, "debit": 0},
            {**row, "entity_id": "rfnd_1", "type": "refund", "credit": 0, "debit": 100},
            {**row, "entity_id": "pay_usd", "currency": "USD", "credit": 97, "debit": 0},
        ],
    }

    def listed(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        query = parse_qs(urlsplit(str(request.url)).query)
        assert (query["year"], query["month"]) == (["2026"], ["12"])
        return 200, {}, json.dumps({"items": by_day[query["day"][0]]})

    responses.add_callback(responses.GET, f"{API}/settlements/recon/combined", callback=listed)
    settlement = Settlement("setl_1", -3, "UTR1", datetime(2026, 12, 8, 23, tzinfo=UTC))
    assert CLIENT.settled_of(settlement) == [
        Settled("pay_1", "setl_1", "payment", 100, 3, 1, 97),
        Settled("rfnd_1", "setl_1", "refund", 100, 3, 1, -100),
    ]


@responses.activate
def test_only_a_settlement_that_reached_the_bank_counts() -> None:
    rows = [
        {"id": f"setl_{status}", "status": status, "amount": 97, "utr": "UTR1", "created_at": 1_796_688_000}
        for status in ("created", "processed", "failed")
    ]
    responses.get(f"{API}/settlements", json={"items": rows})
    assert list(CLIENT.settlements()) == [
        Settlement("setl_processed", 97, "UTR1", datetime(2026, 12, 8, tzinfo=UTC))
    ]


@pytest.mark.parametrize(("secret", "signed"), [("new", True), ("old", True), ("", False), ("other", False)])
def test_a_notice_is_signed_with_one_of_the_secrets(settings: Any, secret: str, signed: bool) -> None:
    settings.RAZORPAY_WEBHOOK_SECRETS = ["new", "old", ""]
    signature = hmac.new(secret.encode(), b"{}", hashlib.sha256).hexdigest()
    assert CLIENT.is_signed(b"{}", {"X-Razorpay-Signature": signature}) is signed
    assert not CLIENT.is_signed(b"{} ", {"X-Razorpay-Signature": signature})
    assert not CLIENT.is_signed(b"{}", {})
