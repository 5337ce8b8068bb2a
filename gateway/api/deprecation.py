"""Deprecated operations, marked in their responses and in the contract.

Declare a deprecation above the operation's `extend_schema`:

    @deprecated(since=date(2027, 1, 10), sunset=date(2028, 1, 10), guide="changelog/")
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

from django.conf import settings

_Action = TypeVar("_Action", bound=Callable[..., Any])


@dataclass(frozen=True)
class Deprecation:
    """When an operation was deprecated, when it stops working, and the guide that names its replacement."""

    since: date
    sunset: date
    guide: str
    """A path below `/docs/`."""

    def __post_init__(self) -> None:
        if self.sunset - self.since < timedelta(days=365):
            raise ValueError("An operation works for 12 months after it is deprecated (docs/api.md).")

    def headers(self) -> dict[str, str]:
        """The headers of each answer: RFC 9745 for `Deprecation`, RFC 8594 for `Sunset`."""
        return {
            "Deprecation": f"@{int(_midnight(self.since).timestamp())}",
            "Sunset": format_datetime(_midnight(self.sunset), usegmt=True),
            "Link": f'<{settings.BASE_URL}/docs/{self.guide}>; rel="deprecation"; type="text/html"',
        }


def deprecated(*, since: date, sunset: date, guide: str) -> Callable[[_Action], _Action]:
    """Declare that an action of a viewset is deprecated."""
    deprecation = Deprecation(since, sunset, guide)

    def declare(action: _Action) -> _Action:
        action.deprecation = deprecation  # type: ignore[attr-defined]
        return action

    return declare


def deprecation_of(view: Any) -> Deprecation | None:
    """The deprecation of a viewset's current action, or None."""
    action = getattr(view, getattr(view, "action", None) or "", None)
    found: Deprecation | None = getattr(action, "deprecation", None)
    return found


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
