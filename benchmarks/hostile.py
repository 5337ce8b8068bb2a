"""Attempts of strangers and callers to use too much CPU, memory or time of the service.

- `requests` sends hostile requests one after another, and measures the CPU and memory that a web process uses for each.
  Peak memory is the kernel's figure (`VmHWM`), which is reset before each request.
- `strangers` measures a business's sends and notifications while strangers hold connections to a web process.
- `compose` measures the same with the services of docker-compose.yml behind nginx, in turns with and without strangers.
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
    """The CPU, memory and time of one request."""

    status: int
    cpu_ms: float
    megabytes: float
    seconds: float


A_SECOND = 40
"""The rate of notifications and the rate of sends, per second."""
SECONDS = 15
TURNS = 4
_NUMBERS = itertools.count()
"""The numbers of the strangers' runs. Each run has its own log."""
MOST_MS = 5_000.0
"""Highest p99 without the proxy. The proxy limits an address to 400 connections. Without it, the strangers' connections
are accepted before a new connection.
"""
TIMES_ALONE = 1.5
LEAST_MS = 20.0
"""A smaller p99 counts as this time, because single milliseconds are noise of the machine."""
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
    """Run one part."""
    return {"requests": _requests, "strangers": _strangers, "compose": _compose}[part](harness)


def _requests(harness: Harness) -> list[Result]:
    """Measure every hostile request. A normal request warms up the processes first."""
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
            # Reset the limit on a caller's bytes. Beyond the limit, a body would be refused without being read.
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
    # The services' processes read rows that this process writes, so both need the same keys.
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
    """Let strangers hold these connections during the block."""
    name = f"stranger-{next(_NUMBERS)}"
    kinds = [f"{kind}={count}" for kind, count in held.items()]
    own = [f"--address={address}" for address in addresses]
    harness.start(name, [sys.executable, "-m", stranger.__name__, url, *kinds, *own])
    harness.wait_until(lambda: stranger.READY in harness.log(name), "the stranger is not ready")
    yield
    harness.stop(name)


class Known:
    """A business that sends messages and receives notifications, measured with and without strangers.

    `most_ms` is the limit of each p99. If it is None, the limit is a multiple of the p99 without strangers.
    """

    def __init__(self, url: str, *, most_ms: float | None = None) -> None:
        self.url, self.results, self._most_ms = url, list[Result](), most_ms
        self._caller = business(1)
        uvloop.run(self._loads(2))

    def measure(self, what: str) -> None:
        """Measure each load and add its row."""
        for name, load in uvloop.run(self._loads(SECONDS)).items():
            row = self._row(f"{name}, {what}", load)
            if self._most_ms is not None:
                p99 = (row.percentiles or {}).get("p99", 0.0)
                row.target = f"p99 ≤ {self._most_ms:,.0f} ms"
                row.expect(p99 <= self._most_ms, f"p99 {p99:.0f} ms, not {self._most_ms:,.0f}")

    def measure_in_turns(self, what: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """Measure each load in turns without and with strangers (`held`). Add both rows. The row without strangers sets
        the limit.
        """
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
    """Send one request. Wait for its answer and until the processes use no CPU. Returns the cost."""
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
    """CPU milliseconds of the processes by their CPU clocks, which include ended threads (clock_getcpuclockid)."""
    return sum(time.clock_gettime_ns((~each << 3) | 2) for each in process_ids) / 1e6


def _status(process_id: int, name: str) -> int:
    """A value of /proc/<pid>/status in KiB."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def csrf_token(address: str) -> str:
    """A CSRF token from the public log-in page."""
    with urlopen(f"{address}/login") as answer:  # noqa: S310 - the benchmark's own server
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition("csrftoken=")[2].partition(";")[0]
