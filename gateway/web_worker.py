"""gunicorn's threaded worker, with bounds on what a slow or broken client may hold.

A thread is given to a request only once its headers are complete: the main loop waits for them, with a deadline. On
the thread the body must arrive at a minimum rate. gunicorn's own worker reads headers on a thread without a deadline,
and closes connections on the main loop, waiting up to two seconds for the client's end of each.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from gunicorn.http.body import ChunkedReader
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.workers.gthread import TConn, ThreadWorker

from gateway import web_start

HEADER_SECONDS = 10.0
"""How long a connection may take to send the headers of a request."""
MOST_HEADER_BYTES = 32 * 1024
BODY_GRACE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""A body must arrive within the grace plus its size at this rate; so must an answer be taken."""
DRAIN_SECONDS = 0.05
"""How long an unread body is awaited to keep a connection. What takes longer is closed."""
MOST_DRAINED_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
"""Received of a body at once. gunicorn takes up to 1 MiB, and each read of 64 KiB then copies all that is left."""
FREE_CHUNKS = 1000
SMALLEST_CHUNK = 64
"""Chunks beyond the free ones must have this many bytes in the mean: each costs the interpreter 2 µs."""
LINGER_SECONDS = 2.0
MOST_LINGERING = 200
KEEP_ALIVE_SECONDS = 75
"""Longer than a proxy keeps an idle connection, so it is the proxy that closes it. gunicorn's two seconds would end
connections on which nginx is just sending a request, and nginx answers a POST that was cut off so with 502."""
LOOK_SECONDS = 0.05
"""How often connections with unfinished headers are looked at."""


class PacedSocket(socket.socket):
    """A client's socket: raises TimeoutError when a request arrives, or an answer leaves, more slowly than it may."""

    _ends = 0.0
    _received = 0
    _latest = float("inf")

    def begin(self) -> None:
        """A request begins."""
        self._ends, self._received, self._latest = time.monotonic() + BODY_GRACE_SECONDS, 0, float("inf")

    def hurry(self, seconds: float) -> None:
        """What is still read of this request must arrive within so many seconds."""
        self._latest = time.monotonic() + seconds

    def recv(self, size: int, flags: int = 0) -> bytes:
        if flags:
            return super().recv(size, flags)
        ends = min(self._latest, self._ends + self._received / SLOWEST_BYTES_PER_SECOND)
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("The request arrives too slowly.")
        self.settimeout(left)
        data = super().recv(size)
        self._received += len(data)
        return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(BODY_GRACE_SECONDS + len(data) / SLOWEST_BYTES_PER_SECOND)
        super().sendall(data, flags)


def _of_fair_size(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks of a body. Raises ConnectionAbortedError for a body that is cut into dust."""
    size = 0
    for count, chunk in enumerate(chunks):
        size += len(chunk)
        if count > FREE_CHUNKS + size / SMALLEST_CHUNK:
            raise ConnectionAbortedError("The chunks of the body are too small.")
        yield chunk


class Connection(TConn):  # type: ignore[misc]
    """A connection that the worker's loop closes without waiting."""

    def __init__(self, *args: Any, linger: Callable[[PacedSocket], None]) -> None:
        super().__init__(*args)
        self.data_ready = True
        self.headers_due = 0.0
        self._linger = linger

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._linger(self.sock)
        else:
            super().close()


class Worker(ThreadWorker):  # type: ignore[misc]
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cfg.set("keepalive", KEEP_ALIVE_SECONDS)
        self._unfinished: list[Connection] = []
        self._lingering: dict[PacedSocket, float] = {}
        # Still in the parent: with --preload the fork shares what is loaded, and the collector must not write to it.
        web_start.calm_collector()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        web_start.calm_collector()
        web_start.begin()

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.nr_conns += 1
        paced = PacedSocket(client.family, client.type, client.proto, client.detach())
        conn = Connection(self.cfg, paced, address, listener.getsockname(), linger=self._linger)
        self._await_headers(conn)

    def on_client_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._await_headers(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        looks = self._unfinished or self._lingering
        super().wait_for_and_dispatch_events(min(timeout, LOOK_SECONDS) if looks else timeout)
        unfinished, self._unfinished = self._unfinished, []
        for conn in unfinished:
            self._look(conn)
        now = time.monotonic()
        for sock in [sock for sock, ends in self._lingering.items() if ends < now]:
            self._close_lingering(sock)

    def handle(self, conn: Connection) -> Any:
        conn.sock.begin()
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Connection) -> Any:
        conn.parser.unreader.max_body_chunk = READ_BYTES
        reader = req.body.reader
        if isinstance(reader, ChunkedReader):
            reader.parser = _of_fair_size(reader.parser)
        return super().handle_request(req, conn)

    def _keepalive_after(self, conn: Connection, keepalive: bool) -> bool:
        """Whether the connection can be reused: not when a body is left that its client still sends.

        The answer has promised to keep it. So only waiting is bounded, by the socket: a body that has arrived is read
        away also by a process that was stalled.
        """
        if not keepalive:
            return False
        conn.sock.hurry(DRAIN_SECONDS)
        return bool(conn.parser.finish_body(max_bytes=MOST_DRAINED_BYTES))

    def handle_error(self, req: Any, client: PacedSocket, addr: Any, exc: Exception) -> None:
        """Answer what is no request, or failed outside of Django, in the service's form."""
        # The settings are there by now; gunicorn imports this module before.
        from gateway.api import errors

        error: errors.ServiceError
        match exc:
            case LimitRequestLine():
                error = errors.UriTooLong()
            case LimitRequestHeaders():
                error = errors.HeadersTooLarge()
            case ParseException():
                error = errors.InvalidRequest("This is not a request in HTTP/1.1.")
            case _:
                self.log.error("Error handling request", exc_info=exc)
                error = errors.ServiceError()
        self._refuse(client, error)

    def _await_headers(self, conn: Connection) -> None:
        conn.headers_due = time.monotonic() + HEADER_SECONDS
        conn.sock.setblocking(False)
        self._look(conn)

    def _look(self, conn: Connection) -> None:
        """Give the request to a thread when its headers are complete; else look again later, until they are due."""
        from gateway.api.errors import HeadersTooLarge, RequestTimeout

        try:
            begun = conn.sock.recv(MOST_HEADER_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            begun = None
        except OSError:
            begun = b""
        if begun == b"":
            self._drop(conn)
        elif begun is not None and b"\r\n\r\n" in begun:
            self.enqueue_req(conn)
        elif begun is not None and len(begun) >= MOST_HEADER_BYTES:
            self._refuse(conn.sock, HeadersTooLarge())
            self._drop(conn, graceful=True)
        elif time.monotonic() > conn.headers_due:
            self._refuse(conn.sock, RequestTimeout())
            self._drop(conn, graceful=True)
        else:
            self._unfinished.append(conn)

    def _drop(self, conn: Connection, *, graceful: bool = False) -> None:
        self.nr_conns -= 1
        conn.close(graceful=graceful)

    def _refuse(self, client: PacedSocket, error: Any) -> None:
        from gateway.api.refusals import refusal

        line = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        with contextlib.suppress(OSError):
            client.setblocking(False)
            client.send(refusal(error, line.encode()))

    def _linger(self, sock: PacedSocket) -> None:
        """Close our side, and the rest when the client has read the answer; the loop waits for nobody."""
        try:
            sock.setblocking(False)
            sock.shutdown(socket.SHUT_WR)
            if len(self._lingering) >= MOST_LINGERING:
                sock.close()
                return
            self.poller.register(sock, selectors.EVENT_READ, partial(self._read_away, sock))
        except OSError:
            sock.close()
        else:
            self._lingering[sock] = time.monotonic() + LINGER_SECONDS

    def _read_away(self, sock: PacedSocket, _: Any) -> None:
        try:
            data = sock.recv(65_536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_lingering(sock)

    def _close_lingering(self, sock: PacedSocket) -> None:
        self._lingering.pop(sock, None)
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(sock)
        sock.close()
