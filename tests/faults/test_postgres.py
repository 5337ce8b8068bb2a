"""Postgres is stopped for a while and killed, while calls, deliveries and a batch are under way.

Real web processes, workers and beat use a separate Postgres. Clients and Meta call all the time and record the
responses. At the end, the tests compare the responses with what the receiver and the simulator got.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
from django.conf import settings

from messaging.models import BatchItem
from messaging.tests.conftest import connected_number
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests import migrated_cluster
from tests.database_settings import connected_to
from tests.faults.callers import Callers
from tests.faults.service import LONG, Postgres, Service, busiest, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery

pytestmark = pytest.mark.faults

ROUNDS = 3 if LONG else 1
STOPPED_SECONDS = 10 if LONG else 3
BATCH = 4_000 if LONG else 400
RATE = 80
COPIES = 2 if LONG else 1
"""The number of beats, and of workers of each kind."""
WEB_PROCESSES = 4 if LONG else 2


@pytest.fixture
def postgres(tmp_path: Path, django_db_blocker: Any) -> Iterator[Postgres]:
    """A Postgres for this test, which Django uses in this process too."""
    migrated_cluster.copy_to(tmp_path)
    server = Postgres(tmp_path)
    try:
        with connected_to(server.url), django_db_blocker.unblock():
            yield server
    finally:
        server.close()


@pytest.fixture
def service(postgres: Postgres, tmp_path: Path, simulator: RunningSimulator) -> Iterator[Service]:
    """Workers and beat on that Postgres."""
    running = Service(
        tmp_path,
        DATABASE_URL=postgres.url,
        META_GRAPH_URL=simulator.url,
        DELIVERY_LEASE_SECONDS="3",
        WEBHOOK_RETRY_SCHEDULE="0.5,0.5,1,1,1,1,1,1,1,1",
    )
    try:
        for _ in range(COPIES):
            running.worker("deliveries")
            running.worker("batches")
            running.beat()
        yield running
    finally:
        running.close()


def test_postgres_stopped_and_killed_while_everything_is_under_way(
    postgres: Postgres, service: Service, receiver: Receiver, simulator: RunningSimulator
) -> None:
    tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
    number, batch_number = (
        connected_number(tenant, simulator.account([{"throughput": level}]), throughput_level=level)
        for level in ("HIGH", "STANDARD")
    )
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    # Slow sends: the database becomes unavailable after Meta accepted some of them.
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 200})
    urls = [web.url for web in service.webs(WEB_PROCESSES)]
    url = urls[0]
    token = api_keys.create(name="server", environment="live", tenant=tenant).key
    callers = Callers(urls, token, number)

    batch_id = callers.start_batch(batch_number, BATCH, receiver.url)
    callers.start("/v1/numbers", f"/v1/messages/batch/{batch_id}", "/v1/events?limit=1")
    every_kind = set(callers.answered)

    def goes_on() -> None:
        """Wait until calls, deliveries and the batch succeed. Earlier successes do not count."""
        now, arrived, total = time.monotonic(), len(receiver.received), simulator.total()
        wait_until(lambda: callers.kinds(200, since=now) == every_kind, "every kind of call is answered 200")
        wait_until(lambda: len(receiver.received) > arrived, "deliveries go on")
        wait_until(
            lambda: (
                received(simulator, batch_number, since=total)
                or not BatchItem.objects.filter(status="pending").exists()
            ),
            "the batch goes on or has ended",
        )

    goes_on()
    for _ in range(ROUNDS):
        gone = time.monotonic()
        postgres.stop()
        callers.more_sends()  # the earlier senders may be waiting for Meta or for the database
        wait_until(
            lambda gone=gone: callers.kinds(503, since=gone) == every_kind,
            "every kind of call is answered 503",
        )
        time.sleep(max(0.0, gone + STOPPED_SECONDS - time.monotonic()))  # the duration of the fault
        postgres.start()
        goes_on()
        postgres.kill()
        postgres.start()
        goes_on()
    callers.stop()
    wait_until(lambda: ended(url, callers, batch_id), "the batch ends")
    wait_until(
        lambda: callers.have_outbound_events([got.json for got in receiver.received]),
        "every send answered 200 has its event",
    )
    wait_until(lambda: not Delivery.objects.exclude(status="delivered").exists(), "every event is delivered")
    service.assert_well()

    assert_answers(callers)
    sent = Counter(
        orjson.loads(row["body"])["text"]["body"]
        for each in (number, batch_number)
        for row in received(simulator, each)
    )
    assert max(sent.values()) == 1, "a message went out twice"
    events = [got.json for got in receiver.received]
    callers.assert_sends(sent)
    callers.assert_notifications(events)
    assert_batch(batch_id, sent, events)
    # A stalled runner may send 2 % late. The rest of the tolerance is for delays of this machine.
    assert busiest(simulator, batch_number) <= RATE * 5 * 1.03, "the pace was exceeded"


def ended(url: str, callers: Callers, batch_id: str) -> bool:
    answer = requests.get(f"{url}/v1/messages/batch/{batch_id}", headers=callers.authorised, timeout=30)
    # An idle connection that ended with Postgres makes one more call fail.
    assert answer.status_code in {200, 503}, answer.text
    return answer.status_code == 200 and bool(answer.json()["status"] == "completed")


def assert_answers(callers: Callers) -> None:
    """Check that every response follows the contract, and that each 503 is as docs/errors.md describes."""
    for kind, answered in callers.answered.items():
        allowed = {200, 503} | ({409, 502} if kind == "sends with a key" else set())
        assert {each.status for each in answered} <= allowed, kind
        for response in (each.response for each in answered if each.status == 503):
            body = response.json()
            if kind == "health":
                assert body == {"ok": False, "sha": body["sha"], "db": "error"}
                assert int(response.headers["X-Service-Processing-Ms"]) < 3000, "load balancers wait"
                continue
            assert body["source"] == response.headers["X-Service-Error-Source"] == settings.SERVICE_NAME
            assert (body["error"]["code"], body["error"]["details"]) == ("service_unavailable", None)
            assert body["request_id"] == response.headers["X-Service-Request-Id"]
            assert response.headers["Retry-After"] == "1"


def assert_batch(batch_id: str, sent: Counter[str], events: list[Any]) -> None:
    """Check that every item has ended and has its event, and that accepted items were sent once."""
    items = list(BatchItem.objects.order_by("idx"))
    assert len(items) == BATCH
    assert {item.status for item in items} <= {"accepted", "failed"}
    for item in items:
        if item.status == "accepted":
            assert sent[f"Message {item.idx}"] == 1
        else:
            error = orjson.loads(bytes(item.response or b""))["error"]
            assert (error["code"], error["details"]["reason"]) == ("outcome_unknown", "interrupted")
    arrived = {event["dedupe_key"] for event in events}
    assert {f"out:{batch_id}:{idx}" for idx in range(BATCH)} | {f"batch:{batch_id}"} <= arrived
