"""The rate limit of the service's own API: a token bucket per tenant; without Valkey everything is allowed."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import structlog
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from gateway.api.authentication import Caller
from gateway.api.errors import RateLimited
from gateway.valkey import bookings, token_bucket
from gateway.valkey.bookings import Booking
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from gateway.valkey.token_bucket import BucketAnswer

log = structlog.get_logger(__name__)

MOST_OWED = 10
"""Calls of a bucket that a process has allowed and not yet booked, at most."""
KNOWN_SECONDS = 5.0
"""How old Valkey's answer may be for a call that does not ask. Its age costs no accuracy: what one process allows too
much is bounded by `MOST_OWED`."""
MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Known:
    """Valkey's last answer about a bucket, and what this process has allowed from it since."""

    rate: float
    burst: int
    remaining: int
    asked_at: float
    reset_after: float = 0.0
    owed: int = 0


class RateAllowance:
    """A process's view of the buckets, for any number of threads.

    While more than half of a bucket is left, calls are allowed without asking and booked soon after (`owing` is told
    for that how many the bucket is owed), or by the next question. So no caller is refused wrongly, and all processes
    together exceed the limit by at most their unbooked calls.
    """

    def __init__(self, *, owing: Callable[[int], None] | None = None) -> None:
        self._owing = owing
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._indebted: set[str] = set()

    def recall(self, key: str, *, burst: int) -> BucketAnswer | None:
        """A call allowed without asking Valkey, to be booked later; None when Valkey must be asked."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return None
            left = known.remaining - known.owed - 1
            if left < burst / 2 or known.owed >= MOST_OWED or known.asked_at + KNOWN_SECONDS <= monotonic():
                return None
            known.owed = owed = known.owed + 1
            self._indebted.add(key)
            answer = BucketAnswer(True, left, 0.0, known.reset_after)
        if self._owing is not None:
            self._owing(owed)
        return answer

    def take(self, key: str, *, rate: float, burst: int) -> BucketAnswer:
        """As `token_bucket.take`."""
        recalled = self.recall(key, burst=burst)
        if recalled is not None:
            return recalled
        moment = monotonic()
        with self._lock:
            owed = self._settle(key, moment, taken=1)
        answer = token_bucket.take(key, rate=rate, burst=burst, owed=owed)
        self._learn(key, answer, moment, rate=rate, burst=burst)
        return answer

    def bookings(self) -> list[Booking]:
        """What is owed, as calls that take it; from now on it counts as taken."""
        moment = monotonic()
        booked: list[Booking] = []
        with self._lock:
            for key in list(self._indebted):
                known = self._known[key]
                # The script takes one more than it is told is owed.
                owed = self._settle(key, moment) - 1
                call = token_bucket.taking(key, rate=known.rate, burst=known.burst, owed=owed)
                answered = partial(self._booked, key, moment, rate=known.rate, burst=known.burst)
                booked.append(Booking(("EVAL", *call), answered))
        return booked

    def forget(self) -> None:
        """Forget every bucket, for tests."""
        with self._lock:
            self._known.clear()
            self._indebted.clear()

    def _settle(self, key: str, moment: float, *, taken: int = 0) -> int:
        """What a bucket is owed; the question that goes out now takes it, and `taken` more."""
        self._indebted.discard(key)
        known = self._known.get(key)
        if known is None:
            return 0
        owed, known.owed = known.owed, 0
        known.remaining, known.asked_at = known.remaining - owed - taken, moment
        return owed

    def _booked(self, key: str, moment: float, values: Sequence[int], *, rate: float, burst: int) -> None:
        self._learn(key, token_bucket.answer_of(values), moment, rate=rate, burst=burst)

    def _learn(self, key: str, answer: BucketAnswer, moment: float, *, rate: float, burst: int) -> None:
        """Keep an answer to a question of that moment."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                    self._indebted.clear()
                known = self._known[key] = _Known(rate, burst, answer.remaining, moment)
            if moment >= known.asked_at:
                known.remaining, known.asked_at = answer.remaining, moment
            else:
                # A later question may have been answered sooner: this answer is outdated.
                known.remaining = min(known.remaining, answer.remaining)
            known.reset_after = answer.reset_after


allowance = RateAllowance(owing=bookings.soon)
bookings.register(allowance.bookings)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a call is within its caller's rate, and the headers that say so."""

    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after: int | None = None
    """Seconds to wait; None for a call that is admitted."""

    def check(self) -> None:
        """Raise RateLimited unless the call is admitted."""
        if self.retry_after is not None:
            raise RateLimited(headers={"Retry-After": str(self.retry_after)})


def admit(caller: Caller) -> Admission:
    """Take a call from its caller's bucket; without Valkey every call is admitted."""
    try:
        verdict = allowance.take(
            _bucket(caller), rate=settings.API_RATE_PER_SECOND, burst=settings.API_RATE_BURST
        )
    except VALKEY_UNAVAILABLE as error:
        log.warning("rate_limit_unavailable", error=type(error).__name__)
        return Admission()
    return _admission(verdict)


def admit_at_once(caller: Caller) -> Admission | None:
    """`admit` without a question to Valkey, or None where it takes one: for an event loop."""
    verdict = allowance.recall(_bucket(caller), burst=settings.API_RATE_BURST)
    return _admission(verdict) if verdict is not None else None


def _bucket(caller: Caller) -> str:
    return f"rate:{caller.rate_key}"


def _admission(verdict: BucketAnswer) -> Admission:
    headers = {
        "RateLimit-Limit": str(settings.API_RATE_BURST),
        "RateLimit-Remaining": str(verdict.remaining),
        "RateLimit-Reset": str(math.ceil(verdict.reset_after)),
    }
    return Admission(headers, None if verdict.allowed else max(1, math.ceil(verdict.retry_after)))


class TenantRateThrottle(BaseThrottle):
    """Answers 429 `rate_limited` with Retry-After; every answer carries RateLimit-Limit/-Remaining/-Reset."""

    def allow_request(self, request: Request, view: Any) -> bool:
        # One HTTP request is one call, also when a view hands it on to another.
        if isinstance(request.user, Caller) and not hasattr(request._request, "rate_limit_headers"):
            admission = admit(request.user)
            request._request.rate_limit_headers = admission.headers  # type: ignore[attr-defined]
            admission.check()
        return True
