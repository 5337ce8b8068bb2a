"""Facts about one message that a request, a notification's message or a status tells: the columns of the message log.

Pure functions over the upstream's JSON. Identifiers and times in it are the upstream's: whatever cannot be stored is
left out, so that no message makes an event that the database refuses.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from gateway.upstream.notifications.lossless_json import JsonObject, text

Direction = Literal["inbound", "outbound"]
Status = Literal["accepted", "unknown", "received", "sent", "delivered", "read", "failed"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
STATUSES: tuple[Status, ...] = get_args(Status)
STATUS_OF_WORD: Mapping[str, Status] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}
"""What a status of the upstream says of its message; a voice message that was played was read."""

LONGEST_TYPE, LONGEST_NAME, LONGEST_LANGUAGE, LONGEST_WORD = 40, 512, 20, 20
LARGEST_CODE = 2**31 - 1
LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""


class MessageFacts(NamedTuple):
    """What one event tells about its message. What it does not tell is None. A tuple: one is made for every event."""

    direction: Direction
    status: Status | None = None
    word: str | None = None
    """The upstream's own word for the status, when the event is one; also one that is no `Status`."""
    at_ms: int | None = None
    """When the status was reached, in milliseconds since 1970; None is the time of the event."""
    is_message: bool = False
    """Whether the event holds the message itself, not a status of it."""
    type: str | None = None
    template: str | None = None
    template_language: str | None = None
    error_code: int | None = None
    pricing_category: str | None = None
    pricing_type: str | None = None
    billable: bool | None = None
    batch_id: UUID | None = None
    idx: int | None = None
    service_ms: int | None = None
    """The service's own milliseconds of a single send, until its answer was there."""
    upstream_ms: int | None = None


def of_message(item: Mapping[str, Any], direction: Direction) -> MessageFacts:
    """The facts of a message in a notification: one from a customer, or an echo of the business's own app."""
    kind, template, language = content_of(item)
    return MessageFacts(
        direction=direction,
        status="received" if direction == "inbound" else "sent",
        at_ms=_milliseconds(item.get("timestamp")),
        is_message=True,
        type=kind,
        template=template,
        template_language=language,
        error_code=error_code_of(item),
    )


def of_status(item: Mapping[str, Any]) -> MessageFacts:
    """The facts of a status in a notification (upstream fact 3.5)."""
    word = _short(item.get("status"), LONGEST_WORD)
    pricing = _object(item.get("pricing"))
    billable = pricing.get("billable")
    return MessageFacts(
        direction="outbound",
        status=STATUS_OF_WORD.get(word or ""),
        word=word,
        at_ms=_milliseconds(item.get("timestamp")),
        error_code=error_code_of(item),
        pricing_category=_short(pricing.get("category"), LONGEST_TYPE),
        pricing_type=_short(pricing.get("type"), LONGEST_TYPE),
        billable=billable if isinstance(billable, bool) else None,
    )


def content_of(message: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Type, and the template's name and language, of a message as it is sent or received."""
    kind = _short(message.get("type"), LONGEST_TYPE)
    template = message.get("template")
    if not isinstance(template, dict):
        return kind, None, None
    language = _object(template.get("language")).get("code")
    return kind, _short(template.get("name"), LONGEST_NAME), _short(language, LONGEST_LANGUAGE)


def error_code_of(value: Mapping[str, Any]) -> int | None:
    """The code of an answer's `error`, or of the first of an item's `errors`."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else value.get("error")
    code = first.get("code") if isinstance(first, dict) else None
    return code if type(code) is int and 0 <= code <= LARGEST_CODE else None


def _short(value: object, longest: int) -> str | None:
    """A word of the upstream or of a caller as a column holds it."""
    word = text(value)
    return word if word is None or len(word) <= longest else word[:longest]


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _milliseconds(timestamp: object) -> int | None:
    """The epoch seconds of a notification, which come as text."""
    seconds = text(timestamp)
    if seconds is None or not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 12):
        return None
    return int(seconds) * 1000 if 0 < int(seconds) <= LAST_SECOND else None
