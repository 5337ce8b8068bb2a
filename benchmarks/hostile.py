"""What strangers and callers can do to cost a process more than their share.

- `requests`: hostile requests one after another, and the CPU and memory that each takes of a web process. Peak memory
  is the kernel's own (`VmHWM`), reset before each request.
- `strangers`: a business's sends and notifications beside what strangers hold at a web process.
- `compose`: the same at the services of docker-compose.yml, nginx in front, in turns with both alone.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import uvloop
from redis import Redis

from benchmarks.bulkhead import send_request
from benchmarks.equipment import raw_client, stranger
from benchmarks.equipment.harness import Harness, Load
from benchmarks.equipment.hostile_requests import CLOSED, MIB, Hostile, requests, tools_of_agents
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business
from benchmarks.incoming import notification

PARTS = ("requests", "strangers", "compose")
MOST_CPU_MS, MOST_MEGABYTES = 250, 100
ANSWER_SECONDS = 40.0
NO_ANSWER = -1
QUIET_SECONDS = 0.15
"""A process that used no CPU for this long has finished with a request."""


@dataclass(frozen=True)
class Cost:
    """What one request took."""

    status: int
    cpu_ms: float
    megabytes: float
    seconds: float


A_SECOND = 40
"""Notifications, and sends, a second."""
SECONDS = 15
TURNS = 4
_NUMBERS = itertools.count()
"""The numbers of the strangers' runs; each run has its own log."""
MOST_MS = 5_000.0
"""Highest p99 without the proxy, which lets an address have 400 connections. New connections are accepted after those
of strangers.
"""
TIMES_ALONE = 1.5
LEAST_MS = 20.0
"""A smaller p99 counts as this, because single milliseconds are noise of the machine."""
AT_WEB = {
    "1,100 connections with unknown keys": {"keys": 1_100},
    "5,200 bodies that drip": {"bodies": 4_200, "forms": 1_000},
    "1,100 unsigned notifications": {"unsigned": 1_100},
}
AT_PROXY = {
    "2,100 idle sockets and headers that drip": {"idle": 1_100, "headers": 1_000},
    "1,500 bodies that drip, 300 readers": {"bodies": 1_000, "forms": 500, "readers": 300},
    "200 connections with unknown keys, 100 unsigned": {"keys": 200, "unsigned": 100},
}


def run(harness: Harness, part: str) -> list[Result]:
    """One of the parts."""
    return {"requests": _requests, "strangers": _strangers, "compose": _compose}[part](harness)


def _requests(harness: Harness) -> list[Result]:
    """Every request of the table, to processes that a normal request has warmed."""
    from django.conf import settings

    caller = business(1)
    rate = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    upstream = harness.bare_upstream()
    web = harness.web(META_GRAPH_URL=upstream, **rate)
    table = requests(
        key=caller.api_key,
        number=caller.phone_number_id,
        app_secret=settings.META_APP_SECRET,
        csrf=csrf_token(web),
    )
    _talk(tools_of_agents(caller.api_key), web)
    rows = []
    with contextlib.closing(Redis.from_url(os.environ["REDIS_URL"])) as valkey:
        for hostile in table:
            # Each body meets a caller that has sent none: beyond its bytes a caller is refused unread.
            for bucket in valkey.scan_iter("*bytes:*"):
                valkey.delete(bucket)
            rows.append(_row(hostile, cost_of(hostile, web, harness.process_ids("web"))))
    return rows


def _strangers(harness: Harness) -> list[Result]:
    rate = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    known = Known(harness.web(META_GRAPH_URL=harness.bare_upstream(), **rate), most_ms=MOST_MS)
    known.measure("alone")
    for what, held in AT_WEB.items():
        with _held(harness, known.url, held):
            known.measure(f"beside {what}")
    with _held(harness, known.url, {"keys": 1_100}, [f"127.0.1.{number}" for number in range(1, 101)]):
        known.measure("beside 1,100 connections with unknown keys of 100 addresses")
    return known.results


def _compose(harness: Harness) -> list[Result]:
    from django.conf import settings

    from tests.certificates import self_signed
    from tests.operating import composed

    variables = composed.documented_settings() | {"META_GRAPH_URL": harness.bare_upstream()}
    # The rows of this process are read by that of the services.
    settings.ENCRYPTION_KEYS = [variables["ENCRYPTION_KEYS"]]
    settings.META_APP_SECRET = variables["META_APP_SECRET"]
    with tempfile.TemporaryDirectory(prefix="gateway-composed-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        services = composed.Composed(
            directory, variables, database_url=os.environ["DATABASE_URL"], redis_url=os.environ["REDIS_URL"]
        )
        with contextlib.closing(services):
            services.start("gateway")
            known = Known(services.start_proxy(self_signed(directory)).url)
            harness.wait_until(lambda: services.is_healthy("gateway"), "the services do not answer")
            everything = {kind: count // 2 for held in AT_PROXY.values() for kind, count in held.items()}
            for what, held in {**AT_PROXY, "half of all that": everything}.items():
                known.measure_in_turns(f"beside {what}", functools.partial(_held, harness, known.url, held))
    return known.results


@contextlib.contextmanager
def _held(harness: Harness, url: str, held: dict[str, int], addresses: Sequence[str] = ()) -> Iterator[None]:
    """Strangers hold these connections in the block."""
    name = f"stranger-{next(_NUMBERS)}"
    kinds = [f"{kind}={count}" for kind, count in held.items()]
    own = [f"--address={address}" for address in addresses]
    harness.start(name, [sys.executable, "-m", stranger.__name__, url, *kinds, *own])
    harness.wait_until(lambda: stranger.READY in harness.log(name), "the stranger is not ready")
    yield
    harness.stop(name)


class Known:
    """A business that sends, and notifications about it, alone and beside strangers.

    Without `most_ms` the limit of a p99 is a multiple of the p99 alone.
    """

    def __init__(self, url: str, *, most_ms: float | None = None) -> None:
        self.url, self.results, self._most_ms = url, list[Result](), most_ms
        self._caller = business(1)
        uvloop.run(self._loads(2))

    def measure(self, what: str) -> None:
        """Add a row of each load."""
        for name, load in uvloop.run(self._loads(SECONDS)).items():
            row = self._row(f"{name}, {what}", load)
            if self._most_ms is not None:
                p99 = (row.percentiles or {}).get("p99", 0.0)
                row.target = f"p99 ≤ {self._most_ms:,.0f} ms"
                row.expect(p99 <= self._most_ms, f"p99 {p99:.0f} ms, not {self._most_ms:,.0f}")

    def measure_in_turns(self, what: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """Add a row of each load alone and one in the block of `held`, in turns; judge the second by the first."""
        alone, beside = defaultdict[str, Load](Load), defaultdict[str, Load](Load)
        for _ in range(TURNS):
            self._add(alone)
            with held():
                self._add(beside)
        for name, load in beside.items():
            before = self._row(f"{name}, alone", alone[name])
            self._row(f"{name}, {what}", load).expect_times(before, TIMES_ALONE, least_ms=LEAST_MS)

    def _add(self, loads: dict[str, Load]) -> None:
        for name, load in uvloop.run(self._loads(SECONDS // 2)).items():
            loads[name].add(load)

    def _row(self, what: str, load: Load) -> Result:
        count = len(load.milliseconds)
        row = Result(what, count, A_SECOND, unit="requests", percentiles=percentiles(load.milliseconds))
        row.expect(load.statuses == {200: count}, f"answered {load.statuses}")
        self.results.append(row)
        return row

    async def _loads(self, seconds: int) -> dict[str, Load]:
        count = A_SECOND * seconds
        notifications, sends = await asyncio.gather(
            raw_client.drive(
                f"{self.url}/upstream/webhook",
                [notification(self._caller, 1) for _ in range(count)],
                concurrency=16,
                rate=A_SECOND,
            ),
            raw_client.drive(
                f"{self.url}/v1/messages",
                [send_request(self._caller, number) for number in range(count)],
                concurrency=16,
                rate=A_SECOND,
            ),
        )
        return {"notifications": notifications, "sends": sends}


def _row(hostile: Hostile, cost: Cost) -> Result:
    what = f"{hostile.what}: {cost.status or 'closed'}, {cost.megabytes:.0f} MB"
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
    with urlopen(f"{address}/login") as answer:  # noqa: S310 - the benchmark's own server
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition("csrftoken=")[2].partition(";")[0]
