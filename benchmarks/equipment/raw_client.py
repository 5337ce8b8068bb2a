"""A cheap load client. It sends prepared bytes over keep-alive connections, under uvloop.

aiohttp uses about 200 µs of CPU for a request. On two cores, that would be most of the CPU of an intake benchmark.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import uvloop

from benchmarks.equipment.harness import Harness, Load, Request, Side

ROUNDS, WARM_UP = 8, 5

Requests = Callable[[int], Sequence[Request]]


def post_all(url: str, requests: Sequence[Request], *, concurrency: int) -> Load:
    """POST each request once, `concurrency` at a time."""
    return uvloop.run(drive(url, requests, concurrency=concurrency))


def post_steadily(url: str, requests: Sequence[Request], *, concurrency: int, rate: float) -> Load:
    """POST `rate` requests a second, evenly spaced. The latency of a request counts from the moment it was sent."""
    return uvloop.run(drive(url, requests, concurrency=concurrency, rate=rate))


def in_turns(
    harness: Harness, *loads: tuple[str, Requests], count: int, concurrency: int
) -> tuple[Side, ...]:
    """POST `count` new requests to each URL, in turns. `count // WARM_UP` requests to each URL come first as a warm-up.

    The turns make sure that other load of the machine affects all URLs. Every second round has the reverse order, so
    that work deferred by one load affects the others equally.
    """
    sides = tuple(Side() for _ in loads)
    for url, made in loads:
        post_all(url, made(count // WARM_UP), concurrency=concurrency)
    forth = list(zip(sides, loads, strict=True))
    for number in range(ROUNDS):
        for side, (url, made) in forth[:: -1 if number % 2 else 1]:
            requests = made(count // ROUNDS)
            with harness.measure() as measured:
                load = post_all(url, requests, concurrency=concurrency)
            side.add(load, measured)
    return sides


async def drive(
    url: str,
    requests: Sequence[Request],
    *,
    concurrency: int,
    rate: float | None = None,
    method: str = "POST",
) -> Load:
    """Send the requests. A benchmark with several loads at once calls this coroutine directly."""
    parts = urlsplit(url)
    load = Load()
    head = f"{method} {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
    texts = (_bytes_of(head, each) for each in requests)
    loop = asyncio.get_running_loop()
    tls = unverified() if parts.scheme == "https" else None

    async def opened() -> _Connection | None:
        with contextlib.suppress(OSError):
            _, protocol = await loop.create_connection(
                _Connection, parts.hostname or "", parts.port or 80, ssl=tls
            )
            return protocol
        return None

    protocols = [each for each in await asyncio.gather(*(opened() for _ in range(concurrency))) if each]
    # A connection that cannot be opened counts as a request without an answer. The others send its requests.
    if len(protocols) < concurrency:
        load.statuses[0] = concurrency - len(protocols)
    began = loop.time() + 0.05
    numbered = enumerate(texts)

    async def connection(protocol: _Connection, queue: Iterator[tuple[int, bytes]]) -> None:
        try:
            for number, text in queue:
                if rate is not None:
                    await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
                sent = time.perf_counter()
                status = await protocol.ask(text)
                load.milliseconds.append((time.perf_counter() - sent) * 1000)
                load.statuses[status] = load.statuses.get(status, 0) + 1
        finally:
            protocol.close()

    await asyncio.gather(*(connection(protocol, numbered) for protocol in protocols))
    return load


def unverified() -> ssl.SSLContext:
    """A TLS context for the benchmark's own proxy, which has a self-signed certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _bytes_of(head: str, request: Request) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{head}{lines}Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body


class _Connection(asyncio.Protocol):
    """One keep-alive connection. It reads each answer by the Content-Length."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    async def ask(self, text: bytes) -> int:
        """Send a request. Returns the status of the answer, or 0 if the connection was closed."""
        self._received = b""
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            return 0
        self._transport.write(text)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, ended, body = self._received.partition(b"\r\n\r\n")
        if not ended:
            return
        lowered = head.lower()
        length = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(body) >= length and self._answer is not None and not self._answer.done():
            self._answer.set_result(int(head[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
