"""Call events of a tenant whose endpoint has a backlog: the time from the commit to the first byte of the delivery.

- `slow`: the endpoint takes 300 ms for each answer. 20,000 deliveries wait, and 100 more events come each second.
- `fast`: the endpoint answers at once, and the worker sends 120,000 deliveries as fast as it can.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.latency import backlog, publish_at, waited

PARTS = ("slow", "fast")
WAITING = {"slow": 20_000, "fast": 120_000}
STILL_WAITING = 1_000
"""The minimum number of deliveries that must still wait after the calls. If fewer wait, there was no backlog."""
CALLS_A_SECOND, OTHERS_A_SECOND = 10, 100
SECONDS = 20
P99 = 50.0


def run(harness: Harness, part: str) -> list[Result]:
    """Measure the calls without the backlog, then with it."""
    with Sink() as sink:
        tenant_id = business().tenant_id
        endpoint_id, _ = endpoint(tenant_id, f"{sink.url}/ok{'/slow' if part == 'slow' else ''}")
        harness.worker()
        harness.beat()
        _calls(tenant_id, seconds=3)
        alone = _calls(tenant_id)
        backlog(tenant_id, endpoint_id, WAITING[part])
        with ThreadPoolExecutor(1) as beside_calls:
            others = beside_calls.submit(_others, tenant_id)
            time.sleep(1)
            beside = _calls(tenant_id)
            left = _open(endpoint_id)
            others.result()
        harness.wait_until(lambda: _open(endpoint_id, calls=True) == 0, harness.log("worker"))
        noted = sink.finish()
    results = []
    for what, committed in (("alone", alone), (f"beside {left:,} that wait", beside)):
        waits = waited(committed, noted)
        found = percentiles(waits) or {"p50": 0.0, "p99": 0.0}
        result = Result(f"{part}: calls {what}", len(waits), CALLS_A_SECOND, "calls", found)
        result.target = f"p99 ≤ {P99:.0f} ms"
        result.expect(len(waits) == len(committed), "not all arrived exactly once")
        result.expect(found["p99"] <= P99, f"p99 {found['p99']:.1f} ms, not {P99:.0f}")
        results.append(result)
    results[1].expect(left >= STILL_WAITING, f"only {left:,} waited at the end: no backlog")
    return results


def _calls(tenant_id: UUID, *, seconds: int = SECONDS) -> dict[str, float]:
    return publish_at([tenant_id], rate=CALLS_A_SECOND, seconds=seconds, prefix="call:")


def _others(tenant_id: UUID) -> None:
    from django.db import connection

    try:
        publish_at([tenant_id], rate=OTHERS_A_SECOND, seconds=SECONDS + 1)
    finally:
        connection.close()


def _open(endpoint_id: UUID, *, calls: bool = False) -> int:
    """The number of an endpoint's deliveries that have not arrived, of all events or only of calls."""
    with cursor() as database:
        database.execute(
            "SELECT count(*) FROM webhook_deliveries d JOIN events e ON e.id = d.event_id"
            " WHERE d.endpoint_id = %s AND d.status <> 'delivered' AND (NOT %s OR e.dedupe_key LIKE 'call:%%')",
            [endpoint_id, calls],
        )
        return int(database.fetchone()[0])
