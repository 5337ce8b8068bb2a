"""The listener: uvicorn (httptools, uvloop) with limits on connections, headers, framing and unread responses.

A stranger can open connections, start requests, and leave responses unread. This module limits all three. Input that
never became a request is rejected with an error in the service's form. `request.py` has the limits of bodies.
"""

import asyncio
import contextlib
import logging
import socket
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.access_log import refusal_bytes
from gateway.api.errors import (
    HeadersTooLarge,
    InvalidRequest,
    RequestTimeout,
    ServiceError,
    ServiceUnavailable,
    UriTooLong,
)
from web.request import IS_WHOLE
from web.strangers import is_known

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept. This is longer than a proxy keeps it, so that the proxy closes it."""
GRACEFUL_SECONDS = 20
LAST_REQUEST_SECONDS = 1.0
"""How long an idle connection stays open after the signal to stop. In this time, it serves one more request, which a
proxy may have sent just before the signal. The proxy must not repeat a send if the connection closes without a
response.
"""
HEADER_SECONDS = 10.0
"""How long a connection may take to send the headers of a request."""
MOST_URL_BYTES = 16 * 1024
MOST_HEADER_BYTES = 64 * 1024
"""The maximum size of the request line and headers, in bytes. The same limit applies to trailers, and to the framing of
chunks in excess of `FRAMING` times the body.
"""
FRAMING = 16
FREE_CHUNKS = 1000
SMALLEST_CHUNK = 64
"""The minimum average size of a body's chunks in bytes, not counting the first `FREE_CHUNKS` chunks."""
TAKE_SECONDS = 30.0
"""How long a client may leave more than 64 KiB of responses unread. On a closing connection, the limit applies to any
unread bytes.
"""
MOST_UNTAKEN = 64
"""The maximum number of connections whose clients leave more than 64 KiB unread. Beyond this limit, the oldest is
closed.
"""
MOST_PIPELINED = 32
"""The maximum number of requests on a connection that wait behind an unanswered one. A single read of the socket can
return thousands of requests.
"""
LINGER_SECONDS = 2.0
MOST_LINGERING_BYTES = 1024 * 1024
"""How many bytes are read and dropped after a rejection. Closing at once would reset the connection, and the client
could lose the response (RFC 9112, 9.6).
"""
_FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
BACKLOG = 2048
"""The maximum number of connections that the kernel queues until they are accepted."""
MOST_CONNECTIONS = 5_000
"""The maximum number of connections of a process, including event streams (`open_streams.MOST_STREAMS`)."""
MOST_BODIES = 1_000
"""The maximum number of connections whose bodies are arriving, for each `BodyKind`."""


# Below the level ERROR, uvicorn logs the input of strangers.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def config(application: Any, *, host: str, port: int) -> uvicorn.Config:
    """The configuration that serves an ASGI application, in production and in tests."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


class Server(uvicorn.Server):
    """uvicorn's server, woken by the signal to stop. uvicorn itself polls for the signal ten times a second."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, config: uvicorn.Config, *, on_stop: Callable[[], None] = lambda: None) -> None:
        """`on_stop` is called when the server begins to stop. It must end the responses that would not end by
        themselves.
        """
        super().__init__(config)
        self._on_stop = on_stop

    async def main_loop(self) -> None:
        """Serve until a signal arrives."""
        self._stop_signal = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)
        if not self.should_exit:
            await self._stop_signal.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop: end the responses that would not end by themselves, and let the others finish."""
        self._on_stop()
        await self._accept_queued(sockets or ())
        await super().shutdown(sockets)

    async def _accept_queued(self, sockets: Sequence[socket.socket]) -> None:
        """Stop listening, and accept the connections that the kernel has queued. Otherwise the kernel would reset them.

        A client may have sent a request on such a connection.
        """
        queued = []
        for server, listening in zip(self.servers, sockets, strict=False):
            # Ends with BlockingIOError, or earlier if the process has no free file descriptor.
            with contextlib.suppress(OSError), listening.dup() as queue:
                server.close()
                listening.close()
                queue.setblocking(False)
                while True:
                    queued.append(queue.accept()[0])
        for connection in queued:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> "BoundedProtocol":
        return BoundedProtocol(self.config, self.server_state, self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by Python, between any two steps of the loop."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_signal.set)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class _Parser(httptools.HttpRequestParser):
    """A parser that ignores a request's offer to change to another protocol (RFC 9110, 7.8).

    Java's client makes this offer with every first request without TLS. httptools would then end the request after its
    headers, and read its body as the next request. So the parser reads the headers again without the offer.
    """

    def __init__(self, protocol: "BoundedProtocol") -> None:
        super().__init__(protocol)
        self._protocol = protocol
        # uvicorn's own parser has the same setting.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        while True:
            try:
                super().feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if not self._protocol.offers_protocol:
                    raise
                data = self._protocol.headers_without_offer() + data[offer.args[0] :]
            else:
                return


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose headers must arrive in time, and whose memory is limited except for bodies."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser = _Parser(self)
        self.offers_protocol = False
        """Whether the current request offers another protocol. If so, its headers are read once more."""
        self._in_headers = True
        self._beside_body = 0
        self._chunks = self._body = 0
        self._deadline: TimerHandle | None = None
        self._take_deadline: TimerHandle | None = None
        self._has_cycle = False
        """Whether the current request's headers are complete. If so, the request was passed to the application or waits
        for it.
        """
        self._problem: ServiceError | None = None
        """Why the parser was stopped. None if the received bytes are not HTTP."""
        self._last_words: ServiceError | None = None
        """The rejection that is sent after the current responses."""
        self._is_refused = False
        self._lingering_bytes = 0
        self._is_stopping = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)
        if not connections.enter(self):
            self._refuse(ServiceUnavailable("Too many connections are in use. Try again."))

    def connection_lost(self, exc: Exception | None) -> None:
        connections.leave(self)
        self._cancel_header_deadline()
        self._cancel_take_deadline()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called when the server stops. The current or next response is the last, and has `Connection: close`."""
        self._is_stopping = True
        if self._is_idle():
            self.loop.call_later(LAST_REQUEST_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self._close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def evict(self) -> None:
        """Close this connection to make room for a new one. It waits for a request, or for the rest of a body."""
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._take_deadline = self.loop.call_later(TAKE_SECONDS, self.transport.abort)
        if (oldest := connections.leave_untaken(self)) is not None:
            oldest.transport.abort()

    def resume_writing(self) -> None:
        self._cancel_take_deadline()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._lingering_bytes += len(data)
            if self._lingering_bytes > MOST_LINGERING_BYTES:
                self._close()
            return
        were_in_headers = self._in_headers
        super().data_received(data)
        if self._is_refused or self.transport.is_closing():
            return
        if were_in_headers == self._in_headers:
            self._beside_body += len(data)
            if self._beside_body > MOST_HEADER_BYTES:
                self._refuse(HeadersTooLarge())
                return
        if self._in_headers and self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._has_cycle, self.offers_protocol = True, False, False
        # The body of the previous request allows its own framing, not the headers of this request.
        self._beside_body = 0

    def on_url(self, url: bytes) -> None:
        """Called by the parser. An exception means a malformed request."""
        super().on_url(url)
        if len(self.url) > MOST_URL_BYTES:
            self._problem = UriTooLong()
            raise ValueError("The URL is too long.")

    def on_headers_complete(self) -> None:
        """Called by the parser. An exception means a malformed request."""
        self.offers_protocol = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self.offers_protocol:
            return
        self._in_headers = False
        self._beside_body = self._chunks = self._body = 0
        self._cancel_header_deadline()
        self._check_headers()
        connections.begin(self)
        super().on_headers_complete()
        if self._is_stopping:
            self.cycle.keep_alive = False
        if not _FRAMING_HEADERS.isdisjoint(name for name, _ in self.headers):
            connections.read(self, _kind_of_body(self.scope))
        self._has_cycle = True
        if len(self.pipeline) > MOST_PIPELINED:
            raise ValueError("Too many requests of this connection are waiting for their answers.")

    def headers_without_offer(self) -> bytes:
        """The request line and the headers of the current request, without `Upgrade`."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers arrive after the application has started, so they are dropped.
        if self._in_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._beside_body -= FRAMING * len(body)
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.offers_protocol:
            return
        self.scope[IS_WHOLE] = True  # type: ignore[literal-required]
        connections.has_read(self)
        super().on_message_complete()

    def on_chunk_header(self) -> None:
        """Called by the parser. An exception means a malformed request."""
        self._chunks += 1
        if self._chunks > FREE_CHUNKS + self._body / SMALLEST_CHUNK:
            raise ValueError("The chunks of the body are too small.")

    def on_response_complete(self) -> None:
        self._beside_body = 0
        another_waits = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self._last_words is not None and not another_waits:
            self._write_refusal(self._last_words)
        elif self.cycle.response_complete:
            connections.rest(self)

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._problem or InvalidRequest("This request is not valid HTTP/1.1."))

    def _check_headers(self) -> None:
        """Reject headers that two servers could parse differently (RFC 9112, 3.2 and 6.1). Raises ValueError."""
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise ValueError("A request must name exactly one host.")
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and codings != [b"chunked"]:
            raise ValueError("The only supported transfer coding is chunked.")

    def _on_header_timeout(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._refuse(RequestTimeout())

    def _refuse(self, error: ServiceError) -> None:
        """Read no further request. Send the rejection after the responses to earlier requests."""
        self._is_refused = True
        self._cancel_header_deadline()
        cycle = self.cycle
        if self._has_cycle and self.pipeline and self.pipeline[0][0] is cycle:
            # The rejected request is the last of the waiting requests.
            self.pipeline.popleft()
            self._last_words = error
        elif cycle is None or cycle.response_complete:
            self._write_refusal(error)
        elif not self._has_cycle:
            self._last_words = error
        elif not cycle.response_started:
            # The application now treats the client as gone, and its response is dropped.
            cycle.disconnected = True
            cycle.message_event.set()
            self._write_refusal(error)
        else:
            self._close()

    def _write_refusal(self, error: ServiceError) -> None:
        self._last_words = None
        self.transport.write(refusal_bytes(error, STATUS_LINE[error.status]))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self._close)

    def _close(self) -> None:
        """Close once the client has read its responses, at the latest after `TAKE_SECONDS`."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def _cancel_header_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_take_deadline(self) -> None:
        connections.take(self)
        if self._take_deadline is not None:
            self._take_deadline.cancel()
            self._take_deadline = None


class BodyKind(IntEnum):
    """The kinds of senders of arriving bodies, in the order in which their connections are evicted."""

    STRANGER = auto()
    CALLER = auto()
    NOTIFICATION = auto()


def _kind_of_body(scope: Any) -> BodyKind:
    if scope["path"] == "/upstream/webhook":
        return BodyKind.NOTIFICATION
    return BodyKind.CALLER if is_known(scope) else BodyKind.STRANGER


class Connections:
    """All connections of a process. Those without a current request are ordered by how long they have waited.

    Beyond `MOST_CONNECTIONS`, each new connection evicts another: the one that has waited longest for its first
    request. If there is none, it evicts the one that has been idle longest after a request. If there is none either, it
    evicts the one whose body has been arriving longest, strangers' bodies first. Beyond `MOST_BODIES`, a new body
    evicts the connection whose body of the same kind has been arriving longest. So strangers who open connections or
    send bodies slowly cannot exclude others, and never displace notifications or known callers.
    """

    def __init__(self) -> None:
        self._count = 0
        self._new: dict[BoundedProtocol, None] = {}
        self._idle: dict[BoundedProtocol, None] = {}
        self._reading: dict[BodyKind, dict[BoundedProtocol, None]] = {kind: {} for kind in BodyKind}
        self._untaken: dict[BoundedProtocol, None] = {}

    def enter(self, connection: BoundedProtocol) -> bool:
        """Add a new connection. False if there are too many and each has a current request."""
        self._count += 1
        if self._count > MOST_CONNECTIONS:
            waiting = next(filter(None, (self._new, self._idle, *self._reading.values())), None)
            if waiting is None:
                return False
            _evict_longest(waiting)
        self._new[connection] = None
        return True

    def leave(self, connection: BoundedProtocol) -> None:
        """Remove a closed connection."""
        self._count -= 1
        self.begin(connection)
        self.has_read(connection)

    def begin(self, connection: BoundedProtocol) -> None:
        """Record that the headers of a request have arrived."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def read(self, connection: BoundedProtocol, kind: BodyKind) -> None:
        """Record that the body of the connection's request is arriving. If too many bodies are arriving, evict the
        connection whose body has been arriving longest.
        """
        reading = self._reading[kind]
        reading[connection] = None
        if len(reading) > MOST_BODIES:
            _evict_longest(reading)

    def has_read(self, connection: BoundedProtocol) -> None:
        """Record that the connection's request is complete."""
        for reading in self._reading.values():
            reading.pop(connection, None)

    def rest(self, connection: BoundedProtocol) -> None:
        """Record that every request of the connection has its response."""
        self._idle[connection] = None

    def leave_untaken(self, connection: BoundedProtocol) -> BoundedProtocol | None:
        """Record that the client leaves its response unread. Returns the connection to close because of it, if any."""
        self._untaken[connection] = None
        if len(self._untaken) <= MOST_UNTAKEN:
            return None
        oldest = next(iter(self._untaken))
        del self._untaken[oldest]
        return oldest

    def take(self, connection: BoundedProtocol) -> None:
        """Record that the client has read most of its response, or is gone."""
        self._untaken.pop(connection, None)


def _evict_longest(waiting: dict[BoundedProtocol, None]) -> None:
    longest = next(iter(waiting))
    del waiting[longest]
    longest.evict()


connections = Connections()
