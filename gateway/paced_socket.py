"""Client's socket of a web process: bounds how slowly a request arrives and an answer leaves.

It never blocks in the kernel unless there is nothing to do: what has arrived is read, and what fits is written, by one
system call each. A time-out set by the server would cost two more around each of them, so it is ignored.
"""

import select
import socket
import time
from typing import Any

BODY_GRACE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""A body must arrive within the grace plus its size at this rate; so must an answer be taken."""


class PacedSocket(socket.socket):
    """Raises TimeoutError when a request arrives, or an answer leaves, more slowly than it may."""

    _ends = 0.0
    _received = 0
    _latest = float("inf")
    _is_held = False
    _head = b""

    def begin(self) -> None:
        """A request begins."""
        self._ends, self._received, self._latest = time.monotonic() + BODY_GRACE_SECONDS, 0, float("inf")

    def hurry(self, seconds: float) -> None:
        """What is still read of this request must arrive within so many seconds."""
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
                ends = min(self._latest, self._ends + self._received / SLOWEST_BYTES_PER_SECOND)
                self._await(select.POLLIN, ends)
            else:
                self._received += len(data)
                return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._is_held:
            self._is_held, self._head = False, bytes(data)
            return
        if self._head:
            data, self._head = self._head + data, b""
        left = memoryview(data)
        ends = 0.0
        while left:
            try:
                left = left[self.send(left, flags) :]
            except BlockingIOError:
                ends = ends or time.monotonic() + BODY_GRACE_SECONDS + len(data) / SLOWEST_BYTES_PER_SECOND
                self._await(select.POLLOUT, ends)

    def sendfile(self, *args: Any, **options: Any) -> int:
        self.release()
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
