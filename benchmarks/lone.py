"""The delivery rate of a single tenant with one worker process, to 20 endpoints and to one endpoint.

The floor is a bare aiohttp loop in a separate process that posts the same signed bytes to the same kind of receiver,
without a database.
"""

from benchmarks.delivery import CPU_OF_FLOOR, drained, store
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

DELIVERIES = 20_000
OF_FLOOR = {20: 0.45, 1: 0.22}
"""Required share of the bare loop's rate, by the number of endpoints. Each event goes to all of them."""


def run(harness: Harness) -> list[Result]:
    """Measure twenty endpoints, then one endpoint, each with another tenant and another worker."""
    return [_measure(harness, number, endpoints) for number, endpoints in enumerate(OF_FLOOR, 1)]


def _measure(harness: Harness, number: int, endpoints: int) -> Result:
    with Sink() as floor_sink, Sink() as sink:
        tenant_id = business(number).tenant_id
        for place in range(endpoints):
            endpoint(tenant_id, f"{sink.url}/ok/{place}")
        store([tenant_id], DELIVERIES // endpoints)
        result = drained(
            harness,
            sink,
            floor_sink,
            [tenant_id],
            what=f"one tenant, {DELIVERIES:,} deliveries, {endpoints} endpoints",
            count=DELIVERIES,
        )
    result.expect_rate(OF_FLOOR[endpoints])
    result.expect_cpu(("worker",), CPU_OF_FLOOR, floor=("loop",))
    return result
