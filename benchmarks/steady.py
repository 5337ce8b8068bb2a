"""Steady rates of 1, 10, 100 and 200 events a second: latency and CPU of what every customer pays all day.

The floor of the latency is a bare aiohttp client that posts a body of the same size to the same receiver at the same
rate: the part that belongs to the machine. The floor of the CPU, at 100/s, is a bare INSERT of one row with its commit
and a process that does nothing but post what it is sent (`equipment/relay.py`): at such a rate most of the time goes to
waking processes whose caches are cold.
"""

import asyncio
import socket
import sys
import time

import aiohttp

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.latency import publish_at, waited

RATES = {1: 10, 10: 10, 100: 15, 200: 15}
"""Events a second, and the seconds of each."""
BUSINESSES = 10
MOST_CPU = 1_000.0
"""Microseconds of worker and Postgres a delivery at 100/s."""
P50, P99 = {100: 4.0, 200: 6.0}, {100: 14.0}
_BODY = b"x" * 700
FLOOR_RATE, FLOOR_SECONDS = 100, 10
_REQUEST = (
    b"POST /floor HTTP/1.1\r\nHost: floor\r\nContent-Type: application/json\r\nX-Padding: %b\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (b"x" * 350, len(_BODY), _BODY)
)
_MEMORY = ("worker", "postgres", "valkey")


def run(harness: Harness) -> list[Result]:
    """Every rate in turn, on one worker."""
    results = []
    with Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, BUSINESSES + 1)]
        for tenant_id in tenants:
            endpoint(tenant_id, f"{sink.url}/ok")
        harness.worker()
        harness.beat()
        publish_at(tenants, rate=100, seconds=3)
        measurements = []
        sent = 300
        for rate, seconds in RATES.items():
            sent += rate * seconds
            with harness.measure() as measured:
                committed = publish_at(tenants, rate=rate, seconds=seconds)
                arrived = sent
                harness.wait_until(lambda arrived=arrived: sink.count >= arrived, harness.log("worker"))  # type: ignore[misc]
            measurements.append((rate, committed, measured, _floor(f"{sink.url}/floor", rate)))
        cpu_floor = _cpu_floor(harness, sink.url)
        memory = {name: harness.memory(name) for name in _MEMORY}
        noted = sink.finish()
    for rate, committed, measured, floor in measurements:
        waits = waited(committed, noted)
        found = percentiles(waits)
        assert found is not None
        count = len(committed)
        cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name != "client"}
        shares = ", ".join(
            f"{name} {spent / measured.seconds:.1%}" for name, spent in measured.cpu.items() if name in cpu
        )
        result = Result(
            f"commit to first byte at {rate}/s; floor p50 {floor:.1f} ms; of a core: {shares}",
            count,
            count / measured.seconds,
            unit="events",
            percentiles=found,
            cpu=cpu,
            target=f"p50 ≤ {P50[rate]:.0f} ms" if rate in P50 else "",
        )
        result.expect(len(waits) == count, f"{count - len(waits):,} did not arrive exactly once")
        if rate in P50:
            result.expect(found["p50"] <= P50[rate], f"p50 {found['p50']:.1f} ms, not {P50[rate]:.0f}")
        if rate in P99:
            result.expect(found["p99"] <= P99[rate], f"p99 {found['p99']:.1f} ms, not {P99[rate]:.0f}")
        if rate == 100:
            spent = cpu["worker"] + cpu["postgres"]
            bare = sum(cpu_floor.cpu.values())
            result.what += f"; {spent / bare:.1f} × the floor's {bare:,.0f} µs"
            result.target += f", p99 ≤ {P99[rate]:.0f} ms, ≤ {MOST_CPU:,.0f} µs worker + Postgres"
            result.expect(spent <= MOST_CPU, f"{spent:,.0f} µs of worker and Postgres, not {MOST_CPU:,.0f}")
        results.append(result)
    results.append(cpu_floor)
    shown = ", ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in memory.items())
    results.append(Result(f"memory after it, proportional: {shown}", 1, 0.0, unit=""))
    return results


def _cpu_floor(harness: Harness, url: str) -> Result:
    """What Postgres and a worker would cost at least: a committed row, a request posted and its answer read."""
    path = harness.data_dir / "relay"
    relay = [sys.executable, "-m", "benchmarks.equipment.relay", str(path), url.rpartition(":")[2]]
    harness.start("relay", relay)
    harness.wait_until(path.exists, harness.log("relay"))
    count = FLOOR_RATE * FLOOR_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as signals, cursor() as database:
        signals.connect(str(path))
        database.execute("CREATE TABLE floor (id bigint PRIMARY KEY, body bytea)")
        database.execute("PREPARE floor AS INSERT INTO floor VALUES ($1, $2)")
        with harness.measure() as measured:
            began = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, began + number / FLOOR_RATE - time.perf_counter()))
                database.execute("EXECUTE floor (%s, %s)", [number, _BODY])
                signals.send(_REQUEST)
    harness.stop("relay")
    cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name in {"postgres", "relay"}}
    return Result(
        f"floor at {FLOOR_RATE}/s: a bare INSERT with its commit, a bare relay to the receiver",
        count,
        count / measured.seconds,
        unit="rows",
        cpu=cpu,
    )


def _floor(url: str, rate: int) -> float:
    """The median milliseconds from a call of a bare client to its answer, at a rate, for 3 seconds."""

    async def post() -> list[float]:
        waits = []
        async with aiohttp.ClientSession() as session:
            for _ in range(max(10, min(rate * 3, 300))):
                began = time.perf_counter()
                async with session.post(url, data=_BODY) as answer:
                    await answer.read()
                waits.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(1 / rate if rate >= 10 else 0.1)
        return waits

    found = percentiles(asyncio.run(post()))
    assert found is not None
    return found["p50"]
