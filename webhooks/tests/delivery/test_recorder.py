"""Outcomes are written soon. Their endpoints' counters follow within a second, or at once after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from django.db import OperationalError, connection

from gateway import ids
from gateway.clock import now
from gateway.outbound.connection import Answer
from tenants.models import Tenant
from tests.fixtures import Api
from webhooks.delivery import recorder as recorders
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
from webhooks.delivery.recorder import Outcome, Recorder
from webhooks.delivery.retries_and_attempt_log import Decision
from webhooks.delivery.senders import _without_answer
from webhooks.endpoints import lifecycle
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

OK = Answer(200, None, 3, b"ok", None)
BAD = Answer(500, "http_5xx", 3, b"no", None)
SECONDS = 10.0


def claimed(tenant: Tenant, count: int) -> list[Claimed]:
    for number in range(count):
        publish_one(tenant, f"k{number}")
    deliveries = claim(Room(count, count))
    assert len(deliveries) == count
    return deliveries


def outcome(delivery: Claimed, answer: Answer) -> Outcome:
    decision = Decision("delivered") if answer.ok else Decision("failed", 5.0)
    return Outcome(delivery.id, delivery.tenant_id, delivery.endpoint_id, delivery.attempts, decision, answer)


def recording(work: Callable[[Recorder], Awaitable[None]]) -> None:
    """Run a recorder during some work, and then let it finish."""

    async def run() -> None:
        recorder = Recorder(on_awaited=lambda: None)
        task = asyncio.create_task(recorder.run())
        try:
            await work(recorder)
        finally:
            recorder.finish()
            await task

    asyncio.run(run())


async def asked(question: Callable[[], Any]) -> Any:
    """The result of a query, run in a thread."""

    def ask() -> Any:
        try:
            return question()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await asked(holds):
            await asyncio.sleep(0.01)


def test_an_end_without_an_attempt_keeps_what_the_last_attempt_said(
    api: Api, tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    (delivery,) = claimed(tenant, 1)
    entry = {"at": "2026-11-01T00:00:00.000Z", "http_status": 500, "ms": 3, "error": "http_5xx"}
    recorders.record([msgspec.structs.replace(outcome(delivery, BAD), log_entry=entry)])
    recorders.record(
        [Outcome(delivery.id, tenant.id, delivery.endpoint_id, 1, Decision("dead"), error="payload_expired")]
    )
    shown = api.get(f"/v1/webhook-deliveries/{ids.encode(ids.DELIVERY, delivery.id)}").json()
    assert (shown["status"], shown["attempts"], shown["last_error"]) == ("dead", 1, "payload_expired")
    assert (shown["last_http_status"], shown["last_response_ms"], shown["next_attempt_at"]) == (500, 3, None)
    assert [each["error"] for each in shown["attempt_log"]] == ["http_5xx"]
    row = Delivery.objects.get()
    assert (row.leased_until, row.dead_at is not None) == (None, True)


def test_a_delivery_shows_its_newest_twenty_attempts(
    api: Api, tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    (delivery,) = claimed(tenant, 1)
    for number in range(22):
        entry = {"at": f"2026-11-01T00:00:{number:02}.000Z", "http_status": 500, "ms": 3, "error": "http_5xx"}
        attempt = msgspec.structs.replace(outcome(delivery, BAD), attempts_before=number, log_entry=entry)
        assert recorders.record([attempt]) == 1
    shown = api.get(f"/v1/webhook-deliveries/{ids.encode(ids.DELIVERY, delivery.id)}").json()
    assert shown["attempts"] == 22
    assert [each["at"][17:19] for each in shown["attempt_log"]] == [f"{number:02}" for number in range(2, 22)]


def test_a_single_success_is_counted_without_another_delivery(
    tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    (delivery,) = claimed(tenant, 1)

    async def work(recorder: Recorder) -> None:
        recorder.add(outcome(delivery, OK))
        await until(lambda: Endpoint.objects.get().last_success_at is not None)

    recording(work)
    row = Endpoint.objects.get()
    assert (row.window_attempts, row.window_failures, row.consecutive_failures) == (1, 0, 0)


def test_a_failure_is_counted_at_once_after_the_successes_before_it(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "EVALUATE_SECONDS", 1_000.0)
    first, second, third = claimed(tenant, 3)

    async def work(recorder: Recorder) -> None:
        recorder.add(outcome(first, BAD))
        await until(lambda: Endpoint.objects.get().consecutive_failures == 1)
        recorder.add(outcome(second, OK))
        await until(lambda: Delivery.objects.filter(status="delivered").exists())
        assert await asked(lambda: Endpoint.objects.get().consecutive_failures) == 1
        recorder.add(outcome(third, BAD))
        await until(lambda: Endpoint.objects.get().window_attempts == 3)

    recording(work)
    row = Endpoint.objects.get()
    assert (row.consecutive_failures, row.window_failures) == (1, 2), "the success in between counts"


def test_a_probe_that_succeeds_closes_the_circuit_at_once(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "EVALUATE_SECONDS", 1_000.0)
    (delivery,) = claimed(tenant, 1)
    Endpoint.objects.update(circuit_open_until=now(), circuit_opened=1, consecutive_failures=10)

    async def work(recorder: Recorder) -> None:
        recorder.add(msgspec.structs.replace(outcome(delivery, OK), probe=True))
        await until(lambda: Endpoint.objects.get().circuit_open_until is None)

    recording(work)


@pytest.mark.parametrize("error", ["event_too_large", "payload_expired"])
def test_a_probe_without_a_result_leaves_the_probe_to_the_next_delivery(
    tenant: Tenant, endpoint: dict[str, Any], error: str
) -> None:
    first, second = claimed(tenant, 2)
    Delivery.objects.update(next_attempt_at=now(), leased_until=None)
    Endpoint.objects.update(circuit_open_until=now(), circuit_opened=1, consecutive_failures=10)
    (probe,) = claim(Room(2, 2))
    assert probe.probe
    assert claim(Room(2, 2)) == [], "one probe at a time"
    ended = _without_answer(probe, Decision("dead"), error)
    if error == "event_too_large":
        ended = msgspec.structs.replace(ended, answer=Answer(None, error, 3, b"", None))
    recorders.record([ended])
    (other,) = claim(Room(2, 2))
    assert other.probe
    assert {probe.id, other.id} == {first.id, second.id}
    row = Endpoint.objects.get()
    assert (row.consecutive_failures, row.circuit_opened) == (10, 1)


def test_what_is_not_counted_yet_is_counted_at_the_end(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "EVALUATE_SECONDS", 1_000.0)
    deliveries = claimed(tenant, 2)

    async def work(recorder: Recorder) -> None:
        for delivery in deliveries:
            recorder.add(outcome(delivery, OK))
        await until(lambda: Delivery.objects.filter(status="delivered").count() == 2)

    recording(work)
    assert Endpoint.objects.get().window_attempts == 2


@pytest.mark.parametrize(("step", "when"), [("recording", 0), ("recording", 1), ("evaluating", 0)])
def test_what_an_outage_of_the_database_interrupts_is_repeated_after_it(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: str, when: int
) -> None:
    """`when` is the number of statements before the outage. Each recording statement is a transaction."""
    monkeypatch.setattr(recorders, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(recorders, "EVALUATE_SECONDS", 0.01)
    statements, outage = getattr(recorders, step), [OperationalError()]

    def interrupted(outcomes: list[Outcome]) -> Any:
        steps, answer = statements(outcomes), None
        for _ in range(when if outage else 100):
            try:
                answer = yield steps.send(answer)
            except StopIteration as end:
                return end.value
        raise outage.pop()

    monkeypatch.setattr(recorders, step, interrupted)
    (delivery,) = claimed(tenant, 1)

    async def work(recorder: Recorder) -> None:
        recorder.add(outcome(delivery, BAD))
        await until(lambda: Endpoint.objects.get().consecutive_failures == 1)

    recording(work)
    assert (outage, Delivery.objects.get().status) == ([], "failed")


def test_outcomes_that_cannot_be_counted_hold_up_no_other(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluating, failures = recorders.evaluating, [ValueError()]

    def failing(outcomes: list[Outcome]) -> Any:
        if failures:
            raise failures.pop()
        return evaluating(outcomes)

    monkeypatch.setattr(recorders, "evaluating", failing)
    first, second = claimed(tenant, 2)

    async def work(recorder: Recorder) -> None:
        recorder.add(outcome(first, BAD))
        await until(lambda: not failures)
        recorder.add(outcome(second, BAD))
        await until(lambda: Endpoint.objects.get().consecutive_failures == 1)

    recording(work)
    assert set(Delivery.objects.values_list("status", flat=True)) == {"failed"}


@pytest.mark.parametrize("error", [ValueError(), OperationalError()])
def test_a_disabling_that_fails_does_not_end_the_recorder(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    disable, failures = lifecycle.disable, [error]

    def failing(**given: Any) -> None:
        if failures:
            raise failures.pop()
        disable(**given)

    monkeypatch.setattr(lifecycle, "disable", failing)
    gone = [
        msgspec.structs.replace(outcome(each, BAD), decision=Decision("dead", gone=True))
        for each in claimed(tenant, 2)
    ]

    async def work(recorder: Recorder) -> None:
        recorder.add(gone[0])
        await until(lambda: not failures)
        recorder.add(gone[1])
        await until(lambda: Endpoint.objects.get().status == "disabled")

    recording(work)
