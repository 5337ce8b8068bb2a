"""300 tenants with 20 endpoints each. First all endpoints are healthy, then a tenth of them is broken in five ways.

Broken endpoints hang, answer 500, refuse the connection, answer one byte a second, or have no address. They must not
delay the deliveries to healthy endpoints.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import endpoints, tenants
from benchmarks.equipment.sink import Sink
from benchmarks.isolation import LEAST_MS, SLOWER
from benchmarks.latency import publish_at
from tests.free_ports import free_port

TENANTS, HEALTHY, BROKEN = 300, 18, 2
A_SECOND, SECONDS = 20, 15


def run(harness: Harness) -> list[Result]:
    """Publish the same events twice: before the broken endpoints exist, and after."""
    with Sink() as sink:
        tenant_ids = tenants(TENANTS)
        endpoints((tenant_id, f"{sink.url}/ok") for tenant_id in tenant_ids for _ in range(HEALTHY))
        harness.worker()
        harness.beat()
        arrived = _publish(harness, sink, tenant_ids, 2)[1]
        alone, arrived = _publish(harness, sink, tenant_ids, SECONDS, arrived)
        broken = [
            f"{sink.url}/hang",
            f"{sink.url}/bad",
            f"http://127.0.0.1:{free_port()}/refused",
            f"{sink.url}/drip",
            "http://broken.invalid/",
        ]
        endpoints(
            (tenant_ids[number % TENANTS], broken[number % len(broken)]) for number in range(TENANTS * BROKEN)
        )
        beside, _ = _publish(harness, sink, tenant_ids, SECONDS, arrived)
        noted = sink.finish()
    results = []
    for what, committed in ((f"{TENANTS} tenants alone", alone), ("beside 600 broken endpoints", beside)):
        arrivals = Counter(delivery for delivery, event, _ in noted if event in committed)
        waits = [(at - committed[event]) * 1000 for _, event, at in noted if event in committed]
        result = Result(
            what,
            len(waits),
            A_SECOND * HEALTHY,
            unit="deliveries",
            percentiles=percentiles(waits),
        )
        expected = len(committed) * HEALTHY
        result.expect(
            len(waits) == len(arrivals) == expected,
            f"{len(waits):,} came, {len(arrivals):,} of {expected:,}",
        )
        results.append(result)
    before, after = ((result.percentiles or {})["p99"] for result in results)
    results[1].target = f"p99 ≤ {SLOWER} × alone"
    results[1].expect(
        after <= SLOWER * max(before, LEAST_MS), f"p99 {after:.1f} ms, {after / before:.2f} × {before:.1f} ms"
    )
    return results


def _publish(
    harness: Harness, sink: Sink, tenant_ids: Sequence[Any], seconds: int, arrived: int = 0
) -> tuple[dict[str, float], int]:
    """Publish, and wait until all deliveries to healthy endpoints have arrived. Returns commits and arrivals."""
    committed = publish_at(tenant_ids, rate=A_SECOND, seconds=seconds)
    expected = arrived + len(committed) * HEALTHY
    harness.wait_until(lambda: sink.count >= expected, harness.log("worker"))
    return committed, expected
