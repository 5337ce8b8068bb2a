"""A minimal receiver for benchmarks in its own process. It records the id and the time of each delivery.

A full web server would use as much CPU for a request as the measured worker, on the same two cores.
Paths: `/ok` answers 200, `/ok/later` after 30 ms, `/ok/slow` after 300 ms. `/bad` answers 500. `/hang` never answers.
`/drip` answers one byte a second.
"""

import asyncio
import multiprocessing
import re
import time
from collections.abc import Callable
from typing import Any

LATER_SECONDS, SLOW_SECONDS = 0.03, 0.3

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_BAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_DELIVERY = re.compile(rb"(?i)\r\nx-service-delivery: *(\w+)")
_EVENT = re.compile(rb"(?i)\r\nwebhook-id: *(\w+)")


class _Connection(asyncio.Protocol):
    def __init__(self, note: Callable[[bytes, bytes, float], None]) -> None:
        self.note = note
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def drip(self, rest: bytes) -> None:
        if rest and not self.transport.is_closing():
            self.transport.write(rest[:1])
            asyncio.get_running_loop().call_later(1.0, self.drip, rest[1:])

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = _LENGTH.search(head)
            total = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < total:
                return
            self.buffer = self.buffer[total:]
            if head.startswith(b"POST /hang"):
                continue
            if head.startswith(b"POST /drip"):
                self.drip(_OK)
                continue
            delivery, event = _DELIVERY.search(head), _EVENT.search(head)
            if head.startswith(b"POST /ok") and delivery and event:
                self.note(delivery[1], event[1], time.time())
            if head.startswith((b"POST /ok/later", b"POST /ok/slow")):
                seconds = SLOW_SECONDS if head.startswith(b"POST /ok/slow") else LATER_SECONDS
                asyncio.get_running_loop().call_later(seconds, self.transport.write, _OK)
                continue
            self.transport.write(_BAD if head.startswith(b"POST /bad") else _OK)


def _serve(port: Any, count: Any, end: Any) -> None:
    noted: list[tuple[str, str, float]] = []

    def note(delivery: bytes, event: bytes, at: float) -> None:
        noted.append((delivery.decode(), event.decode(), at))
        count.value = len(noted)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(note), "127.0.0.1", 0, backlog=2048)
        port.value = server.sockets[0].getsockname()[1]
        await loop.run_in_executor(None, end.recv)
        server.close()

    asyncio.run(serve())
    end.send(noted)


class Sink:
    """The receiver, as a context manager. `url` is its base URL, `count` the number of recorded deliveries."""

    def __enter__(self) -> "Sink":
        context = multiprocessing.get_context("spawn")
        self._port, self._count = context.Value("i", 0, lock=False), context.Value("i", 0, lock=False)
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._port, self._count, theirs), daemon=True)
        self._process.start()
        deadline = time.monotonic() + 30
        while not self._port.value:
            if time.monotonic() > deadline:
                raise TimeoutError("the receiver did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.value}"

    @property
    def count(self) -> int:
        return int(self._count.value)

    def finish(self) -> list[tuple[str, str, float]]:
        """Stop the receiver. Returns its records of `/ok`: delivery id, event id, seconds since 1970."""
        self._end.send(None)
        noted: list[tuple[str, str, float]] = self._end.recv()
        self._process.join()
        return noted
