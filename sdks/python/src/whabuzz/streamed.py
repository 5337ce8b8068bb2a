"""An event of the stream, and how a stream ends: what both clients share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whabuzz.errors import WhabuzzError

SILENCE_SECONDS = 40.0
"""The service sends a sign of life every 15 seconds: after this long the connection is taken for dead."""
LONGEST_PAUSE_SECONDS = 30.0
ENDINGS = {
    "replaced": "Another program listens with this key now, and one key has one stream.",
    "unauthorized": "The key or the business is no longer active.",
}


class StreamEnded(WhabuzzError):
    """The service ended the stream for good."""


@dataclass(frozen=True)
class Streamed:
    """An event: its place in the stream, its bytes as webhooks deliver them, and what they say."""

    place: str
    body: bytes
    event: dict[str, Any]
