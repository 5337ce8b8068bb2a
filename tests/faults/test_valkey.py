"""Valkey is flushed, frozen, then stopped and restarted empty, while clients and Meta call. No call fails."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import requests

from messaging.tests.conftest import connected_number
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.faults.callers import Callers
from tests.faults.service import LONG, Service, Valkey, database_url, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

STOPPED_SECONDS = 10 if LONG else 2
WEB_PROCESSES = 4 if LONG else 2


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey, simulator: RunningSimulator) -> Iterator[Service]:
    """A delivery worker and beat that use this Valkey."""
    running = Service(
        tmp_path, DATABASE_URL=database_url(), REDIS_URL=valkey.url, META_GRAPH_URL=simulator.url
    )
    running.worker("deliveries")
    running.beat()
    yield running
    running.close()


def test_the_api_answers_all_the_time_and_every_event_arrives(
    tenant: Tenant,
    key: NewKey,
    service: Service,
    valkey: Valkey,
    receiver: Receiver,
    simulator: RunningSimulator,
) -> None:
    account = simulator.account([{"throughput": "HIGH"}])
    number = connected_number(tenant, account, throughput_level="HIGH")
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    urls = [web.url for web in service.webs(WEB_PROCESSES)]
    callers = Callers(urls, key.key, number)
    made = requests.post(
        f"{urls[0]}/v1/webhooks", json={"url": receiver.url}, headers=callers.authorised, timeout=30
    )
    assert made.status_code == 201
    callers.start("/v1/numbers", "/v1/events?limit=1")

    def goes_on() -> None:
        """Wait until, from now on, each kind of call has been answered 200 and a delivery has arrived."""
        now, arrived = time.monotonic(), len(receiver.received)
        wait_until(lambda: callers.kinds(200, since=now) == set(callers.answered), "every call is answered")
        wait_until(lambda: len(receiver.received) > arrived, "deliveries go on")

    goes_on()
    valkey.flush()
    goes_on()
    with valkey.frozen():
        frozen = time.monotonic()
        wait_until(
            lambda: callers.kinds(200, since=frozen + 1) == set(callers.answered), "every call is answered"
        )
        slow = {
            kind: max(each.response.elapsed.total_seconds() for each in answered if each.at > frozen)
            for kind, answered in callers.answered.items()
        }
    assert max(slow.values()) < 2, slow
    goes_on()
    gone = time.monotonic()
    valkey.stop()
    wait_until(lambda: callers.kinds(200, since=gone) == set(callers.answered), "every call is answered")
    time.sleep(max(0.0, gone + STOPPED_SECONDS - time.monotonic()))  # the duration of the fault
    valkey.start()
    goes_on()
    callers.stop()
    wait_until(lambda: not Delivery.objects.exclude(status="delivered").exists(), "every event is delivered")
    service.assert_well()

    statuses = {kind: {each.status for each in answered} for kind, answered in callers.answered.items()}
    assert statuses == {kind: {200} for kind in callers.answered}
    sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    assert max(sent.values()) == 1, "a message went out twice"
    events = [got.json for got in receiver.received]
    callers.assert_sends(sent)
    callers.assert_outbound_events(events)
    callers.assert_notifications(events)
