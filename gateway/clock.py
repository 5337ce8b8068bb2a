"""Time: aware UTC in the code, ISO 8601 with milliseconds and `Z` in the API."""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

IST = ZoneInfo("Asia/Kolkata")
"""Indian time. Its months are the billing months."""


def now() -> datetime:
    """The current moment, aware UTC."""
    return datetime.now(UTC)


def isoformat(moment: datetime) -> str:
    """A moment as every JSON timestamp shows it, such as `2026-11-01T07:06:41.120Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970: the last part of the dedupe key of an event that can happen more than once."""
    return int(moment.timestamp() * 1_000_000)


def isoformat_of(milliseconds: int) -> str:
    """`isoformat` of milliseconds since 1970, fast when many moments share a second."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
