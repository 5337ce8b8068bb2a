"""Notifications through one web process: 32 in flight, then 200 a second, each in turns with a bare listener.

At the end, every item must have exactly one event, one body and one delivery. At a steady rate the disk decides the
p99, because every commit waits for the flush of the write-ahead log. That is also true for the bare listener.
"""

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness, Side
from benchmarks.equipment.raw_client import WARM_UP, Requests
from benchmarks.equipment.results import Result, percentiles
from benchmarks.incoming import expect_stored, notifications_of, stored

COUNT, CONCURRENCY = 20_000, 32
STEADY_RATE, STEADY_SECONDS, STEADY_TURNS = 200, 5, 4
OF_FLOOR, LOOP_OF_FLOOR, POSTGRES_OF_FLOOR = 0.35, 4.0, 8.0
"""Required share of the bare listener's rate, and the highest multiples of its CPU and of its Postgres' CPU."""
STEADY_P50_MS = 4.0


def run(harness: Harness) -> list[Result]:
    """Measure full speed, then a steady rate."""
    notifications = notifications_of(1)
    floor = floors.listener(harness)
    url = f"{harness.web()}/upstream/webhook"
    before = stored()
    full = _full(harness, floor, url, notifications)
    bare, steady = _steady(harness, floor, url, notifications)
    expect_stored(steady, before, COUNT // WARM_UP + full.count + steady.count, items=1)
    return [full, bare, steady]


def _full(harness: Harness, floor: str, url: str, notifications: Requests) -> Result:
    result = floors.beside(
        harness,
        (floor, notifications),
        (url, notifications),
        what=f"1 item, {CONCURRENCY} in flight",
        unit="items",
        count=COUNT,
        concurrency=CONCURRENCY,
    )
    result.expect_rate(OF_FLOOR)
    result.expect_cpu(("web",), LOOP_OF_FLOOR, floor=(floors.LISTENER,))
    result.expect_cpu(("postgres",), POSTGRES_OF_FLOOR, floor=(floors.POSTGRES,))
    return result


def _steady(harness: Harness, floor: str, url: str, notifications: Requests) -> tuple[Result, Result]:
    bare, own = Side(), Side()
    for _ in range(STEADY_TURNS):
        for side, address in ((bare, floor), (own, url)):
            requests = notifications(STEADY_RATE * STEADY_SECONDS)
            with harness.measure() as measured:
                load = raw_client.post_steadily(address, requests, concurrency=CONCURRENCY, rate=STEADY_RATE)
            side.add(load, measured)
    floor_result = _at_steady_rate("the bare listener", bare)
    result = _at_steady_rate("1 item", own)
    result.target = f"p50 ≤ {STEADY_P50_MS:.0f} ms"
    p50 = (result.percentiles or {}).get("p50", 0.0)
    result.expect(p50 <= STEADY_P50_MS, f"p50 {p50:.1f} ms, not {STEADY_P50_MS:.0f}")
    return floor_result, result


def _at_steady_rate(what: str, side: Side) -> Result:
    count = STEADY_RATE * STEADY_SECONDS * STEADY_TURNS
    result = Result(
        f"{what}, {STEADY_RATE}/s",
        count,
        count / side.seconds,
        unit="items",
        percentiles=percentiles(side.load.milliseconds),
        cpu=side.cpu_per(count),
    )
    result.expect(side.load.statuses == {200: count}, f"answered {side.load.statuses}")
    return result
