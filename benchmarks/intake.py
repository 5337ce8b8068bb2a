"""Notifications through one edge process: 32 in flight, then 200 a second.

Every item must be an event, its body and a delivery when the run is over: exactly once.
"""

from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness, Measured, Request
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint
from benchmarks.incoming import BUSINESSES, notification, stored

COUNT, CONCURRENCY = 20_000, 32
STEADY_RATE, STEADY_SECONDS = 200, 20
WARM_UP = 2_000
RATE = 4_000
WEB_MICROSECONDS, POSTGRES_MICROSECONDS = 200.0, 150.0
STEADY_P50_MS = 4.0


def run(harness: Harness) -> list[Result]:
    """Full speed, then a steady rate."""
    businesses = [business(number) for number in range(1, BUSINESSES + 1)]
    for each in businesses:
        endpoint(each.tenant_id, "http://127.0.0.1:9/nobody")
    url = f"{harness.edge()}/upstream/webhook"
    before = stored()
    raw_client.post_all(url, _notifications(businesses, WARM_UP), concurrency=CONCURRENCY)
    full = _full(harness, url, businesses)
    steady = _steady(harness, url, businesses)
    taken = WARM_UP + full.count + steady.count
    found = {name: rows - before[name] for name, rows in stored().items()}
    expected = {"events": taken, "payloads": 2 * taken, "deliveries": taken, "distinct": taken}
    steady.expect(found == expected, f"stored {found}, not {expected}")
    return [full, steady]


def _full(harness: Harness, url: str, businesses: list[Business]) -> Result:
    requests = _notifications(businesses, COUNT)
    with harness.measure() as measured:
        load = raw_client.post_all(url, requests, concurrency=CONCURRENCY)
    result = _result("1 item, 32 in flight", COUNT, measured)
    result.percentiles = percentiles(load.milliseconds)
    result.target = (
        f"≥ {RATE:,}/s, edge ≤ {WEB_MICROSECONDS:.0f} µs, Postgres ≤ {POSTGRES_MICROSECONDS:.0f} µs"
    )
    result.expect(load.statuses == {200: COUNT}, f"answered {load.statuses}")
    result.expect(result.rate >= RATE, f"{result.rate:,.0f}/s, not {RATE:,}")
    for name, most in (("edge", WEB_MICROSECONDS), ("postgres", POSTGRES_MICROSECONDS)):
        result.expect(result.cpu[name] <= most, f"{name} {result.cpu[name]:.0f} µs, not {most:.0f}")
    return result


def _steady(harness: Harness, url: str, businesses: list[Business]) -> Result:
    count = STEADY_RATE * STEADY_SECONDS
    requests = _notifications(businesses, count)
    with harness.measure() as measured:
        load = raw_client.post_steadily(url, requests, concurrency=CONCURRENCY, rate=STEADY_RATE)
    result = _result(f"1 item, {STEADY_RATE}/s", count, measured)
    result.percentiles = percentiles(load.milliseconds)
    result.target = f"p50 ≤ {STEADY_P50_MS:.0f} ms"
    result.expect(load.statuses == {200: count}, f"answered {load.statuses}")
    p50 = (result.percentiles or {}).get("p50", 0.0)
    result.expect(p50 <= STEADY_P50_MS, f"p50 {p50:.1f} ms, not {STEADY_P50_MS:.0f}")
    return result


def _result(what: str, count: int, measured: Measured) -> Result:
    return Result(what, count, count / measured.seconds, unit="items", cpu=measured.cpu_per(count))


def _notifications(businesses: list[Business], count: int) -> list[Request]:
    return [notification(businesses[n % BUSINESSES], 1) for n in range(count)]
