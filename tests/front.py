"""The listener of the tests: the server of a web process, in a thread, with the tests' database and a real socket.

Django's test client uses it too, but without a socket. If the listener answers a route, the client calls the route's
handler on the server's event loop. That loop has its own database connections, so a test of such a route must commit
its rows (`django_db(transaction=True)`). All other requests of the client run as usual, inside the test's transaction.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test.client import ClientHandler

from web import listener, routes
from web.routes import Application

Result = TypeVar("Result")


class Front:
    """The server. Its first use starts it."""

    def __init__(self, application: Callable[[], Any] = Application) -> None:
        self._application = application
        self._server: _TestServer | None = None

    def start(self) -> tuple[str, int]:
        """Start the server unless it runs. Returns its host and port."""
        if self._server is None:
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            self._address: tuple[str, int] = listening.getsockname()
            _load_django()
            served = self._application()
            config = listener.config(served, host=self._address[0], port=self._address[1])
            server = _TestServer(config, on_stop=getattr(served, "stop", lambda: None))
            self._thread = threading.Thread(target=server.run, args=([listening],), name="front", daemon=True)
            self._thread.start()
            assert server.serves.wait(30), "the listener did not start"
            self._server = server
        return self._address

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the server's event loop. Returns its result."""
        self.start()
        assert self._server is not None
        assert self._server.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._server.loop).result(60)

    def close(self) -> None:
        """Stop the server as SIGTERM does."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)
            self._thread.join(30)
            assert not self._thread.is_alive(), f"the listener did not stop: {self._server.open_work()}"
            self._server = None


def _load_django() -> None:
    """Load Django's WSGI application. That sets up logging again, which would remove the handlers of `caplog`."""
    handlers = logging.getLogger().handlers
    import_module("gateway.wsgi")
    logging.getLogger().handlers = handlers


class _TestServer(listener.Server):
    def __init__(self, config: Any, *, on_stop: Callable[[], None]) -> None:
        super().__init__(config, on_stop=on_stop)
        self.serves = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.serves.set()
        await super().main_loop()

    def open_work(self) -> list[object]:
        """The connections and tasks for which a stop waits."""
        assert self.loop is not None
        return [*self.server_state.connections, *(task.get_coro() for task in asyncio.all_tasks(self.loop))]


running = Front()
_django_handler = ClientHandler.__call__


def _answer(self: ClientHandler, environ: dict[str, Any]) -> Any:
    # Django's views pass messages to the event loop of their process, so it must run.
    running.start()
    match = routes.match_of(environ["REQUEST_METHOD"], _path(environ))
    if match is None:
        return _django_handler(self, environ)
    assert not connection.in_atomic_block, (
        "the listener answers this route: mark the test django_db(transaction=True)"
    )
    response: Any = running.run(_exchange(match, environ))
    response._charset = "utf-8"
    response.wsgi_request = None
    return response


def _path(environ: Mapping[str, Any]) -> str:
    return str(environ["PATH_INFO"]).encode("latin-1").decode(errors="replace")


def _scope(environ: Mapping[str, Any]) -> dict[str, Any]:
    names = {name for name in environ if name.startswith("HTTP_")}
    headers = {name[5:].replace("_", "-").lower(): str(environ[name]) for name in names}
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers[name.replace("_", "-").lower()] = str(environ[name])
    return {
        "type": "http",
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": "http",
        "path": _path(environ),
        "raw_path": quote(_path(environ)).encode(),
        "query_string": str(environ.get("QUERY_STRING", "")).encode("latin-1"),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "server": ("testserver", 80),
        "client": (environ.get("REMOTE_ADDR", "127.0.0.1"), 1),
    }


async def _exchange(match: routes.Match, environ: Mapping[str, Any]) -> HttpResponse:
    response = HttpResponse()
    del response["Content-Type"]
    parts: list[bytes] = []
    is_begun = False

    async def receive() -> dict[str, Any]:
        if is_begun:
            return {"type": "http.disconnect"}
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal is_begun
        if message["type"] == "http.response.start":
            is_begun, response.status_code = True, message["status"]
            for name, value in message["headers"]:
                response[name.decode().title()] = value.decode("latin-1")
        else:
            parts.append(message["body"])

    await routes.answer(match, _scope(environ), receive, send)
    response.content = b"".join(parts)
    return response


def mark_for(method: str, path: str) -> pytest.MarkDecorator:
    """Return the database marker for a test of a route. It allows commits if the listener answers the route."""
    return pytest.mark.django_db(transaction=routes.match_of(method, path) is not None)


def install() -> None:
    """Make all test clients send requests for the listener's routes to the listener.

    Loads Django's application, before any test changes a setting that its middleware reads only when it is made.
    """
    _load_django()
    ClientHandler.__call__ = _answer  # type: ignore[method-assign]
