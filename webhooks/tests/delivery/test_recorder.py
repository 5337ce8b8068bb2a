"""Outcomes are written soon. Their endpoints' counters follow within a second, or at once after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import connection

from gateway.outbound.connection import Answer
from tenants.models import Tenant
from webhooks.delivery import recorder as recorders
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
from webhooks.delivery.recorder import Outcome, Recorder
from webhooks.delivery.retries_and_attempt_log import Decision
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
