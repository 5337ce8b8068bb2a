"""A streamed answer of the edge: headers at once, the body in chunks as they come."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamReply:
    """An answer with status 200."""

    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes, None]
    ended: Callable[[], Awaitable[None]]
    """Called once the answer has ended, however it ended."""
