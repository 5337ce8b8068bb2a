"""Notifications through one web process: 32 in flight beside a bare listener, then 200 a second.

Every item must be an event, its body and a delivery when the run is over: exactly once.
"""

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.raw_client import WARM_UP, Requests
from benchmarks.equipment.results import Result, percentiles
from benchmarks.incoming import expect_stored, notifications_of, stored

COUNT, CONCURRENCY = 20_000, 32
STEADY_RATE, STEADY_SECONDS = 200, 20
OF_FLOOR, LOOP_OF_FLOOR, POSTGRES_OF_FLOOR = 0.35, 4.0, 8.0
"""Required share of the bare listener's rate, and most multiples of its CPU and of the CPU of its Postgres."""
STEADY_P50_MS = 4.0


def run(harness: Harness) -> list[Result]:
    """Full speed, then a steady rate."""
    notifications = notifications_of(1)
    url = f"{harness.web()}/upstream/webhook"
    before = stored()
    full = _full(harness, url, notifications)
    steady = _steady(harness, url, notifications)
    expect_stored(steady, before, COUNT // WARM_UP + full.count + steady.count, items=1)
    return [full, steady]


def _full(harness: Harness, url: str, notifications: Requests) -> Result:
    result = floors.beside(
        harness,
        (floors.listener(harness), notifications),
        (url, notifications),
        what=f"1 item, {CONCURRENCY} in flight",
        unit="items",
        count=COUNT,
        concurrency=CONCURRENCY,
    )
    harness.stop(floors.LISTENER)
    result.expect_rate(OF_FLOOR)
    result.expect_cpu(("web",), LOOP_OF_FLOOR, floor=(floors.LISTENER,))
    result.expect_cpu(("postgres",), POSTGRES_OF_FLOOR, floor=(floors.POSTGRES,))
    return result


def _steady(harness: Harness, url: str, notifications: Requests) -> Result:
    count = STEADY_RATE * STEADY_SECONDS
    requests = notifications(count)
    with harness.measure() as measured:
        load = raw_client.post_steadily(url, requests, concurrency=CONCURRENCY, rate=STEADY_RATE)
    result = Result(
        f"1 item, {STEADY_RATE}/s",
        count,
        count / measured.seconds,
        unit="items",
        percentiles=percentiles(load.milliseconds),
        cpu=measured.cpu_per(count),
        target=f"p50 ≤ {STEADY_P50_MS:.0f} ms",
    )
    result.expect(load.statuses == {200: count}, f"answered {load.statuses}")
    p50 = (result.percentiles or {}).get("p50", 0.0)
    result.expect(p50 <= STEADY_P50_MS, f"p50 {p50:.1f} ms, not {STEADY_P50_MS:.0f}")
    return result
