"""One message in full: its content within retention, statuses with error texts, events and deliveries.

The bodies of the message's events have the content. The message log does not have it. The bytes of a message are shown
as stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from gateway.upstream.notifications import lossless_json
from gateway.upstream.notifications.change import error_code_of, of_status
from gateway.upstream.notifications.lossless_json import text
from messaging.message_log import message_search
from webhooks.endpoints.health import with_holds
from webhooks.models import Delivery, Event, Message

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Error:
    """An error of the upstream. Past retention, only the code is left."""

    code: int | None
    title: str | None = None
    message: str | None = None
    details: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A status that the upstream reported for the message."""

    status: str | None
    at: datetime
    wa_id: str | None
    user_id: str | None
    error: Error | None
    event_id: str


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """An event of the message."""

    id: str
    type: str
    created_at: datetime
    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Detail:
    """A message with its content, its statuses and its events."""

    row: Message
    sender: str | None
    to: str | None
    error: Error | None
    request: bytes | None = field(repr=False)
    response: bytes | None = field(repr=False)
    message: bytes | None = field(repr=False)
    statuses: Sequence[Report]
    events: Sequence[MessageEvent]

    @property
    def payload_available(self) -> bool:
        """Whether the content is available."""
        return self.request is not None or self.message is not None


def load(message: Message) -> Detail:
    """Load the content, the statuses and the events of a message in the log."""
    events = message_search.events_of(message)
    contents, deliveries = message_search.contents_and_deliveries(message.tenant_id, events)
    with_holds(
        [delivery for of_event in deliveries.values() for delivery in of_event],
        tenant_id=message.tenant_id,
        environment=message.environment,
    )
    own = next((event for event in events if event.id == message.event_id), None)
    content = _members(contents[own.id]) if own is not None and own.id in contents else {}
    reports = list(_reports(events, contents))
    display = next((event.display_phone_number for event in events if event.display_phone_number), None)
    customer = message.wa_id or message.user_id
    request = _bytes(content.get("request"))
    is_inbound = message.direction == "inbound"
    return Detail(
        row=message,
        sender=customer or _sender_in_group(own) if is_inbound else display,
        to=display if is_inbound else customer or _recipient_in(request),
        error=_error_of(message, content.get("response"), reports),
        request=request,
        response=_bytes(content.get("response")),
        message=_bytes(content.get("message")),
        statuses=reports,
        events=[
            MessageEvent(event.public_id, event.type, event.created_at, deliveries[event.id])
            for event in events
        ],
    )


def _sender_in_group(event: Event | None) -> str | None:
    """The participant who wrote a message in a group. The log names no customer for it."""
    return event.wa_id or event.user_id if event is not None else None


def _recipient_in(request: bytes | None) -> str | None:
    """The recipient in the sent request. None without one. The log has no recipient of a message that was rejected or
    sent to a group.
    """
    asked = _object(request)
    return text(asked.get("to")) or text(asked.get("recipient"))


def _reports(events: Sequence[Event], contents: Mapping[UUID, bytes]) -> Iterator[Report]:
    for event in events:
        if event.type != "message.status":
            continue
        stored = _object(contents.get(event.id))
        item = lossless_json.member(stored, "status")
        reported = of_status(item)
        yield Report(
            status=reported.word or event.status,
            at=datetime.fromtimestamp(reported.at_ms / 1000, UTC) if reported.at_ms else event.created_at,
            wa_id=event.wa_id,
            user_id=event.user_id,
            error=_error(item.get("errors"), event.error_code),
            event_id=event.public_id,
        )


def _error_of(message: Message, response: bytes | None, reports: Sequence[Report]) -> Error | None:
    """The error of a failed message, from a status or else from the upstream's answer. None without an error."""
    if message.error_code is None and message.failed_at is None:
        return None
    for report in reports:
        if report.error is not None and report.error.code == message.error_code:
            return report.error
    return _error([_object(response).get("error")], message.error_code)


def _error(errors: object, code: int | None) -> Error | None:
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        return Error(code) if code is not None else None
    details = lossless_json.member(first, "error_data").get("details")
    return Error(
        code=error_code_of({"error": first}),
        title=text(first.get("title")) or text(first.get("type")),
        message=text(first.get("message")),
        details=text(details),
    )


def _object(stored: bytes | None) -> dict[str, Any]:
    value = lossless_json.loads(bytes(stored)) if stored is not None else {}
    return value if isinstance(value, dict) else {}


def _bytes(raw: bytes | None) -> bytes | None:
    return bytes(raw) if raw is not None else None
