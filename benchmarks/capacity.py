"""CPU of a notification, a send and their deliveries with 1, 2, 4 and 8 edge processes and delivery workers.

Once at a moderate rate, the same each time: the more processes share it, the less each finds in its caches. And once at
full load. The machine has fewer cores than there are processes, so the CPU of a unit is compared, not what the machine
can take. Every event must have been delivered exactly once. docs/capacity.md reckons with these figures.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness, Load, Request, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.incoming import notification
from benchmarks.send import message

PROCESSES = (1, 2, 4, 8)
RATE, SECONDS = 200, 8
COUNT, FULL_COUNT = RATE * SECONDS, 8_000
IN_FLIGHT = 64
"""At full load, over all processes."""
ROWS = 4
"""Of each number of processes."""
BUSINESSES = 64
MOST_OF_ONE = 1.2


def run(harness: Harness) -> list[Result]:
    """Each number of processes, the least first; then the bytes that an event takes on the disk."""
    with Sink() as sink:
        businesses = [business(number) for number in range(1, BUSINESSES + 1)]
        for number, each in enumerate(businesses):
            endpoint(each.tenant_id, f"{sink.url}/ok/{number}")
        upstream = harness.bare_upstream()
        limits = {"META_GRAPH_URL": upstream, "API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
        units: list[tuple[str, str, Callable[[int], Request]]] = [
            ("notifications", "/upstream/webhook", lambda n: notification(businesses[n % BUSINESSES], 1)),
            ("sends", "/v1/messages", lambda n: message(businesses)),
        ]
        urls: list[str] = []
        results: list[Result] = []
        bytes_before, events_before = _stored()
        for processes in PROCESSES:
            while len(urls) < processes:
                urls.append(harness.edge(name=f"edge{len(urls)}", **limits))
                harness.worker(name=f"worker{len(urls)}")
            results += [
                _measure(harness, sink, urls, unit, path, request, rate=rate)
                for rate in (RATE, None)
                for unit, path, request in units
            ]
        for number, result in enumerate(results[ROWS:], ROWS):
            one = results[number % ROWS]
            times = sum(result.cpu.values()) / sum(one.cpu.values())
            result.target = f"CPU ≤ {MOST_OF_ONE} × that of one process: {times:.2f} ×"
            result.expect(times <= MOST_OF_ONE, f"{times:.2f} × the CPU of one process")
        bytes_after, events_after = _stored()
        noted = sink.finish()
    events = events_after - events_before
    stored = Result(
        "stored", events, (bytes_after - bytes_before) / events, unit="bytes an event and delivery"
    )
    ids = [delivery for delivery, _, _ in noted]
    stored.expect(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids)):,} arrived twice")
    return [*results, stored]


def _measure(
    harness: Harness,
    sink: Sink,
    urls: Sequence[str],
    unit: str,
    path: str,
    request: Callable[[int], Request],
    *,
    rate: int | None,
) -> Result:
    """Send at the rate, or as many as the processes take, spread over them; wait for the deliveries."""
    _drive([url + path for url in urls], [request(n) for n in range(20 * len(urls))], rate)
    harness.wait_until(lambda: _open() == 0, "the deliveries of the warm-up", seconds=60)
    count = FULL_COUNT if rate is None else COUNT
    requests, before = [request(n) for n in range(count)], sink.count
    with harness.measure() as measured:
        loads = _drive([url + path for url in urls], requests, rate)
        harness.wait_until(lambda: sink.count >= before + count, "the deliveries", seconds=90)
    result = Result(
        f"{unit}, {len(urls)} processes of each kind, {f'{rate}/s' if rate else 'at full load'}",
        count,
        count / measured.seconds,
        unit=unit,
        cpu=_by_kind(measured.cpu_per(count)),
    )
    statuses = {status for load in loads for status in load.statuses}
    result.expect(statuses == {200}, f"answered {statuses}")
    result.expect(sink.count == before + count, f"{sink.count - before} deliveries, not {count}")
    return result


def _drive(urls: Sequence[str], requests: Sequence[Request], rate: int | None) -> list[Load]:
    """POST the requests at the rate, or one after another, an equal part to each URL."""
    loads: list[Load] = []

    def drive(place: int) -> None:
        part = requests[place :: len(urls)]
        if rate is None:
            loads.append(raw_client.post_all(urls[place], part, concurrency=IN_FLIGHT // len(urls)))
        else:
            loads.append(raw_client.post_steadily(urls[place], part, concurrency=32, rate=rate / len(urls)))

    threads = [threading.Thread(target=drive, args=(place,)) for place in range(len(urls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return loads


def _by_kind(microseconds_of: Mapping[str, float]) -> dict[str, float]:
    """CPU microseconds a unit by kind of process, those of the load left out."""
    kinds: dict[str, float] = {"edge": 0.0, "worker": 0.0, "postgres": 0.0, "valkey": 0.0}
    for name, microseconds in microseconds_of.items():
        kind = name.rstrip("0123456789")
        if kind in kinds:
            kinds[kind] += microseconds
    return kinds


def _open() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM webhook_deliveries WHERE status IN ('pending', 'failed')")
        return int(database.fetchone()[0])


def _stored() -> tuple[int, int]:
    """Bytes of the database, and events in it."""
    with cursor() as database:
        database.execute("CHECKPOINT")
        database.execute("SELECT pg_database_size(current_database()), (SELECT count(*) FROM events)")
        row: Any = database.fetchone()
    return int(row[0]), int(row[1])
