"""Query parameters as values, or a 400 that names the parameter. Also the row for an id in a path, or a 404."""

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework.request import Request

from gateway import ids
from gateway.api.errors import InvalidRequest, NotFound
from gateway.api.validation import NO_MOMENT, did_you_mean, has_time

_BETWEEN_DIGITS = re.compile(r"[\s().-]")
_DIGITS = re.compile(r"[0-9]{1,20}")
_Row = TypeVar("_Row", bound=Model)

FROM = "The beginning of the range, an ISO 8601 date-time. The beginning itself is in the range."
TO = "The end of the range, an ISO 8601 date-time. The end itself is not in the range."
"""Descriptions of the parameters that `span` reads."""


def moment(request: Request, name: str) -> datetime | None:
    """An ISO 8601 date-time, UTC if it has no offset. None when the parameter is absent. Raises InvalidRequest, also
    for a date without a time.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = parse_datetime(text.replace(" ", "+")) if has_time(text) else None
        if value is None:
            raise ValueError
        value = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if not 1970 <= value.year <= 9000:
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidRequest.of(**{name: NO_MOMENT}) from None
    return value


def span(request: Request) -> tuple[datetime | None, datetime | None]:
    """The range of a list: `from` (inclusive) and `to` (exclusive). Either may be absent, and both may be equal."""
    begin, end = moment(request, "from"), moment(request, "to")
    if begin is not None and end is not None:
        check_span(begin, end)
    return begin, end


def check_span(begin: datetime, end: datetime) -> None:
    """Reject a range that ends before it begins. Raises InvalidRequest."""
    if begin > end:
        raise InvalidRequest.of(**{"from": "Must not be after `to`."})


def choice(request: Request, name: str, allowed: Collection[str]) -> str | None:
    """One value of a closed list. None when the parameter is absent."""
    text = request.query_params.get(name)
    if text is not None and text not in allowed:
        raise InvalidRequest.of(
            **{name: f"Must be one of: {', '.join(allowed)}.{did_you_mean(text, allowed)}"}
        )
    return text


def choices(request: Request, name: str, allowed: Collection[str]) -> list[str] | None:
    """A comma-separated list of values from a closed list. None when the parameter is absent."""
    text = request.query_params.get(name)
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word not in allowed]:
        problem = f"Unknown: {', '.join(unknown)[:200]}.{did_you_mean(unknown[0], allowed)}"
        raise InvalidRequest.of(**{name: f"{problem} Must be one of: {', '.join(allowed)}."})
    return words


def flag(request: Request, name: str) -> bool:
    """A boolean, false when absent."""
    text = request.query_params.get(name, "false").lower()
    if text not in {"true", "false", "1", "0"}:
        raise InvalidRequest.of(**{name: "Must be true or false."})
    return text in {"true", "1"}


def integer(request: Request, name: str, *, least: int, most: int) -> int | None:
    """A whole number within bounds. None when the parameter is absent."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
        raise InvalidRequest.of(**{name: f"Must be a whole number from {least} to {most}."})
    return int(text)


def uuid(request: Request, name: str) -> UUID | None:
    """A UUID. None when the parameter is absent."""
    text = request.query_params.get(name)
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise InvalidRequest.of(**{name: "Must be a uuid."}) from None


def public_id(request: Request, name: str, prefix: str) -> UUID | None:
    """The UUID in a public id, such as `evt_…`. None when the parameter is absent."""
    text = request.query_params.get(name)
    if text is None:
        return None
    value = ids.decode(prefix, text)
    if value is None:
        raise InvalidRequest.of(**{name: f"Must be an id that begins with {prefix}."})
    return value


def by_public_id(rows: "QuerySet[_Row]", prefix: str, public_id: str, what: str) -> _Row:
    """The row with the id in a path. Raises NotFound with `what` in its message."""
    key = ids.decode(prefix, public_id)
    found = rows.filter(pk=key).first() if key is not None else None
    if found is None:
        raise NotFound(f"There is no such {what}.")
    return found


def wa_id(request: Request) -> str | None:
    """A customer's number in digits. None when the parameter is absent. Raises InvalidRequest.

    Accepts every usual form of a number, such as `+91 98123 45678`, even with its `+` decoded as a space.
    """
    value = text(request, "wa_id")
    if value is None:
        return None
    digits = phone_digits(value)
    if digits is None:
        raise InvalidRequest.of(
            wa_id="Must be a phone number with its country code, such as 919812345678. Pass a business-scoped user id "
            "as user_id."
        )
    return digits


def phone_digits(text: str) -> str | None:
    """The digits of a written phone number. None for any other text."""
    digits = _BETWEEN_DIGITS.sub("", text).removeprefix("+")
    return digits if _DIGITS.fullmatch(digits) else None


def text(request: Request, name: str, *, longest: int = 255) -> str | None:
    """A plain text of at most `longest` characters. None when the parameter is absent."""
    value = request.query_params.get(name)
    if value is not None and len(value) > longest:
        raise InvalidRequest.of(**{name: f"Must be at most {longest} characters."})
    return value
