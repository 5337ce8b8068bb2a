"""Faults of workers, Valkey and Postgres during deliveries (docs/performance.md).

Every accepted event arrives at the receiver at least once and ends as `delivered`. The worker is a real Celery process,
and beat calls it as in production.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, transaction

from gateway import ids
from gateway.clock import now
from tenants.models import Tenant
from tests.faults.service import LONG, Service, Valkey, both_registered, database_url, wait_until
from tests.receiver import Receiver
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Endpoint
from webhooks.tests.publishing import endpoint_of

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

COUNT = 5_000 if LONG else 600
KILLS = 10 if LONG else 2


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey) -> Iterator[Service]:
    """Workers and beats on the tests' database."""
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        REDIS_URL=valkey.url,
        DELIVERY_LEASE_SECONDS="3",
        WEBHOOK_RETRY_SCHEDULE="0.5,0.5,1,1,1,1,1,1,1,1",
    )
    yield running
    running.close()


@pytest.fixture
def endpoints(tenant: Tenant, receiver: Receiver) -> None:
    """Five endpoints on the receiver."""
    for number in range(5):
        endpoint_of(tenant, url=f"{receiver.url}/{number}", verified_at=now())


def store(tenant: Tenant, count: int = COUNT // 5) -> set[str]:
    """Publish events, 100 at a time. Returns their ids."""
    stored: set[str] = set()
    for first in range(0, count, 100):
        events = [
            NewEvent(
                type="message.inbound", environment="live", dedupe_key=f"msg:{first + number}", data=b"{}"
            )
            for number in range(min(100, count - first))
        ]
        with transaction.atomic():
            stored |= {ids.encode("evt_", event) for event in publish(tenant_id=tenant.id, events=events)}
    return stored


def delivered() -> int:
    return Delivery.objects.filter(status="delivered").count()


def reconcile(receiver: Receiver, events: set[str]) -> None:
    """Check that every event arrived at every endpoint, and that every delivery is recorded as `delivered`."""
    rows = len(events) * Endpoint.objects.count()
    wait_until(lambda: delivered() == rows, f"every delivery of {rows} ends delivered")
    arrived = {(got.path, got.headers["webhook-id"]) for got in receiver.received}
    assert len(arrived) == rows
    assert {event for _, event in arrived} == events


def test_kill_of_the_worker_at_random_moments_loses_nothing(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    service.beat()
    events = store(tenant)
    for _ in range(KILLS):
        worker = service.worker("deliveries")
        before = len(receiver.received)
        wait_until(
            lambda before=before: len(receiver.received) > before or delivered() == COUNT, "it delivers"
        )
        time.sleep(random.uniform(0, 0.1))
        worker.kill()
        worker.wait(10)
    service.worker("deliveries")
    reconcile(receiver, events)
    doubled = len(receiver.received) - COUNT
    assert doubled <= KILLS * 512, "only what was in flight may come twice"


def test_valkey_flushed_stopped_and_restarted_empty_loses_nothing(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service, valkey: Valkey
) -> None:
    service.beat()
    service.worker("deliveries")
    events = store(tenant, COUNT // 10)
    wait_until(lambda: len(receiver.received) > 0, "it delivers")
    valkey.flush()
    valkey.stop()
    time.sleep(10 if LONG else 1)  # the duration of the fault
    valkey.start()
    with transaction.atomic():
        more = publish(
            tenant_id=tenant.id,
            events=[
                NewEvent(type="message.status", environment="live", dedupe_key=f"s:{number}", data=b"{}")
                for number in range(COUNT // 10)
            ],
        )
    reconcile(receiver, events | {ids.encode("evt_", event) for event in more})
    service.assert_well()


def test_a_worker_that_starts_while_valkey_is_away_delivers_and_stops(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    worker = service.worker("deliveries", REDIS_URL="redis://127.0.0.1:9/0")
    reconcile(receiver, store(tenant, 20))
    worker.terminate()
    assert worker.wait(15) == 0


def test_every_database_connection_cut_again_and_again_loses_nothing(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    # Spare the older connections: this process uses them for the listener of other tests.
    began = now()
    service.beat()
    service.worker("deliveries")
    events = store(tenant)
    cut = 0
    for _ in range(KILLS):
        before = len(receiver.received)
        wait_until(
            lambda before=before: len(receiver.received) > before or delivered() == COUNT, "it delivers"
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_start > %s",
                [began],
            )
            cut += cursor.rowcount
    assert cut, "no connection was cut"
    reconcile(receiver, events)


def test_two_beats_and_two_workers_deliver_each_once(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    # Leases must not expire. A busy machine can delay a worker beyond a short lease, and then an event comes twice.
    service.environment["DELIVERY_LEASE_SECONDS"] = "60"
    for _ in range(2):
        service.beat()
    both_registered(service, "deliveries")
    events = store(tenant)
    reconcile(receiver, events)
    assert len(receiver.received) == COUNT, "nothing came twice"
