"""A client's connection to a web process: what has arrived of its next request, and until when that is awaited."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from gunicorn.http.errors import ParseException
from gunicorn.workers.gthread import TConn

from gateway.web_server.paced_socket import PacedSocket

HEADER_SECONDS = 10.0
"""How long a connection may take to send the headers of a request."""
MOST_HEADER_BYTES = 32 * 1024
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


class Connection(TConn):  # type: ignore[misc]
    """A connection that belongs to one thread at a time, or to nobody while it waits for its next request.

    The worker's loop closes it without waiting.
    """

    def __init__(self, *args: Any, linger: Callable[[PacedSocket], None]) -> None:
        super().__init__(*args)
        self.data_ready = True
        self.headers_due = time.monotonic() + HEADER_SECONDS
        """When the headers of a request must have arrived that is expected or has begun; 0 between requests."""
        self._linger = linger

    @property
    def due(self) -> float:
        """Until when it may wait for its next request."""
        return self.headers_due or float(self.timeout)

    def peek(self) -> bytes | None:
        """What has arrived of the next request; None while nothing has, empty when the client is gone."""
        ahead = self.read_ahead
        try:
            return ahead + bytes(self.sock.recv(MOST_HEADER_BYTES, socket.MSG_PEEK))
        except BlockingIOError:
            return ahead or None
        except OSError:
            return b""

    @property
    def read_ahead(self) -> bytes:
        """The part of the next request that was read with the last one."""
        return b"" if self.parser is None else self.parser.unreader.buf.getvalue()

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._linger(self.sock)
        else:
            super().close()
