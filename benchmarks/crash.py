"""kill -9 of the deliveries worker while it sends stored deliveries: when they continue, and how many arrive twice.

Every event must arrive. A new worker continues the deliveries that the killed worker had claimed, as soon as it detects
the end of the killed worker.
"""

import time
from uuid import UUID

from benchmarks.delivery import make_due, open_deliveries, store, wake, warm_up
from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from gateway.local_run import processes

COUNT = 5_000
ENDPOINTS = 20
MOST_SECONDS = 3.0
MOST_TWICE = 0.02


def run(harness: Harness) -> list[Result]:
    """Measure one crash."""
    with Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, ENDPOINTS + 1)]
        for number, tenant_id in enumerate(tenants):
            endpoint(tenant_id, f"{sink.url}/ok/{number}")
        store(tenants, COUNT)
        harness.worker()
        warm_up(harness, sink, tenants)
        before = sink.count
        make_due()
        wake()
        harness.wait_until(lambda: sink.count >= before + COUNT // 2, harness.log("worker"), seconds=120)
        killed = harness.running.pop("worker")
        killed.kill()
        killed.wait(10)
        held = _held()
        began = time.perf_counter()
        harness.start("successor", [*processes.service_command("deliveries"), "--name=successor"])
        harness.wait_until(lambda: not _open(held), "what it held did not go on", seconds=120)
        seconds = time.perf_counter() - began
        harness.wait_until(lambda: open_deliveries() == 0, "not all were delivered", seconds=120)
        harness.stop("successor")
        arrived = [delivery for delivery, _, _ in sink.finish()]
    twice = len(arrived) - len(set(arrived))
    result = Result(
        f"{COUNT:,} deliveries, killed after half: {len(held):,} held went on after {seconds:.1f} s, {twice:,} twice",
        COUNT,
        len(held) / seconds,
        unit="deliveries",
        target=f"≤ {MOST_SECONDS:.0f} s, ≤ {MOST_TWICE:.0%} twice",
    )
    result.expect(len(set(arrived)) == COUNT + before, f"{len(set(arrived)) - before:,} arrived")
    result.expect(bool(held), "it held nothing")
    result.expect(seconds <= MOST_SECONDS, f"{seconds:.1f} s, not {MOST_SECONDS:.0f}")
    result.expect(twice <= MOST_TWICE * COUNT, f"{twice:,} twice, not {MOST_TWICE:.0%}")
    return [result]


def _held() -> list[UUID]:
    """The deliveries that are leased now."""
    with cursor() as database:
        database.execute("SELECT id FROM webhook_deliveries WHERE leased_until > now()")
        return [delivery_id for (delivery_id,) in database.fetchall()]


def _open(deliveries: list[UUID]) -> bool:
    """Whether one of these deliveries has not been delivered yet."""
    with cursor() as database:
        database.execute(
            "SELECT EXISTS (SELECT FROM webhook_deliveries WHERE id = ANY(%s) AND status IN ('pending', 'failed'))",
            [deliveries],
        )
        return bool(database.fetchone()[0])
