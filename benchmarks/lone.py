"""The delivery rate of one tenant alone, by one worker process, to 20 endpoints and to one.

The floor is a bare aiohttp loop in a process of its own that posts the same signed bytes to the same receiver, with no
database.
"""

import time

from benchmarks.delivery import (
    floor_seconds,
    make_due,
    open_deliveries,
    signed_requests,
    store,
    wake,
    warm_up,
)
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

DELIVERIES = 20_000
A_SECOND = {20: 6_000, 1: 3_000}
"""By endpoints: each event goes to all of them."""


def run(harness: Harness) -> list[Result]:
    """Twenty endpoints, then one, each a tenant of its own on a worker of its own."""
    return [_measure(harness, number, endpoints) for number, endpoints in enumerate(A_SECOND, 1)]


def _measure(harness: Harness, number: int, endpoints: int) -> Result:
    with Sink() as floor_sink, Sink() as sink:
        tenant_id = business(number).tenant_id
        for place in range(endpoints):
            endpoint(tenant_id, f"{sink.url}/ok/{place}")
        store([tenant_id], DELIVERIES // endpoints)
        signed = signed_requests(tenant_id, sink.url, floor_sink.url)
        floor = floor_seconds(signed)
        harness.worker()
        warm_up(harness, sink, [tenant_id], arrivals=endpoints)
        before = sink.count
        with harness.measure() as measured:
            make_due()
            began = time.perf_counter()
            wake()
            harness.wait_until(lambda: sink.count >= before + DELIVERIES, harness.log("worker"), seconds=120)
            sent_in = time.perf_counter() - began
            harness.wait_until(lambda: open_deliveries() == 0, "not all results were recorded", seconds=30)
        harness.stop("worker")
        floor += floor_seconds(signed)
        noted = sink.finish()
        floor_sink.finish()
    cpu = {name: spent for name, spent in measured.cpu_per(DELIVERIES).items() if name != "client"}
    result = Result(
        f"one tenant, {DELIVERIES:,} deliveries, {endpoints} endpoints",
        DELIVERIES,
        DELIVERIES / sent_in,
        unit="deliveries",
        cpu=cpu,
        floor=2 * DELIVERIES / floor,
        target=f"≥ {A_SECOND[endpoints]:,}/s",
    )
    result.expect(result.rate >= A_SECOND[endpoints], f"{result.rate:,.0f}/s, not {A_SECOND[endpoints]:,}")
    ids = [delivery for delivery, _, _ in noted]
    result.expect(len(ids) == DELIVERIES + before, f"{len(ids) - before:,} arrived")
    result.expect(len(set(ids)) == len(ids), f"{len(ids) - len(set(ids)):,} arrived twice")
    return result
