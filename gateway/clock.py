"""Time as the service shows it: aware UTC inside, ISO 8601 with milliseconds and `Z` outside."""

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, aware UTC."""
    return datetime.now(UTC)


def isoformat(moment: datetime) -> str:
    """A moment as every JSON timestamp shows it, e.g. `2026-11-01T07:06:41.120Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
