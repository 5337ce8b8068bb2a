"""The event stream: 2,000 listeners at one web process, and the time from an event's creation to its listeners.

The events come as notifications to the same process. Every listener must get each event of its tenant exactly once.
"""

import asyncio
import itertools
import time
from urllib.parse import urlsplit

import orjson

from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business
from benchmarks.incoming import notification
from gateway import ids

TENANTS, LISTENERS_EACH = 200, 10
RATE, SECONDS = 50, 20
MOST_MEGABYTES, P50 = 200.0, 50.0
CONNECT_AT_ONCE = 50


class Listeners:
    """The clients. Each reads its own stream and records the arrival time of each event."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self.milliseconds: list[float] = []
        self.received: dict[str, int] = {}
        self.open = 0
        self._gate = asyncio.Semaphore(CONNECT_AT_ONCE)

    async def listen(self, key: str) -> None:
        """Run one listener until it is cancelled."""
        async with self._gate:
            reader, writer = await asyncio.open_connection(*self._address, limit=2**20)
            writer.write(
                f"GET /v1/events/stream HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
        self.open += 1
        while True:
            line = await reader.readline()
            if line.startswith(b"data: {"):
                event_id = orjson.loads(line[6:])["id"]
                made = ids.decode(ids.EVENT, event_id)
                assert made is not None
                self.milliseconds.append(time.time() * 1000 - ids.milliseconds(made))
                self.received[event_id] = self.received.get(event_id, 0) + 1


def run(harness: Harness) -> list[Result]:
    """Open all streams, then send notifications at a steady rate."""
    from tenants.credentials import api_keys
    from tenants.models import Tenant

    businesses = [business(number + 1) for number in range(TENANTS)]
    keys = [
        api_keys.create(name="stream", environment="live", tenant=Tenant.objects.get(pk=each.tenant_id)).key
        for each in businesses
        for _ in range(LISTENERS_EACH)
    ]
    url = harness.web(API_RATE_PER_SECOND="100000", API_RATE_BURST="100000")
    return asyncio.run(_measure(harness, url, businesses, keys))


async def _measure(harness: Harness, url: str, businesses: list[Business], keys: list[str]) -> list[Result]:
    listeners = Listeners(url)
    before = harness.memory("web")
    tasks = [asyncio.create_task(listeners.listen(key)) for key in keys]
    while listeners.open < len(keys):
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
    # Wait until work from the opening of the streams has ended, and every process knows that there are listeners.
    await asyncio.sleep(5)
    idle_from = harness._cpu()["web"]
    await asyncio.sleep(10)
    idle = (harness._cpu()["web"] - idle_from) / 10
    count = RATE * SECONDS
    numbers = itertools.cycle(businesses)
    notifications = [notification(next(numbers), 1) for _ in range(count)]
    with harness.measure() as measured:
        load = await raw_client.drive(f"{url}/upstream/webhook", notifications, concurrency=8, rate=RATE)
        deadline = time.monotonic() + 20
        expected = count * LISTENERS_EACH
        while len(listeners.milliseconds) < expected and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    memory = harness.memory("web")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    result = Result(
        f"{len(keys):,} listeners, {RATE} events/s to {LISTENERS_EACH} each",
        expected,
        expected / measured.seconds,
        unit="messages",
        percentiles=percentiles(listeners.milliseconds),
        cpu=measured.cpu_per(expected),
        target=f"p50 ≤ {P50:.0f} ms, ≤ {MOST_MEGABYTES:.0f} MB",
    )
    result.what += f"; {memory:.0f} MB ({before:.0f} without), {idle:.1%} of a core at rest"
    result.expect(load.statuses == {200: count}, f"the service answered {load.statuses}")
    result.expect(len(listeners.milliseconds) == expected, f"{len(listeners.milliseconds)} of {expected}")
    result.expect(set(listeners.received.values()) == {LISTENERS_EACH}, "events were skipped or doubled")
    found = result.percentiles or {"p50": float("inf")}
    result.expect(found["p50"] <= P50, f"p50 {found['p50']:.1f} ms")
    result.expect(memory <= MOST_MEGABYTES, f"{memory:.0f} MB")
    return [result]
