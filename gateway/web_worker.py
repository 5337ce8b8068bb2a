"""gunicorn's threaded worker, with bounds on what a slow client may hold; its threads wait for requests themselves.

All threads wait at one epoll, and the kernel wakes one of them for a request: the one that rested last. gunicorn's own
worker waits on a loop, hands each request to a thread and takes the connection back, so three threads wake and wait for
the interpreter: a fifth of a small read. A thread begins only when the headers are complete, and with them a body of up
to 64 KiB: the main loop looks at headers that have begun, the kernel tells of bodies, both with a deadline. On the
thread a longer body must arrive at a minimum rate, and a quarter of the threads never waits for one. What a client does
not take at once of its answer is sent by the main loop. gunicorn's worker reads headers on a thread without a deadline,
waits on the thread for slow readers, and closes connections on the main loop, waiting up to two seconds for the
client's end of each. Where all connections are taken, it takes no new one; here an idle one gives way.
"""

import contextlib
import select
import selectors
import socket
import threading
import time
from functools import cache, partial
from http import HTTPStatus
from itertools import chain, islice
from typing import Any

from gunicorn.http.body import ChunkedReader
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.workers.gthread import ThreadWorker

from gateway import web_start
from gateway.web_server import connection, paced_socket
from gateway.web_server.connection import HEADERS_END, MOST_HEADER_BYTES, Connection, of_fair_size
from gateway.web_server.paced_socket import PacedSocket, time_to_take

DRAIN_SECONDS = 0.05
"""How long an unread body is awaited before the answer. With one that takes longer the connection ends."""
MOST_DRAINED_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
"""Received of a body at once. gunicorn takes up to 1 MiB, and each read of 64 KiB then copies all that is left."""
MOST_UNTAKEN = 64
"""Connections whose clients take their answers slowly, each of up to `MOST_KEPT_BYTES`. The oldest gives way."""
LINGER_SECONDS = 2.0
MOST_LINGERING = 200
KEEP_ALIVE_SECONDS = 75
"""Longer than a proxy keeps an idle connection, so it is the proxy that closes it. gunicorn's two seconds would end
connections on which nginx is just sending a request, and nginx answers a POST that was cut off so with 502."""
LOOK_SECONDS = 0.05
"""How often connections with unfinished headers are looked at."""
LOOK_REST = 9
"""Times as long as a look took, the loop does not look again: it accepts one connection a round, and a look at a
thousand long headers takes as long as many rounds."""
MOST_LOOKED_AT = 50
"""Connections that are looked at to find an idle one which gives way to a new one."""
SWEEP_SECONDS = 1.0
"""How often connections that are kept too long are looked for."""


class Worker(ThreadWorker):  # type: ignore[misc]
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cfg.set("keepalive", KEEP_ALIVE_SECONDS)
        self._waiting: dict[int, Connection] = {}
        """By file descriptor: whoever removes a connection from here owns it."""
        self._unfinished: list[Connection] = []
        self._lingering: dict[PacedSocket, float] = {}
        self._untaken: dict[Connection, float] = {}
        """Until when each client may take the rest of its answer."""
        self._next_look = self._next_sweep = 0.0
        self._stops_at = float("inf")
        # Still in the parent: with --preload the fork shares what is loaded, and the collector must not write to it.
        web_start.calm_collector()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        web_start.calm_collector()
        web_start.begin()

    def run(self) -> None:
        self._requests = select.epoll()
        paced_socket.may_wait(self.cfg.threads - self.cfg.threads // 4)
        for _ in range(self.cfg.threads):
            # A request that outlives the time for a stop is cut off with the process.
            threading.Thread(target=self._work, daemon=True).start()
        super().run()

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.nr_conns += 1
        paced = PacedSocket(client.family, client.type, client.proto, client.detach())
        paced.never_block()
        conn = Connection(self.cfg, paced, address, listener.getsockname(), linger=self._linger)
        self._requests.register(paced.fileno(), 0)
        self._wait(conn)

    def _make_room(self) -> None:
        """Close the connection that has idled longest, so that those of strangers do not keep others out.

        First those with unfinished headers, then those that never sent a request, then those that are kept. When all of
        them have sent something, nobody gives way, and new ones wait until they are accepted.
        """
        if self._unfinished:
            self._drop(self._unfinished.pop(0))
            return
        waiting = list(self._waiting.values())
        fresh = (conn for conn in waiting if conn.request_due)
        kept = (conn for conn in waiting if not conn.request_due)
        for conn in islice(chain(fresh, kept), MOST_LOOKED_AT):
            if (conn.awaits_body or conn.peek() is None) and self._waiting.pop(
                conn.sock.fileno(), None
            ) is conn:
                self._drop(conn)
                return

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        looks = self._unfinished or self._lingering or self._untaken or not self.alive
        super().wait_for_and_dispatch_events(min(timeout, LOOK_SECONDS) if looks else timeout)
        now = time.monotonic()
        if self._unfinished and now >= self._next_look:
            unfinished, self._unfinished = self._unfinished, []
            for conn in unfinished:
                self._look_again(conn, now)
            took = time.monotonic() - now
            self._next_look = now + took + max(LOOK_SECONDS, LOOK_REST * took)
        for sock in [sock for sock, ends in self._lingering.items() if ends < now]:
            self._close_lingering(sock)
        for conn in [conn for conn, ends in self._untaken.items() if ends < now]:
            self._give_back(conn, is_kept=False)
        if self.alive and self.nr_conns >= self.worker_connections:
            self._make_room()

    def murder_keepalived(self, force: bool = False) -> None:
        """Close the connections that have waited too long for a request, or all of them."""
        now = time.monotonic()
        if now < self._next_sweep and self.alive:
            return
        self._next_sweep = now + SWEEP_SECONDS
        force = force or now > self._stops_at
        for descriptor in list(self._waiting):
            conn = self._waiting.get(descriptor)
            if conn is not None and (force or conn.due < now) and self._waiting.pop(descriptor, None) is conn:
                self._give_up(conn, now)

    def _cap_keepalive(self, deadline: float) -> None:
        self._stops_at = deadline

    def handle_request(self, req: Any, conn: Connection) -> Any:
        conn.parser.unreader.max_body_chunk = READ_BYTES
        reader = req.body.reader
        if isinstance(reader, ChunkedReader):
            reader.parser = of_fair_size(reader.parser)
        if len(self._waiting) >= self.max_keepalived:
            req.force_close()
        # Asked for the head of the answer, and once more after it.
        req.should_close = cache(partial(self._ends_with, req, conn))
        conn.sock.hold()
        try:
            return super().handle_request(req, conn)
        finally:
            conn.sock.release()
            del req.should_close

    def _ends_with(self, req: Any, conn: Connection) -> bool:
        """Whether the connection ends with this request: when it asks for it, or leaves a body that is still sent.

        A client that is promised a kept connection may send its next request on it at once. Waiting alone is bounded
        by time, by the socket: a body that has arrived is read away also by a process that was stalled.
        """
        if type(req).should_close(req):
            return True
        conn.sock.hurry(DRAIN_SECONDS)
        try:
            return not conn.parser.finish_body(max_bytes=MOST_DRAINED_BYTES)
        except BlockingIOError:
            return True

    def _keepalive_after(self, conn: Connection, keepalive: bool) -> bool:
        """As the answer promised it: nothing is left of its request's body then."""
        return keepalive

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

    def _work(self) -> None:
        """What each thread does: wait for a connection that can be read, and answer its request."""
        while True:
            for descriptor, _ in self._requests.poll(maxevents=1):
                conn = self._waiting.pop(descriptor, None)
                # None: the main loop was giving it up at this moment.
                if conn is not None:
                    try:
                        self._look(conn)
                    except Exception as error:
                        # A thread that ends would be missing for good.
                        self.log.error("Error handling connection", exc_info=error)
                        self.method_queue.defer(self._drop, conn)

    def _wait(self, conn: Connection) -> None:
        """Have the next request of a connection wake a thread."""
        descriptor = conn.sock.fileno()
        self._waiting[descriptor] = conn
        # The kernel does not see what was read ahead. A socket that can be written to comes up at once, after all that
        # came up before.
        awaited = select.EPOLLIN | (select.EPOLLOUT if conn.read_ahead else 0)
        self._requests.modify(descriptor, awaited | select.EPOLLONESHOT)

    def _look(self, conn: Connection) -> None:
        """On a thread: answer the request when its headers are complete; else the main loop looks after it."""
        begun = conn.peek()
        if begun and HEADERS_END in begun:
            if conn.await_body(begun):
                self._wait(conn)
            else:
                self._answer(conn)
        elif begun == b"":
            self.method_queue.defer(self._drop, conn)
        elif begun is not None and len(begun) >= MOST_HEADER_BYTES:
            from gateway.api.errors import HeadersTooLarge

            self._refuse(conn.sock, HeadersTooLarge())
            self.method_queue.defer(partial(self._drop, conn, graceful=True))
        else:
            self.method_queue.defer(self._look_later, conn)

    def _answer(self, conn: Connection) -> None:
        conn.begin()
        try:
            is_kept = bool(self.handle(conn))
        except BaseException as error:  # whatever ends a request, its thread goes on
            self.log.error("Error handling connection", exc_info=error)
            is_kept = False
        if conn.sock.kept:
            self.method_queue.defer(partial(self._send_rest, conn, is_kept=is_kept))
        elif is_kept:
            self._keep(conn)
        else:
            self.method_queue.defer(partial(self._drop, conn, graceful=True))

    def _keep(self, conn: Connection) -> None:
        conn.request_due = 0.0
        conn.set_timeout()
        self._wait(conn)

    def _send_rest(self, conn: Connection, *, is_kept: bool) -> None:
        """On the main loop: send the rest of an answer as its client takes it."""
        if len(self._untaken) >= MOST_UNTAKEN:
            self._give_back(next(iter(self._untaken)), is_kept=False)
        try:
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self._send_more, conn, is_kept))
        except ValueError:
            # gunicorn has closed it: the answer broke off.
            self._drop(conn)
        else:
            self._untaken[conn] = time_to_take(conn.sock.kept)

    def _send_more(self, conn: Connection, is_kept: bool, _: Any) -> None:
        try:
            conn.sock.send_more()
        except OSError:
            self._give_back(conn, is_kept=False)
        else:
            if not conn.sock.kept:
                self._give_back(conn, is_kept=is_kept)

    def _give_back(self, conn: Connection, *, is_kept: bool) -> None:
        """A client has taken its answer, or never will."""
        del self._untaken[conn]
        self.poller.unregister(conn.sock)
        if is_kept:
            self._keep(conn)
        else:
            self._drop(conn, graceful=not conn.sock.kept)

    def _look_again(self, conn: Connection, now: float) -> None:
        """On the main loop: give headers that are complete, or never will be, to a thread; refuse what is overdue."""
        conn.request_due = conn.request_due or now + connection.HEADER_SECONDS
        begun = conn.peek()
        is_unfinished = begun is None or (0 < len(begun) < MOST_HEADER_BYTES and HEADERS_END not in begun)
        if not is_unfinished:
            self._wait(conn)
        elif now > min(conn.request_due, self._stops_at):
            self._give_up(conn, now)
        else:
            self._look_later(conn)

    def _look_later(self, conn: Connection) -> None:
        self._unfinished.append(conn)

    def _give_up(self, conn: Connection, now: float) -> None:
        from gateway.api.errors import RequestTimeout

        is_overdue = 0.0 < conn.request_due < now
        if is_overdue:
            self._refuse(conn.sock, RequestTimeout())
        self._drop(conn, graceful=is_overdue)

    def _drop(self, conn: Connection, *, graceful: bool = False) -> None:
        self.nr_conns -= 1
        conn.close(graceful=graceful)

    def _refuse(self, client: PacedSocket, error: Any) -> None:
        from gateway.api.refusals import refusal

        line = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        with contextlib.suppress(OSError):
            client.send(refusal(error, line.encode()))

    def _linger(self, sock: PacedSocket) -> None:
        """Close our side, and the rest when the client has read the answer; the loop waits for nobody."""
        try:
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
