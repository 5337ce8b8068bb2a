"""A limit for the bytes that a broker sends. The tenant chooses the broker, and its answers must not fill the memory or
occupy the event loop.

The client libraries read all that a broker sends, also if nobody waits for it, and believe each length in it.
"""

import asyncio
import time

MOST_AT_ONCE = 1024 * 1024
"""The number of bytes that a broker may send at once. The largest answers are the metadata of a Kafka topic: 10,000
partitions are 0.5 MB.
"""
MOST_SAVED = 4 * 1024 * 1024
"""The maximum number of bytes that a broker may send, also after many messages. A RabbitMQ broker returns a message
with its body if no queue is bound.
"""
MOST_PER_MESSAGE = 4096
"""The number of bytes that a broker may send for each message, in addition to the message's own size."""


class Allowance:
    """The number of bytes that the broker of a destination may still send. It grows with the time and with each message
    that the destination sends.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left, self._at = float(MOST_AT_ONCE), time.monotonic()

    def grant(self, sent: int) -> None:
        """Allow the answer to a message of this many bytes."""
        self._left = min(self._left + sent + MOST_PER_MESSAGE, MOST_SAVED)

    def take(self, count: int) -> None:
        """Count bytes that the broker is about to send. Raises OSError if it may not send them, or if their number,
        which comes from the broker, is negative.
        """
        at = time.monotonic()
        if self._left < MOST_AT_ONCE:
            self._left = min(self._left + (at - self._at) * self._per_second, MOST_AT_ONCE)
        self._at = at
        if not 0 <= count <= self._left:
            raise OSError("the broker sends more than it may")
        self._left -= count


class BoundedReader:
    """The part of `asyncio.StreamReader` that the client libraries use. It reads no more than the allowance."""

    def __init__(self, reader: asyncio.StreamReader, allowance: Allowance) -> None:
        self._reader, self._allowance = reader, allowance

    def at_eof(self) -> bool:
        """Whether the connection ended and all was read."""
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """Read this many bytes. Raises OSError if the broker may not send them, before any of them is read."""
        self._allowance.take(count)
        return await self._reader.readexactly(count)


class AmqpReader(BoundedReader):
    """A reader of AMQP frames. The body of a message is the only frame that may be long.

    The time that the client takes to decode a table in another frame grows with the square of the table's length.
    """

    MOST = 8192
    """The maximum number of bytes of a frame that is no body. RabbitMQ's own have about 1,000, and a returned message
    has our headers.
    """
    _BODY = b"\x03"
    _last = b""

    async def readexactly(self, count: int) -> bytes:
        """Read this many bytes: a frame's type, then its channel and size in 6 bytes, then the frame."""
        read = await super().readexactly(count)
        is_size = count == 6 and len(self._last) == 1
        if is_size and self._last != self._BODY and int.from_bytes(read[2:]) > self.MOST:
            raise OSError("the broker sends a frame that is too long")
        self._last = read
        return read
