"""Hostile requests, one after another: the CPU and memory that each takes of the process that it reaches.

One web process and one edge process. Peak memory is the kernel's own (`VmHWM`), reset before each request.
"""

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.hostile_requests import CLOSED, MIB, Hostile, requests, tools_of_agents
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business

MOST_CPU_MS, MOST_MEGABYTES = 250, 100
ANSWER_SECONDS = 40.0
NO_ANSWER = -1
QUIET_SECONDS = 0.15
"""A process that took no CPU for this long has done with a request."""


@dataclass(frozen=True)
class Cost:
    """What one request took."""

    status: int
    cpu_ms: float
    megabytes: float
    seconds: float


def run(harness: Harness) -> list[Result]:
    """Every request of the table, to processes that a normal request has warmed."""
    from django.conf import settings

    caller = business(1)
    rate = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    upstream = harness.bare_upstream()
    addresses = {
        "web": harness.web(1, META_GRAPH_URL=upstream, **rate),
        "edge": harness.edge(META_GRAPH_URL=upstream, **rate),
    }
    table = requests(
        key=caller.api_key,
        number=caller.phone_number_id,
        app_secret=settings.META_APP_SECRET,
        csrf=csrf_token(addresses["web"]),
    )
    _talk(tools_of_agents(caller.api_key), addresses["web"])
    return [
        _row(hostile, cost_of(hostile, addresses[hostile.door], harness.process_ids(hostile.door)))
        for hostile in table
    ]


def _row(hostile: Hostile, cost: Cost) -> Result:
    what = f"{hostile.door}: {hostile.what}: {cost.status or 'closed'}, {cost.megabytes:.0f} MB"
    row = Result(
        what,
        1,
        1 / cost.seconds,
        unit="requests",
        cpu={"cpu": cost.cpu_ms * 1000},
        target=f"≤ {MOST_CPU_MS} ms, ≤ {MOST_MEGABYTES} MB",
    )
    row.expect(cost.status in hostile.statuses, f"answered {cost.status}, not {sorted(hostile.statuses)}")
    row.expect(cost.cpu_ms <= MOST_CPU_MS, f"{cost.cpu_ms:.0f} ms of CPU, not {MOST_CPU_MS}")
    row.expect(cost.megabytes <= MOST_MEGABYTES, f"{cost.megabytes:.0f} MB, not {MOST_MEGABYTES}")
    return row


def cost_of(hostile: Hostile, address: str, process_ids: list[int]) -> Cost:
    """Send one request and wait for its answer and for the processes to be quiet again."""
    resident = {each: _status(each, "VmRSS") for each in process_ids}
    for each in process_ids:
        Path(f"/proc/{each}/clear_refs").write_text("5")
    before, began = _cpu_ms(process_ids), time.monotonic()
    status = _talk(hostile, address)
    seconds = time.monotonic() - began
    after = _until_quiet(process_ids)
    peak = max((_status(each, "VmHWM") - resident[each] for each in process_ids), default=0)
    return Cost(status, after - before, peak / 1024, seconds)


def _talk(hostile: Hostile, address: str) -> int:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for part in hostile.parts():
                connection.sendall(part)
                if hostile.pause:
                    time.sleep(hostile.pause)
        with contextlib.suppress(ConnectionError):
            try:
                begun = connection.recv(64)
            except TimeoutError:
                return NO_ANSWER
            if begun.startswith(b"HTTP/1.1 "):
                return int(begun[9:12])
    return CLOSED


def _until_quiet(process_ids: list[int]) -> float:
    spent = _cpu_ms(process_ids)
    while process_ids:
        time.sleep(QUIET_SECONDS)
        if (now := _cpu_ms(process_ids)) - spent < 10:
            return now
        spent = now
    return spent


def _cpu_ms(process_ids: list[int]) -> float:
    """CPU of the processes by their own clocks, which count threads that have ended too (clock_getcpuclockid)."""
    return sum(time.clock_gettime_ns((~each << 3) | 2) for each in process_ids) / 1e6


def _status(process_id: int, name: str) -> int:
    """A figure of /proc/<pid>/status, in KiB."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def csrf_token(address: str) -> str:
    """A CSRF token as anybody gets it with the log-in page."""
    """A CSRF token as anybody gets it with the log-in page."""
    with urlopen(f"{address}/login") as answer:  # noqa: S310 - the benchmark's own server
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition("csrftoken=")[2].partition(";")[0]
