"""Pacing: limits how many messages per second a number sends (specification 8; upstream fact 2.1).

Each number has one token bucket in Valkey, used by its batches and single sends. A single send never waits; the
bucket only counts it. A batch waits for its turns. A batch's runner also keeps the pace by its own clock, so the pace
holds if Valkey is flushed or unavailable. When the upstream throttles, a batch halves its pace and then raises it step
by step.
"""

import threading
import time
from collections import Counter

import structlog

from gateway.valkey import token_bucket, write_behind
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from gateway.valkey.write_behind import PendingWrite

log = structlog.get_logger(__name__)

RATES = {"STANDARD": 80, "HIGH": 1000}
"""Messages a second by throughput level."""
UNKNOWN_RATE = 80
COEXISTENCE_RATE = 20

LONGEST_DEBT_SECONDS = 1.0
"""How long single sends above the pace can delay a batch, in seconds. The upstream rejects most sends above the pace
anyway.
"""
AHEAD_SECONDS = 0.04
"""Enough turns for this many seconds are acquired at once. A runner that stalls holds at most two such portions, so it
sends few messages late.
"""
ALONE_SECONDS = 5.0
"""How long a batch goes without asking Valkey after a failure. Otherwise every turn would wait for a Valkey that hangs.
"""
HALVED_SECONDS = 60.0
CLIMB_SECONDS = 5.0
CLIMB_STEP = 0.1
SLOWEST = 1 / 16
SAME_INCIDENT_SECONDS = 1.0
"""Throttled answers within this time lower the pace only once, because their messages were sent together."""


def rate_of(*, throughput_level: str | None, coexistence: bool) -> int:
    """The messages a second that a number may send."""
    return COEXISTENCE_RATE if coexistence else RATES.get(throughput_level or "", UNKNOWN_RATE)


_uncounted: Counter[tuple[str, float]] = Counter()
_collecting = threading.Lock()


def count_send(*, phone_number_id: str, rate: float) -> None:
    """Count a single send against its number's pace. The count reaches Valkey a moment later; the send never waits."""
    with _collecting:
        _uncounted[phone_number_id, rate] += 1
        uncounted = _uncounted[phone_number_id, rate]
    write_behind.flush_soon(uncounted)


def _pending_writes() -> list[PendingWrite]:
    """Turn the sends counted since the last call into pending writes. They are lost if Valkey is unavailable."""
    with _collecting:
        collected = list(_uncounted.items())
        _uncounted.clear()
    return [
        PendingWrite(
            (
                "EVAL",
                *token_bucket.reserving(
                    _key(phone_number_id), rate=rate, tokens=sends, at_most_ahead=LONGEST_DEBT_SECONDS
                ),
            )
        )
        for (phone_number_id, rate), sends in collected
    ]


write_behind.register(_pending_writes)


class Pacer:
    """The turns of one batch: at most `rate` per second, and fewer after the upstream throttled the number.

    Times are on the monotonic clock, so a change of the system clock has no effect.
    """

    def __init__(self, *, phone_number_id: str, rate: float) -> None:
        self.phone_number_id = phone_number_id
        self.rate = rate
        self._next = 0.0
        self._alone_until = 0.0
        self._lowered = 1.0
        self._lowered_at: float | None = None

    def share(self) -> float:
        """The share of the rate in use: 1, or less after throttling."""
        if self._lowered_at is None:
            return 1.0
        calm = time.monotonic() - self._lowered_at - HALVED_SECONDS
        return (
            self._lowered if calm < 0 else min(1.0, self._lowered + CLIMB_STEP * (1 + calm // CLIMB_SECONDS))
        )

    def pace(self) -> float:
        """The current rate in messages a second."""
        return self.rate * self.share()

    def throttled(self) -> None:
        """Lower the pace after a throttled answer. It is halved for a minute and then raised step by step."""
        now = time.monotonic()
        if self._lowered_at is None or now - self._lowered_at >= SAME_INCIDENT_SECONDS:
            self._lowered, self._lowered_at = max(self.share() / 2, SLOWEST), now

    def turns(self) -> list[float]:
        """The times of the next turns, enough for AHEAD_SECONDS.

        Calls Valkey once, so it can block until Valkey times out. Unused turns are lost.
        """
        pace = self.pace()
        count = max(1, int(pace * AHEAD_SECONDS))
        shared = self._shared_wait(pace, count)
        first = max(self._next, time.monotonic() + shared)
        self._next = first + count / pace
        return [first + turn / pace for turn in range(count)]

    def _shared_wait(self, pace: float, count: int) -> float:
        """Reserve turns in the number's bucket. Returns the seconds until the first turn, or zero when Valkey is
        unavailable. After a failure, Valkey is not called for ALONE_SECONDS.
        """
        if time.monotonic() < self._alone_until:
            return 0.0
        try:
            return token_bucket.reserve(
                _key(self.phone_number_id), rate=pace, tokens=count, at_most_ahead=3600.0
            )
        except VALKEY_UNAVAILABLE as error:
            log.warning("pace_unavailable", error=type(error).__name__)
            self._alone_until = time.monotonic() + ALONE_SECONDS
            return 0.0


def _key(phone_number_id: str) -> str:
    return f"pace:{phone_number_id}"
