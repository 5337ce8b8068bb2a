"""Signals the dispatchers, after the commit, that deliveries are due.

A signal hands over a few fresh deliveries (`events/hand_over.py`) or asks a dispatcher to look for what is due. Losing
a request to look costs half a second: dispatchers look by themselves that often. While no delivery is open they look
every five seconds, so it costs up to that. A worker has a dispatcher from its start to its end, and begins another one
when it fails (`gateway/threads/loop_thread.py`). Losing a hand-over costs the lease.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec
import structlog
from django.db import connection

from gateway.database import transactions
from gateway.database.statements import run
from gateway.task_queue import enqueue
from gateway.threads.debounce import Debounced
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from webhooks import dispatcher_register
from webhooks.giving_back import giving_back

log = structlog.get_logger(__name__)

WAKE_SECONDS = 0.002
"""A process that publishes all the time signals at most once per this interval."""
MOST_HANDED_OVER = 64
"""Deliveries of one signal."""


class Packed(NamedTuple):
    """A delivery that is handed over: what must be known to take it back, and what the dispatcher gets."""

    id: UUID
    claimed_at: datetime
    content: bytes


@dataclass(frozen=True, slots=True)
class Fresh:
    """The deliveries that a transaction made: those that it claimed, and whether there are others."""

    handed_over: Sequence[Packed] = ()
    has_unclaimed: bool = False

    def __bool__(self) -> bool:
        return bool(self.handed_over) or self.has_unclaimed


class _Unsent:
    """What this process has to signal. Any thread adds; the debounced thread takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handed_over: list[Packed] = []
        self._looks = False

    def add(self, fresh: Fresh) -> None:
        with self._lock:
            self._handed_over += fresh.handed_over
            self._looks |= fresh.has_unclaimed

    def take(self) -> tuple[list[Packed], bool]:
        with self._lock:
            handed_over, self._handed_over = self._handed_over, []
            looks, self._looks = self._looks, False
        return handed_over, looks


_unsent = _Unsent()
_has_room = False


def may_hand_over() -> bool:
    """Whether a dispatcher had room for more when it was last signalled; from the first signal of this process on."""
    return _has_room


def forget() -> None:
    """Hand nothing over before a dispatcher was signalled again."""
    global _has_room
    _has_room = False


def after_commit(fresh: Fresh | None = None) -> None:
    """Wake a dispatcher soon after the current transaction commits; outside of one, soon.

    `fresh` are the deliveries that the transaction made; without them the dispatcher looks for what is due.
    """
    transactions.after_commit(partial(soon, fresh or Fresh(has_unclaimed=True)))


def soon(fresh: Fresh) -> None:
    """Wake a dispatcher soon, for what was committed on a connection other than Django's."""
    _unsent.add(fresh)
    _debounced.ask()


def wake() -> None:
    """Ask a dispatcher to look for what is due; starts one when none is running."""
    _send([], looks=True)


def pass_on(deliveries: Sequence[Packed]) -> None:
    """Signal once more what a dispatcher that ends was handed over."""
    _send(deliveries, looks=True)


def _send_unsent() -> None:
    handed_over, looks = _unsent.take()
    if handed_over or looks:
        _send(handed_over, looks=looks)


def _send(handed_over: Sequence[Packed], *, looks: bool) -> None:
    """Signal, and give back what no dispatcher takes."""
    global _has_room
    signals = [
        msgspec.msgpack.encode(
            [msgspec.Raw(each.content) for each in handed_over[start : start + MOST_HANDED_OVER]]
        )
        for start in range(0, len(handed_over), MOST_HANDED_OVER)
    ]
    try:
        sent = dispatcher_register.send(signals, looks=looks)
    except VALKEY_UNAVAILABLE as error:
        log.warning("wake_missed", error=type(error).__name__)
        sent = dispatcher_register.Sent(taken=False, must_start=False, has_room=False)
    _has_room = sent.has_room
    if handed_over and not sent.taken:
        _give_back(handed_over)
    if sent.must_start:
        enqueue("webhooks.tasks.deliver_due", expires=5)


def _give_back(handed_over: Sequence[Packed]) -> None:
    """End the leases of what was not handed over; if that fails, they run out."""
    try:
        run(giving_back({each.id: each.claimed_at for each in handed_over}))
    except Exception:
        log.exception("give_back_failed", rows=len(handed_over))
    finally:
        connection.close()


_debounced = Debounced(_send_unsent, seconds=WAKE_SECONDS)
