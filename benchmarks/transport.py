"""Calls to the upstream: the blocking and the asynchronous pool, beside bare urllib3 and requests.

Each makes the same call to a server that answers at once (a GET of its health). CPU is that of this process alone.
"""

import asyncio
import threading
import time
from collections.abc import Callable

import requests
import urllib3
from requests.adapters import HTTPAdapter

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result

CALLS, AT_ONCE = 4_000, 16


def run(harness: Harness) -> list[Result]:
    """Each transport, 16 calls at once; urllib3 is the floor of the others."""
    from gateway.upstream.async_pool import AsyncPool
    from gateway.upstream.blocking_pool import blocking_pool
    from gateway.upstream.calls import GraphCall

    upstream = harness.simulator()
    headers = {"Accept": "application/json", "User-Agent": "benchmark"}
    call = GraphCall("GET", f"{upstream}/sim/health", headers, b"")
    pool = urllib3.PoolManager(maxsize=256, retries=False)

    def bare() -> None:
        pool.request(call.method, call.url, headers=headers, body=b"", timeout=15, redirect=False)

    adapter = HTTPAdapter(pool_maxsize=256)

    def with_requests() -> None:
        prepared = requests.Request(call.method, call.url, headers=headers, data=b"").prepare()
        adapter.send(prepared, timeout=15).content  # noqa: B018 - reads the answer

    async def asynchronous() -> None:
        async with AsyncPool(limit=AT_ONCE) as transport:

            async def caller() -> None:
                for _ in range(CALLS // AT_ONCE):
                    await transport.send(call)

            await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

    floor = _measure("bare urllib3", lambda: _in_threads(bare))
    results = [
        floor,
        _measure("requests", lambda: _in_threads(with_requests)),
        _measure("blocking pool", lambda: _in_threads(lambda: blocking_pool().send(call))),
        _measure("asynchronous pool", lambda: asyncio.run(asynchronous())),
    ]
    for result in results[1:]:
        result.floor = floor.rate
    own = results[2]
    own.target = "less CPU than urllib3"
    own.expect(own.cpu["caller"] < floor.cpu["caller"], "urllib3 takes less: use it")
    return results


def _measure(what: str, work: Callable[[], None]) -> Result:
    work()
    cpu, wall = time.process_time(), time.monotonic()
    work()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    return Result(what, CALLS, CALLS / wall, unit="calls", cpu={"caller": cpu / CALLS * 1e6})


def _in_threads(call: Callable[[], object]) -> None:
    def caller() -> None:
        for _ in range(CALLS // AT_ONCE):
            call()

    threads = [threading.Thread(target=caller) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
