"""The Graph requests received: a bounded ring with the exact body bytes, for tests that reconcile what was
sent.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Received:
    """One Graph request. The access token is never kept; `query` is without it."""

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
        """The form the control API shows; a body that is no UTF-8 shows replacement characters."""
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
    """The ring and what is counted over its whole life: requests by method and last part of the path."""

    def __init__(self, limit: int) -> None:
        self._kept: deque[Received] = deque(maxlen=limit)
        self.total = 0
        self.counts: Counter[str] = Counter()

    def resize(self, limit: int) -> None:
        """Keep at most `limit` requests from now on."""
        if self._kept.maxlen != limit:
            self._kept = deque(self._kept, maxlen=limit)

    def clear(self) -> None:
        """Forget all requests and counts."""
        self._kept.clear()
        self.counts.clear()
        self.total = 0

    def add(self, *, method: str, path: str, edge: str, query: str, body: bytes, node: str) -> Received:
        """Note a request before it is handled, so that one that never gets an answer is seen as well."""
        self.total += 1
        self.counts[f"{method} {edge}"] += 1
        received = Received(self.total, time.time(), method, path, query, body, node)
        self._kept.append(received)
        return received

    def newest_first(self) -> Iterator[Received]:
        """The kept requests."""
        return reversed(self._kept)
