"""Listeners of the event stream. A listener is one open stream: its place in the log, and the page that its client has
not read yet.
"""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

from web.admission import Credential
from webhooks import stream
from webhooks.stream import HEARTBEAT_SECONDS, Asked, Found, Position


class Listener:
    """One open stream."""

    __slots__ = (
        "_full",
        "_told_at",
        "after",
        "asked",
        "began_at",
        "credential",
        "ended",
        "entered",
        "environment",
        "id",
        "news",
        "page",
        "slot",
        "tenant_id",
        "until",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the connection's own name
        slot: str,
        credential: Credential,
        tenant_id: UUID,
        environment: str,
        asked: Asked,
        after: Position,
    ) -> None:
        self.id, self.slot, self.credential = id, slot, credential
        self.tenant_id, self.environment = tenant_id, environment
        self.asked = asked
        self.after = after
        """The place up to which the log was read. All events before it were handed over."""
        self.page: list[Found] = []
        self.news = asyncio.Event()
        self.ended: str | None = None
        self.entered = False
        """Whether the listener has its slot, or asked for a slot while Valkey was unavailable."""
        self.until: int | None = None
        """The listener is polled again until all transactions before this one have ended. None when no earlier
        transaction is open.
        """
        self._full = False
        self.began_at = self._told_at = time.monotonic()

    @property
    def is_quiet(self) -> bool:
        """Whether the client has received nothing for so long that a heartbeat is due."""
        return time.monotonic() >= self._told_at + HEARTBEAT_SECONDS

    def sent(self) -> None:
        """Record that something was sent to the client."""
        self._told_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether the listener has no events and waits for some."""
        return not self.page and self.ended is None

    def hand(self, page: Sequence[Found]) -> None:
        """Pass the listener the events after its place. A full page may have more events behind it."""
        self.after = page[-1].position
        self._full = len(page) == stream.PAGE
        self.page = [
            found for found in page if found.passes and self.asked.wants(found.type, found.phone_number_id)
        ]
        self.news.set()

    def drained(self) -> bool:
        """Record that the client has read the page. Returns whether there may be more events at once."""
        self.page = []
        full, self._full = self._full, False
        return full

    def end(self, reason: str) -> None:
        """End the stream. A second reason is ignored."""
        self.ended = self.ended or reason
        self.news.set()
