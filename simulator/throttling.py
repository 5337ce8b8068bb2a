"""Meta's rate limits: per number, per pair of business and customer, and per account in an hour (upstream facts
2.1-2.4).
"""

import time
from typing import Any

from simulator.errors import GraphError
from simulator.settings import Throttling
from simulator.world.records import Number

# The limit of a pair: on average one message every six seconds to a customer, in bursts of up to 45.
_PAIR_INTERVAL = 6.0
_PAIR_BURST = 45
_PAIRS_KEPT = 200_000
# The hourly limit on an account's management calls, without and with a registered number.
_CALLS = 200
_CALLS_REGISTERED = 5000


class Throttle:
    """The rate limits. Each limit stores one time per key: when the bucket is full again (GCRA)."""

    def __init__(self, settings: Throttling) -> None:
        self._settings = settings
        self._numbers: dict[str, float] = {}
        self._pairs: dict[tuple[str, str], float] = {}
        self._calls: dict[str, tuple[int, int]] = {}

    def clear(self) -> None:
        """Refill all buckets."""
        self._numbers.clear()
        self._pairs.clear()
        self._calls.clear()

    def take_send(self, number: Number) -> None:
        """Count a message against the number's limit. Raises 130429."""
        if not self._settings.throughput:
            return
        now = time.monotonic()
        full_at = max(self._numbers.get(number.id, 0.0), now)
        if full_at - now > 1.0 - 1.0 / number.rate + 1e-9:
            raise GraphError(130429)
        self._numbers[number.id] = full_at + 1.0 / number.rate

    def take_pair(self, number: Number, customer: str) -> None:
        """Count a message against the pair's limit. Raises 131056."""
        if not self._settings.pair:
            return
        now = time.monotonic()
        key = (number.id, customer)
        full_at = max(self._pairs.get(key, 0.0), now)
        if full_at - now > _PAIR_INTERVAL * (_PAIR_BURST - 1) + 1e-9:
            raise GraphError(131056)
        if len(self._pairs) >= _PAIRS_KEPT:
            self._pairs = {pair: at for pair, at in self._pairs.items() if at > now}
        self._pairs[key] = full_at + _PAIR_INTERVAL

    def take_call(self, waba_id: str, *, registered: bool) -> tuple[dict[str, Any] | None, bool]:
        """Count a management call. Returns the content of `X-Business-Use-Case-Usage`, and whether the call is within
        the limit. Meta sends the header with both kinds of answers.
        """
        if not self._settings.management:
            return None, True
        hour = int(time.time() // 3600)
        since, used = self._calls.get(waba_id, (hour, 0))
        used = used + 1 if since == hour else 1
        self._calls[waba_id] = (hour, used)
        limit = _CALLS_REGISTERED if registered else _CALLS
        minutes = 60 - int(time.time() % 3600 // 60)
        percent = used * 100 // limit
        usage = {
            "type": "whatsapp_business_management",
            "call_count": percent,
            "total_cputime": percent // 2,
            "total_time": percent // 2,
            "estimated_time_to_regain_access": minutes if percent >= 100 else 0,
        }
        return {waba_id: [usage]}, used <= limit
