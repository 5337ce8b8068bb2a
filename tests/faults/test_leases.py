"""A killed worker loses its leases at once. A stopped worker keeps its leases.

These leases expire after ten minutes. Work continues earlier only because other workers detect that the worker is dead.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.clock import now
from messaging.models import BatchItem
from tenants.models import Tenant
from tests.faults.service import LONG, Service, Valkey, both_registered, database_url, received, wait_until
from tests.faults.test_deliveries import delivered, store
from tests.faults.test_sending import create, fast_number, wait_until_run
from tests.receiver import Received, Receiver
from tests.simulated import RunningSimulator
from webhooks import wake_up
from webhooks.models import Delivery
from webhooks.tests.publishing import endpoint_of

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

LEASE_SECONDS = 600
BATCH = 1_500 if LONG else 500
STOPPED_SECONDS = 8.0
"""How long a worker is stopped: longer than a worker needs to detect a dead worker, and shorter than the time limit of
a request.
"""


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey) -> Iterator[Service]:
    """Workers on the tests' database."""
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        REDIS_URL=valkey.url,
        DELIVERY_LEASE_SECONDS=str(LEASE_SECONDS),
        BATCH_LEASE_SECONDS=str(LEASE_SECONDS),
    )
    yield running
    running.close()


@pytest.fixture
def hanging(tenant: Tenant, receiver: Receiver) -> Iterator[Flag]:
    """An endpoint whose requests wait until the flag is set."""
    answers = Flag()

    async def answer(_: Received) -> web.Response:
        import asyncio

        while not answers.is_set():
            await asyncio.sleep(0.01)
        return web.Response()

    endpoint_of(tenant, url=receiver.url, verified_at=now())
    receiver.answer = answer
    yield answers
    answers.set()


def leased() -> int:
    return Delivery.objects.filter(leased_until__isnull=False).exclude(leased_by=None).count()


def test_what_a_killed_worker_had_in_flight_goes_on_with_its_successor(
    tenant: Tenant, hanging: Flag, receiver: Receiver, service: Service
) -> None:
    service.environment.pop("REDIS_URL")  # without Valkey, only Postgres shows dead workers
    service.environment["REDIS_URL"] = "redis://127.0.0.1:9/0"
    worker = service.worker("deliveries")
    events = store(tenant, 10)
    wait_until(lambda: len(receiver.received) == 10, "all are in flight")
    assert leased() == 10
    worker.kill()
    worker.wait(10)
    hanging.set()
    service.worker("deliveries")
    wait_until(lambda: delivered() == 10, "they go on")
    arrived = Counter(got.headers["webhook-id"] for got in receiver.received)
    assert set(arrived) == events
    assert set(arrived.values()) == {2}


def test_what_was_handed_over_to_a_killed_worker_goes_on_with_its_successor(
    tenant: Tenant,
    hanging: Flag,
    receiver: Receiver,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    valkey: Valkey,
) -> None:
    import redis

    from webhooks import wake_up

    client = redis.Redis.from_url(valkey.url)
    monkeypatch.setattr(wake_up, "valkey", lambda: client)
    worker = service.worker("deliveries")
    wait_until(lambda: _knows_dispatcher(), "the dispatcher is known")
    events = store(tenant, 10)
    wait_until(lambda: len(receiver.received) == 10, "all are in flight")
    assert wake_up.next_dispatcher() is not None
    assert {row.leased_by for row in Delivery.objects.all()} == {wake_up.next_dispatcher()}
    worker.kill()
    worker.wait(10)
    hanging.set()
    service.worker("deliveries")
    wait_until(lambda: delivered() == 10, "they go on")
    assert {got.headers["webhook-id"] for got in receiver.received} == events
    wake_up.reset()


def _knows_dispatcher() -> bool:
    wake_up.wake()
    return wake_up.may_hand_over()


def test_a_worker_that_is_stopped_for_seconds_keeps_its_deliveries(
    tenant: Tenant, hanging: Flag, receiver: Receiver, service: Service
) -> None:
    worker, other = both_registered(service, "deliveries")
    os.kill(other.pid, signal.SIGSTOP)
    store(tenant, 10)
    wait_until(lambda: len(receiver.received) == 10, "all are in flight")
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(other.pid, signal.SIGCONT)
    time.sleep(STOPPED_SECONDS)  # the duration of the fault
    hanging.set()
    os.kill(worker.pid, signal.SIGCONT)
    wait_until(lambda: delivered() == 10, "the worker goes on")
    assert len(receiver.received) == 10, "nothing came twice"


def test_a_batch_of_a_killed_worker_goes_on_with_its_successor(
    tenant: Tenant, simulator: RunningSimulator, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    simulator.control("PUT", "settings", {"recipients": {"magic": False}})
    service.environment["META_GRAPH_URL"] = simulator.url
    number = fast_number(tenant, simulator)
    batch = create(tenant, number, BATCH)

    def done() -> int:
        batch.refresh_from_db()
        return batch.accepted + batch.failed

    worker = service.worker("batches")
    wait_until_run(lambda: done() > 0, "the batch went on")
    worker.kill()
    worker.wait(10)
    assert batch.completed_at is None
    service.worker("batches")
    wait_until_run(lambda: bool(done()) and batch.completed_at is not None, "the batch ended")
    times_sent = Counter(row["body"] for row in received(simulator, number))
    assert max(times_sent.values()) == 1, "a message went out twice"
    errors = [
        orjson.loads(bytes(item.response or b"{}"))["error"]["code"]
        for item in BatchItem.objects.filter(batch=batch, status="failed")
    ]
    assert set(errors) <= {"outcome_unknown"}
    assert batch.accepted + batch.failed == batch.total


def test_a_batch_worker_that_is_stopped_for_seconds_keeps_its_batch(
    tenant: Tenant, simulator: RunningSimulator, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    simulator.control("PUT", "settings", {"recipients": {"magic": False}})
    service.environment |= {"META_GRAPH_URL": simulator.url, "UPSTREAM_TIMEOUT_MS": "60000"}
    number = fast_number(tenant, simulator)
    worker, other = both_registered(service, "batches")
    os.kill(other.pid, signal.SIGSTOP)
    batch = create(tenant, number, BATCH)

    def reload() -> Any:
        batch.refresh_from_db()
        return batch

    wait_until_run(lambda: reload().accepted > 0, "the batch went on")
    os.kill(worker.pid, signal.SIGSTOP)
    lease = reload().lease_token
    os.kill(other.pid, signal.SIGCONT)
    time.sleep(STOPPED_SECONDS)  # the duration of the fault
    assert reload().lease_token == lease
    os.kill(worker.pid, signal.SIGCONT)
    wait_until_run(lambda: reload().completed_at is not None, "the batch ended")
    failed = BatchItem.objects.filter(status="failed").values_list("response", flat=True)
    assert Counter(bytes(response) for response in failed) == Counter()
    assert batch.accepted == BATCH
    assert len(received(simulator, number)) == BATCH
