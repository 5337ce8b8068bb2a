"""Faults while messages are sent (docs/performance.md). No message is sent twice, and uncertain outcomes are reported.

The tests compare the results with the bodies that the simulator received.
"""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
import requests

from gateway import embedded_addresses
from gateway.clock import now
from messaging.batches import lifecycle
from messaging.models import Batch, BatchItem, ScheduledMessage
from messaging.tasks import run_batches
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.faults.service import (
    LONG,
    READY_SECONDS,
    Service,
    Valkey,
    both_registered,
    busiest,
    database_url,
    received,
    wait_until,
)
from tests.simulated import RunningSimulator
from webhooks.models import Event, EventPayload

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

KILLS = 10 if LONG else 3
EACH = 300 if LONG else 50
"""The number of messages in each batch, and of messages that are scheduled between two kills."""


@pytest.fixture
def service(simulator: RunningSimulator, tmp_path: Path) -> Iterator[Service]:
    """Processes on the tests' database, with the simulator as Meta."""
    running = Service(
        tmp_path, DATABASE_URL=database_url(), META_GRAPH_URL=simulator.url, BATCH_LEASE_SECONDS="2"
    )
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _woken_by_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


@pytest.fixture(autouse=True)
def _every_recipient_is_ordinary(simulator: RunningSimulator) -> Iterator[None]:
    simulator.control("PUT", "settings", {"recipients": {"magic": False}})
    yield
    simulator.control("PUT", "settings", {"recipients": {"magic": True}})


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
    return lifecycle.create(tenant_id=tenant.id, environment="live", raw=orjson.dumps(body)).batch


def wait_until_run(holds: Callable[[], bool], what: str, **by: Any) -> None:
    """Wait for a condition. Meanwhile, queue the batch task as beat does. `by` has options for `apply_async`."""
    asked_at = 0.0

    def holds_now() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at > 0.5:
            run_batches.apply_async(expires=5, **by)
            asked_at = time.monotonic()
        return holds()

    wait_until(holds_now, what)


def test_kill_of_the_batch_worker_sends_nothing_twice_and_says_what_is_uncertain(
    tenant: Tenant, simulator: RunningSimulator, service: Service
) -> None:
    # Because of the slow answers, a kill interrupts several messages.
    number = fast_number(tenant, simulator) if LONG else connected_number(tenant, simulator.account())
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 100})
    batch = create(tenant, number, 10_000 if LONG else 320)
    total = batch.total

    def done() -> int:
        batch.refresh_from_db()
        return batch.accepted + batch.failed

    for _ in range(KILLS):
        worker = service.worker("batches")
        goal = done() + 1
        wait_until_run(
            lambda goal=goal: done() >= goal or batch.completed_at is not None, "the batch went on"
        )
        time.sleep(random.uniform(0, 0.5))
        worker.kill()
        worker.wait(10)
    service.worker("batches")
    wait_until_run(lambda: bool(done()) and batch.completed_at is not None, "the batch ended")

    assert batch.status == "completed"
    assert batch.failed, "no kill interrupted a message"
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
    tenant: Tenant, simulator: RunningSimulator, service: Service
) -> None:
    numbers = [fast_number(tenant, simulator) for _ in range(3)]
    both_registered(service, "batches")
    made = [create(tenant, number, EACH) for number in numbers for _ in range(2)]
    wait_until_run(lambda: not Batch.objects.filter(completed_at=None).exists(), "the batches ended")
    for number in numbers:
        rows = received(simulator, number)
        assert len(rows) == 2 * EACH
        assert set(Counter(row["body"] for row in rows).values()) == {2}, "each batch sends each message once"
    assert {Batch.objects.get(pk=batch.pk).accepted for batch in made} == {EACH}


def test_scheduled_messages_go_neither_early_nor_twice_when_their_workers_are_killed(
    tenant: Tenant, simulator: RunningSimulator, service: Service
) -> None:
    kills = KILLS // 3
    number = fast_number(tenant, simulator)
    workers = [service.worker("batches") for _ in range(2)]
    begin = now() + timedelta(seconds=5)
    times = {
        f"Message {place}": begin + timedelta(milliseconds=20 * place) for place in range(EACH * (kills + 1))
    }
    ScheduledMessage.objects.bulk_create(
        ScheduledMessage(
            tenant_id=tenant.id,
            environment="live",
            phone_number_id=number.phone_number_id,
            send_at=send_at,
            # Each message goes to a different customer, because several to one customer would reach the pair rate
            # limit.
            body=orjson.dumps(
                {
                    "messaging_product": "whatsapp",
                    "to": f"{919000000000 + place}",
                    "type": "text",
                    "text": {"body": said},
                }
            ),
        )
        for place, (said, send_at) in enumerate(times.items())
    )
    due = ScheduledMessage.objects.filter(status="scheduled")
    under_way = ScheduledMessage.objects.filter(status="sending")
    interrupted: set[UUID | None] = set()
    for killed in range(kills):
        wait_until(lambda goal=EACH * killed + 1: len(received(simulator, number)) >= goal, "messages go out")
        for worker in workers:
            worker.kill()
            worker.wait(10)
        interrupted.update(under_way.values_list("claim", flat=True))
        workers = [service.worker("batches") for _ in range(2)]
    wait_until(lambda: not due.exists(), "all were claimed")
    wait_until(lambda: set(under_way.values_list("claim", flat=True)) <= interrupted, "all others have ended")
    under_way.update(claimed_until=begin)  # as if five minutes had passed
    wait_until(lambda: not under_way.exists(), "what was interrupted is reported")

    rows = {orjson.loads(row["body"])["text"]["body"]: row["at"] for row in received(simulator, number)}
    assert len(rows) == len(received(simulator, number)), "a message went out twice"
    assert [said for said, at in rows.items() if at < times[said].timestamp()] == [], (
        "a message went out early"
    )
    assert Event.objects.filter(type="message.outbound").count() == len(times)
    assert ScheduledMessage.objects.filter(status="accepted").count() <= len(rows)
    for failed in ScheduledMessage.objects.filter(status="failed"):
        error = orjson.loads(bytes(failed.response or b""))["error"]
        assert (error["code"], error.get("details")) == ("outcome_unknown", {"reason": "interrupted"})


def test_a_batch_goes_on_at_its_pace_when_valkey_dies(
    tenant: Tenant, simulator: RunningSimulator, service: Service, tmp_path: Path
) -> None:
    valkey = Valkey(tmp_path / "valkey")
    try:
        service.worker("batches", REDIS_URL=valkey.url)
        number = connected_number(tenant, simulator.account())
        batch = create(tenant, number, 480)
        with run_batches.app.connection_for_write(embedded_addresses.celery_broker_url(valkey.url)) as broker:
            wait_until_run(lambda: bool(received(simulator, number)), "the worker starts", connection=broker)
        valkey.kill()

        def has_ended() -> bool:
            service.assert_well()
            return Batch.objects.filter(pk=batch.pk, completed_at__isnull=False).exists()

        wait_until(has_ended, "the batch ended without Valkey")
    finally:
        valkey.close()
    batch.refresh_from_db()
    assert (batch.accepted, batch.failed, len(received(simulator, number))) == (480, 0, 480)
    # After a stall of the machine, delayed messages arrive together with later ones, so the limit has a margin of 5 %.
    # The margin of the benchmark `batch` is 2 %.
    assert busiest(simulator, number) <= 80 * 5 * 1.05, "the pace was exceeded"


def test_kill_of_a_web_process_repeats_no_send_and_every_client_gets_an_answer(
    tenant: Tenant, key: NewKey, simulator: RunningSimulator, service: Service
) -> None:
    number = fast_number(tenant, simulator)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 60})
    webs = service.webs(4 if LONG else 2, UPSTREAM_TIMEOUT_MS="1500")
    headers = {"Authorization": f"Bearer {key.key}"}
    answers: dict[str, requests.Response] = {}
    begun: set[str] = set()
    over = threading.Event()

    def client(name: int) -> None:
        for place in itertools.count():
            if over.is_set():
                break
            own_key = f"{name}-{place}"
            begun.add(own_key)
            body = {
                "from": number.phone_number_id,
                "to": f"+917000{name:02d}{place:04d}",
                "type": "text",
                "text": {"body": own_key},
            }
            deadline = time.monotonic() + READY_SECONDS
            while time.monotonic() < deadline:
                try:
                    answer = requests.post(
                        f"{random.choice(webs).url}/v1/messages",
                        json=body,
                        headers={**headers, "Idempotency-Key": own_key},
                        timeout=20,
                    )
                except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                    # The process was killed before or during the response.
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
        answered = len(answers)
        wait_until(lambda answered=answered: len(answers) > answered, "clients are answered")
        time.sleep(random.uniform(0, 0.5))
        for web in webs:
            web.kill()
        for web in webs:
            web.start()
    # Each client ends after the call whose process was killed, or after its next call.
    over.set()
    for each in clients:
        each.join(2 * READY_SECONDS)
    assert set(answers) == begun, "a client got no answer"
    assert {answer.status_code for answer in answers.values()} <= {200, 502}
    times_sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    assert max(times_sent.values()) == 1, "a message went out twice"
    for own_key, answer in answers.items():
        if answer.status_code == 200:
            assert times_sent[own_key] == 1
        else:
            assert answer.json()["error"]["code"] == "meta_unreachable"
            assert answer.json()["error"]["details"]["reason"] == "interrupted"
    wait_until(lambda: not set(times_sent) - set(_recorded()), "every message that was sent has its event")
    assert max(Counter(_recorded()).values()) == 1, "a message has two events"


def test_of_many_at_once_on_four_web_processes_one_sends_and_all_get_its_answer(
    tenant: Tenant, key: NewKey, simulator: RunningSimulator, service: Service
) -> None:
    clients, races = 8, 100 if LONG else 10
    number = fast_number(tenant, simulator)
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 100})
    webs = service.webs(4)
    together = threading.Barrier(clients)
    answers: dict[str, list[requests.Response]] = {f"race-{race}": [] for race in range(races)}

    def client(url: str) -> None:
        for race, own in answers.items():
            body = {
                "from": number.phone_number_id,
                "to": f"+9170000{race.removeprefix('race-'):0>5}",
                "type": "text",
                "text": {"body": race},
            }
            headers = {"Authorization": f"Bearer {key.key}", "Idempotency-Key": race}
            together.wait(30)
            while True:
                answer = requests.post(f"{url}/v1/messages", json=body, headers=headers, timeout=30)
                own.append(answer)
                if answer.status_code != 409:
                    break
                time.sleep(0.1)

    threads = [threading.Thread(target=client, args=(webs[place % 4].url,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for race, own in answers.items():
        refused = [answer for answer in own if answer.status_code == 409]
        assert {answer.json()["error"]["code"] for answer in refused} <= {"idempotency_conflict"}
        sent = [answer for answer in own if answer.status_code == 200]
        assert (len(sent), len(sent) + len(refused)) == (clients, len(own)), race
        assert len({answer.content for answer in sent}) == 1
        assert sum("Idempotent-Replayed" not in answer.headers for answer in sent) == 1
    times_sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    assert times_sent == Counter(dict.fromkeys(answers, 1)), "a message went out twice"
    assert Event.objects.filter(type="message.outbound").count() == races


def _recorded() -> list[str]:
    """The texts of the messages that have an event."""
    ids = Event.objects.filter(type="message.outbound").values_list("id", flat=True)
    bodies: list[Any] = list(EventPayload.objects.filter(id__in=ids).values_list("body", flat=True))
    return [orjson.loads(bytes(body))["request"]["text"]["body"] for body in bodies]
