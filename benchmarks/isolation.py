"""Isolation: bad neighbours must not delay the deliveries and sends of others.

- `endpoints`: ten healthy endpoints with 100 events a second, alone and beside two bad endpoints. One never answers and
  has 100,000 waiting deliveries, the other answers 500.
- `tenant`: one tenant's events and sends, alone and beside a tenant with 19 hanging endpoints, 10,000 waiting
  deliveries, a replay of all its events and a batch of 10,000 messages at the same time.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import requests

from benchmarks.bulkhead import send_request
from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness, Load
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint, endpoints
from benchmarks.equipment.sink import Sink
from benchmarks.latency import backlog, publish_at, waited

PARTS = ("endpoints", "tenant")
A_SECOND = 100
SECONDS = 20
WAITING = 100_000
SLOWER = 1.5
LEAST_MS = 20.0
"""A smaller p99 counts as this time, because single milliseconds are noise of the machine."""
OF_TENANT = 20
"""The rate of the measured tenant's events, and of its sends, per second."""
HANGING, OF_TENANT_WAITING, REPLAYED, BATCH = 19, 10_000, 5_000, 10_000


def run(harness: Harness, part: str) -> list[Result]:
    """Run one part."""
    return {"endpoints": _endpoints, "tenant": _tenant}[part](harness)


def _endpoints(harness: Harness) -> list[Result]:
    """Measure the same load twice, without and with the bad endpoints."""
    with Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, 11)]
        for tenant_id in tenants:
            endpoint(tenant_id, f"{sink.url}/ok")
        harness.worker()
        harness.beat()
        publish_at(tenants, rate=A_SECOND, seconds=2)
        alone = publish_at(tenants, rate=A_SECOND, seconds=SECONDS)
        hanging, failing = business(11).tenant_id, business(12).tenant_id
        hanging_id, _ = endpoint(hanging, f"{sink.url}/hang")
        failing_id, _ = endpoint(failing, f"{sink.url}/bad")
        backlog(hanging, hanging_id, WAITING)
        backlog(failing, failing_id, WAITING // 10)
        beside = publish_at(tenants, rate=A_SECOND, seconds=SECONDS)
        expected = len(alone) + len(beside) + 2 * A_SECOND
        harness.wait_until(lambda: sink.count >= expected, harness.log("worker"))
        noted = sink.finish()
    results = [
        Result(
            what, len(committed), A_SECOND, unit="events", percentiles=percentiles(waited(committed, noted))
        )
        for what, committed in (("10 healthy alone", alone), ("beside a hanging and a failing one", beside))
    ]
    for result, committed in zip(results, (alone, beside), strict=True):
        missing = len(committed) - len(waited(committed, noted))
        result.expect(missing == 0, f"{missing:,} did not arrive exactly once")
    results[1].expect_times(results[0], SLOWER, least_ms=LEAST_MS)
    return results


def _tenant(harness: Harness) -> list[Result]:
    upstream = harness.bare_upstream()
    rate = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    measured = business(1)
    with Sink() as sink, Sink() as others:
        # Events of sends are not delivered, so the sink counts only the published events.
        endpoint(measured.tenant_id, f"{sink.url}/ok", event_types=["message.inbound"])
        web = harness.web(META_GRAPH_URL=upstream, **rate)
        harness.worker()
        for role in ("batches", "tasks"):
            harness.worker(name=role, role=role, META_GRAPH_URL=upstream)
        harness.beat()
        _events_and_sends(web, measured, seconds=2)
        alone = _events_and_sends(web, measured)
        _burden(web, business(2), others.url)
        beside = _events_and_sends(web, measured)
        expected = OF_TENANT * (2 + 2 * SECONDS)
        harness.wait_until(lambda: sink.count >= expected, harness.log("worker"))
        noted, replayed = sink.finish(), others.count
    results = []
    for what, (committed, sends) in (("alone", alone), ("beside a burdened tenant", beside)):
        waits = waited(committed, noted)
        events = _row(f"a tenant's events, {what}", waits)
        events.expect(
            len(waits) == len(committed), f"{len(committed) - len(waits)} did not arrive exactly once"
        )
        answered = _row(f"its sends, {what}", sends.milliseconds)
        answered.expect(sends.statuses == {200: answered.count}, f"answered {sends.statuses}")
        results += [events, answered]
    results[-1].expect(replayed > 0, "nothing was replayed beside them")
    for before, after in zip(results[:2], results[2:], strict=True):
        after.expect_times(before, SLOWER, least_ms=LEAST_MS)
    return results


def _row(what: str, milliseconds: list[float]) -> Result:
    return Result(what, len(milliseconds), OF_TENANT, unit="requests", percentiles=percentiles(milliseconds))


def _events_and_sends(web: str, of: Business, *, seconds: int = SECONDS) -> tuple[dict[str, float], Load]:
    """Publish events and send messages at steady rates at the same time. Returns the commits' times and the answers."""

    from django.db import connection

    def publish() -> dict[str, float]:
        try:
            return publish_at([of.tenant_id], rate=OF_TENANT, seconds=seconds)
        finally:
            connection.close()

    sends = [send_request(of, number) for number in range(OF_TENANT * seconds)]
    with ThreadPoolExecutor(1) as beside:
        committed = beside.submit(publish)
        load = raw_client.post_steadily(f"{web}/v1/messages", sends, concurrency=16, rate=OF_TENANT)
        return committed.result(), load


def _burden(web: str, of: Business, url: str) -> None:
    """Give a tenant hanging endpoints, waiting deliveries, a replay of all its events and a long batch."""
    replayed, _ = endpoint(of.tenant_id, f"{url}/ok/later")
    _publish_dead(of.tenant_id)
    endpoints([(of.tenant_id, f"{url}/hang")] * (HANGING - 1))
    waiting, _ = endpoint(of.tenant_id, f"{url}/hang", event_types=["meta.other"])
    backlog(of.tenant_id, waiting, OF_TENANT_WAITING)
    now = datetime.now(UTC)
    period = {"from": (now - timedelta(hours=1)).isoformat(), "to": now.isoformat(), "status": ["dead"]}
    _post(web, of, f"/v1/webhooks/{replayed}/replay", period)
    messages = [
        {"to": f"+91{place:010d}", "type": "text", "text": {"body": "Hello"}} for place in range(BATCH)
    ]
    _post(web, of, "/v1/messages/batch", {"from": of.phone_number_id, "messages": messages})


def _publish_dead(tenant_id: UUID) -> None:
    """Publish events with failed deliveries that are not retried."""
    from django.db import transaction

    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish
    from webhooks.models import Delivery

    with transaction.atomic():
        for first in range(0, REPLAYED, 1_000):
            events = [
                NewEvent(
                    type="message.status",
                    environment="live",
                    dedupe_key=f"dead:{first + place}",
                    data=b"{}",
                )
                for place in range(1_000)
            ]
            publish(tenant_id=tenant_id, events=events)
        dead = {"status": Delivery.Status.DEAD, "next_attempt_at": None}
        Delivery.objects.filter(tenant_id=tenant_id).update(**dead)


def _post(web: str, of: Business, path: str, body: Any) -> None:
    authorized = {"Authorization": f"Bearer {of.api_key}"}
    requests.post(f"{web}{path}", json=body, headers=authorized, timeout=60).raise_for_status()
