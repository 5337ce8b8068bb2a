"""A tenant's HTTP server on loopback, in its own thread. It records requests and sends the answers that a test sets."""

import asyncio
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
import pytest
from aiohttp import web


@dataclass
class Received:
    """One request as received."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    query: dict[str, str] = field(default_factory=dict)

    @cached_property
    def json(self) -> Any:
        return orjson.loads(self.body)


Answering = Callable[[Received], web.StreamResponse | Awaitable[web.StreamResponse]]


def _challenge(request: Received) -> web.StreamResponse:
    """Return the correct response to a ping, or to a handshake in Meta's form."""
    if "hub.challenge" in request.query:
        return web.Response(text=request.query["hub.challenge"])
    return web.json_response({"challenge": request.json["challenge"]})


@dataclass
class Receiver:
    """The server. `received` lists the requests at `url` except pings. `answer` creates the response to a delivery."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    pings: list[Received] = field(default_factory=list)
    answer: Answering = lambda request: web.Response(text="ok")
    ping_answer: Answering = lambda request: _challenge(request)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        got = Received(
            request.path, dict(request.headers), await request.read(), time.monotonic(), dict(request.query)
        )
        is_ping = request.method == "GET" or got.headers.get("X-Service-Event-Type") == "webhook.verify"
        with self.arrived:
            (self.pings if is_ping else self.received).append(got)
            self.arrived.notify_all()
        answer = self.ping_answer(got) if is_ping else self.answer(got)
        return answer if isinstance(answer, web.StreamResponse) else await answer

    def wait_for(self, count: int, *, seconds: float = 30) -> list[Received]:
        """Wait until at least `count` deliveries have arrived. Returns all so far. Fails after `seconds`."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.received) >= count, seconds), (
                f"{len(self.received)} of {count} deliveries arrived"
            )
            return list(self.received)


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver, over HTTPS if `tls` is given."""
    server = Receiver()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "https" if tls else "http"
        server.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/hook"
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(30)
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver for one test."""
    with running() as server:
        yield server
