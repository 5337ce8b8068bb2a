"""SIGKILL and SIGTERM of a web process and of the small host, which has all roles in one process.

Calls, notifications, a batch and deliveries are under way. The simulator and the receiver show what arrived.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests

from messaging.models import Batch, BatchItem
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from phone_numbers.tokens import graph_of
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.faults.callers import Callers
from tests.faults.service import BESIDE_WEB, LONG, Service, Valkey, Web, database_url, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

KILLS = 10 if LONG else 2
BATCH = 4_000 if LONG else 500
ALL_ROLES = pytest.mark.parametrize("beside", [(), BESIDE_WEB], ids=["web", "small-host"])


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey, simulator: RunningSimulator) -> Iterator[Service]:
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        REDIS_URL=valkey.url,
        META_GRAPH_URL=simulator.url,
        WEBHOOK_RETRY_SCHEDULE="0.5,0.5,1,1,1,1,1,1,1,1",
    )
    yield running
    running.close()


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    """A number whose sends take long enough for a process to die during them."""
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    number = _number(tenant, simulator)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 200})
    return number


def _number(tenant: Tenant, simulator: RunningSimulator, level: str = "HIGH") -> PhoneNumber:
    account = simulator.account([{"throughput": level}])
    number = connected_number(tenant, account, throughput_level=level)
    # The small host soon checks the subscription at Meta.
    assert graph_of(number.account).subscribe(number.account.waba_id).ok
    return number


def test_kill_of_the_small_host_loses_no_event_and_sends_nothing_twice(
    tenant: Tenant,
    key: NewKey,
    number: PhoneNumber,
    service: Service,
    simulator: RunningSimulator,
    receiver: Receiver,
) -> None:
    batch_number = _number(tenant, simulator, "STANDARD")
    # A repeat of an interrupted send is 409 for as long as the send may take.
    host = service.small_host(UPSTREAM_TIMEOUT_MS="4000")
    callers = Callers(host.url, key.key, number)

    callers.start_batch(batch_number, BATCH, receiver.url)
    callers.may_break = True
    callers.start("/v1/events?limit=1")

    def has_ended() -> bool:
        return not Batch.objects.filter(completed_at=None).exists()

    def goes_on() -> None:
        """Wait until calls, deliveries and the batch succeed. Earlier successes do not count."""
        now, arrived, total = time.monotonic(), len(receiver.received), simulator.total()
        wait_until(lambda: callers.kinds(200, since=now) == set(callers.answered), "every call is answered")
        wait_until(lambda: len(receiver.received) > arrived, "deliveries go on")
        wait_until(
            lambda: received(simulator, batch_number, since=total) or has_ended(),
            "the batch goes on or has ended",
        )

    goes_on()
    for _ in range(KILLS):
        host.kill()
        host.start()
        goes_on()
    callers.stop()
    wait_until(has_ended, "the batch ends")
    wait_until(lambda: not Delivery.objects.exclude(status="delivered").exists(), "every event is delivered")
    service.assert_well()

    sent = Counter(
        orjson.loads(row["body"])["text"]["body"]
        for each in (number, batch_number)
        for row in received(simulator, each)
    )
    assert max(sent.values()) == 1, "a message went out twice"
    callers.assert_sends(sent)

    def every_send_has_its_event() -> bool:
        """Whether every send has its event. The send journal adds the events of interrupted sends."""
        arrived = {got.json["id"]: got.json for got in receiver.received}.values()
        recorded = Counter(_text_of(event) for event in arrived if event["type"] == "message.outbound")
        assert max(recorded.values()) == 1, "a message has two events"
        return set(sent) <= set(recorded)

    wait_until(every_send_has_its_event, "every message that was sent has its event")
    events = [got.json for got in receiver.received]
    callers.assert_outbound_events(events)
    callers.assert_notifications(events)
    for item in BatchItem.objects.order_by("idx"):
        if item.status == "accepted":
            assert sent[f"Message {item.idx}"] == 1
        else:
            error = orjson.loads(bytes(item.response or b""))["error"]
            assert (error["code"], error["details"]["reason"]) == ("outcome_unknown", "interrupted")


def _text_of(event: Any) -> str:
    text: str = event["data"]["request"]["text"]["body"]
    return text


@ALL_ROLES
def test_a_stop_lets_sends_notifications_and_reads_finish(
    key: NewKey,
    number: PhoneNumber,
    service: Service,
    simulator: RunningSimulator,
    tenant: Tenant,
    beside: tuple[str, ...],
) -> None:
    # The small host syncs the account. Without an endpoint, the sync finds that the number is not connected.
    verified_endpoint(tenant)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 3_000})
    web = service.web(*beside)
    callers = Callers(web.url, key.key, number)
    statuses: list[int] = []
    calls = [
        threading.Thread(target=lambda name=f"Message {place}": statuses.append(callers.send(name)))
        for place in range(20)
    ]
    for call in calls:
        call.start()
    wait_until(lambda: len(received(simulator, number)) == 20, "the upstream has every message")
    began = time.monotonic()
    assert web.stop() == 0
    assert time.monotonic() - began < 20, "it waits for nothing but what is under way"
    for call in calls:
        call.join(10)
    assert statuses == [200] * 20
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{web.url}/v1/health", timeout=5)
    assert len(received(simulator, number)) == 20


def test_a_stop_under_calls_refuses_nobody_who_was_let_in(
    key: NewKey,
    number: PhoneNumber,
    service: Service,
    simulator: RunningSimulator,
    tenant: Tenant,
) -> None:
    verified_endpoint(tenant)
    web, small_host = service.web(), service.small_host()
    callers = Callers([web.url, small_host.url], key.key, number)
    callers.may_break = True
    callers.start("/v1/numbers")

    def stop(host: Web) -> None:
        now = time.monotonic()
        wait_until(lambda: callers.kinds(200, since=now) == set(callers.answered), "every call is answered")
        assert host.stop() == 0

    stop(web)
    web.start()
    web.wait()
    stop(small_host)
    callers.stop()
    statuses = {kind: {each.status for each in answered} for kind, answered in callers.answered.items()}
    assert statuses == {kind: {200} for kind in callers.answered}
    sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    answered = {each.name for kind in statuses if kind.startswith("sends") for each in callers.ok(kind)}
    assert sent == Counter(dict.fromkeys(answered, 1)), "a send was begun whose caller was not answered"
    service.assert_well()
