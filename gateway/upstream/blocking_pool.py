"""Blocking keep-alive HTTP pool of all calls that threads make to the Graph API; never repeats a call.

Measured (`make bench NAME=transport`): 40 to 90 µs of CPU a call, bare urllib3 175 to 265 µs, requests 330 to 410 µs:
more than all the rest of a send takes. Nor has either a deadline over a whole answer whose head drips.
"""

import select
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from time import monotonic, perf_counter

from django.conf import settings

from gateway.api import timing
from gateway.database.transactions import leave_database
from gateway.http1 import AnswerReader, AnswerTooLargeError, BrokenOffError, Origin, tls_context
from gateway.upstream.calls import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MOST_BODY_BYTES,
    GraphAnswer,
    GraphCall,
    StreamedBody,
    request_of,
    span_of,
    unreachable,
)

MOST_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_FAULTS = (OSError, BrokenOffError, AnswerTooLargeError)


class BlockingPool:
    """The kept connections of a process, for any number of threads: one call at a time on each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[Origin, list[tuple[float, _Connection]]] = defaultdict(list)

    def send(self, call: GraphCall) -> GraphAnswer:
        """Make a call and read the whole answer within UPSTREAM_TIMEOUT_MS.

        A streamed body may take longer to go out, as long as it moves: the answer's time begins after it.
        Raises UpstreamUnreachable; never inside a transaction.
        """
        connection, ms = self._exchange(call, most_body_bytes=MOST_BODY_BYTES, is_streamed=False)
        reader = connection.reader
        answer = GraphAnswer(connection.status, bytes(reader.body), reader.headers(), ms)
        self._release(connection)
        return answer

    def stream(self, call: GraphCall) -> "Stream":
        """Make a call whose answer may be large: its head is read, its body is left to be read.

        Raises UpstreamUnreachable; never inside a transaction.
        """
        connection, _ = self._exchange(call, most_body_bytes=sys.maxsize, is_streamed=True)
        return Stream(self, connection)

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for _, connection in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _exchange(
        self, call: GraphCall, *, most_body_bytes: int, is_streamed: bool
    ) -> tuple["_Connection", float]:
        """Send a call and read its answer, or its head alone; the milliseconds that this took."""
        with span_of(call) as span:
            connection, ms = self._exchange_once(
                call, most_body_bytes=most_body_bytes, is_streamed=is_streamed
            )
            span.answered(connection.status)
            return connection, ms

    def _exchange_once(
        self, call: GraphCall, *, most_body_bytes: int, is_streamed: bool
    ) -> tuple["_Connection", float]:
        leave_database()
        origin, head = request_of(call)
        started, seconds = perf_counter(), settings.UPSTREAM_TIMEOUT_MS / 1000
        deadline = monotonic() + seconds
        try:
            connection = self._kept(origin) or _Connection(origin, deadline)
        except OSError as error:
            raise unreachable(error, started, is_unsent=True) from None
        try:
            connection.expect(most_body_bytes)
            if call.body is None or isinstance(call.body, bytes):
                connection.send(head + (call.body or b""), deadline)
            else:
                connection.send_streamed(head, call.body, seconds)
                deadline = monotonic() + seconds
            while not (connection.is_answered or (is_streamed and connection.reader.status)):
                connection.receive(deadline)
        except _FAULTS as error:
            connection.close()
            raise unreachable(error, started) from None
        except BaseException:
            connection.close()
            raise
        ms = (perf_counter() - started) * 1000
        timing.add(ms)
        return connection, ms

    def _kept(self, origin: Origin) -> "_Connection | None":
        """The connection that was used last, if it is still good; those idle for too long are closed."""
        while True:
            with self._lock:
                kept = self._idle[origin]
                if not kept:
                    return None
                since, connection = kept.pop()
            if since + IDLE_SECONDS > monotonic() and connection.is_quiet:
                return connection
            connection.close()

    def _release(self, connection: "_Connection") -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if not connection.can_keep:
            connection.close()
            return
        with self._lock:
            self._idle[connection.origin].append((monotonic(), connection))


class Stream:
    """An answer whose body is still to come. Whoever has it closes it."""

    def __init__(self, pool: BlockingPool, connection: "_Connection") -> None:
        self._pool, self._connection = pool, connection
        self._is_open = True
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.reader.headers()

    def __iter__(self) -> Iterator[bytes]:
        """The body as it arrives, in bounded pieces. Raises UpstreamUnreachable when it stalls or breaks off."""
        while True:
            if piece := self._connection.reader.take():
                yield piece
            if self._connection.is_answered:
                self.close()
                return
            self._receive()

    def close(self) -> None:
        """Give the connection back; one whose answer was not read to its end is closed."""
        if self._is_open:
            self._is_open = False
            self._pool._release(self._connection)

    def _receive(self) -> None:
        started = perf_counter()
        try:
            self._connection.receive(monotonic() + settings.UPSTREAM_TIMEOUT_MS / 1000)
        except _FAULTS as error:
            self.close()
            raise unreachable(error, started) from None


class _Connection:
    """A connection to the upstream; `reader` holds what has come of the answer to the last call."""

    def __init__(self, origin: Origin, deadline: float) -> None:
        sock = socket.create_connection(
            (origin.host, origin.port), timeout=min(CONNECT_SECONDS, _left(deadline))
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.is_tls:
                sock = tls_context().wrap_socket(sock, server_hostname=origin.host)
        except BaseException:
            sock.close()
            raise
        self.origin = origin
        self._sock = sock
        self.reader = AnswerReader(most_head_bytes=MOST_HEAD_BYTES)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that nobody asked for, such as the end of the connection."""
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return not waiting.poll(0)

    @property
    def status(self) -> int:
        """The answer's status, once its head has come."""
        assert self.reader.status is not None  # noqa: S101 - asked for after the head
        return self.reader.status

    @property
    def is_answered(self) -> bool:
        """Whether the whole answer has come."""
        return self.reader.is_complete or self._has_ended

    @property
    def can_keep(self) -> bool:
        """Whether another call may go over this connection."""
        return self.reader.can_keep and self._is_sent

    def expect(self, most_body_bytes: int) -> None:
        """Make ready for a call and its answer."""
        self.reader.expect(most_body_bytes=most_body_bytes)
        self._is_sent = self._has_ended = False

    def send(self, request: bytes, deadline: float) -> None:
        """Send a request in one piece. Raises OSError."""
        self._sock.settimeout(_left(deadline))
        self._sock.sendall(request)
        self._is_sent = True

    def send_streamed(self, head: bytes, body: StreamedBody, seconds: float) -> None:
        """Send a request whose body is read piece by piece; each piece has `seconds`. Raises OSError."""
        self._sock.settimeout(seconds)
        try:
            self._sock.sendall(head)
            for piece in body:
                self._sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # the upstream may have answered before it had the whole body: that answer counts
        self._is_sent = True

    def receive(self, deadline: float) -> None:
        """Read what comes next of the answer. Raises OSError, `BrokenOffError`, `AnswerTooLargeError`."""
        self._sock.settimeout(_left(deadline))
        data = self._sock.recv(_READ_BYTES)
        if not data and self.reader.ends_with_connection:
            self._has_ended = True
        elif not data or self.reader.is_enough:
            raise BrokenOffError
        else:
            self.reader.feed(data)

    def close(self) -> None:
        self._sock.close()


def _left(deadline: float) -> float:
    """Seconds until a moment of the monotonic clock; raises TimeoutError when it is over."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@cache
def blocking_pool() -> BlockingPool:
    """The pool of this process."""
    return BlockingPool()
