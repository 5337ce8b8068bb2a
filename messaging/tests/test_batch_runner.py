"""The batch runner with the simulator: messages are sent at the number's pace, recorded, and never sent twice."""

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import orjson
import pytest
from django.conf import settings
from django.db import OperationalError, connection

from gateway import ids
from gateway.clock import now
from gateway.upstream.calls import UpstreamUnreachable
from messaging import pacing
from messaging.batches import held_batch, lifecycle, runner
from messaging.batches.held_batch import Held
from messaging.batches.sender import SAFE_PART, BatchRun
from messaging.models import Batch, BatchItem
from messaging.sending import outbound
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, post
from messaging.tests.test_message_log import status_change
from phone_numbers import tokens
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sandbox import control
from phone_numbers.senders_and_owners import Sender
from phone_numbers.tests.conftest import verified_endpoint
from tenants.models import Tenant
from tests.database_settings import read_only_for
from tests.fixtures import Api, assert_error, in_threads
from tests.free_ports import free_port
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Event, EventPayload

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/v1/messages/batch"
SLOW, FAST = 20, 100
"""Messages a second of the numbers here, instead of 80 and 1,000. So a few messages take long enough to interrupt a
batch, or more than one claim.
"""


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs. Tests start the runner themselves."""
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


@pytest.fixture
def fast(tenant: Tenant, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> PhoneNumber:
    """A connected number that may send FAST messages a second."""
    monkeypatch.setitem(pacing.RATES, "HIGH", FAST)
    account = simulator.account([{"throughput": "HIGH"}])
    return connected_number(tenant, account, throughput_level="HIGH")


@pytest.fixture
def number(tenant: Tenant, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch) -> PhoneNumber:
    """A connected number that may send SLOW messages a second."""
    monkeypatch.setattr(pacing, "UNKNOWN_RATE", SLOW)
    return connected_number(tenant, account)


def message(place: int, **more: Any) -> dict[str, Any]:
    return {"to": f"+91980000{place:04d}", "type": "text", "text": {"body": f"Hello {place}"}, **more}


def create(api: Api, number: PhoneNumber, messages: list[Any] | int) -> str:
    if isinstance(messages, int):
        messages = [message(1000 + place) for place in range(messages)]
    answer = api.post(PATH, {"from": number.phone_number_id, "messages": messages})
    assert answer.status_code == 202, answer.content
    return str(answer.json()["id"])


def row(batch_id: str) -> Batch:
    key = ids.decode(ids.BATCH, batch_id)
    assert key is not None
    return Batch.objects.get(pk=key)


def received(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    """The messages that Meta received from a number, oldest first."""
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=20000")["data"]
    return [row for row in reversed(rows) if row["path"].endswith("/messages")]


def assert_paced(times: list[float], batch_id: str, *, rate: float) -> None:
    """Check that no message reached Meta before its turn, counted from the start of the batch.

    A busy machine can delay any message, even the first. So only test_pacing.py checks that turns are not too late.
    """
    started_at = row(batch_id).started_at
    assert started_at is not None
    late = [at - started_at.timestamp() - place / rate for place, at in enumerate(sorted(times))]
    assert min(late) > -pacing.AHEAD_SECONDS, (
        f"message {late.index(min(late))} came {-min(late):.3f} s too early"
    )


class InBackground(threading.Thread):
    """Runs the runner in a thread."""

    def run(self) -> None:
        try:
            runner.run()
        finally:
            connection.close()


@pytest.fixture
def background() -> Iterator[InBackground]:
    thread = InBackground()
    yield thread
    if thread.is_alive():
        runner.stop()
        thread.join(20)
    runner._stopping.clear()


def wait_until(holds: Any, *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_every_item_is_sent_once_as_it_was_written_and_the_batch_completes(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    # At 100 messages a second, a claim takes 25.
    batch_id = create(api, fast, 30)
    runner.run()
    body = api.get(f"{PATH}/{batch_id}").json()
    assert (body["status"], body["accepted"], body["failed"]) == ("completed", 30, 0)
    assert body["started_at"] <= body["completed_at"]
    sent = Counter(row["body"] for row in received(simulator, fast))
    product = '{"messaging_product":"whatsapp",'
    assert sent == Counter(
        # The bytes that the caller wrote.
        product + json.dumps(message(1000 + place))[1:]
        for place in range(30)
    )

    item = api.get(f"{PATH}/{batch_id}/items?limit=1").json()["data"][0]
    assert (item["status"], item["http_status"]) == ("accepted", 200)
    assert item["wamid"] == item["response"]["messages"][0]["id"]
    assert item["sent_at"]
    event = Event.objects.get(dedupe_key=f"out:{batch_id}:0")
    assert ids.encode(ids.EVENT, event.id) == item["event_id"]
    assert (event.type, event.wamid) == ("message.outbound", item["wamid"])
    data = orjson.loads(bytes(EventPayload.objects.get(id=event.id).body))
    assert (data["batch_id"], data["idx"], data["http_status"]) == (batch_id, 0, 200)
    assert data["response"] == item["response"]
    assert Event.objects.filter(type="message.outbound").count() == 30

    completed = Event.objects.get(type="batch.completed")
    data = orjson.loads(bytes(EventPayload.objects.get(id=completed.id).body))
    assert (data["id"], data["status"], data["total"]) == (batch_id, "completed", 30)
    assert (data["accepted"], data["failed"], data["skipped"]) == (30, 0, 0)


def test_an_idle_runner_finds_a_batch_by_itself_and_ends_when_stopped(
    api: Api, fast: PhoneNumber, monkeypatch: pytest.MonkeyPatch, background: InBackground
) -> None:
    monkeypatch.setattr(runner, "LINGER_SECONDS", 60.0)
    monkeypatch.setattr(runner, "QUIET_POLL_SECONDS", 0.05)
    looked, is_to_rest, rests = threading.Event(), threading.Event(), threading.Event()
    claim_batches = held_batch.claim_batches

    def claim(limit: int, holder: int | None) -> list[Held]:
        looked.set()
        found = claim_batches(limit, holder)
        if is_to_rest.is_set():
            # The runner reads this setting after each claim.
            monkeypatch.setattr(runner, "QUIET_POLL_SECONDS", 60.0)
            rests.set()
        return found

    monkeypatch.setattr(held_batch, "claim_batches", claim)
    background.start()
    assert looked.wait(30)
    batch_id = create(api, fast, 3)
    wait_until(lambda: row(batch_id).status == "completed")
    assert background.is_alive(), "it waits for the next"
    is_to_rest.set()
    assert rests.wait(30), "the next look without a call is a minute away"
    second = create(api, fast, 3)
    assert not runner.run(), "a second call has it look at once, and returns"
    wait_until(lambda: row(second).status == "completed")
    runner.stop()
    background.join(20)
    assert not background.is_alive()


def test_what_the_upstream_refuses_is_failed_with_its_body_and_not_retried(
    api: Api, tenant: Tenant, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    batch_id = create(api, fast, [message(1), message(2, to="+919812340030"), message(3, type="nonsense")])
    runner.run()
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["status"] for item in items] == ["accepted", "failed", "failed"]
    assert items[1]["http_status"] == 400
    assert list(items[1]["response"]) == ["error"], "the upstream's bytes, nothing added"
    assert items[1]["response"]["error"]["code"] == 131030
    assert items[1]["wamid"] is None
    assert len(received(simulator, fast)) == 3
    assert Event.objects.filter(type="message.outbound").count() == 3
    tenant.refresh_from_db()
    assert tenant.test_message_sent


def test_outcomes_go_on_after_the_end(api: Api, fast: PhoneNumber, simulator: RunningSimulator) -> None:
    batch_id = create(api, fast, [message(1001), message(1002, to="+919812340030"), message(1003)])

    def outcomes() -> dict[str, int]:
        return {
            name: count for name, count in api.get(f"{PATH}/{batch_id}").json()["outcomes"].items() if count
        }

    assert outcomes() == {}
    runner.run()
    assert outcomes() == {"accepted": 2, "failed": 1}
    wamids = [item["wamid"] for item in api.get(f"{PATH}/{batch_id}/items?status=accepted").json()["data"]]
    reported = [(wamids[0], "delivered"), (wamids[1], "sent"), (wamids[1], "failed")]
    for wamid, word in reported:
        change = status_change(wamid, word)
        change["value"]["metadata"]["phone_number_id"] = fast.phone_number_id
        assert post(notification((fast.account.waba_id, [change]))).status_code == 200
    assert outcomes() == {"delivered": 1, "failed": 2}


def test_an_item_without_an_answer_is_outcome_unknown_and_sent_once(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator, settings: Any
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 2_000
    faults: list[tuple[dict[str, Any], str, int | None]] = [
        ({"action": "reset"}, "connection_error", None),
        ({"action": "reset", "when": "after"}, "connection_error", None),
        ({"action": "hang"}, "timeout", None),
        ({"action": "html", "status": 502}, "unusable_answer", 502),
    ]
    simulator.faults(
        *({"match": {"to": f"+91980000100{place}"}, **fault} for place, (fault, *_) in enumerate(faults))
    )
    batch_id = create(api, fast, 6)
    runner.run()
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["status"] for item in items] == ["failed"] * 4 + ["accepted"] * 2
    for item, (fault, reason, http_status) in zip(items, faults, strict=False):
        assert item["response"]["source"] == settings.SERVICE_NAME
        error = item["response"]["error"]
        assert (error["code"], error["details"]["reason"]) == ("outcome_unknown", reason), fault
        assert item["http_status"] == http_status, fault
    assert len(received(simulator, fast)) == 6


def test_the_lease_is_renewed_while_a_message_hangs(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator, settings: Any, background: InBackground
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 2_000
    settings.BATCH_LEASE_SECONDS = 0.4
    simulator.faults({"match": {"to": "+919800001000"}, "action": "hang"})
    batch_id = create(api, fast, 1)
    background.start()
    wait_until(lambda: BatchItem.objects.filter(claimed_by__isnull=False).exists())
    first = row(batch_id)
    assert first.lease_until is not None
    later = first.lease_until + timedelta(seconds=1)
    wait_until(lambda: (row(batch_id).lease_until or first.lease_until) > later)
    assert row(batch_id).lease_token == first.lease_token
    wait_until(lambda: row(batch_id).status == "completed")
    assert len(received(simulator, fast)) == 1


@pytest.fixture
def unreachable(settings: Any) -> Callable[[], None]:
    """Make Meta's address unreachable. The returned function restores it."""
    known = settings.META_GRAPH_URL
    settings.META_GRAPH_URL = f"http://127.0.0.1:{free_port()}"

    def back() -> None:
        settings.META_GRAPH_URL = known

    return back


def test_messages_wait_for_an_upstream_that_cannot_be_reached(
    api: Api,
    fast: PhoneNumber,
    simulator: RunningSimulator,
    unreachable: Callable[[], None],
    background: InBackground,
) -> None:
    batch_id = create(api, fast, 5)
    background.start()
    wait_until(lambda: BatchItem.objects.filter(claimed_by__isnull=False).count() == 5)
    unreachable()
    wait_until(lambda: row(batch_id).status == "completed")
    assert (row(batch_id).accepted, row(batch_id).failed) == (5, 0)
    assert len(received(simulator, fast)) == 5


def test_a_worker_that_ends_while_the_upstream_cannot_be_reached_leaves_its_items_to_the_next(
    api: Api,
    fast: PhoneNumber,
    simulator: RunningSimulator,
    unreachable: Callable[[], None],
    background: InBackground,
) -> None:
    batch_id = create(api, fast, 5)
    background.start()
    wait_until(lambda: BatchItem.objects.filter(claimed_by__isnull=False).count() == 5)
    runner.stop()
    background.join(20)
    assert BatchItem.objects.filter(status="pending", claimed_by=None).count() == 5
    unreachable()
    runner._stopping.clear()
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (5, 0)
    assert len(received(simulator, fast)) == 5


def test_what_found_no_connection_for_long_is_failed_and_can_be_sent_again(
    api: Api, fast: PhoneNumber, unreachable: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.sender.REACH_SECONDS", 0)
    batch_id = create(api, fast, 5)
    runner.run()
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [(item["status"], item["http_status"]) for item in items] == [("failed", None)] * 5
    assert items[0]["response"]["error"]["code"] == "meta_unreachable"
    assert items[0]["response"]["error"]["details"]["reason"] == "connection_error"
    unreachable()
    assert api.post(f"{PATH}/{batch_id}/retry").status_code == 202
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (5, 0)
    outcomes = api.get(f"{PATH}/{batch_id}").json()["outcomes"]
    assert sum(outcomes.values()) == outcomes["accepted"] == 5, "each message counts once"


def test_the_pace_is_the_numbers(
    api: Api, tenant: Tenant, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    number = connected_number(tenant, account)
    batch_id = create(api, number, 80)
    runner.run()
    times = [row["at"] for row in received(simulator, number)]
    assert len(times) == 80
    assert_paced(times, batch_id, rate=80)


def test_the_pace_holds_while_valkey_is_flushed(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, background: InBackground, empty_valkey: Any
) -> None:
    batch_id = create(api, number, 30)
    background.start()
    while background.is_alive():
        empty_valkey.flushdb()
        time.sleep(0.02)
    times = [row["at"] for row in received(simulator, number)]
    assert len(times) == 30
    assert_paced(times, batch_id, rate=SLOW)


def test_throttling_halves_the_pace(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "throttle", "times": 1})
    batch_id = create(api, number, 31)
    runner.run()
    body = api.get(f"{PATH}/{batch_id}").json()
    assert (body["accepted"], body["failed"]) == (30, 1), "a refused item is not retried"
    times = [row["at"] for row in received(simulator, number)]
    # A busy machine may be slower. `sending/test_pacing.py` checks with a fake clock that the pace is exactly half.
    assert 30 / (times[-1] - times[0]) <= SLOW / 2 * 1.2


def run_until_none_is_open() -> None:
    """Run the runner until all batches have ended. The runner ends whenever it finds nothing to run, even between two
    batches of a number.
    """
    deadline = time.monotonic() + 60
    while Batch.objects.filter(completed_at__isnull=True).exists():
        assert time.monotonic() < deadline
        runner.run()


def test_batches_of_one_number_run_one_after_another_and_of_two_numbers_at_once(
    api: Api, number: PhoneNumber, tenant: Tenant, simulator: RunningSimulator
) -> None:
    other = connected_number(tenant, simulator.account())
    first, second = create(api, number, 10), create(api, number, 10)
    elsewhere = create(api, other, 10)
    run_until_none_is_open()
    one, two, three = (api.get(f"{PATH}/{batch_id}").json() for batch_id in (first, second, elsewhere))
    assert one["completed_at"] <= two["started_at"]
    assert three["started_at"] < one["completed_at"]
    assert one["status"] == two["status"] == three["status"] == "completed"


def test_interrupted_items_are_reported_and_never_sent_again(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    """A killed worker leaves items that were claimed and have no result. Its lease has expired."""
    batch_id = create(api, fast, 10)
    (held,) = held_batch.claim_batches(10)
    taken = held_batch.take(held, first=0, count=4, country_code="91")
    assert [item.idx for item in taken.items] == [0, 1, 2, 3]
    runner.run()
    assert received(simulator, fast) == [], "the lease is still somebody's"
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    runner.run()
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["status"] for item in items] == ["failed"] * 4 + ["accepted"] * 6
    for item in items[:4]:
        assert item["response"]["error"]["code"] == "outcome_unknown"
        assert item["response"]["error"]["details"]["reason"] == "interrupted"
        assert item["event_id"]
    assert len(received(simulator, fast)) == 6
    body = api.get(f"{PATH}/{batch_id}").json()
    assert (body["status"], body["accepted"], body["failed"]) == ("completed", 6, 4)
    sends = api.get("/v1/ledger").json()["sends"]
    assert (sends["accepted"], sends["failed"], sends["outcome_unknown"]) == (6, 0, 4)


def test_the_batch_of_a_worker_that_died_is_free_at_once(api: Api, fast: PhoneNumber) -> None:
    def everybody(_: object) -> Any:
        return [holder for (holder,) in (yield held_batch.HOLDERS, {})]

    create(api, fast, 1)
    (held,) = held_batch.claim_batches(10, holder=7)
    assert held_batch.claim_batches(10) == []
    held_batch.end_leases_of_dead(SimpleNamespace(finding=everybody))  # type: ignore[arg-type]
    assert [again.id for again in held_batch.claim_batches(10)] == [held.id]


@pytest.mark.parametrize("function", ["take", "take_over"])
def test_a_claim_whose_answer_was_lost_with_the_database_is_reported_and_nothing_is_sent_twice(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The database commits a claim and fails before it answers. The repeated claim must not lose its items."""
    # At 100 messages a second, a claim takes 25.
    batch_id = create(api, fast, 30)
    (dead,) = held_batch.claim_batches(10)
    held_batch.take(dead, first=0, count=4, country_code="91")
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    call = getattr(held_batch, function)
    lost: list[int] = []

    def committed_and_lost(*values: Any, **named: Any) -> Any:
        claimed = call(*values, **named)
        if not lost:
            lost.extend(item.idx for item in getattr(claimed, "items", claimed))
            raise OperationalError("server closed the connection unexpectedly")
        return claimed

    monkeypatch.setattr(held_batch, function, committed_and_lost)
    runner.run()
    interrupted = set(lost) | {0, 1, 2, 3}
    items = list(BatchItem.objects.order_by("idx"))
    assert {item.idx for item in items if item.status == "failed"} == interrupted
    assert all(item.status == "accepted" for item in items if item.idx not in interrupted)
    (details,) = {
        orjson.dumps(orjson.loads(bytes(item.response or b""))["error"]["details"])
        for item in items
        if item.status == "failed"
    }
    assert orjson.loads(details)["reason"] == "interrupted"
    assert len(received(simulator, fast)) == 30 - len(interrupted)
    body = api.get(f"{PATH}/{batch_id}").json()
    assert (body["status"], body["accepted"] + body["failed"]) == ("completed", 30)
    assert Event.objects.filter(type="message.outbound").count() == 30


@pytest.mark.parametrize(
    ("times", "writes", "when"),
    [(3, "UPDATE ON messaging_batchitem", "NEW.status = 'accepted'"), (1, "UPDATE ON messaging_batch", "")],
    ids=["items", "batches"],
)
def test_what_was_sent_while_the_database_takes_no_writes_is_recorded_as_sent(
    api: Api, fast: PhoneNumber, monkeypatch: pytest.MonkeyPatch, times: int, writes: str, when: str
) -> None:
    monkeypatch.setattr(runner, "QUIET_POLL_SECONDS", 0.1)
    monkeypatch.setattr(runner, "LINGER_SECONDS", 0.5)
    batch_id = create(api, fast, 2)
    with read_only_for(times, writes, when=when):
        runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (2, 0)


def test_a_send_that_crashed_is_reported_when_the_batch_ends(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_call = outbound.message_call

    def crash(number: Any, body: bytes) -> Any:
        if b"Hello 1001" in body:
            raise ValueError("a defect of ours")
        return message_call(number, body)

    monkeypatch.setattr(outbound, "message_call", crash)
    batch_id = create(api, fast, 3)
    runner.run()
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["status"] for item in items] == ["accepted", "failed", "accepted"]
    assert items[1]["response"]["error"]["code"] == "outcome_unknown"
    assert (row(batch_id).accepted, row(batch_id).failed) == (2, 1)


def test_a_batch_whose_result_could_not_be_recorded_goes_on_when_its_lease_ends(
    api: Api,
    fast: PhoneNumber,
    simulator: RunningSimulator,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    background: InBackground,
) -> None:
    """In the same process, which goes on without a pause."""
    settings.BATCH_LEASE_SECONDS = 0.4
    monkeypatch.setattr(runner, "LINGER_SECONDS", 60.0)
    monkeypatch.setattr(runner, "QUIET_POLL_SECONDS", 0.1)
    record, errors = held_batch.record, [ValueError("a defect of ours")]

    def fail_once(*given: Any) -> None:
        if errors:
            raise errors.pop()
        record(*given)

    monkeypatch.setattr(held_batch, "record", fail_once)
    batch_id = create(api, fast, 1)
    background.start()
    wait_until(lambda: row(batch_id).status == "completed")
    (item,) = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert item["response"]["error"]["code"] == "outcome_unknown"
    assert len(received(simulator, fast)) == 1


def test_a_runner_that_lost_its_lease_can_claim_and_overwrite_nothing(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    batch_id = create(api, fast, 6)
    (late,) = held_batch.claim_batches(10)
    taken = held_batch.take(late, first=0, count=2, country_code="91")
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    runner.run()
    with pytest.raises(held_batch.BatchLeaseLost):
        held_batch.take(late, first=2, count=2, country_code="91")
    with pytest.raises(held_batch.BatchLeaseLost):
        held_batch.renew(late)
    number = held_batch.number_of(late.tenant_id, late.environment, late.phone_number_id)
    held_batch.record(
        late,
        number,
        [(taken.items[0], held_batch.Outcome(b'{"messages":[{"id":"late"}]}', True, 200, now()))],
    )
    held_batch.finish(late)
    held_batch.release(late, taken.items)
    item = api.get(f"{PATH}/{batch_id}/items?limit=1").json()["data"][0]
    assert item["response"]["error"]["code"] == "outcome_unknown"
    assert (row(batch_id).accepted, row(batch_id).failed) == (4, 2)
    assert Event.objects.filter(type="batch.completed").count() == 1


def test_a_late_result_is_left_alone_once_the_next_runner_reports_on_its_item(
    api: Api, fast: PhoneNumber
) -> None:
    batch_id = create(api, fast, 1)
    (late,) = held_batch.claim_batches(10)
    taken = held_batch.take(late, first=0, count=1, country_code="91")
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    (holder,) = held_batch.claim_batches(10)
    (interrupted,) = held_batch.take_over(holder)
    number = held_batch.number_of(late.tenant_id, late.environment, late.phone_number_id)
    held_batch.record(
        late,
        number,
        [(taken.items[0], held_batch.Outcome(b'{"messages":[{"id":"late"}]}', True, 200, now()))],
    )
    assert (row(batch_id).accepted, row(batch_id).failed) == (0, 0)
    held_batch.record(holder, number, [(interrupted, held_batch.Outcome(b'{"error":{}}'))])
    assert (row(batch_id).accepted, row(batch_id).failed) == (0, 1)
    assert Event.objects.filter(type="message.outbound").count() == 1


def test_of_two_claiming_at_once_one_holds_each_number(
    api: Api, fast: PhoneNumber, number: PhoneNumber
) -> None:
    for _ in range(3):
        create(api, fast, 1)
        create(api, number, 1)
    claims = [*in_threads(*[partial(held_batch.claim_batches, 10)] * 6), held_batch.claim_batches(10)]
    assert sorted(held.phone_number_id for held in itertools.chain(*claims)) == sorted(
        [fast.phone_number_id, number.phone_number_id]
    )


def test_cancel_while_it_runs_skips_the_rest_and_ends_with_the_final_counts(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, background: InBackground
) -> None:
    batch_id = create(api, number, 100)
    background.start()
    wait_until(lambda: row(batch_id).accepted >= 5)
    assert api.post(f"{PATH}/{batch_id}/cancel").json()["status"] == "cancelled"
    background.join(20)
    batch = row(batch_id)
    assert batch.completed_at
    assert batch.status == "cancelled"
    sent = len(received(simulator, number))
    assert batch.accepted == sent < 37
    by_status = Counter(BatchItem.objects.values_list("status", flat=True))
    assert by_status == {"accepted": sent, "skipped": 100 - sent}
    data = orjson.loads(bytes(EventPayload.objects.get(id=Event.objects.get(type="batch.completed").id).body))
    assert (data["status"], data["accepted"], data["skipped"]) == ("cancelled", sent, 100 - sent)


@pytest.mark.parametrize("is_released", [False, True], ids=["held", "released"])
@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_batch_that_is_cancelled_while_its_runner_lets_go_of_it_ends_at_once(
    api: Api, fast: PhoneNumber, interrupted: int, is_released: bool
) -> None:
    batch_id = create(api, fast, 5)
    (held,) = held_batch.claim_batches(10)
    taken = held_batch.take(held, first=0, count=2, country_code="91")
    PhoneNumber.objects.update(connection_state="pending")

    def cancel() -> None:
        assert api.post(f"{PATH}/{batch_id}/cancel").json()["status"] == "cancelled"

    def release() -> None:
        held_batch.release(held, taken.items[interrupted:])

    for step in (release, cancel) if is_released else (cancel, release):
        step()
    if interrupted:
        # The item may have been sent, so the next runner has to report it first.
        assert row(batch_id).completed_at is None
        runner.run()
    batch = api.get(f"{PATH}/{batch_id}").json()
    assert batch["completed_at"]
    assert (batch["status"], batch["waiting_for"], batch["failed"]) == ("cancelled", None, interrupted)
    items = api.get(f"{PATH}/{batch_id}/items").json()["data"]
    assert [item["status"] for item in items] == ["failed"] * interrupted + ["skipped"] * (5 - interrupted)
    assert Event.objects.filter(type="batch.completed").count() == 1


def test_a_stopped_worker_gives_its_batch_back_and_the_next_goes_on(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, background: InBackground
) -> None:
    batch_id = create(api, number, 20)
    background.start()
    wait_until(lambda: row(batch_id).accepted >= 5)
    runner.stop()
    background.join(20)
    assert row(batch_id).lease_token is None
    assert not BatchItem.objects.filter(status="pending", claimed_by__isnull=False).exists()
    runner._stopping.clear()
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted) == ("completed", 20)
    assert len(received(simulator, number)) == 20


def waits(batch_id: str) -> tuple[str, str | None, bool]:
    """The status of a batch, the reason for its waiting, and whether a runner holds it."""
    batch = row(batch_id)
    return batch.status, batch.waiting_for, batch.lease_token is not None


@pytest.mark.parametrize(
    ("waiting_for", "model", "hindrance", "most"),
    [
        ("number_not_connected", PhoneNumber, {"connection_state": "pending"}, 37),
        ("tenant_suspended", Tenant, {"status": "suspended"}, 30),
    ],
)
def test_a_batch_waits_for_its_number_or_its_tenant_and_goes_on_by_itself(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    background: InBackground,
    waiting_for: str,
    model: Any,
    hindrance: dict[str, str],
    most: int,
) -> None:
    before = {name: getattr(model.objects.get(), name) for name in hindrance}
    batch_id = create(api, number, 40)
    background.start()
    wait_until(lambda: row(batch_id).accepted >= 3)
    model.objects.update(**hindrance)
    background.join(20)
    sent = len(received(simulator, number))
    assert sent < most
    assert waits(batch_id) == ("queued", waiting_for, False)
    by_status = Counter(BatchItem.objects.values_list("status", flat=True))
    assert by_status == {"accepted": sent, "pending": 40 - sent}
    since = row(batch_id).waiting_since
    runner.run()
    assert (waits(batch_id)[1], row(batch_id).waiting_since) == (waiting_for, since)
    model.objects.update(**before)
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted, row(batch_id).failed) == ("completed", 40, 0)
    assert len(received(simulator, number)) == 40
    assert (row(batch_id).waiting_for, row(batch_id).waiting_since) == (None, None)


def test_a_batch_that_never_started_waits_too_and_an_older_one_of_another_tenant_does_not_hold_it_up(
    api: Api, other_tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    older = Batch.objects.create(
        tenant=other_tenant,
        environment="live",
        phone_number_id=number.phone_number_id,
        total=1,
        rate_per_sec=80,
    )
    BatchItem.objects.create(batch=older, idx=0, body=b"{}")
    batch_id = create(api, number, 5)
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="deregistered")
    runner.run()
    assert waits(batch_id) == ("queued", "number_not_connected", False)
    older.refresh_from_db()
    assert older.completed_at, "its number is not its tenant's: nothing can ever be sent"
    assert BatchItem.objects.get(batch=older).status == "skipped"
    PhoneNumber.objects.update(connection_state="connected", connection_detail=None)
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted) == ("completed", 5)
    assert len(received(simulator, number)) == 5


def test_while_the_tenant_waits_for_approval_only_batches_of_its_sandbox_are_sent(
    api: Api, number: PhoneNumber, tenant: Tenant, simulator: RunningSimulator
) -> None:
    of_live = create(api, number, 2)
    (of_sandbox,) = control.ensure(tenant.id)
    body = orjson.dumps({"from": of_sandbox.phone_number_id, "messages": [message(1), message(2)]})
    batch = lifecycle.create(tenant_id=tenant.id, environment="test", raw=body).batch
    Tenant.objects.update(status="pending_approval")
    runner.run()
    assert (row(batch.public_id).status, row(batch.public_id).accepted) == ("completed", 2)
    assert waits(of_live) == ("queued", "tenant_suspended", False)
    assert received(simulator, number) == []
    Tenant.objects.update(status="active")
    runner.run()
    assert row(of_live).accepted == 2


@pytest.mark.parametrize("waiting_for", ["number_not_connected", "tenant_suspended"])
def test_after_24_hours_of_waiting_what_is_left_is_skipped_and_interrupted_items_are_reported(
    api: Api, number: PhoneNumber, tenant: Tenant, simulator: RunningSimulator, waiting_for: str
) -> None:
    batch_id = create(api, number, 10)
    (held,) = held_batch.claim_batches(10)
    held_batch.take(held, first=0, count=3, country_code="91")
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    if waiting_for == "tenant_suspended":
        Tenant.objects.update(status="suspended")
    else:
        PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    runner.run()
    assert waits(batch_id) == ("queued", waiting_for, False)
    assert row(batch_id).failed == 3, "what was interrupted is reported at once"
    Batch.objects.update(waiting_since=now() - timedelta(hours=23, minutes=59))
    runner.run()
    assert waits(batch_id) == ("queued", waiting_for, False)
    Batch.objects.update(waiting_since=now() - timedelta(hours=24, seconds=1))
    runner.run()
    by_status = Counter(BatchItem.objects.values_list("status", flat=True))
    assert by_status == {"failed": 3, "skipped": 7}
    assert waits(batch_id) == ("completed", None, False)
    data = orjson.loads(bytes(EventPayload.objects.get(id=Event.objects.get(type="batch.completed").id).body))
    assert (data["accepted"], data["failed"], data["skipped"]) == (0, 3, 7)
    assert received(simulator, number) == []


@pytest.mark.parametrize("waiting_for", ["number_not_connected", "number_released"])
def test_a_batch_that_ends_before_it_began_has_no_beginning(
    api: Api, number: PhoneNumber, waiting_for: str
) -> None:
    batch_id = create(api, number, 2)
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    runner.run()
    if waiting_for == "number_released":
        PhoneNumber.objects.all().delete()
    Batch.objects.update(waiting_since=now() - timedelta(hours=24, seconds=1))
    runner.run()
    ended = api.get(f"{PATH}/{batch_id}").json()
    assert (ended["status"], ended["started_at"], ended["completed_at"] is None) == ("completed", None, False)
    data = orjson.loads(bytes(EventPayload.objects.get(id=Event.objects.get(type="batch.completed").id).body))
    assert (data["started_at"], data["skipped"]) == (None, 2)


def test_a_token_that_fails_makes_the_batch_wait_and_a_retry_sends_what_it_cost(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    batch_id = create(api, number, 50)
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    runner.run()
    assert waits(batch_id) == ("queued", "number_not_connected", False)
    refused = row(batch_id).failed
    assert 0 < refused < 30
    assert len(received(simulator, number)) == refused
    assert Event.objects.filter(type="token.invalid").count() == 1

    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": False})
    BusinessAccount.objects.update(token_invalid_at=None)
    PhoneNumber.objects.update(connection_state="connected", connection_detail=None)
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted) == ("completed", 50 - refused)

    answer = api.post(f"{PATH}/{batch_id}/retry")
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert (answer.json()["failed"], answer.json()["completed_at"]) == (0, None)
    assert_error(api.post(f"{PATH}/{batch_id}/retry"), 409, "conflict")
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted, row(batch_id).failed) == ("completed", 50, 0)
    assert Event.objects.filter(type="batch.completed").count() == 2
    assert Event.objects.filter(type="message.outbound").count() == 50 + refused
    accepted = Counter(json.loads(sent["body"])["to"] for sent in received(simulator, number))
    assert len(accepted) == 50
    assert_error(api.post(f"{PATH}/{batch_id}/retry"), 409, "conflict")


@pytest.mark.parametrize("code", [0, 190])
def test_one_odd_refusal_of_a_working_token_costs_one_item(
    api: Api, tenant: Tenant, fast: PhoneNumber, simulator: RunningSimulator, code: int
) -> None:
    verified_endpoint(tenant)
    simulator.faults({"match": {"to": "+919800001005"}, "action": "error", "code": code})
    batch_id = create(api, fast, 40)
    runner.run()
    assert (row(batch_id).status, row(batch_id).accepted, row(batch_id).failed) == ("completed", 39, 1)
    fast.refresh_from_db()
    assert fast.connection_state == "connected"
    assert not Event.objects.filter(type="token.invalid").exists()


def test_a_refused_token_is_asked_about_at_most_once_in_a_few_seconds(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    check = tokens.check

    def counted(account: BusinessAccount, **values: Any) -> None:
        asked.append(account.waba_id)
        check(account, **values)

    monkeypatch.setattr(tokens, "check", counted)
    simulator.faults({"match": {"path": "/messages$"}, "action": "error", "code": 190})
    began = time.monotonic()
    create(api, fast, 60)
    runner.run()
    assert 1 <= len(asked) <= 1 + (time.monotonic() - began) / tokens.QUESTION_INTERVAL.total_seconds()


def test_throttled_items_are_retryable_and_others_are_not(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults(
        {"match": {"to": "+919800001001"}, "action": "throttle", "times": 1},
        {"match": {"to": "+919800001002"}, "action": "error", "code": 131000},
        {"match": {"to": "+919800001003"}, "action": "reset", "when": "after"},
    )
    batch_id = create(api, fast, 5)
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (2, 3)
    simulator.faults()
    assert api.post(f"{PATH}/{batch_id}/retry").status_code == 202
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (3, 2)
    times_sent = Counter(json.loads(sent["body"])["to"] for sent in received(simulator, fast))
    assert times_sent["+919800001001"] == 2
    assert {times_sent[f"+91980000100{place}"] for place in (0, 2, 3, 4)} == {1}


def test_items_that_met_a_refused_app_secret_can_be_sent_again(
    api: Api, fast: PhoneNumber, settings: Any
) -> None:
    known, settings.META_APP_SECRET = settings.META_APP_SECRET, "changed there, not here"
    batch_id = create(api, fast, 5)
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (0, 5)
    settings.META_APP_SECRET = known
    assert api.post(f"{PATH}/{batch_id}/retry").status_code == 202
    runner.run()
    assert (row(batch_id).accepted, row(batch_id).failed) == (5, 0)


def test_nothing_is_sent_once_the_lease_is_uncertain_and_another_holds_it(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stalls after it claimed items. Before it sends them, it checks its lease again."""
    monkeypatch.setattr(runner, "MESSAGES_AT_ONCE", 1)
    batch_id = create(api, number, 10)
    next_turn, turns = BatchRun._next_turn, itertools.count(1)
    runs = set()

    def taken_over() -> None:
        Batch.objects.update(lease_token=uuid4())
        connection.close()

    async def stalled(self: BatchRun) -> float:
        runs.add(self)
        turn = await next_turn(self)
        if next(turns) == 3:
            await asyncio.to_thread(taken_over)
            self.certain_until = 0.0
        return turn

    monkeypatch.setattr(BatchRun, "_next_turn", stalled)
    runner.run()
    assert len(received(simulator, number)) == 2
    assert row(batch_id).completed_at is None
    (run,) = runs
    assert not run.process.slots.locked(), "other batches can use the slot"


def test_the_lease_counts_from_the_question_and_not_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is counted from the request to the database, because the answer can be late."""
    clock = [100.0]
    monkeypatch.setattr("messaging.batches.sender.time.monotonic", lambda: clock[0])
    held = Held(
        uuid4(),
        uuid4(),
        "live",
        "100",
        80,
        uuid4(),
        0,
        skip_opted_out=False,
        given_up=False,
        traceparent=None,
    )

    class SlowDatabase:
        stopping = False

        async def in_database(self, lane: int, call: Any, *values: Any) -> Any:
            clock[0] += 5.0
            return held_batch.Taken([]) if call is not held_batch.renew else None

    run = BatchRun(SlowDatabase(), None, held)  # type: ignore[arg-type]
    safe = SAFE_PART * settings.BATCH_LEASE_SECONDS
    asyncio.run(run._renew())
    assert run.certain_until == 100.0 + safe
    run.facts_at = clock[0] = 200.0
    run.number = None  # type: ignore[assignment]
    asyncio.run(run._take())
    assert run.certain_until == 200.0 + safe


@pytest.mark.parametrize("stops", [True, False], ids=["the worker ends", "another worker took over"])
def test_an_item_that_found_no_connection_is_not_tried_again_when(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.sender.RETRY_SECONDS", 0)
    monkeypatch.setattr("messaging.batches.sender.REACH_SECONDS", 0.2)
    held = Held(
        uuid4(),
        uuid4(),
        "live",
        "100",
        80,
        uuid4(),
        0,
        skip_opted_out=False,
        given_up=False,
        traceparent=None,
    )
    tried = []

    class LostLease:
        stopping = False

        async def in_database(self, lane: int, call: Any, *values: Any) -> Any:
            raise held_batch.BatchLeaseLost

    class Away:
        async def send(self, call: Any) -> Any:
            tried.append(call)
            if stops:
                process.stopping = True
            else:
                run.certain_until = 0.0
            raise UpstreamUnreachable("connection_error", 0.0, is_unsent=True)

    process = LostLease()
    run = BatchRun(process, Away(), held)  # type: ignore[arg-type]
    run.number = Sender("100", "200", "token", "live", "connected", None, "919800000001", None, False)
    run.certain_until = time.monotonic() + 60
    item = held_batch.ClaimedItem(0, b"{}")
    asyncio.run(run._send(item))
    assert (len(tried), run.results) == (1, [])
    assert run.unsent == ([item] if stops else [])


def test_a_batch_whose_lease_is_replaced_while_it_runs_stops(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, background: InBackground
) -> None:
    batch_id = create(api, number, 40)
    background.start()
    wait_until(lambda: row(batch_id).accepted >= 3)
    Batch.objects.update(lease_token=uuid4())
    background.join(20)
    sent = len(received(simulator, number))
    assert sent < 30
    Batch.objects.update(lease_until=now() - timedelta(seconds=1))
    runner.run()
    bodies = Counter(row["body"] for row in received(simulator, number))
    assert max(bodies.values()) == 1
    assert row(batch_id).accepted + row(batch_id).failed == 40


@pytest.fixture
def _one_event_is_refused() -> Iterator[None]:
    """Make the database reject the event of one customer."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.wa_id = '919800001003' THEN RAISE 'refused' USING ERRCODE = '22000'; END IF; RETURN NEW; END $$"
        )
        cursor.execute("CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse ON events")
        cursor.execute("DROP FUNCTION refuse")


@pytest.mark.usefixtures("_one_event_is_refused")
def test_a_result_that_the_database_refuses_takes_no_other_with_it(
    api: Api, fast: PhoneNumber, simulator: RunningSimulator
) -> None:
    batch_id = create(api, fast, 30)
    runner.run()
    batch = row(batch_id)
    assert (batch.status, batch.accepted, batch.failed) == ("completed", 29, 1)
    refused = BatchItem.objects.get(batch=batch, idx=3)
    assert refused.response is not None
    assert orjson.loads(bytes(refused.response))["error"]["details"]["reason"] == "unusable_answer"
    assert Event.objects.filter(type="message.outbound").count() == 30
    assert len(received(simulator, fast)) == 30
