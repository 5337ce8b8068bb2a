"""HTTP/1.1 connections of an event loop, to tenants' addresses and to the Graph API, and the outcome of an exchange.

A connection has one exchange at a time. A delivery or a send needs little of HTTP: a request in one piece and a
response read up to a limit, without redirects, cookies or decompression. A general client would take more CPU for an
exchange than all other work of a delivery.

An `Attempt` collects the state of a request under way and becomes an `Answer`: the status, the beginning of the body,
the wait that the receiver requested, and a word for a failure, as in `last_error` (specification 2).
"""

import asyncio
import re
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import cast

import msgspec
from aiohappyeyeballs import start_connection

from gateway.http1 import AnswerReader, AnswerTooLargeError, BrokenOffError, Origin
from gateway.monitoring.logs import type_alone
from gateway.outbound.addresses import AddressInfo, InvalidUrlError, UnknownNameError

READ_LIMIT = 16 * 1024
"""Maximum number of bytes that are read of a receiver's response."""

_MAX_RETRY_AFTER = 30 * 86400.0


class ProxyAwayError(BrokenOffError):
    """The egress proxy is unreachable, or rejects the service's credentials. The receiver was not called."""


PROXY_AWAY = "egress_proxy_away"


class StaleError(BrokenOffError):
    """The receiver closed the connection before any byte of a response."""


class Answer(msgspec.Struct, frozen=True):
    """Outcome of one request.

    `status` is the HTTP status, None without a response. `ms` is the duration in milliseconds. `body` is the body of
    the response as sent, never decompressed, up to the read limit. For a failure, `retry_after` is the wait that the
    receiver requested, in seconds, and `fields` are the headers.

    `error` is None when the response was a 2xx and was read to its end or to the limit, because a receiver that answers
    2xx with a long body has the event. Otherwise it is one of
    - http_3xx, http_4xx, http_5xx: the status, whatever happened to the body
    - timeout: a deadline passed, even in the middle of the body of a 2xx
    - dns_error: the name has no address
    - blocked_address: no address of the name is public, or the host has a form that is not accepted, such as
      `2130706433`
    - tls_error: no TLS, or an invalid certificate
    - response_too_large: headers beyond the limits
    - connection_error: no connection, a connection that was interrupted (even in the middle of the body of a 2xx), or a
      response that is not HTTP
    - egress_proxy_away: the service's own proxy is unavailable, which says nothing about the receiver
    """

    status: int | None
    error: str | None
    ms: int
    body: bytes
    retry_after: float | None
    fields: Sequence[tuple[bytes, bytes]] = ()

    def __repr__(self) -> str:
        return type_alone(self)

    @property
    def ok(self) -> bool:
        """Whether the receiver accepted the request: a complete 2xx response."""
        return self.error is None

    @property
    def concerns_receiver(self) -> bool:
        """Whether the outcome says anything about the receiver. An unavailable proxy of the service says nothing."""
        return self.error != PROXY_AWAY


@dataclass(slots=True)
class Attempt:
    """State of a request under way, or of one that failed.

    `started` is a time of the event loop's clock. `opened`: a public address was called. `blocked`: an address was
    rejected. `proxy_seconds`: the time that it took to reach the egress proxy, which is not the receiver's.
    """

    started: float = field(default_factory=time.monotonic)
    opened: bool = False
    blocked: bool = False
    proxy_seconds: float = 0.0
    status: int | None = None
    retry_after: float | None = None
    body: bytearray = field(default_factory=bytearray, repr=False)
    fields: Sequence[tuple[bytes, bytes]] = field(default=(), repr=False)

    def answer(self, failure: Exception | None) -> Answer:
        """The answer of this attempt. `failure` is the exception that ended the request, if any."""
        error = _refusal(self.status)
        if error is None and failure is not None:
            error = self._reason(failure)
        ms = round((time.monotonic() - self.started) * 1000)
        fields = self.fields if error else ()
        return Answer(self.status, error, ms, bytes(self.body), self.retry_after, fields)

    def _reason(self, failure: Exception) -> str:
        if isinstance(failure, TimeoutError):
            return "timeout"
        if self.blocked and not self.opened:
            return "blocked_address"
        match failure:
            case InvalidUrlError():
                return "blocked_address"
            case UnknownNameError():
                return "dns_error"
            case ssl.SSLError():
                return "tls_error"
            case AnswerTooLargeError():
                return "response_too_large"
            case ProxyAwayError():
                return PROXY_AWAY
            case _:
                return "connection_error"


def _refusal(status: int | None) -> str | None:
    if status is None or 200 <= status < 300:
        return None
    if status < 200:
        return "connection_error"  # an unrequested 101 Switching Protocols
    return f"http_{min(status // 100, 5)}xx"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After` (RFC 9110, 10.2.3), at most 30 days. None without a readable value."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", value):
        return min(float(value), _MAX_RETRY_AFTER)
    until = _http_date(value)
    if until is None:
        return None
    # Uses the receiver's own clock if the response has its time, because this machine's clock may be wrong.
    now = _http_date(headers.get("Date", "")) or datetime.now(UTC)
    return min(max((until - now).total_seconds(), 0.0), _MAX_RETRY_AFTER)


def _http_date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


MAX_HEAD_BYTES = 16 * 1024

_NEXT_ADDRESS_AFTER = 0.25
"""Seconds to wait for one address before also trying the next (RFC 8305)."""
_LARGE_BODY = 1024 * 1024
_PIECE = 256 * 1024


class HttpConnection(asyncio.Protocol):
    """The client's side of a connection that `loop.create_connection` opens."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = AnswerReader(most_head_bytes=MAX_HEAD_BYTES)
        self._ended: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._lost = False

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used again, because neither side is known to have closed it."""
        return not (self._lost or self._transport.is_closing())

    def abort(self) -> None:
        """Close at once. A graceful close would wait until the receiver has read everything, which may never happen."""
        self._transport.abort()

    async def exchange(
        self, head: bytes, body: bytes, attempt: Attempt, *, read_limit: int, deadline: float
    ) -> None:
        """Send a request and put its response into `attempt`, with at most `read_limit` bytes of its body.

        Raises TimeoutError at `deadline`, a time of the loop's clock, and `StaleError`, `BrokenOffError`,
        `AnswerTooLargeError` or an SSLError. Closes the connection if it cannot be used again, and when the exchange is
        cancelled.
        """
        if not self.is_open:
            raise StaleError
        reader = self._reader
        reader.expect(most_body_bytes=read_limit)
        self._failure: Exception | None = None
        self._is_sent = True
        self._ended = ended = self._loop.create_future()
        # A timer of the loop costs less CPU than asyncio.timeout.
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
            if not (reader.can_keep and self._is_sent) or self._transport.get_write_buffer_size():
                self.abort()
        attempt.status, attempt.fields, attempt.body = reader.status, reader.fields, reader.body
        if reader.status is not None and reader.status >= HTTPStatus.BAD_REQUEST:
            attempt.retry_after = retry_after(reader.headers())
        if self._failure is not None:
            raise self._failure

    async def _send_in_pieces(self, head: bytes, body: bytes, ended: asyncio.Future[None]) -> None:
        """Write as fast as the receiver reads. Stop once the receiver has answered."""
        self._transport.write(head)
        whole = memoryview(body)
        for start in range(0, len(body), _PIECE):
            if self._writable is not None:
                await asyncio.wait({self._writable, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                self._is_sent = False
                return
            self._transport.write(whole[start : start + _PIECE])

    def _end(self, failure: Exception | None = None) -> None:
        if self._ended is not None and not self._ended.done():
            self._failure = failure
            self._ended.set_result(None)

    # --- Callbacks of the transport (asyncio.Protocol)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        # uvloop's class has the interface of a stream socket's transport, but does not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """The receiver reads more slowly than this side writes."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The receiver has caught up."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def data_received(self, data: bytes) -> None:
        """Bytes of the response. Unrequested bytes close the connection, so they never count as the next response."""
        if self._ended is None or self._ended.done():
            self.abort()
            return
        try:
            self._reader.feed(data)
        except (BrokenOffError, AnswerTooLargeError) as error:
            self._end(error)
        else:
            # Bytes beyond the limit are not read, because a receiver may send without end.
            if self._reader.is_enough:
                self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._lost = True
        if self._ended is None:
            return
        if isinstance(exc, ssl.SSLError):
            self._end(exc)
        elif not self._reader.has_begun:
            self._end(StaleError())
        elif exc is None and self._reader.ends_with_connection:
            self._end()
        else:
            self._end(BrokenOffError())


async def open_socket(
    addresses: Sequence[AddressInfo], *, make: Callable[[AddressInfo], socket.socket] | None = None
) -> socket.socket:
    """A socket to the first of the addresses that answers. `make` creates the socket for an address. Raises OSError."""
    try:
        return await start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER, socket_factory=make
        )
    except RuntimeError as error:
        # uvloop raises it while a closed transport still has the descriptor of the new socket.
        raise OSError(str(error)) from error


async def connect(sock: socket.socket, origin: Origin, tls: ssl.SSLContext) -> HttpConnection:
    """An HTTP connection to an origin over a socket. Closes the socket if it fails. Raises OSError."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            HttpConnection,
            sock=sock,
            ssl=tls if origin.is_tls else None,
            server_hostname=origin.host.rstrip(".") if origin.is_tls else None,
        )
    except BaseException:
        sock.close()
        raise
    return connection


class IdleConnections:
    """Open connections that are not in use. A connection is closed after `seconds` of idle time."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._idle: defaultdict[Hashable, list[tuple[float, HttpConnection]]] = defaultdict(list)
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, key: Hashable) -> HttpConnection | None:
        """The open connection with this key that was used last, or None. The key is the origin and the other
        settings with which a connection is opened.
        """
        kept = self._idle.get(key)
        while kept:
            _, connection = kept.pop()
            if connection.is_open:
                return connection
        return None

    def keep(self, key: Hashable, connection: HttpConnection) -> None:
        """Keep a connection for the next exchange, unless the last exchange closed it."""
        if connection.is_open:
            loop = asyncio.get_running_loop()
            self._idle[key].append((loop.time(), connection))
            if self._sweep is None:
                self._sweep = loop.call_later(self._seconds, self._close_idle)

    def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for kept in self._idle.values():
            for _, connection in kept:
                connection.abort()
        self._idle.clear()

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key, kept in list(self._idle.items()):
            still = [(since, each) for since, each in kept if each.is_open and since + self._seconds > now]
            for _, connection in set(kept).difference(still):
                connection.abort()
            if still:
                self._idle[key] = still
            else:
                del self._idle[key]
        first = min((since for kept in self._idle.values() for since, _ in kept), default=None)
        self._sweep = loop.call_at(first + self._seconds, self._close_idle) if first is not None else None
