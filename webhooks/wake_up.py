"""Signals the dispatchers, after the commit, that deliveries are due.

A signal names the deliveries of a few fresh events, and a dispatcher claims them by their ids. A signal without names
asks it to look for everything that is due. Losing a signal costs half a second: dispatchers look by themselves that
often, and beat calls `deliver_due` every second.
"""

import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self
from uuid import UUID

import structlog

from gateway.database import transactions
from gateway.task_queue import enqueue
from gateway.threads.debounce import Debounced
from gateway.valkey import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

SIGNAL = "deliveries:wake"
"""The list of signals that no dispatcher has taken."""
ALIVE = "deliveries:alive"
"""Set while some dispatcher is running or lingering: then no task is needed."""
CALLED = "deliveries:called"
"""Set for a second by a wake-up: a burst of events sends for one task, not one each."""
CALL_MILLISECONDS = 1_000

WAKE_SECONDS = 0.002
"""A process that publishes all the time signals at most once per this interval."""
MOST_NAMED = 64
"""Deliveries that one signal names, and that one commit or one interval names; beyond it the dispatcher looks."""
MOST_SIGNALS = 256
"""Signals that wait; beyond it the oldest are dropped and the dispatcher looks."""

LOOK = b"look"

# Returns 1 if the caller must start a dispatcher: none is running, and nobody started one within a second.
_WAKE = """
for i = 3, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
if redis.call('LLEN', KEYS[1]) > tonumber(ARGV[2]) then
    redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
    redis.call('RPUSH', KEYS[1], 'look')
end
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('SET', KEYS[3], 1, 'NX', 'PX', ARGV[1]) and 1 or 0
"""


class Fresh(NamedTuple):
    """A delivery that was just made: what a dispatcher must know to judge whether it has room for it."""

    id: UUID
    endpoint_id: UUID
    tenant_id: UUID

    def packed(self) -> bytes:
        """The three ids as 48 bytes."""
        return self.id.bytes + self.endpoint_id.bytes + self.tenant_id.bytes

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """The delivery that `packed` gave."""
        return cls(*(UUID(bytes=packed[start : start + 16]) for start in (0, 16, 32)))


_PACKED_BYTES = 48


def named_in(signal: bytes) -> list[Fresh] | None:
    """The deliveries that a signal names; None when it asks the dispatcher to look."""
    if not signal or len(signal) % _PACKED_BYTES:
        return None
    return [
        Fresh.unpacked(signal[start : start + _PACKED_BYTES])
        for start in range(0, len(signal), _PACKED_BYTES)
    ]


class _Unsent:
    """What this process has to signal. Any thread adds; the debounced thread takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: list[Fresh] = []
        self._looks = False

    def add(self, fresh: Sequence[Fresh]) -> None:
        with self._lock:
            if fresh and len(self._fresh) + len(fresh) <= MOST_NAMED:
                self._fresh += fresh
            else:
                self._looks = True

    def take(self) -> list[bytes]:
        with self._lock:
            fresh, self._fresh = self._fresh, []
            looks, self._looks = self._looks, False
        named = b"".join([each.packed() for each in fresh])
        return [*([named] if named else []), *([LOOK] if looks else [])]


_unsent = _Unsent()


def after_commit(fresh: Sequence[Fresh] = ()) -> None:
    """Wake a dispatcher soon after the current transaction commits; outside of one, soon.

    `fresh` are the deliveries that the transaction made; without them the dispatcher looks for what is due.
    """
    transactions.after_commit(partial(soon, fresh))


def soon(fresh: Sequence[Fresh] = ()) -> None:
    """Wake a dispatcher soon, for what was committed on a connection other than Django's."""
    _unsent.add(fresh)
    _debounced.ask()


def wake() -> None:
    """Ask a dispatcher to look for what is due; starts one when none is running."""
    _send([LOOK])


def _send_unsent() -> None:
    _send(_unsent.take())


def _send(signals: Sequence[bytes]) -> None:
    if not signals:
        return
    try:
        must_start = valkey().eval(_WAKE, 3, SIGNAL, ALIVE, CALLED, CALL_MILLISECONDS, MOST_SIGNALS, *signals)
    except VALKEY_UNAVAILABLE as error:
        log.warning("wake_missed", error=type(error).__name__)
        return
    if must_start:
        enqueue("webhooks.tasks.deliver_due", expires=5)


_debounced = Debounced(_send_unsent, seconds=WAKE_SECONDS)
