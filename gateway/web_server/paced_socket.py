"""Client's socket of a web process: bounds how slowly a request arrives and an answer leaves.

What a client does not take at once of an answer is kept, up to `MOST_KEPT_BYTES`: the thread that answers goes on, and
the worker's loop sends the rest (`send_more`).

It never blocks in the kernel unless there is nothing to do: what has arrived is read, and what fits is written, by one
system call each. A time-out set by the server would cost two more around each of them, so it is ignored.
"""

import contextlib
import select
import socket
import threading
import time
from typing import Any

from gateway.api.limits.body_pace import BODY_GRACE_SECONDS, SLOWEST_BYTES_PER_SECOND

MOST_KEPT_BYTES = 1024 * 1024
"""Of an answer that its client takes slowly. For what is longer, a stream, the thread waits."""


_places = threading.BoundedSemaphore(1)


def may_wait(threads: int) -> None:
    """Set how many threads of the process may wait at once for bodies; called before the first request."""
    global _places
    _places = threading.BoundedSemaphore(max(1, threads))


def time_to_take(size: int) -> float:
    """By when a client must have taken an answer of that size which begins now: as long as a body of it may take."""
    return time.monotonic() + BODY_GRACE_SECONDS + size / SLOWEST_BYTES_PER_SECOND


class PacedSocket(socket.socket):
    """Raises TimeoutError when a request arrives, or an answer leaves, more slowly than it may.

    Raises BlockingIOError when what has not arrived is not waited for: as many threads do as may wait.
    """

    _ends = 0.0
    _received = 0
    _latest = float("inf")
    _is_held = False
    _head = b""
    _kept = b""

    def begin(self) -> None:
        """A request begins."""
        self._ends, self._received, self._latest = time.monotonic() + BODY_GRACE_SECONDS, 0, float("inf")

    def hurry(self, seconds: float) -> None:
        """The rest of this request must arrive within this many seconds."""
        self._latest = time.monotonic() + seconds

    def hold(self) -> None:
        """Send what comes first, the head of an answer, together with what comes next."""
        self._is_held = True

    def release(self) -> None:
        """Send what is still held."""
        self._is_held = False
        head, self._head = self._head, b""
        if head:
            self.sendall(head)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if flags:
            return super().recv(size, flags)
        while True:
            try:
                data = super().recv(size)
            except BlockingIOError:
                if not _places.acquire(blocking=False):
                    raise
                try:
                    ends = min(self._latest, self._ends + self._received / SLOWEST_BYTES_PER_SECOND)
                    self._await(select.POLLIN, ends)
                finally:
                    _places.release()
            else:
                self._received += len(data)
                return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._is_held:
            self._is_held, self._head = False, bytes(data)
            return
        if self._head:
            data, self._head = self._head + data, b""
        if self._kept:
            data, self._kept = self._kept + data, b""
        left = memoryview(data)
        ends = time_to_take(len(data))
        while left:
            try:
                left = left[self.send(left, flags) :]
            except BlockingIOError:
                if len(left) <= MOST_KEPT_BYTES:
                    self._kept = bytes(left)
                    return
                self._await(select.POLLOUT, ends)

    @property
    def kept(self) -> int:
        """How many bytes of an answer are still to be sent."""
        return len(self._kept)

    def send_more(self) -> None:
        """Send what the client takes now of what is kept. Raises OSError when it is gone."""
        with contextlib.suppress(BlockingIOError):
            self._kept = self._kept[self.send(self._kept) :]

    def sendfile(self, *args: Any, **options: Any) -> int:
        self.release()
        while self._kept:
            self._await(select.POLLOUT, time_to_take(self.kept))
            self.send_more()
        return super().sendfile(*args, **options)

    def setblocking(self, flag: bool) -> None:
        """It stays as `never_block` left it."""

    def settimeout(self, value: float | None) -> None:
        """Its own bounds hold."""

    def gettimeout(self) -> float:
        return BODY_GRACE_SECONDS

    def never_block(self) -> None:
        """Return from each system call at once; called for each new socket."""
        super().setblocking(False)

    def _await(self, event: int, ends: float) -> None:
        left = ends - time.monotonic()
        poll = select.poll()
        poll.register(self, event)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("The client is too slow.")
