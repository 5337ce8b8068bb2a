"""A client's connection to a web process: what has arrived of its next request, and until when that is awaited."""

import fcntl
import re
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

from gunicorn.http.errors import ParseException
from gunicorn.workers.gthread import TConn

from gateway.api.limits.body_pace import BODY_GRACE_SECONDS
from gateway.web_server.paced_socket import PacedSocket

HEADERS_END = b"\r\n\r\n"
HEADER_SECONDS = 10.0
"""How long a connection may take to send the headers of a request."""
MOST_HEADER_BYTES = 32 * 1024
MOST_AWAITED_BYTES = 64 * 1024
"""A body up to this size is awaited without a thread: the kernel holds it."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,5})[ \t]*\r\n", re.IGNORECASE)
_WITHOUT_BODY = b"GET ", b"HEAD"
FREE_CHUNKS = 1000
SMALLEST_CHUNK = 64
"""Chunks beyond the free ones must have this many bytes in the mean: each costs the interpreter 2 µs."""


def of_fair_size(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks of a body. Raises ConnectionAbortedError for a body that is cut into dust, or is not in chunks."""
    size = 0
    try:
        for count, chunk in enumerate(chunks):
            size += len(chunk)
            if count > FREE_CHUNKS + size / SMALLEST_CHUNK:
                raise ConnectionAbortedError("The chunks of the body are too small.")
            yield chunk
    except ParseException:
        # Its text would show what the client sent.
        raise ConnectionAbortedError("The body is not framed in chunks.") from None


def _arrived(sock: PacedSocket) -> int:
    """Bytes that the kernel holds."""
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0])


class Connection(TConn):  # type: ignore[misc]
    """A connection that belongs to one thread at a time, or to nobody while it waits for its next request.

    The worker's loop closes it without waiting.
    """

    def __init__(self, *args: Any, linger: Callable[[PacedSocket], None]) -> None:
        super().__init__(*args)
        self.data_ready = True
        self.request_due = time.monotonic() + HEADER_SECONDS
        """When what is awaited of a request must have arrived; 0 between requests."""
        self.awaits_body = False
        self._linger = linger

    @property
    def due(self) -> float:
        """Until when it may wait for its next request."""
        return self.request_due or float(self.timeout)

    def peek(self) -> bytes | None:
        """What has arrived of the next request; None while nothing has, empty when the client is gone."""
        ahead = self.read_ahead
        try:
            return ahead + bytes(self.sock.recv(MOST_HEADER_BYTES, socket.MSG_PEEK))
        except BlockingIOError:
            return ahead or None
        except OSError:
            return b""

    def await_body(self, begun: bytes) -> bool:
        """Whether a small body is still on its way. If so, the socket is readable when it is there or the client gone.

        Only of a length that is declared: chunks, and bodies whose client asks first (`Expect`), are not seen here.
        """
        if self.awaits_body or begun[:4] in _WITHOUT_BODY:
            return False
        head = begun[: begun.index(HEADERS_END) + len(HEADERS_END)]
        declared = _LENGTH.search(head)
        size = len(head) + int(declared[1]) if declared else 0
        if len(begun) >= size or size > len(head) + MOST_AWAITED_BYTES or b"100-continue" in head.lower():
            return False
        awaited = size - len(self.read_ahead)
        if _arrived(self.sock) >= awaited:
            return False
        self.awaits_body = True
        self.request_due = time.monotonic() + BODY_GRACE_SECONDS
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)
        return True

    def begin(self) -> None:
        """Its request is answered now."""
        if self.awaits_body:
            self.awaits_body = False
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.sock.begin()

    @property
    def read_ahead(self) -> bytes:
        """The part of the next request that was read with the last one."""
        return b"" if self.parser is None else self.parser.unreader.buf.getvalue()

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._linger(self.sock)
        else:
            super().close()
