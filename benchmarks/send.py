"""Sends through one web process: 32 at a time, with an upstream that answers at once or after 200 ms, and 50 a second.

The floor is a bare forwarder without keys, database and events. Both use the same upstream, which needs little CPU.
At the end, every message must have reached the upstream once and have one event.
"""

import asyncio
import itertools
import re
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import orjson
import requests

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness, Request, cursor
from benchmarks.equipment.raw_client import WARM_UP
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business

CONCURRENCY = 32
BUSINESSES = 2 * CONCURRENCY
"""When many calls wait for the upstream, each tenant may have only two waiting calls (`gateway/api/limits.py`). So a
load comes from many tenants in turn.
"""
COUNTS = {0: 10_000, 200: 1_000}
"""The count of messages, by the milliseconds that the upstream takes for each."""
OF_FLOOR = {0: 0.20, 200: 0.80}
"""Required share of the forwarder's rate, by the same milliseconds."""
CPU_OF_FLOOR = 3.6
STEADY_RATE, STEADY_SECONDS = 50, 20
OWN_P50, OWN_P99 = 2.0, 25.0
FRONT_COUNT, FRONT_CONCURRENCY, OF_V1, CPU_OF_V1 = 2_000, 8, 0.95, 1.05
WAITING, CONNECTIONS = 24, 16

_numbers = itertools.count(1)


def run(harness: Harness) -> list[Result]:
    """Measure sends to a fast and to a slow upstream with the floor, the Cloud API path, the steady rate, and waiting
    sends.
    """
    businesses = [business(number) for number in range(1, BUSINESSES + 1)]
    upstream = harness.bare_upstream()
    url = harness.web(META_GRAPH_URL=upstream, API_RATE_PER_SECOND="100000", API_RATE_BURST="100000")
    forwarder = floors.forwarder(harness, upstream)
    results = [
        _beside_forwarder(harness, upstream, url, forwarder, businesses, milliseconds=each) for each in COUNTS
    ]
    harness.stop(floors.FORWARDER)
    return [
        *results,
        _front(harness, upstream, url, businesses[0]),
        _steady(upstream, url, businesses),
        _waiting(upstream, url, businesses),
    ]


def _beside_forwarder(
    harness: Harness,
    upstream: str,
    url: str,
    forwarder: str,
    businesses: Sequence[Business],
    *,
    milliseconds: int,
) -> Result:
    def messages(number: int) -> list[Request]:
        return [message(businesses) for _ in range(number)]

    _slow(upstream, milliseconds)
    before, count = _counts(upstream), COUNTS[milliseconds]
    result = floors.beside(
        harness,
        (forwarder, messages),
        (f"{url}/v1/messages", messages),
        what=f"upstream {milliseconds} ms",
        unit="messages",
        count=count,
        concurrency=CONCURRENCY,
    )
    sent = count + count // WARM_UP
    before.expect(result, _counts(upstream), sent=2 * sent, events=sent)
    result.expect_rate(OF_FLOOR[milliseconds])
    if not milliseconds:
        result.expect_cpu(("web",), CPU_OF_FLOOR, floor=(floors.FORWARDER,))
    return result


def _front(harness: Harness, upstream: str, url: str, one: Business) -> Result:
    """Measure the sends of one number on the Cloud API path, which contains the number's id, in turns with `/v1`."""
    _slow(upstream, 0)
    before, count = _counts(upstream), FRONT_COUNT
    v1, front = raw_client.in_turns(
        harness,
        (f"{url}/v1/messages", lambda number: [message([one]) for _ in range(number)]),
        (
            f"{url}/v25.0/{one.phone_number_id}/messages",
            lambda number: [message([one], left_out="from") for _ in range(number)],
        ),
        count=count,
        concurrency=FRONT_CONCURRENCY,
    )
    result = Result(
        "the upstream's path beside /v1",
        count,
        count / front.seconds,
        unit="messages",
        percentiles=percentiles(front.load.milliseconds),
        cpu=front.cpu_per(count),
        floor=count / v1.seconds,
        floor_cpu=v1.cpu_per(count),
        target=f"≥ {OF_V1:.2f} of /v1",
    )
    result.expect_cpu(("web",), CPU_OF_V1, floor=("web",))
    for name, side in (("/v1", v1), ("the front", front)):
        result.expect(side.load.statuses == {200: count}, f"{name} answered {side.load.statuses}")
    result.expect((result.ratio or 0) >= OF_V1, f"{result.ratio:.2f} of /v1, not {OF_V1:.2f}")
    sent = 2 * (count + count // WARM_UP)
    before.expect(result, _counts(upstream), sent=sent, events=sent)
    return result


def _steady(upstream: str, url: str, businesses: Sequence[Business]) -> Result:
    """Measure the service's own time at a steady rate, from the Server-Timing header of each answer."""
    before, count = _counts(upstream), STEADY_RATE * STEADY_SECONDS
    own, statuses = asyncio.run(_at_rate(f"{url}/v1/messages", [message(businesses) for _ in range(count)]))
    result = Result(
        f"own time at {STEADY_RATE}/s",
        count,
        float(STEADY_RATE),
        unit="messages",
        percentiles=percentiles(own),
        target=f"p50 ≤ {OWN_P50:.0f}, p99 ≤ {OWN_P99:.0f} ms",
    )
    found = result.percentiles or {"p50": 0.0, "p99": 0.0}
    result.expect(statuses == {200: count}, f"the service answered {statuses}")
    result.expect(found["p50"] <= OWN_P50, f"p50 {found['p50']:.1f} ms")
    result.expect(found["p99"] <= OWN_P99, f"p99 {found['p99']:.1f} ms")
    before.expect(result, _counts(upstream), sent=count, events=count)
    return result


async def _at_rate(url: str, messages: list[Request]) -> tuple[list[float], dict[int, int]]:
    own: list[float] = []
    statuses: dict[int, int] = {}

    async def post(session: aiohttp.ClientSession, message: Request) -> None:
        async with session.post(url, data=message.body, headers=message.headers) as answer:
            await answer.read()
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            timing = re.search(r"wb;dur=([0-9.]+)", answer.headers["Server-Timing"])
            own.append(float(timing[1]) if timing else float("inf"))

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number, message in enumerate(messages):
            await asyncio.sleep(max(0.0, began + number / STEADY_RATE - time.monotonic()))
            group.create_task(post(session, message))
    return own, statuses


def _waiting(upstream: str, url: str, businesses: Sequence[Business]) -> Result:
    """Measure the peak of database connections of the web processes while many sends wait for the upstream."""
    _slow(upstream, 2_000)
    most = 0
    done = threading.Event()
    others = _connections()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.05):
            most = max(most, _connections())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    load = raw_client.post_all(
        f"{url}/v1/messages", [message(businesses) for _ in range(WAITING)], concurrency=WAITING
    )
    seconds = time.monotonic() - began
    done.set()
    watcher.join()
    held = most - _own_connections()
    result = Result(
        f"{WAITING} waiting: connections",
        WAITING,
        float(held),
        unit="connections",
        percentiles=percentiles(load.milliseconds),
        target=f"≤ {CONNECTIONS}, all at once",
    )
    result.expect(load.statuses == {200: WAITING}, f"the service answered {load.statuses}")
    result.expect(held <= CONNECTIONS, f"{held} connections (before: {others})")
    result.expect(seconds < 3.5, f"they did not wait together: {seconds:.1f} s")
    return result


def _connections() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        return int(database.fetchone()[0])


def _own_connections() -> int:
    """The connections of this process: one of the main thread, one of the watcher."""
    return 2


class _Counts(NamedTuple):
    """The number of messages that the upstream accepted, and the number of their events."""

    sent: int
    events: int

    def expect(self, result: Result, now: "_Counts", *, sent: int, events: int) -> None:
        """Record a failure unless exactly `sent` and `events` were added since."""
        found = now.sent - self.sent, now.events - self.events
        result.expect(found == (sent, events), f"{found[0]} sent, {found[1]} events, not {sent} and {events}")


def _counts(upstream: str) -> _Counts:
    with cursor() as database:
        database.execute("SELECT count(*) FROM events WHERE type = 'message.outbound'")
        return _Counts(int(requests.get(upstream, timeout=10).text), int(database.fetchone()[0]))


def _slow(upstream: str, milliseconds: int) -> None:
    requests.put(upstream, data=str(milliseconds), timeout=10).raise_for_status()


def message(businesses: Sequence[Business], *, left_out: str | None = None) -> Request:
    """A send to a new recipient. The businesses send in turn."""
    number = next(_numbers)
    each = businesses[number % len(businesses)]
    body = {
        "from": each.phone_number_id,
        "to": f"+91{number:010d}",
        "type": "text",
        "text": {"body": "Your order 4711 has left our warehouse and arrives tomorrow between 9 and 12."},
    }
    return Request(
        orjson.dumps({name: member for name, member in body.items() if name != left_out}),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {each.api_key}",
        },
    )
