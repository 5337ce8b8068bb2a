"""Faults while deliveries are under way (docs/performance.md), reconciled at the receiver.

Every event that was accepted arrives at least once and ends `delivered`, whatever happens to workers, to Valkey and
to Postgres. The worker is a real Celery process, and beat calls it as in a run.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from django.db import OperationalError, connection, transaction

from gateway import embedded, ids
from gateway.process_group import ProcessGroup
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.models import Delivery, Endpoint
from webhooks.publish import NewEvent, publish

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

LONG = os.environ.get("FAULTS") == "long"
COUNT = 5_000 if LONG else 1_000
KILLS = 10 if LONG else 2
ROOT = Path(__file__).resolve().parents[2]
CELERY = ("celery", "--app=gateway")
WORKER = (*CELERY, "worker", "--queues=deliveries", "--pool=threads", "--concurrency=2", "--without-mingle")


class Service:
    """Workers and beats on the tests' database, with a Valkey of their own that can be stopped."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group = ProcessGroup(grace_seconds=1)
        self.valkey = embedded.start_valkey(directory, process_group=self.group.id)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        """A process of the service."""
        url = urlsplit(os.environ["DATABASE_URL"])
        with (self.directory / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DATABASE_URL": url._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
                    "REDIS_URL": embedded.valkey_url(self.directory),
                    "DELIVERY_LEASE_SECONDS": "3",
                    "WEBHOOK_RETRY_SCHEDULE": "0.5,0.5,1,1,1,1,1,1,1,1",
                    "LOG_LEVEL": "WARNING",
                },
                stdout=log,
                stderr=log,
                process_group=self.group.id,
            )
        self.processes.append(process)
        return process

    def worker(self) -> "subprocess.Popen[bytes]":
        return self.start(*WORKER, f"--hostname=w{len(self.processes)}@test")

    def beat(self) -> "subprocess.Popen[bytes]":
        schedule = self.directory / f"beat-{len(self.processes)}"
        return self.start(*CELERY, "beat", f"--schedule={schedule}", "--pidfile=")

    def stop_valkey(self) -> None:
        embedded.stop_valkey(self.valkey)

    def start_valkey(self) -> None:
        self.valkey = embedded.start_valkey(self.directory, process_group=self.group.id)

    def flush_valkey(self) -> None:
        redis.Redis.from_url(embedded.valkey_url(self.directory)).flushall()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    yield running
    running.group.close()
    for process in (*running.processes, running.valkey):
        process.wait(10)


@pytest.fixture
def endpoints(api: Api, receiver: Receiver) -> None:
    """Five endpoints on the receiver."""
    for number in range(5):
        assert api.post("/v1/webhooks", {"url": f"{receiver.url}/{number}"}).status_code == 201


def store(tenant: Tenant, count: int = COUNT // 5) -> set[str]:
    """Publish events, 100 at a time; returns their ids."""
    stored: set[str] = set()
    for first in range(0, count, 100):
        events = [
            NewEvent("message.inbound", f"msg:{first + number}", b"{}")
            for number in range(min(100, count - first))
        ]
        with transaction.atomic():
            stored |= {ids.encode("evt_", event) for event in publish(tenant_id=tenant.id, events=events)}
    return stored


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float = 90) -> None:
    """Wait for a condition; a database that is away does not hold it."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OperationalError):
            if holds():
                return
        connection.close()
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def delivered() -> int:
    return Delivery.objects.filter(status="delivered").count()


def reconcile(receiver: Receiver, events: set[str]) -> None:
    """Everything arrived at every endpoint and is recorded so."""
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
        worker = service.worker()
        before = len(receiver.received)
        wait_until(
            lambda before=before: len(receiver.received) > before or delivered() == COUNT, "it delivers"
        )  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.1))
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    service.worker()
    reconcile(receiver, events)
    doubled = len(receiver.received) - COUNT
    assert doubled <= KILLS * 512, "only what was in flight may come twice"


def test_valkey_flushed_stopped_and_restarted_empty_loses_nothing(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    service.beat()
    service.worker()
    events = store(tenant, COUNT // 10)
    wait_until(lambda: len(receiver.received) > 0, "it delivers")
    service.flush_valkey()
    service.stop_valkey()
    time.sleep(10 if LONG else 1)  # the fault's own length
    service.start_valkey()
    with transaction.atomic():
        more = publish(
            tenant_id=tenant.id,
            events=[NewEvent("message.status", f"s:{number}", b"{}") for number in range(COUNT // 10)],
        )
    reconcile(receiver, events | {ids.encode("evt_", event) for event in more})


def test_every_database_connection_cut_again_and_again_loses_nothing(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    service.beat()
    service.worker()
    events = store(tenant)
    for _ in range(KILLS):
        before = len(receiver.received)
        wait_until(
            lambda before=before: len(receiver.received) > before or delivered() == COUNT, "it delivers"
        )  # type: ignore[misc]
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    reconcile(receiver, events)


def test_two_beats_and_two_workers_deliver_each_once(
    tenant: Tenant, endpoints: None, receiver: Receiver, service: Service
) -> None:
    for _ in range(2):
        service.beat()
        service.worker()
    events = store(tenant)
    reconcile(receiver, events)
    assert len(receiver.received) == COUNT, "nothing came twice"
