"""The CPU of the request log: the same sends go in turns to two web processes, one with the log and one without.

Only CPU is compared. The rounds are too short to compare rates: the log collects lines for about as long as a round
takes.
"""

from benchmarks import send
from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.raw_client import WARM_UP, in_turns
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business

CONCURRENCY = 32
COUNT = 16_000
MOST = 0.05
"""Limit for the additional CPU of a send in the web process, as a share of the CPU without the log."""


def run(harness: Harness) -> list[Result]:
    """Measure sends with and without the log. Every logged send must have a line in the log."""
    upstream = harness.bare_upstream()
    each = business()
    common = {"META_GRAPH_URL": upstream, "API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    without = harness.web(name="without log", REQUEST_LOG_DAYS="0", **common)
    with_log = harness.web(name="with log", **common)
    bare, logged = in_turns(
        harness,
        *(
            (f"{url}/v1/messages", lambda n: [send.message([each]) for _ in range(n)])
            for url in (without, with_log)
        ),
        count=COUNT,
        concurrency=CONCURRENCY,
    )
    cpu, floor = logged.cpu_per(COUNT), bare.cpu_per(COUNT)
    # Postgres writes some lines during the rounds without the log, so this benchmark cannot compare its CPU.
    own, floor_own = cpu["with log"], floor["without log"]
    result = Result(
        "sends with the request log",
        COUNT,
        COUNT / logged.seconds,
        unit="messages",
        percentiles=percentiles(logged.load.milliseconds),
        cpu=cpu,
        floor=COUNT / bare.seconds,
        target=f"≤ {MOST:.0%} more CPU of the web process",
    )
    result.expect(logged.load.statuses == {200: COUNT}, f"the service answered {logged.load.statuses}")
    result.expect(own <= floor_own * (1 + MOST), f"{own:.0f} µs of the web process beside {floor_own:.0f}")
    expected = COUNT + COUNT // WARM_UP
    harness.wait_until(lambda: _lines() == expected, f"{_lines()} lines of {expected} sends", seconds=10)
    bare_result = Result(
        "sends without it", COUNT, COUNT / bare.seconds, unit="messages", cpu=floor,
        percentiles=percentiles(bare.load.milliseconds),
    )  # fmt: skip
    return [bare_result, result]


def _lines() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM api_requests")
        return int(database.fetchone()[0])
