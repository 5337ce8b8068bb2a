"""A change of a notification: the facts of its messages, its event drafts, and its source for handlers. Pure functions.

The functions of `events` receive a `Source` and return its drafts. `Source` bounds the length of each dedupe key, and
identifies an item by its content if the item lacks the identifiers of its key. The incoming flow takes each `Change`,
finds its tenant by `route`, gives every `EventDraft` an id and the columns that only the database knows, and stores it.

Identifiers, texts and times are Meta's. Characters that cannot be stored are removed (U+0000, half surrogates), so that
no message makes an event that the database rejects.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

import msgspec

from gateway.monitoring.logs import type_alone
from gateway.upstream.notifications.lossless_json import JsonObject, digest, dumps, loads, member, text

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
"""Meta's status words, each with the message status that it means. A voice message that was played counts as read."""

STATUS_OF_OLD: Mapping[str, Status] = {**STATUS_OF_WORD, "pending": "accepted", "error": "failed"}
"""The status words of `history_context`, each with the status that it means for a message from the business."""

LONGEST_TYPE, LONGEST_NAME, LONGEST_LANGUAGE, LONGEST_WORD = 40, 512, 20, 20
LONGEST_COLUMN = 255
LARGEST_CODE = 2**31 - 1
LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""
MOST_NESTED = 200
"""A Flow's response with more objects and arrays than this is not read. JSON can be written with deeper nesting."""
MOST_EVENTS, MOST_BYTES = 30_000, 48 * 1024 * 1024
"""Limits of the events of a notification, and of their `data` together. 3 MB have fewer than 25,000 old messages."""


class MessageFacts(NamedTuple):
    """The facts that one event reports about its message. Unknown facts are None. A tuple is used because one is
    created for every event.
    """

    direction: Direction
    status: Status | None = None
    word: str | None = None
    """Meta's word for the status, if the event is a status. Not every word has a `Status`."""
    at_ms: int | None = None
    """When the message reached the status, in milliseconds since 1970. None means the time of the event."""
    is_message: bool = False
    """Whether the event contains the message itself, rather than a status of the message."""
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
    """For a single send, how many milliseconds the service itself took until its answer was ready."""
    upstream_ms: int | None = None
    referral_source_type: str | None = None
    referral_source_id: str | None = None
    """The ad or post from which the customer came (upstream fact 3.4)."""
    referral_ctwa_clid: str | None = None
    is_history: bool | None = None
    """Whether the message is from the app's old chats. Such a message is not counted and keeps its original time."""
    is_group: bool | None = None
    """Whether the message was written in a group. Its row names no customer, because the private conversation, the
    window and the ids of a participant do not depend on it.
    """
    is_participants: bool | None = None
    """Whether a status is that of one participant of a group. If it is a failure, the message has not failed."""


def of_message(item: Mapping[str, Any], direction: Direction) -> MessageFacts:
    """The facts of a message in a notification: from a customer, or an echo of the business's own app."""
    kind, template, language = content_of(item)
    referral = _object(item.get("referral"))
    return MessageFacts(
        direction=direction,
        status="received" if direction == "inbound" else "sent",
        at_ms=_milliseconds(item.get("timestamp")),
        is_message=True,
        type=kind,
        template=template,
        template_language=language,
        error_code=error_code_of(item),
        referral_source_type=_short(referral.get("source_type"), LONGEST_WORD),
        referral_source_id=_short(referral.get("source_id"), LONGEST_COLUMN),
        referral_ctwa_clid=_short(referral.get("ctwa_clid"), LONGEST_NAME),
        is_group="group_id" in item or None,
    )


def of_old_message(item: Mapping[str, Any], direction: Direction) -> MessageFacts:
    """The facts of a message from the WhatsApp Business app's old chats (upstream fact 3.6)."""
    facts = of_message(item, direction)
    word = text(_object(item.get("history_context")).get("status")) or ""
    status = STATUS_OF_OLD.get(word.lower(), facts.status) if direction == "outbound" else facts.status
    return facts._replace(status=status, is_history=True)


def of_status(item: Mapping[str, Any]) -> MessageFacts:
    """The facts that a status in a notification reports (upstream fact 3.5)."""
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
        is_group=item.get("recipient_type") == "group" or None,
    )


def content_of(message: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Type, template name and template language of a sent or received message."""
    kind = _short(message.get("type"), LONGEST_TYPE)
    template = message.get("template")
    if not isinstance(template, dict):
        return kind, None, None
    language = _object(template.get("language")).get("code")
    return kind, _short(template.get("name"), LONGEST_NAME), _short(language, LONGEST_LANGUAGE)


def flow_response(message: Mapping[str, Any]) -> JsonObject | None:
    """The object in the text `response_json` of a finished Flow. None for any other message.

    None also if the text is not an object, or if it has more than MOST_NESTED objects and arrays.
    """
    written = member(member(message, "interactive"), "nfm_reply").get("response_json")
    if not isinstance(written, str) or written.count("{") + written.count("[") > MOST_NESTED:
        return None
    try:
        response = loads(written.encode("utf-8", "replace"))
    except ValueError:
        return None
    return response if isinstance(response, dict) else None


def error_code_of(value: Mapping[str, Any]) -> int | None:
    """The code of an answer's `error`, or of the first of an item's `errors`."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else value.get("error")
    code = first.get("code") if isinstance(first, dict) else None
    return code if type(code) is int and 0 <= code <= LARGEST_CODE else None


def _short(value: object, longest: int) -> str | None:
    """A text of Meta or of a caller, cut to the length of a column. None for a value that is not a text."""
    word = text(value)
    return word if word is None or len(word) <= longest else word[:longest]


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _milliseconds(timestamp: object) -> int | None:
    """Milliseconds since 1970 from a notification's epoch seconds, which are text. None for an unreadable text."""
    seconds = text(timestamp)
    if seconds is None or not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 12):
        return None
    return int(seconds) * 1000 if 0 < int(seconds) <= LAST_SECOND else None


EventType = Literal[
    "message.inbound",
    "message.status",
    "message.error",
    "message.echo",
    "message.outbound",
    "message.history",
    "user.preferences",
    "customer.opt_out",
    "batch.completed",
    "template.status",
    "template.quality",
    "template.category",
    "number.quality",
    "number.name",
    "number.connection",
    "account.update",
    "account.alerts",
    "account.capability",
    "account.security",
    "token.expiring",
    "token.invalid",
    "webhook.failing",
    "webhook.disabled",
    "webhook.recovered",
    "webhook.delivery.exhausted",
    "meta.other",
]
"""The closed vocabulary of event types (specification 6), in the order of lists and forms.

This package creates the events of Meta's notifications, with `meta.other` for unknown ones. Other parts of the service
create all other events.
"""


class Route(msgspec.Struct, frozen=True):
    """The identifiers in a change by which its owner is found. They are tried in this order.

    `entry_id` is tried as the id of a business account, although partner events have the id of a business portfolio
    there. `display_phone_number` (digits only) names a number of the entry's account.
    """

    waba_info_id: str | None
    phone_number_id: str | None
    entry_id: str | None
    display_phone_number: str | None


class EventDraft(msgspec.Struct, frozen=True):
    """One event as Meta sent it, before it belongs to a tenant.

    `data` is the finished JSON of the envelope's `data`. `dedupe_key` has at most 255 characters and is unique per
    tenant. `raw_path` leads from the root of the body to the item, with `entry` and `change` as its indexes.
    `phone_number_id` and `display_phone_number` are as Meta sent them; a look-up by `Route` overrides them. Identifiers
    longer than 255 characters are None. `message` has the facts that the event reports about its message.
    """

    type: EventType
    dedupe_key: str
    data: bytes
    entry: int
    change: int
    raw_path: str
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    message: MessageFacts | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class Change(msgspec.Struct, frozen=True):
    """One change of the notification, with at least one draft.

    `field` is Meta's field, with Meta's mistakes corrected. `value` is the parsed value of the change (None when it is
    not an object). The gateway's own side effects, such as refreshing a number or a template, need both.
    """

    entry: int
    change: int
    field: str
    route: Route
    value: JsonObject | None
    drafts: tuple[EventDraft, ...]


class Normalised(msgspec.Struct, frozen=True):
    """A whole notification. `error` names what is malformed. `changes` has everything that was readable."""

    changes: tuple[Change, ...]
    error: str | None = None


META_OTHER: EventType = "meta.other"

_NOT_A_DIGIT = re.compile(r"[^0-9]+")


class Person(NamedTuple):
    """The customer of an item. Either id may be missing."""

    wa_id: str | None = None
    user_id: str | None = None


NOBODY = Person()


class NoRoomError(ValueError):
    """A notification has too many events, or their `data` is too large."""


class Room(msgspec.Struct):
    """What the events of a notification may still take. Bounds its time and memory, whatever its form: each event of an
    item repeats what stands beside the items.
    """

    events: int = MOST_EVENTS
    size: int = MOST_BYTES

    def expect(self, events: int) -> None:
        """Raise NoRoomError unless there is room for this number of events."""
        if events > self.events:
            raise NoRoomError

    def take(self, size: int) -> None:
        """Take the room of one event. Raises NoRoomError."""
        self.events -= 1
        self.size -= size
        if min(self.events, self.size) < 0:
            raise NoRoomError


class Source(msgspec.Struct, frozen=True):
    """The source of events: a change. `path` leads to its value. `body_hash()` is the whole notification's SHA-256.
    `room` is shared by all changes of the notification.
    """

    entry: int
    change: int
    path: str
    field: str
    time: str | None
    value: JsonObject
    route: Route
    body_hash: Callable[[], str]
    room: Room

    def key(self, *parts: str | None, of: object) -> str:
        """The dedupe key made of `parts`. If a part is None, the content of the item `of` is added.

        If the key exceeds 255 characters, a hash replaces everything after its first part.
        """
        if None in parts:
            parts = (*parts, self.content_hash(of))
        key = ":".join([part or "" for part in parts])
        if len(key) > LONGEST_COLUMN:
            return f"{parts[0]}:{hashlib.sha256(key.encode()).hexdigest()}"
        return key

    def content_hash(self, item: object) -> str:
        """A hash that distinguishes items of equal identity. It includes the sending time of the entry, so a repeated
        alert with a new time counts as a new event. No alert may be lost.
        """
        return digest({"entry": self.route.entry_id, "time": self.time, "field": self.field, "item": item})

    def unnamed_key(self, item: object) -> str:
        """The dedupe key of an item whose only identity is its content."""
        return self.key(*self.unnamed(item), of=item)

    def unnamed(self, item: object) -> tuple[str, str, str]:
        """The parts of the dedupe key of an item whose only identity is its content."""
        return "meta", self.field, self.content_hash(item)

    def draft(
        self,
        event_type: EventType,
        *,
        key: str,
        data: JsonObject,
        path: str,
        person: Person = NOBODY,
        wamid: str | None = None,
        message: MessageFacts | None = None,
    ) -> EventDraft:
        """The event for one item of this change, or for its whole value. Serialises `data`. Raises NoRoomError."""
        written = dumps(data)
        self.room.take(len(written))
        return EventDraft(
            type=event_type,
            dedupe_key=key,
            data=written,
            entry=self.entry,
            change=self.change,
            raw_path=path,
            phone_number_id=column(self.route.phone_number_id),
            display_phone_number=column(_named_number(self.value)),
            wamid=column(wamid),
            wa_id=column(person.wa_id),
            user_id=column(person.user_id),
            message=message,
        )

    def unwritable(self, path: str, *place: str) -> EventDraft:
        """The event for an item that is nested too deeply to be serialised, or for a change without room. The event
        only refers to `raw`.

        `place` distinguishes an item of the change from the change itself.
        """
        number = ".".join((str(self.entry), str(self.change), *place))
        key = self.key("meta", self.field, self.body_hash(), number, of=None)
        own = self if place else msgspec.structs.replace(self, room=Room())
        return own.draft(META_OTHER, key=key, data={"field": self.field}, path=path)

    def whole(
        self, event_type: EventType, *parts: str | None, person: Person | None = None
    ) -> list[EventDraft]:
        """One event for the whole value, with the value's members and `field` as its `data`. The key is made of
        `parts`.

        The customer is `person`, otherwise the only customer in the value's contacts.
        """
        data = {**self.value, "field": self.field}
        key = self.key(*parts, of=self.value)
        who = person_of(self.value.get("contacts")) if person is None else person
        return [self.draft(event_type, key=key, data=data, path=self.path, person=who)]


def route_of(entry_id: str | None, value: JsonObject) -> Route:
    """The identifiers of a change's owner. Management fields name a number only by its display form."""
    named = _named_number(value)
    return Route(
        waba_info_id=text(member(value, "waba_info").get("waba_id")),
        phone_number_id=(
            text(member(value, "metadata").get("phone_number_id"))
            or text(member(value, "recipient").get("phone_number_id"))
            or text(member(value, "phone_number_settings").get("phone_number_id"))
            or (text(value.get("entity_id")) if value.get("entity_type") == "PHONE_NUMBER" else None)
        ),
        entry_id=entry_id,
        display_phone_number=_NOT_A_DIGIT.sub("", named) or None if named else None,
    )


def person_of(contacts: object) -> Person:
    """The customer in `contacts`, if `contacts` has exactly one."""
    if not isinstance(contacts, list) or len(contacts) != 1 or not isinstance(contacts[0], dict):
        return NOBODY
    return Person(text(contacts[0].get("wa_id")), text(contacts[0].get("user_id")))


def column(identifier: str | None) -> str | None:
    """An identifier for an indexed column. None if it is longer than 255 characters."""
    return identifier if identifier is None or len(identifier) <= LONGEST_COLUMN else None


def _named_number(value: JsonObject) -> str | None:
    return (
        text(member(value, "metadata").get("display_phone_number"))
        or text(member(value, "recipient").get("display_phone_number"))
        or text(value.get("display_phone_number"))
        or text(value.get("phone_number"))
    )
