"""A log of the received Graph requests with their exact bodies, for tests that check the sent requests. It is a ring
buffer with limits on the number and the size of the requests.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_BYTES = 32 * 1024 * 1024
"""The maximum total size of the stored bodies, in bytes."""
MOST_COUNTS = 1000
"""The maximum number of kinds of requests (method and edge) that are counted separately. The number is limited because
a caller can invent edges.
"""


@dataclass(slots=True)
class Received:
    """One Graph request. `query` does not contain the access token, which is never stored."""

    number: int
    at: float
    method: str
    path: str
    query: str
    body: bytes
    node: str
    status: int | None = None
    ms: float | None = None
    fault: str | None = None
    message_id: str | None = None

    def view(self) -> dict[str, Any]:
        """The form in the control API. Bytes that are not UTF-8 become replacement characters."""
        return {
            "number": self.number,
            "at": round(self.at, 6),
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "body": self.body.decode(errors="replace"),
            "node": self.node,
            "status": self.status,
            "ms": self.ms,
            "fault": self.fault,
            "message_id": self.message_id,
        }


class RequestLog:
    """The ring buffer, and counts by method and edge that also include dropped requests."""

    def __init__(self, limit: int) -> None:
        self._kept: deque[Received] = deque()
        self._limit = limit
        self._bytes = 0
        self.total = 0
        self.counts: Counter[str] = Counter()

    def resize(self, limit: int) -> None:
        """Keep at most `limit` requests from now on."""
        self._limit = limit
        self._drop()

    def clear(self) -> None:
        """Delete all requests and counts."""
        self._kept.clear()
        self.counts.clear()
        self.total = self._bytes = 0

    def add(self, *, method: str, path: str, edge: str, query: str, body: bytes, node: str) -> Received:
        """Record a request. Call this before the request is handled, so that requests that get no answer are also
        listed.
        """
        self.total += 1
        counted = f"{method} {edge.partition('/')[0]}"
        self.counts[counted if counted in self.counts or len(self.counts) < MOST_COUNTS else "other"] += 1
        received = Received(self.total, time.time(), method, path, query, body, node)
        self._kept.append(received)
        self._bytes += len(body)
        self._drop()
        return received

    def _drop(self) -> None:
        while self._kept and (len(self._kept) > self._limit or self._bytes > MOST_BYTES):
            self._bytes -= len(self._kept.popleft().body)

    def newest_first(self) -> Iterator[Received]:
        """The stored requests."""
        return reversed(self._kept)
