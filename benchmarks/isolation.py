"""Ten healthy endpoints at 100 events a second, alone and beside bad neighbours.

The neighbours: an endpoint that never answers, with 100,000 deliveries waiting, and one that answers 500. What the
healthy ones wait must stay what it was.
"""

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.latency import backlog, publish_at, waited

A_SECOND = 100
SECONDS = 20
WAITING = 100_000
SLOWER = 1.5
LEAST_MS = 20.0
"""A p99 below this is taken as this: single milliseconds are the machine's noise."""


def run(harness: Harness) -> list[Result]:
    """The same load twice, without and with the neighbours."""
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
    before, after = ((result.percentiles or {})["p99"] for result in results)
    results[1].target = f"p99 ≤ {SLOWER} × alone"
    results[1].expect(
        after <= SLOWER * max(before, LEAST_MS), f"p99 {after:.1f} ms, {after / before:.2f} × {before:.1f} ms"
    )
    return results
