"""The time from the commit of an event to the first byte of its delivery, at 200 events a second with one worker.

`isolation` measures the same while other endpoints hang or fail.
"""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

A_SECOND = 200
SECONDS = 30
P50, P99 = 30.0, 200.0


def run(harness: Harness) -> list[Result]:
    """Publish at a steady rate and read the times of arrival."""
    with Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, 11)]
        for tenant_id in tenants:
            endpoint(tenant_id, f"{sink.url}/ok")
        harness.worker()
        harness.beat()
        publish_at(tenants, rate=A_SECOND, seconds=2)
        with harness.measure() as measured:
            committed = publish_at(tenants, rate=A_SECOND, seconds=SECONDS)
            harness.wait_until(lambda: sink.count >= len(committed) + 2 * A_SECOND, harness.log("worker"))
        waits = waited(committed, sink.finish())
    found = percentiles(waits)
    assert found is not None
    count = len(committed)
    cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name != "client"}
    result = Result(
        f"commit to first byte at {A_SECOND}/s",
        count,
        count / measured.seconds,
        unit="events",
        percentiles=found,
        cpu=cpu,
        target=f"p50 ≤ {P50:.0f} ms, p99 ≤ {P99:.0f} ms",
    )
    result.expect(len(waits) == count, f"{count - len(waits):,} did not arrive exactly once")
    result.expect(found["p50"] <= P50, f"p50 {found['p50']:.1f} ms, not {P50:.0f}")
    result.expect(found["p99"] <= P99, f"p99 {found['p99']:.1f} ms, not {P99:.0f}")
    return [result]


def publish_at(
    tenants: Sequence[Any], *, rate: int, seconds: int, prefix: str = "paced:"
) -> dict[str, float]:
    """Publish events of the tenants in turn at a steady rate. Returns the times of the commits, by event id.

    As for a notification in a web process, each statement is a separate transaction, followed by the signal.
    """
    from gateway import ids
    from gateway.database.statements import run
    from webhooks import wake_up
    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import Publication, publishing

    committed = {}
    began = time.perf_counter()
    for number in range(rate * seconds):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        event = NewEvent(
            type="message.inbound",
            environment="live",
            dedupe_key=f"{prefix}{time.time_ns()}",
            data=b'{"text":"Is my order on its way?"}',
        )
        publication = Publication(tenants[number % len(tenants)], [event], b"{}")
        published = run(publishing([publication]), prepared=True)
        at = time.time()
        wake_up.soon(published.deliveries)
        ((event_id,),) = published.fresh
        committed[ids.encode("evt_", event_id)] = at
    return committed


def waited(committed: dict[str, float], noted: Sequence[tuple[str, str, float]]) -> list[float]:
    """The milliseconds from commit to arrival, of each event that arrived exactly once."""
    arrivals: dict[str, list[float]] = {}
    for _, event, at in noted:
        arrivals.setdefault(event, []).append(at)
    return [
        (arrivals[event][0] - at) * 1000
        for event, at in committed.items()
        if len(arrivals.get(event, ())) == 1
    ]


def backlog(tenant_id: Any, endpoint_id: Any, count: int) -> None:
    """Write `count` due deliveries of one endpoint in bulk."""
    from django.db import transaction

    from gateway import ids
    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish

    with transaction.atomic():
        (event_id,) = publish(
            tenant_id=tenant_id,
            events=[NewEvent(type="meta.other", environment="live", dedupe_key="backlog", data=b"{}")],
        )
    with cursor() as database:
        database.execute("DELETE FROM webhook_deliveries WHERE event_id = %s", [event_id])
        for first in range(0, count, 10_000):
            rows = [ids.uuid7() for _ in range(min(10_000, count - first))]
            database.execute(
                "INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, event_type, status, attempts,"
                " next_attempt_at, attempt_log, is_replay) SELECT id, %s, %s, %s, 'meta.other', 'pending', 0,"
                " now() - interval '1 minute', '[]', false FROM unnest(%s::uuid[]) AS d (id)",
                [tenant_id, endpoint_id, event_id, rows],
            )
        database.execute("ANALYZE webhook_deliveries")
