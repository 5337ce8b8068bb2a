"""A token bucket in Valkey (GCRA): one atomic script, shared by every process.

Used by the API's own rate limit, by the pacing of messages to a number's throughput, and by the limits on pages and on
device codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.valkey.connection import quick_valkey

_SCRIPT: Final = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local interval = tonumber(ARGV[1])
local tolerance = interval * tonumber(ARGV[2])
local owed = interval * tonumber(ARGV[3])
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local owing = math.max(arrival, math.min(arrival + owed, now + tolerance))
local allow_at = owing + interval - tolerance
local allowed = 0
if allow_at <= now then
  allowed = 1
  owing = owing + interval
end
if owing > arrival then
  redis.call('SET', KEYS[1], string.format('%.0f', owing), 'PX', math.ceil((owing - now) / 1000) + 1000)
end
return {allowed, math.floor((tolerance - (owing - now)) / interval), math.ceil(allow_at - now), math.ceil(owing - now)}
"""


_RESERVE: Final = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local next_arrival = math.min(arrival + tonumber(ARGV[1]), now + tonumber(ARGV[2]))
if next_arrival > arrival then
  redis.call('SET', KEYS[1], string.format('%.0f', next_arrival), 'PX', math.ceil((next_arrival - now) / 1000) + 1000)
end
return math.ceil(arrival - now)
"""


@dataclass(frozen=True, slots=True)
class BucketAnswer:
    """The bucket's answer: whether a token was taken, how many remain, the seconds until a token is free, and the
    seconds until the bucket is full.
    """

    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float


ScriptCall = tuple[str | int, ...]
"""The arguments of an EVAL."""


def take(key: str, *, rate: float, burst: int, owed: int = 0) -> BucketAnswer:
    """Take a token from a bucket that refills at `rate` a second and holds `burst`.

    `owed` is the number of tokens that were used but not yet taken from the bucket. These tokens are taken first, as
    many as the bucket has. Raises `gateway.valkey.connection.VALKEY_UNAVAILABLE` when Valkey cannot be reached. The
    caller then decides whether to allow the call.
    """
    return answer_of(quick_valkey().eval(*taking(key, rate=rate, burst=burst, owed=owed)))


def taking(key: str, *, rate: float, burst: int, owed: int = 0) -> ScriptCall:
    """The script call of `take`, for a pipeline. `answer_of` parses its result."""
    return _SCRIPT, 1, key, str(1_000_000 / rate), str(burst), str(owed)


def answer_of(values: Sequence[int]) -> BucketAnswer:
    """Parse the result of the script that `taking` calls."""
    allowed, remaining, retry_us, reset_us = values
    return BucketAnswer(bool(allowed), max(0, remaining), max(0, retry_us) / 1e6, reset_us / 1e6)


def reserve(key: str, *, rate: float, tokens: int, at_most_ahead: float) -> float:
    """Take tokens that the bucket may not have yet. Returns the seconds until the first of them is due.

    Never rejects a call, but the bucket's debt never exceeds `at_most_ahead` seconds. Raises
    `gateway.valkey.connection.VALKEY_UNAVAILABLE` when Valkey cannot be reached, so that the caller decides.
    """
    wait_us: Any = quick_valkey().eval(*reserving(key, rate=rate, tokens=tokens, at_most_ahead=at_most_ahead))
    return float(wait_us) / 1e6


def reserving(key: str, *, rate: float, tokens: int, at_most_ahead: float) -> ScriptCall:
    """The script call of `reserve`, for a pipeline."""
    return _RESERVE, 1, key, str(1_000_000 * tokens / rate), str(at_most_ahead * 1_000_000)
