"""Bookings: writes to Valkey that calls do not wait for, made by a background thread.

They are the tokens that calls took from buckets without asking first, and the keys that calls used.

A call that asks Valkey waits for it, and changes threads twice. All bookings of a process travel in one
pipeline, because each wake-up costs a process that has little to do more than the bookings themselves. Best effort, as
the buckets are: what Valkey does not take is lost.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import structlog

from gateway.threads.debounce import Debounced
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

BOOKED_WITHIN_SECONDS = 0.25
MUCH_OWED = 8
"""A bucket with this many calls that are not booked yet is booked at once: other processes do not see them before."""


class Booking(NamedTuple):
    """A command, and what is told its answer."""

    command: tuple[Any, ...]
    answered: Callable[[Any], None] | None = None


Source = Callable[[], Sequence[Booking]]

_sources: list[Source] = []
_writing = threading.Lock()


def register(source: Source) -> None:
    """Add a function that hands over, and forgets, what it has to book."""
    _sources.append(source)


def soon(owed: int = 1) -> None:
    """Have everything booked within `BOOKED_WITHIN_SECONDS`, or at once for a bucket that is owed much; never waits."""
    _debounced.ask(hurry=owed >= MUCH_OWED)


def write() -> None:
    """Book everything now."""
    with _writing:
        bookings = [booking for source in _sources for booking in source()]
        if not bookings:
            return
        try:
            with valkey().pipeline(transaction=False) as pipeline:
                for booking in bookings:
                    pipeline.execute_command(*booking.command)
                answers = pipeline.execute()
        except VALKEY_UNAVAILABLE as error:
            log.warning("bookings_missed", error=type(error).__name__, bookings=len(bookings))
            return
        for booking, answer in zip(bookings, answers, strict=True):
            if booking.answered is not None:
                booking.answered(answer)


_debounced = Debounced(write, seconds=BOOKED_WITHIN_SECONDS, collects=True)
