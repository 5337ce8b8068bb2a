"""Faults while messages are sent (docs/performance.md): nothing goes out twice, and what is uncertain says so.

Reconciled at the simulator, which keeps the exact bodies that it received.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import requests
from django.db import connection

from gateway import embedded, local_ports
from messaging import batches
from messaging.models import Batch, BatchItem
from messaging.tasks import run_batches
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.keys import NewKey
from tenants.models import Tenant
from tests.simulated import RunningSimulator, _simulator_process, simulator
from webhooks.models import Event

__all__ = ["_simulator_process", "simulator"]

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

LONG = os.environ.get("FAULTS") == "long"
KILLS = 10 if LONG else 3
ROOT = Path(__file__).resolve().parents[2]

Processes = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(simulator: RunningSimulator, tmp_path: Path) -> Iterator[Processes]:
    """Starts processes of the service on the tests' database; ends what is left."""
    url = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": url._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
        "META_GRAPH_URL": simulator.url,
        "BATCH_LEASE_SECONDS": "2",
        "LOG_LEVEL": "WARNING",
    }
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, **more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**environment, **more},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.fixture(autouse=True)
def _woken_by_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.batches.wake", lambda: None)


@pytest.fixture(autouse=True)
def _every_recipient_is_ordinary(simulator: RunningSimulator) -> Iterator[None]:
    simulator.control("PUT", "settings", {"recipients": {"magic": False}})
    yield
    simulator.control("PUT", "settings", {"recipients": {"magic": True}})


WORKER = ("celery", "--app=gateway", "worker", "--queues=batches", "--pool=threads", "--concurrency=2")


def fast_number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    account = simulator.account([{"throughput": "HIGH"}])
    return connected_number(tenant, account, throughput_level="HIGH")


def create(tenant: Tenant, number: PhoneNumber, count: int) -> Batch:
    body = {
        "from": number.phone_number_id,
        "messages": [
            {"to": f"+91{9000000000 + place}", "type": "text", "text": {"body": f"Message {place}"}}
            for place in range(count)
        ],
    }
    batch, _ = batches.create(tenant_id=tenant.id, environment="live", raw=orjson.dumps(body), body=body)
    return batch


def received(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=20000")["data"]
    return [row for row in reversed(rows) if row["path"].endswith("/messages")]


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float = 60, ask: bool = True) -> None:
    """Wait for a condition; meanwhile call the worker as beat does."""
    deadline = time.monotonic() + seconds
    asked = 0.0
    while not holds():
        assert time.monotonic() < deadline, what
        if ask and time.monotonic() - asked > 0.5:
            run_batches.apply_async(expires=5)
            asked = time.monotonic()
        time.sleep(0.02)


def test_kill_of_the_batch_worker_sends_nothing_twice_and_says_what_is_uncertain(
    tenant: Tenant, simulator: RunningSimulator, start: Processes
) -> None:
    count = 2_000 * KILLS
    number = fast_number(tenant, simulator)
    batch = create(tenant, number, min(count, 10_000))
    total = batch.total

    def done() -> int:
        batch.refresh_from_db()
        return batch.accepted + batch.failed

    for _ in range(KILLS):
        worker = start(*WORKER)
        goal = done() + 1
        wait_until(lambda goal=goal: done() >= goal or batch.completed_at is not None, "the batch went on")  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.5))
        worker.kill()
        worker.wait(10)
    start(*WORKER)
    wait_until(lambda: bool(done()) and batch.completed_at is not None, "the batch ended")

    assert batch.status == "completed"
    times_sent = Counter(row["body"] for row in received(simulator, number))
    assert max(times_sent.values()) == 1, "a message went out twice"
    items = list(BatchItem.objects.filter(batch=batch).order_by("idx"))
    assert Counter(item.status for item in items) == {
        name: found for name, found in (("accepted", batch.accepted), ("failed", batch.failed)) if found
    }
    assert batch.accepted + batch.failed == total
    sent = {orjson.loads(body)["text"]["body"] for body in times_sent}
    for item in items:
        if item.status == "accepted":
            assert f"Message {item.idx}" in sent
        else:
            assert item.response is not None
            error = orjson.loads(bytes(item.response))["error"]
            assert (error["code"], error["details"]["reason"]) == ("outcome_unknown", "interrupted")
    assert Event.objects.filter(type="message.outbound").count() == total
    assert Event.objects.filter(type="batch.completed").count() == 1


def test_two_workers_send_nothing_twice(
    tenant: Tenant, simulator: RunningSimulator, start: Processes
) -> None:
    numbers = [fast_number(tenant, simulator) for _ in range(3)]
    made = [create(tenant, number, 300) for number in numbers for _ in range(2)]
    for name in ("one", "two"):
        start(*WORKER, f"--hostname={name}@test")
    wait_until(lambda: not Batch.objects.filter(completed_at=None).exists(), "the batches ended")
    for number in numbers:
        rows = received(simulator, number)
        assert len(rows) == 600
        assert set(Counter(row["body"] for row in rows).values()) == {2}, "each batch sends each message once"
    assert {Batch.objects.get(pk=batch.pk).accepted for batch in made} == {300}


def test_a_batch_goes_on_at_its_pace_when_valkey_dies(
    tenant: Tenant,
    simulator: RunningSimulator,
    start: Processes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    valkey = embedded.start_valkey(tmp_path / "valkey")
    try:
        own = embedded.valkey_url(tmp_path / "valkey")
        start(*WORKER, REDIS_URL=own)
        number = connected_number(tenant, simulator.account())
        batch = create(tenant, number, 480)
        with run_batches.app.connection_for_write(embedded.celery_broker_url(own)) as broker:

            def sent() -> int:
                return len(received(simulator, number))

            deadline = time.monotonic() + 30
            while not sent():
                assert time.monotonic() < deadline, "the worker did not start"
                run_batches.apply_async(expires=5, connection=broker)
                time.sleep(0.5)
        valkey.kill()
        valkey.wait(10)

        def ended() -> bool:
            batch.refresh_from_db()
            return batch.completed_at is not None

        wait_until(ended, "the batch ended without Valkey", ask=False)
    finally:
        embedded.stop_valkey(valkey)
    times = [row["at"] for row in received(simulator, number)]
    assert (batch.accepted, batch.failed, len(times)) == (480, 0, 480)
    # As the target says it: arrivals within 2 % of the rate in every 5 s window.
    busiest = max(sum(at <= other < at + 5 for other in times) for at in times)
    assert busiest <= 80 * 5 * 1.02, "the pace was exceeded"


def test_kill_of_a_web_process_repeats_no_send_and_every_client_gets_an_answer(
    tenant: Tenant, key: NewKey, simulator: RunningSimulator, start: Processes
) -> None:
    number = fast_number(tenant, simulator)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 60})
    with local_ports.socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    web = start(
        "gunicorn",
        "gateway.wsgi",
        f"--bind=127.0.0.1:{port}",
        "--worker-class=gthread",
        "--workers=2",
        "--threads=8",
        "--no-control-socket",
        UPSTREAM_TIMEOUT_MS="1500",
    )
    local_ports.wait_for_answer(port, "/v1/health", host="127.0.0.1", seconds=30, check_alive=lambda: None)
    url = f"http://127.0.0.1:{port}/v1/messages"
    headers = {"Authorization": f"Bearer {key.key}"}
    answers: dict[str, requests.Response] = {}

    def client(name: int) -> None:
        for place in range(25 * KILLS):
            own_key = f"{name}-{place}"
            body = {
                "from": number.phone_number_id,
                "to": f"+9170000{name:02d}{place:03d}",
                "type": "text",
                "text": {"body": own_key},
            }
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    answer = requests.post(
                        url, json=body, headers={**headers, "Idempotency-Key": own_key}, timeout=20
                    )
                except requests.ConnectionError:
                    time.sleep(0.05)
                    continue
                if answer.status_code != 409:
                    answers[own_key] = answer
                    break
                time.sleep(0.1)

    clients = [threading.Thread(target=client, args=(name,)) for name in range(8)]
    for each in clients:
        each.start()
    for _ in range(KILLS):
        time.sleep(random.uniform(0.3, 1.0))
        for child in _children(web.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    for each in clients:
        each.join(120)
    assert len(answers) == 8 * 25 * KILLS, "a client got no answer"
    assert {answer.status_code for answer in answers.values()} <= {200, 502}
    times_sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    assert max(times_sent.values()) == 1, "a message went out twice"
    for own_key, answer in answers.items():
        if answer.status_code == 200:
            assert times_sent[own_key] == 1
        else:
            assert answer.json()["error"]["code"] == "meta_unreachable"
            assert answer.json()["error"]["details"]["reason"] == "interrupted"


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]
