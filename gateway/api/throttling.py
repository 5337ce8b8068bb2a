"""The rate limit of the service's own API: a token bucket per tenant; without Valkey everything is allowed."""

import math
import threading
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from gateway import token_bucket
from gateway.api.authentication import Caller
from gateway.api.errors import RateLimited
from gateway.token_bucket import Verdict
from gateway.valkey import VALKEY_UNAVAILABLE

log = structlog.get_logger(__name__)

MOST_OWED = 10
"""Calls that a process allows without asking Valkey, at most; each asking would cost a tenth of a send."""
OWED_SECONDS = 0.05
"""How old what Valkey said may be for that."""
MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Known:
    """What Valkey said of a bucket, and what this process has allowed from it since."""

    remaining: int
    reset_after: float
    asked_at: float
    owed: int = 0


class Allowance:
    """A process's view of the buckets, for any number of threads.

    While more than half of a bucket is left, a few calls are allowed and owed to it; each time it is asked, what is
    owed goes first. So nobody is refused who should not be, and all processes together allow at most what they may owe
    too much.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def take(self, key: str, *, rate: float, burst: int) -> Verdict:
        """As `token_bucket.take`."""
        moment = monotonic()
        with self._lock:
            known = self._known.get(key)
            owed = 0
            if known is not None:
                left = known.remaining - known.owed - 1
                if left >= burst / 2 and known.owed < MOST_OWED and known.asked_at + OWED_SECONDS > moment:
                    known.owed += 1
                    return Verdict(True, left, 0.0, known.reset_after)
                owed, known.owed = known.owed, 0
                known.remaining, known.asked_at = left, moment
        verdict = token_bucket.take(key, rate=rate, burst=burst, owed=owed)
        with self._lock:
            if known is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                known = self._known.setdefault(key, _Known(verdict.remaining, 0.0, moment))
            if moment >= known.asked_at:
                known.remaining, known.asked_at = verdict.remaining, moment
            else:
                # Somebody who asked later may have been answered sooner: this is old news.
                known.remaining = min(known.remaining, verdict.remaining)
            known.reset_after = verdict.reset_after
        return verdict

    def forget(self) -> None:
        """Forget every bucket, for tests."""
        with self._lock:
            self._known.clear()


allowance = Allowance()


class TenantRateThrottle(BaseThrottle):
    """Answers 429 `rate_limited` with Retry-After; every answer carries RateLimit-Limit/-Remaining/-Reset."""

    def allow_request(self, request: Request, view: Any) -> bool:
        caller = request.user
        if not isinstance(caller, Caller):
            return True
        try:
            verdict = allowance.take(
                f"rate:{caller.rate_key}", rate=settings.API_RATE_PER_SECOND, burst=settings.API_RATE_BURST
            )
        except VALKEY_UNAVAILABLE as error:
            log.warning("rate_limit_unavailable", error=type(error).__name__)
            return True
        headers = {
            "RateLimit-Limit": str(settings.API_RATE_BURST),
            "RateLimit-Remaining": str(verdict.remaining),
            "RateLimit-Reset": str(math.ceil(verdict.reset_after)),
        }
        request._request.rate_limit_headers = headers  # type: ignore[attr-defined]
        if not verdict.allowed:
            raise RateLimited(headers={"Retry-After": str(max(1, math.ceil(verdict.retry_after)))})
        return True
