"""HTTP/1.1 of the edge: uvicorn's protocol, with bounds on headers and framing and refusals in the service's form.

Other bounds: bodies in `request.py`, the number of connections in `connections.py`, idle ones in `server.py`.
"""

from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from edge import stopping
from edge.connections import connections
from gateway.api.errors import (
    HeadersTooLarge,
    InvalidRequest,
    RequestTimeout,
    ServiceError,
    ServiceUnavailable,
)
from gateway.api.refusals import refusal

HEADER_SECONDS = 10.0
"""How long a connection may take to send the headers of a request."""
MOST_HEADER_BYTES = 64 * 1024
"""Of the request line and headers; also of trailers, and of what frames chunks beyond `FRAMING` times the body."""
FRAMING = 16
FREE_CHUNKS = 1000
SMALLEST_CHUNK = 64
"""Chunks beyond the free ones must have this many bytes in the mean: each costs the loop 0.3 µs."""
TAKE_SECONDS = 30.0
"""How long a client may leave more than 64 KiB of its answers untaken, or any of them when its connection closes."""
MOST_PIPELINED = 32
"""Requests that may wait behind one that is not answered: a read can bring thousands, of 3 KB of memory each."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose headers must arrive in time, and on which nothing grows without end but a body.

    The body itself is bounded by whoever reads it (`Request.body`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._beside_body = 0
        self._chunks = self._body = 0
        self._deadline: TimerHandle | None = None
        self._take_deadline: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_late)
        if not connections.enter(self):
            self._refuse(ServiceUnavailable("Too many connections are in use. Try again."))

    def connection_lost(self, exc: Exception | None) -> None:
        connections.leave(self)
        self._stop_deadline()
        self._stop_take_deadline()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Called to make room for a new connection: this one waits for its next request."""
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._take_deadline = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_take_deadline()
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: answers without an end are ended, the others finish."""
        stopping.begin()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        were_in_headers = self._in_headers
        super().data_received(data)
        if self.transport.is_closing():
            return
        if were_in_headers == self._in_headers:
            self._beside_body += len(data)
            if self._beside_body > MOST_HEADER_BYTES:
                self._refuse(HeadersTooLarge())
                return
        if self._in_headers and self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True

    def on_headers_complete(self) -> None:
        """Called by the parser, which takes an exception for a malformed request."""
        self._in_headers = False
        self._beside_body = self._chunks = self._body = 0
        self._stop_deadline()
        connections.begin(self)
        super().on_headers_complete()
        if len(self.pipeline) > MOST_PIPELINED:
            raise ValueError("Too many requests wait for their answers.")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come after the application has begun: nothing reads them.
        if self._in_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._beside_body -= FRAMING * len(body)
        self._body += len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Called by the parser, which takes an exception for a malformed request."""
        self._chunks += 1
        if self._chunks > FREE_CHUNKS + self._body / SMALLEST_CHUNK:
            raise ValueError("The chunks of the body are too small.")

    def on_response_complete(self) -> None:
        self._beside_body = 0
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self.cycle.response_complete:
            connections.rest(self)

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("This is not a request in HTTP/1.1."))

    def _too_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._refuse(RequestTimeout())

    def _refuse(self, error: ServiceError) -> None:
        """Answer what never became a request, or end a request that breaks the bounds, and close."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(refusal(error, STATUS_LINE[error.status]))
        self._close()

    def _close(self) -> None:
        """Close when the client has taken its answers, and for certain after `TAKE_SECONDS`."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_take_deadline(self) -> None:
        if self._take_deadline is not None:
            self._take_deadline.cancel()
            self._take_deadline = None
