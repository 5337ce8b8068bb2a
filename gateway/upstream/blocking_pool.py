"""Blocking keep-alive HTTP pool for single sends. One deadline over the whole answer; never repeats a call.

Measured (`make bench NAME=transport`): 40 to 90 µs of CPU a call, bare urllib3 175 to 265 µs, requests 330 to 410 µs:
more than all the rest of a send takes.
"""

import select
import socket
import threading
from collections import defaultdict
from functools import cache
from time import monotonic, perf_counter
from urllib.parse import urlsplit

from django.conf import settings

from gateway.api import timing
from gateway.database.transactions import leave_database
from gateway.http1 import AnswerReader, AnswerTooLargeError, BrokenOffError, Origin, request_head, tls_context
from gateway.upstream.client import CONNECT_SECONDS, IDLE_SECONDS, GraphAnswer, GraphCall, unreachable

MOST_HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 16 * 1024 * 1024
_READ_BYTES = 64 * 1024


class BlockingPool:
    """The kept connections of a process, for any number of threads: one call at a time on each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[Origin, list[tuple[float, _Connection]]] = defaultdict(list)

    def send(self, call: GraphCall) -> GraphAnswer:
        """Make a call with a body of bytes and read the whole answer, all within UPSTREAM_TIMEOUT_MS.

        Raises UpstreamUnreachable; never inside a transaction.
        """
        leave_database()
        assert isinstance(call.body, bytes)  # noqa: S101 - files go over `client.send`
        url = urlsplit(call.url)
        is_tls = url.scheme == "https"
        origin = Origin(url.hostname or "", url.port or (443 if is_tls else 80), is_tls)
        path = f"{url.path}?{url.query}" if url.query else url.path
        request = (
            request_head(call.method, path, url.netloc, call.headers, body_bytes=len(call.body)) + call.body
        )
        started = perf_counter()
        deadline = monotonic() + settings.UPSTREAM_TIMEOUT_MS / 1000
        try:
            connection = self._kept(origin) or _Connection(origin, deadline)
        except OSError as error:
            raise unreachable(error, started, is_unsent=True) from None
        try:
            reader = connection.exchange(request, deadline)
        except (OSError, BrokenOffError, AnswerTooLargeError) as error:
            connection.close()
            raise unreachable(error, started) from None
        except BaseException:
            connection.close()
            raise
        ms = (perf_counter() - started) * 1000
        timing.add(ms)
        assert reader.status is not None  # noqa: S101 - an answer that is read has one
        answer = GraphAnswer(reader.status, bytes(reader.body), reader.headers(), ms)
        if reader.can_keep:
            self._keep(origin, connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for _, connection in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

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

    def _keep(self, origin: Origin, connection: "_Connection") -> None:
        with self._lock:
            self._idle[origin].append((monotonic(), connection))


class _Connection:
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
        self._sock = sock
        self._reader = AnswerReader(most_head_bytes=MOST_HEAD_BYTES)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that nobody asked for, such as the end of the connection."""
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return not waiting.poll(0)

    def exchange(self, request: bytes, deadline: float) -> AnswerReader:
        """Send a request and read its answer. Raises OSError, `BrokenOffError`, `AnswerTooLargeError`."""
        reader = self._reader
        reader.expect(most_body_bytes=MOST_BODY_BYTES)
        self._sock.settimeout(_left(deadline))
        self._sock.sendall(request)
        while not reader.is_complete:
            self._sock.settimeout(_left(deadline))
            data = self._sock.recv(_READ_BYTES)
            if not data and reader.ends_with_connection:
                break
            if not data or reader.is_enough:
                raise BrokenOffError
            reader.feed(data)
        return reader

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
