"""CPU of a notification, a send and their deliveries with 1, 2, 4 and 8 web processes and delivery workers.

There are three loads: 200 units a second over all processes; 64 units in flight over all processes; 64 units in flight
at each process. The machine has fewer cores than processes, so the benchmark compares the CPU of a unit, not the
throughput. Notifications and sends are separate parts, each on fresh servers: `NAME=capacity:sends` runs one part.

The floor is the same number of pairs of bare processes (`equipment/bare_listener.py`, `equipment/relay.py`) under the
same load. Several pairs cost more CPU than one, and no design of the service can avoid this part of the cost. A
separate line shows the CPU of idle processes. Every event must be delivered exactly once. docs/capacity.md uses these
figures.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness, Load, Request, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.incoming import notification
from benchmarks.send import message

PARTS = ("notifications", "sends")
PROCESSES = (1, 2, 4, 8)
RATE, SECONDS = 200, 6
FULL_COUNT = 4_000
WARM_UP = 512
"""Units that warm up each process before each measurement, with many in flight. A new process first opens its database
connections, and Postgres plans the first five executions of a statement on each connection separately. The figures
exclude this time.
"""
IN_FLIGHT = 64
SECONDS_AT_REST = 4
BUSINESSES = 64
MOST_OF_ONE = 1.2
SERVICE = ("web", "worker", "postgres", "valkey")
FLOOR = ("floor", "relay", "postgres")


@dataclass(frozen=True)
class _Load:
    """How units are sent: at a rate, or with a constant count in flight over all processes or at each process."""

    name: str
    rate: int | None = None
    is_at_each: bool = False


RATED = _Load(f"{RATE}/s", rate=RATE)
SHARED, AT_EACH = _Load(f"{IN_FLIGHT} in flight"), _Load(f"{IN_FLIGHT} in flight at each", is_at_each=True)


@dataclass
class _Unit:
    """A kind of request, and the processes that receive it."""

    name: str
    path: str
    request: Callable[[int], Request]
    kinds: tuple[str, ...] = SERVICE
    urls: list[str] = field(default_factory=list)


def run(harness: Harness, part: str) -> list[Result]:
    """Measure one part with each number of processes, the smallest first. Then measure an event's bytes on the disk."""
    with Sink() as sink:
        businesses = [business(number) for number in range(1, BUSINESSES + 1)]
        for number, each in enumerate(businesses):
            endpoint(each.tenant_id, f"{sink.url}/ok/{number}")
        limits = {
            "META_GRAPH_URL": harness.bare_upstream(),
            "API_RATE_PER_SECOND": "100000",
            "API_RATE_BURST": "100000",
        }
        notifications = _Unit(
            "notifications", "/upstream/webhook", lambda n: notification(businesses[n % BUSINESSES], 1)
        )
        sends = _Unit("sends", "/v1/messages", lambda n: message(businesses))
        unit = {"notifications": notifications, "sends": sends}[part]
        floor = _Unit("floor of a notification", "/", notifications.request, FLOOR)
        results: list[Result] = []
        bytes_before, events_before = _stored()
        of_one: dict[tuple[str, _Load], float] = {}
        for processes in PROCESSES:
            for number in range(len(floor.urls), processes):
                unit.urls.append(harness.web(name=f"web{number}", **limits))
                harness.worker(name=f"worker{number}")
                floor.urls.append(_bare_pair(harness, sink, number))
            results.append(_at_rest(harness, processes))
            for load in (RATED, SHARED, AT_EACH) if processes > 1 else (RATED, SHARED):
                results += _beside_floor(harness, sink, floor, unit, load, of_one)
        bytes_after, events_after = _stored()
        noted = sink.finish()
    events = events_after - events_before
    stored = Result(
        "stored",
        events,
        (bytes_after - bytes_before) / events,
        unit="bytes an event and delivery",
    )
    ids = [delivery for delivery, _, _ in noted]
    stored.expect(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids)):,} arrived twice")
    return [*results, stored]


def _beside_floor(
    harness: Harness,
    sink: Sink,
    floor: _Unit,
    unit: _Unit,
    load: _Load,
    of_one: dict[tuple[str, _Load], float],
) -> list[Result]:
    """Measure the floor and the unit under the same load. `of_one` has the CPU of both with one process."""
    results, times_of = [], {}
    for each in (floor, unit):
        result = _measure(harness, sink, each, load)
        cost = sum(result.cpu.values())
        if len(each.urls) == 1:
            of_one[each.name, load] = cost
            if load is SHARED:
                of_one[each.name, AT_EACH] = cost
        times_of[each.name] = times = cost / of_one[each.name, load]
        result.what += f", {times:.2f} × one"
        if each is unit and len(unit.urls) > 1:
            of_floor = times_of[floor.name]
            result.target = f"≤ {MOST_OF_ONE} × one; {times / of_floor:.2f} × the floor's {of_floor:.2f} ×"
            result.expect(times <= MOST_OF_ONE, f"{times:.2f} × the CPU of one process")
        results.append(result)
    return results


def _bare_pair(harness: Harness, sink: Sink, number: int) -> str:
    """Start a bare listener and its relay. Returns the listener's URL."""
    path = floors.relay(harness, sink.url, name=f"relay{number}")
    return floors.listener(harness, name=f"floor{number}", relay_path=path)


def _at_rest(harness: Harness, processes: int) -> Result:
    """Measure the CPU of idle processes in a second."""
    harness.wait_until(lambda: _open() == 0, "the deliveries before it")
    with harness.measure() as measured:
        time.sleep(SECONDS_AT_REST)
    cpu = _by_kind(measured.cpu_per(SECONDS_AT_REST), SERVICE)
    return Result(f"at rest, {processes} of each kind", SECONDS_AT_REST, 1.0, unit="seconds", cpu=cpu)


def _measure(harness: Harness, sink: Sink, unit: _Unit, load: _Load) -> Result:
    """Send an equal part of the units to each process, and wait for the deliveries."""
    urls = [url + unit.path for url in unit.urls]
    warmed = sink.count + WARM_UP * len(urls)
    _drive(urls, [unit.request(n) for n in range(WARM_UP * len(urls))], AT_EACH)
    harness.wait_until(lambda: sink.count >= warmed and not _open(), "the warm-up's deliveries", seconds=90)
    count = RATE * SECONDS if load.rate else FULL_COUNT
    requests, before = [unit.request(n) for n in range(count)], sink.count
    with harness.measure() as measured:
        loads = _drive(urls, requests, load)
        statuses = {status for each in loads for status in each.statuses}
        if statuses == {200}:
            harness.wait_until(lambda: sink.count >= before + count, "the deliveries", seconds=90)
    result = Result(
        f"{unit.name}, {len(urls)} of each kind, {load.name}",
        count,
        count / measured.seconds,
        unit=unit.name,
        cpu=_by_kind(measured.cpu_per(count), unit.kinds),
    )
    result.expect(statuses == {200}, f"answered {statuses}")
    result.expect(sink.count == before + count, f"{sink.count - before} deliveries, not {count}")
    return result


def _drive(urls: Sequence[str], requests: Sequence[Request], load: _Load) -> list[Load]:
    """POST the requests, an equal part to each URL."""
    loads: list[Load] = []

    def drive(place: int) -> None:
        part = requests[place :: len(urls)]
        if load.rate is None:
            in_flight = IN_FLIGHT if load.is_at_each else IN_FLIGHT // len(urls)
            loads.append(raw_client.post_all(urls[place], part, concurrency=in_flight))
        else:
            rate = load.rate / len(urls)
            loads.append(raw_client.post_steadily(urls[place], part, concurrency=32, rate=rate))

    threads = [threading.Thread(target=drive, args=(place,)) for place in range(len(urls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return loads


def _by_kind(microseconds_of: Mapping[str, float], kinds: Sequence[str]) -> dict[str, float]:
    """CPU microseconds per unit, by kind of process."""
    found = dict.fromkeys(kinds, 0.0)
    for name, microseconds in microseconds_of.items():
        kind = name.rstrip("0123456789")
        if kind in found:
            found[kind] += microseconds
    return found


def _open() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM webhook_deliveries WHERE status IN ('pending', 'failed')")
        return int(database.fetchone()[0])


def _stored() -> tuple[int, int]:
    """The size of the database in bytes, without the tables of the floor, and the number of events."""
    with cursor() as database:
        database.execute("CHECKPOINT")
        database.execute(
            "SELECT pg_database_size(current_database()) - (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) "
            "FROM pg_class WHERE relkind = 'r' AND relname LIKE 'floor%'), (SELECT count(*) FROM events)"
        )
        row: Any = database.fetchone()
    return int(row[0]), int(row[1])
