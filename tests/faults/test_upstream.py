"""Meta hangs, closes connections, or answers 500, HTML or 429, while single sends and a batch run together.

Each message is sent once, and its caller gets what the specification says (send rules 6 to 8). The customer's number
selects the fault, so one run has messages for each fault, and messages without a fault.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
from django.conf import settings

from messaging.models import BatchItem
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.faults.service import LONG, Service, database_url, received, wait_until
from tests.simulated import RunningSimulator
from webhooks.models import Event

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

TIMEOUT_MS = 4_000
EACH = 40 if LONG else 4
"""The number of customers for each fault. Each customer gets a single message and an item of the batch."""


@dataclass(frozen=True)
class Fault:
    """A behaviour of Meta, the resulting status and `error` of a single message, and the result of a batch item."""

    does: dict[str, Any]
    status: int
    error: dict[str, Any]
    item_http_status: int | None
    item_error: dict[str, Any]


def unreachable(**details: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The error of a single message and of an item with an unknown outcome."""
    of_single = {key: value for key, value in details.items() if value != "unusable_answer"}
    return (
        {"code": "meta_unreachable", "details": {"timeout_ms": TIMEOUT_MS, **of_single}},
        {"code": "outcome_unknown", "details": {"timeout_ms": TIMEOUT_MS, **details}},
    )


def silent(reason: str, **does: Any) -> Fault:
    of_single, of_item = unreachable(reason=reason)
    return Fault(does, 502, of_single, None, of_item)


def unusable(status: int) -> Fault:
    of_single, of_item = unreachable(upstream_status=status, reason="unusable_answer")
    return Fault({"action": "html", "status": status}, 502, of_single, status, of_item)


def refused(status: int, code: int, *, came_with: int) -> Fault:
    does = {"action": "error", "code": code, "status": came_with}
    return Fault(does, status, {"code": code}, came_with, {"code": code})


FAULTS = {
    "nothing": Fault({"action": "slow", "ms": 100}, 200, {}, 200, {}),
    "hangs": silent("timeout", action="hang"),
    "hangs after the send": silent("timeout", action="hang", when="after"),
    "closes": silent("connection_error", action="reset"),
    "closes after the send": silent("connection_error", action="reset", when="after"),
    "500": refused(500, 131000, came_with=500),
    "503": refused(503, 2, came_with=503),
    "HTML as 502": unusable(502),
    "HTML as 200": unusable(200),
    "429": refused(429, 80007, came_with=429),
    "throttles as 400": refused(429, 130429, came_with=400),
}


def customer(name: str, place: int) -> str:
    return f"+9170{list(FAULTS).index(name):02d}{place:06d}"


def message(kind: str, name: str, place: int) -> dict[str, Any]:
    return {"to": customer(name, place), "type": "text", "text": {"body": f"{kind} {name} {place}"}}


EVERY = [(name, place) for place in range(EACH) for name in FAULTS]


@pytest.fixture
def service(tmp_path: Path, simulator: RunningSimulator) -> Iterator[Service]:
    """A batch worker on the tests' database."""
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        META_GRAPH_URL=simulator.url,
        UPSTREAM_TIMEOUT_MS=str(TIMEOUT_MS),
    )
    running.worker("batches")
    yield running
    running.close()


def test_what_meta_does_is_reported_and_no_message_goes_out_twice(
    tenant: Tenant, key: NewKey, simulator: RunningSimulator, service: Service
) -> None:
    account = simulator.account([{"throughput": "HIGH"}])
    number = connected_number(tenant, account, throughput_level="HIGH")
    simulator.faults(
        *({"match": {"to": customer(name, place)}, **FAULTS[name].does} for name, place in EVERY)
    )
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    url = service.web().url
    callers = Callers(url, key.key, number)
    batch = callers.post(
        "/v1/messages/batch",
        {"from": number.phone_number_id, "messages": [message("item", *each) for each in EVERY]},
    ).json()
    first = callers.send_all()
    again = callers.send_all()

    for name, place in EVERY:
        answer, repeated = first[name, place], again[name, place]
        assert_reported(answer, FAULTS[name])
        if answer.status_code == 429:
            # A throttled message was certainly not sent, so the repeat is a new attempt (decision "Messages").
            assert_reported(repeated, FAULTS[name])
            assert "Idempotent-Replayed" not in repeated.headers
            continue
        assert (repeated.status_code, repeated.content) == (answer.status_code, answer.content)
        assert repeated.headers["Idempotent-Replayed"] == "true"

    path = f"{url}/v1/messages/batch/{batch['id']}"
    ended = lambda: requests.get(path, headers=callers.headers, timeout=30).json()  # noqa: E731
    wait_until(lambda: ended()["status"] == "completed", "the batch ends")
    items = list(BatchItem.objects.order_by("idx"))
    for (name, _), item in zip(EVERY, items, strict=True):
        fault = FAULTS[name]
        response = orjson.loads(bytes(item.response or b""))
        assert (item.status, item.http_status) == (
            "accepted" if fault.status == 200 else "failed",
            fault.item_http_status,
        )
        assert has(response.get("error", {}), fault.item_error), (name, response)
    well = sum(FAULTS[name].status == 200 for name, _ in EVERY)
    assert (ended()["accepted"], ended()["failed"]) == (well, len(EVERY) - well)

    sent = sorted(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    throttled = [each for each in EVERY if FAULTS[each[0]].status == 429]
    assert sent == sorted(
        message(kind, *each)["text"]["body"]
        for kind, tried in (("single", EVERY), ("single", throttled), ("item", EVERY))
        for each in tried
    )
    # Each item has an event. A single message has an event only if Meta accepted the message.
    assert Event.objects.filter(type="message.outbound").count() == len(EVERY) + well
    assert Event.objects.filter(type="batch.completed").count() == 1
    simulator.faults()
    assert callers.post("/v1/messages", callers.body("nothing", EACH)).status_code == 200
    assert PhoneNumber.objects.get(pk=number.pk).connection_state == "connected"


class Callers:
    """Clients that send the single messages, each with an Idempotency-Key."""

    def __init__(self, url: str, token: str, number: PhoneNumber) -> None:
        self.url, self.number = url, number
        self.headers = {"Authorization": f"Bearer {token}"}

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        return requests.post(self.url + path, json=body, headers=self.headers | headers, timeout=60)

    def body(self, name: str, place: int) -> dict[str, Any]:
        return {"from": self.number.phone_number_id, **message("single", name, place)}

    def send_all(self) -> dict[tuple[str, int], requests.Response]:
        """Send every single message once, a dozen at a time."""
        left = list(EVERY)
        answers = {}

        def client() -> None:
            while left:
                name, place = left.pop()
                key = {"Idempotency-Key": f"{list(FAULTS).index(name)}-{place}"}
                answers[name, place] = self.post("/v1/messages", self.body(name, place), **key)

        threads = [threading.Thread(target=client) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        return answers


def assert_reported(answer: requests.Response, fault: Fault) -> None:
    body = answer.json()
    assert answer.status_code == fault.status, body
    if fault.status == 200:
        assert list(body) == ["messaging_product", "contacts", "messages"]
        return
    source = settings.SERVICE_NAME if fault.status == 502 else "meta"
    assert body["source"] == answer.headers["X-Service-Error-Source"] == source
    assert has(body["error"], fault.error), body
    assert ("Retry-After" in answer.headers) == (fault.status == 429)
    assert answer.elapsed.total_seconds() * 1000 < TIMEOUT_MS + 1_500


def has(error: dict[str, Any], members: dict[str, Any]) -> bool:
    return error.items() >= members.items()
