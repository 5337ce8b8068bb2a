"""Bulkheads: notifications, health and other tenants' sends while a number, an endpoint and 200 connections hang.

The benchmark's upstream answers at once, except for one number, whose sends take 15 seconds. At the same time, a tenant
replays to an endpoint that never answers, and 200 connections send a body to the web processes byte by byte.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import orjson
import uvloop

from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness, Load, Request
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint
from benchmarks.incoming import notification

SECONDS = 15
NOTIFICATIONS, HEALTH, SENDS, REPLAYS = 50, 20, 20, 50
HANGING_SENDS, DRIPPING = 500, 200
HANGS_SECONDS = 15.0
P99_MS, TIMES_ALONE = 100.0, 1.5


def run(harness: Harness) -> list[Result]:
    """Measure another tenant's sends alone, then all loads while the number, the endpoint and the connections hang."""
    hanging, replaying, other = (business(number) for number in (1, 2, 3))
    with partly_hanging_upstream(hanging.phone_number_id) as upstream, silent_endpoint() as silent_url:
        rate = {"API_RATE_PER_SECOND": "100000", "API_RATE_BURST": "100000"}
        web = harness.web(META_GRAPH_URL=upstream, **rate)
        delivery = dead_delivery(replaying, silent_url)
        sends = [send_request(other, number) for number in range(SENDS * SECONDS)]
        raw_client.post_steadily(f"{web}/v1/messages", sends[:40], concurrency=8, rate=SENDS)
        alone = raw_client.post_steadily(f"{web}/v1/messages", sends, concurrency=32, rate=SENDS)
        results = uvloop.run(beside(web, hanging, replaying, delivery, other, sends))
    names = ("notifications", "health", "other tenants' sends")
    rows = [
        _row(name, load, rate)
        for name, load, rate in zip(names, results, (NOTIFICATIONS, HEALTH, SENDS), strict=True)
    ]
    for row in rows[:2]:
        row.target = f"p99 ≤ {P99_MS:.0f} ms"
        row.expect(_p99(row) <= P99_MS, f"p99 {_p99(row):.0f} ms, not {P99_MS:.0f}")
    first = _row("other tenants' sends, alone", alone, SENDS)
    rows[2].target = f"p99 ≤ {TIMES_ALONE} × alone"
    most = TIMES_ALONE * _p99(first)
    rows[2].expect(_p99(rows[2]) <= most, f"p99 {_p99(rows[2]):.0f} ms, not {most:.0f}")
    return [first, *rows]


async def beside(
    web: str,
    hanging: Business,
    replaying: Business,
    delivery: str,
    other: Business,
    sends: list[Request],
    *,
    seconds: int = SECONDS,
    send_rate: float = SENDS,
    send_connections: int = 32,
    hanging_sends: int = HANGING_SENDS,
    dripping: int = DRIPPING,
) -> list[Load]:
    """Send notifications, health checks and another tenant's sends while everything else hangs. Returns their loads."""
    drips = [await _drip(web) for _ in range(dripping)]
    attack = [
        asyncio.create_task(
            raw_client.drive(
                f"{web}/v1/messages",
                [send_request(hanging, number) for number in range(hanging_sends)],
                concurrency=hanging_sends,
            )
        ),
        asyncio.create_task(
            raw_client.drive(
                f"{web}/v1/webhook-deliveries/{delivery}/replay",
                [_post(replaying, b"{}")] * (REPLAYS * seconds),
                concurrency=64,
                rate=REPLAYS,
            )
        ),
    ]
    await asyncio.sleep(1)
    loads = await asyncio.gather(
        raw_client.drive(
            f"{web}/upstream/webhook",
            [notification(other, 1) for _ in range(NOTIFICATIONS * seconds)],
            concurrency=16,
            rate=NOTIFICATIONS,
        ),
        raw_client.drive(
            f"{web}/v1/health",
            [Request(b"", {})] * (HEALTH * seconds),
            concurrency=8,
            rate=HEALTH,
            method="GET",
        ),
        raw_client.drive(f"{web}/v1/messages", sends, concurrency=send_connections, rate=send_rate),
    )
    for task in attack:
        task.cancel()
    await asyncio.gather(*attack, return_exceptions=True)
    for writer in drips:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return list(loads)


def _row(what: str, load: Load, rate: float) -> Result:
    count = len(load.milliseconds)
    result = Result(what, count, rate, unit="requests", percentiles=percentiles(load.milliseconds))
    result.expect(load.statuses == {200: count}, f"answered {load.statuses}")
    return result


def _p99(row: Result) -> float:
    return (row.percentiles or {}).get("p99", 0.0)


def _post(caller: Business, body: bytes) -> Request:
    return Request(body, {"Authorization": f"Bearer {caller.api_key}", "Content-Type": "application/json"})


def send_request(sender: Business, number: int) -> Request:
    """The request that sends a text."""
    return _post(
        sender,
        orjson.dumps(
            {
                "from": sender.phone_number_id,
                "to": f"+9198{number:08d}",
                "type": "text",
                "text": {"body": "Hello"},
            }
        ),
    )


async def _drip(web: str) -> asyncio.StreamWriter:
    host, _, port = web.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/media HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    )
    return writer


def dead_delivery(of: Business, url: str) -> str:
    """Create a delivery that can be replayed, to a silent endpoint. Returns the delivery's public id."""
    from django.db import transaction

    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish
    from webhooks.models import Delivery

    endpoint(of.tenant_id, url)
    with transaction.atomic():
        publish(
            tenant_id=of.tenant_id,
            events=[NewEvent(type="message.status", dedupe_key="bench:1", data=b"{}", environment="live")],
        )
    Delivery.objects.update(status="dead", next_attempt_at=None)
    return Delivery.objects.get(tenant_id=of.tenant_id).public_id


@contextlib.contextmanager
def silent_endpoint() -> Iterator[str]:
    """The URL of an endpoint that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/silent"


@contextlib.contextmanager
def partly_hanging_upstream(hanging: str) -> Iterator[str]:
    """The base URL of an upstream that accepts every message: after 15 seconds for one number, else at once."""
    ready: list[int] = []
    started, ended = threading.Event(), threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The end of the benchmark cancels this task.
        with (
            contextlib.closing(writer),
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError),
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                if hanging.encode() in head.partition(b"\r\n")[0]:
                    await asyncio.sleep(HANGS_SECONDS)
                body = b'{"messaging_product":"whatsapp","messages":[{"id":"wamid.%d"}]}' % next(numbers)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(body), body)
                )

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        await asyncio.to_thread(ended.wait)
        server.close()

    numbers = iter(range(1, 10**9))
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield f"http://127.0.0.1:{ready[0]}"
    finally:
        ended.set()
        thread.join(10)
