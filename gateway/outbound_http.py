"""One HTTP/1.1 connection to a customer's address, for one exchange at a time.

What a delivery needs of HTTP is little: a request in one piece and an answer read to a small limit; no redirect, no
cookie, no decompression. A general client spends more on it than all the rest of a delivery takes, thousands of times
a second. What comes back is parsed by llhttp (httptools).
"""

import asyncio
import ssl

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.outbound_answers import AnswerTooLargeError, Attempt, BrokenOffError, StaleError, retry_after

MAX_HEAD_BYTES = 16 * 1024
MAX_FIELDS = 128

_LARGE_BODY = 1024 * 1024
_PIECE = 256 * 1024


class HttpConnection(asyncio.Protocol):
    """The client's side of a connection that `loop.create_connection` opens."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = HttpResponseParser(self)
        # Receivers are of every make: what other clients forgive is forgiven.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._ended: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._lost = False

    @property
    def is_open(self) -> bool:
        """Whether it may be used again: nothing has closed it, as far as is known here."""
        return not (self._lost or self._transport.is_closing())

    def abort(self) -> None:
        """Close at once. A transport that closes in peace lives until the receiver has read all: perhaps for ever."""
        self._transport.abort()

    async def exchange(
        self, head: bytes, body: bytes, attempt: Attempt, *, read_limit: int, deadline: float
    ) -> None:
        """Send a request; put its answer into `attempt`, of its body at most `read_limit` bytes.

        Raises TimeoutError at `deadline`, a moment of the loop's clock, and `StaleError`, `BrokenOffError`,
        `AnswerTooLargeError` or an SSLError. Afterwards the connection is closed unless it can be used again; when
        this is cancelled it is closed.
        """
        if not self.is_open:
            raise StaleError
        self._attempt, self._room = attempt, read_limit
        self._begun = self._in_body = self._framed = self._complete = self._keep = False
        self._head_bytes = self._field_bytes = self._fields = 0
        self._answer_headers: dict[str, str] = {}
        self._failure: Exception | None = None
        self._ended = ended = self._loop.create_future()
        # asyncio.timeout costs several times as much.
        too_late = self._loop.call_at(deadline, self._end, TimeoutError())
        try:
            if len(body) > _LARGE_BODY:
                await self._send_in_pieces(head, body, ended)
            else:
                self._transport.write(head + body)
            await ended
        finally:
            too_late.cancel()
            self._ended = None
            if not self._keep or self._transport.get_write_buffer_size():
                self.abort()
        if self._failure is not None:
            raise self._failure

    async def _send_in_pieces(self, head: bytes, body: bytes, ended: asyncio.Future[None]) -> None:
        """As fast as the receiver reads; what it has answered already is not sent to its end."""
        self._transport.write(head)
        whole = memoryview(body)
        for start in range(0, len(body), _PIECE):
            if self._writable is not None:
                await asyncio.wait({self._writable, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                self._keep = False
                return
            self._transport.write(whole[start : start + _PIECE])

    def _end(self, failure: Exception | None = None) -> None:
        if self._ended is not None and not self._ended.done():
            self._failure = failure
            self._ended.set_result(None)

    # --- What the transport tells (asyncio.Protocol)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream socket has
        self._transport = transport

    def pause_writing(self) -> None:
        """The receiver reads more slowly than is written."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def data_received(self, data: bytes) -> None:
        """Some bytes of the answer; those that nobody asked for must not be taken for the next one."""
        if self._ended is None or self._ended.done():
            self.abort()
            return
        self._begun = True
        self._head_bytes += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._keep = False
            self._end()
        except HttpParserError as error:
            self._keep = False
            too_large = isinstance(error.__context__, AnswerTooLargeError)
            self._end(AnswerTooLargeError() if too_large else BrokenOffError())
        else:
            if self._complete:
                self._end()
            elif self._in_body and self._room <= 0:
                self._end()  # what is beyond the limit is not read: a receiver may send without end
            elif not self._in_body and self._head_bytes > MAX_HEAD_BYTES:
                self._end(AnswerTooLargeError())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: the end of an answer that announced neither its length nor chunks."""
        self._lost = True
        if isinstance(exc, ssl.SSLError):
            self._end(exc)
        elif self._ended is not None and not self._begun:
            self._end(StaleError())
        elif self._ended is not None and self._in_body and not self._framed and exc is None:
            self._end()
        else:
            self._end(BrokenOffError())

    # --- What the parser tells

    def on_message_begin(self) -> None:
        """An answer begins, an interim one or the answer."""
        if self._complete:
            raise BrokenOffError  # another one that nobody asked for

    def on_status(self, reason: bytes) -> None:
        """The words behind the status, or a part of them."""
        self._count(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field; of interest are those that tell how long to wait and where the body ends."""
        self._fields += 1
        self._count(len(name) + len(value))
        match name.lower():
            case b"retry-after" | b"date":
                self._answer_headers.setdefault(name.decode("latin-1").title(), value.decode("latin-1"))
            case b"content-length":
                self._framed = True
            case b"transfer-encoding":
                self._framed = b"chunked" in value.lower()

    def on_headers_complete(self) -> None:
        """The head has ended."""
        status = self._parser.get_status_code()
        if status == 101 or not 100 <= status < 200:
            self._in_body = True
            self._attempt.status = status
            if "Retry-After" in self._answer_headers:
                self._attempt.retry_after = retry_after(self._answer_headers)

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if self._room > 0:
            self._attempt.body += data[: self._room]
            self._room -= len(data)

    def on_message_complete(self) -> None:
        """An answer has ended; after an interim one the next is awaited."""
        if self._in_body:
            self._complete = True
            self._keep = self._parser.should_keep_alive()
        else:
            self._head_bytes = self._field_bytes = self._fields = 0
            self._answer_headers.clear()

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > MAX_HEAD_BYTES or self._fields > MAX_FIELDS:
            raise AnswerTooLargeError
