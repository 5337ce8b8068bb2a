"""`POST /v1/messages`: 32 at a time with an upstream that answers at once and after 200 ms, 50 a second, 64 waiting.

The floor is a bare view in the same web processes that forwards the body to the simulator with `requests`: no key, no
database, no event. Every message must have reached the upstream once and be one event when the run is over.
"""

import asyncio
import itertools
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson
import requests

from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import ROUNDS, WARM_UP, Harness, Request, Side, cursor, post_all
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business

CONCURRENCY = 32
BUSINESSES = 2 * CONCURRENCY
"""When many calls wait for the upstream, a tenant may hold two (`gateway/api/limits/in_flight.py`), so a load comes
from many tenants in turn."""
COUNT, SLOW_COUNT = 4_000, 1_000
OF_FLOOR = 0.60
STEADY_RATE, STEADY_SECONDS = 50, 20
OWN_P50, OWN_P99 = 5.0, 25.0
FRONT_CONCURRENCY, OF_V1 = 8, 0.95
WAITING, CONNECTIONS = 24, 16
EDGE_COUNT, EDGE_RATE, EDGE_MICROSECONDS, EDGE_OWN_P50 = 10_000, 1_500, 500.0, 2.0

_numbers = itertools.count(1)


def run(harness: Harness) -> list[Result]:
    """Fast and slow upstream beside the floor, then the steady rate, then what waits."""
    upstream = harness.simulator()
    _control(upstream, "settings", {"preset": "benchmark"}, method="PUT")
    businesses = []
    for number in range(1, BUSINESSES + 1):
        token = f"EAAbench{number}"
        each = business(number, access_token=token)
        businesses.append(each)
        _control(
            upstream,
            "accounts",
            {
                "waba_id": each.waba_id,
                "access_token": token,
                "numbers": [{"phone_number_id": each.phone_number_id, "throughput": "HIGH"}],
            },
        )
    web = {
        "META_GRAPH_URL": upstream,
        "API_RATE_PER_SECOND": "100000",
        "API_RATE_BURST": "100000",
    }
    floor = harness.web(
        name="floor", ready="/ready", DJANGO_SETTINGS_MODULE="benchmarks.equipment.floor_settings", **web
    )
    url = harness.web(**web)
    results = [
        _measure(harness, upstream, url, floor, businesses, delay=0, count=COUNT),
        _measure(harness, upstream, url, floor, businesses, delay=200, count=SLOW_COUNT),
        _front(harness, upstream, url, businesses[0]),
        _steady(upstream, url, businesses),
        _waiting(upstream, url, businesses),
    ]
    results[0].target = f"≥ {OF_FLOOR:.2f} of floor"
    results[0].expect(
        (results[0].ratio or 0) >= OF_FLOOR, f"{results[0].ratio:.2f} of the floor, not {OF_FLOOR:.2f}"
    )
    return results + _edge(harness, businesses)


def _edge(harness: Harness, businesses: Sequence[Business]) -> list[Result]:
    """The same flow on the edge's event loop, with an upstream that costs next to nothing."""
    upstream = harness.bare_upstream()
    limits = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
    url = f"{harness.edge(META_GRAPH_URL=upstream, **limits)}/v1/messages"
    before, begun = _events(), _taken(upstream)
    raw_client.post_all(url, [message(businesses) for _ in range(EDGE_COUNT // 10)], concurrency=CONCURRENCY)
    messages = [message(businesses) for _ in range(EDGE_COUNT)]
    with harness.measure() as measured:
        load = raw_client.post_all(url, messages, concurrency=CONCURRENCY)
    full = Result(
        "edge, upstream 0 ms",
        EDGE_COUNT,
        EDGE_COUNT / measured.seconds,
        unit="messages",
        percentiles=percentiles(load.milliseconds),
        cpu=measured.cpu_per(EDGE_COUNT),
        target=f"≥ {EDGE_RATE:,}/s, edge ≤ {EDGE_MICROSECONDS:.0f} µs",
    )
    full.expect(load.statuses == {200: EDGE_COUNT}, f"the edge answered {load.statuses}")
    full.expect(full.rate >= EDGE_RATE, f"{full.rate:,.0f}/s, not {EDGE_RATE:,}")
    full.expect(full.cpu["edge"] <= EDGE_MICROSECONDS, f"edge {full.cpu['edge']:.0f} µs")
    count = STEADY_RATE * STEADY_SECONDS
    own, statuses = asyncio.run(_at_rate(url, [message(businesses) for _ in range(count)]))
    steady = Result(
        f"edge, own time at {STEADY_RATE}/s",
        count,
        float(STEADY_RATE),
        unit="messages",
        percentiles=percentiles(own),
        target=f"p50 ≤ {EDGE_OWN_P50:.0f} ms",
    )
    found = steady.percentiles or {"p50": 0.0}
    steady.expect(statuses == {200: count}, f"the edge answered {statuses}")
    steady.expect(found["p50"] <= EDGE_OWN_P50, f"p50 {found['p50']:.1f} ms")
    sent, stored = _taken(upstream) - begun, _events() - before
    expected = EDGE_COUNT // 10 + EDGE_COUNT + count
    steady.expect(sent == stored == expected, f"{sent} sent and {stored} events of {expected} messages")
    return [full, steady]


def _taken(upstream: str) -> int:
    return int(requests.get(f"{upstream}/taken", timeout=10).text)


def _measure(
    harness: Harness,
    upstream: str,
    url: str,
    floor: str,
    businesses: Sequence[Business],
    *,
    delay: int,
    count: int,
) -> Result:
    _slow(upstream, delay)

    before = _events()
    bare, service = harness.in_turns(
        f"{floor}/v1/messages",
        f"{url}/v1/messages",
        lambda number: [message(businesses) for _ in range(number)],
        count=count,
        concurrency=CONCURRENCY,
    )
    result = Result(
        f"upstream {delay} ms",
        count,
        count / service.seconds,
        unit="messages",
        percentiles=percentiles(service.load.milliseconds),
        cpu=service.cpu_per(count),
        floor=count / bare.seconds,
    )
    result.expect(bare.load.statuses == {200: count}, f"the floor answered {bare.load.statuses}")
    result.expect(service.load.statuses == {200: count}, f"the service answered {service.load.statuses}")
    sent, found = count + count // WARM_UP, _events() - before
    result.expect(found == sent, f"{found} events of {sent} messages")
    return result


def _front(harness: Harness, upstream: str, url: str, one: Business) -> Result:
    """The same sends at the upstream's own path, in turns with `/v1`, of one number: its id is in the path."""
    _slow(upstream, 0)
    before = _events()
    count = COUNT // 2 // ROUNDS * ROUNDS
    paths = f"{url}/v1/messages", f"{url}/v25.0/{one.phone_number_id}/messages"
    sides = Side(), Side()
    for number in range(ROUNDS + 1):
        for side, path, left_out in zip(sides, paths, (None, "from"), strict=True):
            messages = [message([one], left_out=left_out) for _ in range(count // ROUNDS)]
            with harness.measure() as measured:
                load = post_all(path, messages, concurrency=FRONT_CONCURRENCY)
            # The first round warms both.
            if number:
                side.add(load, measured)
    v1, front = sides
    result = Result(
        "the upstream's path beside /v1",
        count,
        count / front.seconds,
        unit="messages",
        percentiles=percentiles(front.load.milliseconds),
        cpu=front.cpu_per(count),
        floor=count / v1.seconds,
        target=f"≥ {OF_V1:.2f} of /v1",
    )
    for name, side in (("/v1", v1), ("the front", front)):
        result.expect(side.load.statuses == {200: count}, f"{name} answered {side.load.statuses}")
    result.expect((result.ratio or 0) >= OF_V1, f"{result.ratio:.2f} of /v1, not {OF_V1:.2f}")
    sent, found = 2 * count // ROUNDS * (ROUNDS + 1), _events() - before
    result.expect(found == sent, f"{found} events of {sent} messages")
    return result


def _steady(upstream: str, url: str, businesses: Sequence[Business]) -> Result:
    """The service's own time at a steady rate, as each answer's Server-Timing says it."""
    _slow(upstream, 50)
    count = STEADY_RATE * STEADY_SECONDS
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
    """The most database connections that the web processes hold while so many sends wait for the upstream."""
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
    load = post_all(f"{url}/v1/messages", [message(businesses) for _ in range(WAITING)], concurrency=WAITING)
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
    """Those of this process: its main thread's and the watcher's."""
    return 2


def _events() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM events WHERE type = 'message.outbound'")
        return int(database.fetchone()[0])


def _slow(upstream: str, milliseconds: int) -> None:
    rules = [{"match": {"path": "/messages$"}, "action": "slow", "ms": milliseconds}] if milliseconds else []
    _control(upstream, "faults", rules, method="PUT")


def _control(upstream: str, path: str, body: Any, *, method: str = "POST") -> None:
    requests.request(method, f"{upstream}/sim/{path}", json=body, timeout=10).raise_for_status()


def message(businesses: Sequence[Business], *, left_out: str | None = None) -> Request:
    """A send of the next of these businesses, to a recipient of its own."""
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
