"""A change of a notification as the normaliser handles it: its place, the customer it concerns, its drafts.

The functions of `message_events` and `management_events` get a `Source` and return its drafts. It promises
that each dedupe key is bounded and that an item without the identifiers of its key is told apart by its
content.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.upstream.notifications.drafts import EventDraft, EventType, Route
from gateway.upstream.notifications.lossless_json import JsonObject, digest, dumps, member, text
from gateway.upstream.notifications.message_facts import MessageFacts

LONGEST_COLUMN = 255

META_OTHER: EventType = "meta.other"

_NOT_A_DIGIT = re.compile(r"[^0-9]+")


class Person(NamedTuple):
    """The customer whom an item concerns; either id can be missing."""

    wa_id: str | None = None
    user_id: str | None = None


NOBODY = Person()


@dataclass(frozen=True, slots=True)
class Source:
    """A change: `path` leads to its value, `body_hash()` is the SHA-256 of the whole notification."""

    entry: int
    change: int
    path: str
    field: str
    time: str | None
    value: JsonObject
    route: Route
    body_hash: Callable[[], str]

    def key(self, *parts: str | None, of: object) -> str:
        """The dedupe key made of `parts`. Where one is None, the content of the item `of` is added.

        A key of more than 255 characters is replaced by its hash, behind the same first part.
        """
        if None in parts:
            parts = (*parts, self.content_hash(of))
        key = ":".join([part or "" for part in parts])
        if len(key) > LONGEST_COLUMN:
            return f"{parts[0]}:{hashlib.sha256(key.encode()).hexdigest()}"
        return key

    def content_hash(self, item: object) -> str:
        """Tells items of equal identity apart. The entry's sending time belongs to it: an alert that comes
        again with the same words is a new event; a repeated one with a new time is let through rather than
        lost.
        """
        return digest({"entry": self.route.entry_id, "time": self.time, "field": self.field, "item": item})

    def unnamed_key(self, item: object) -> str:
        """The key of an item that has no identity but its content."""
        return self.key(*self.unnamed(item), of=item)

    def unnamed(self, item: object) -> tuple[str, str, str]:
        """The parts of that key."""
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
        """The event of one item of this change, or of its whole value; `data` is serialised here."""
        return EventDraft(
            type=event_type,
            dedupe_key=key,
            data=dumps(data),
            entry=self.entry,
            change=self.change,
            raw_path=path,
            waba_id=column(self.route.waba_info_id or self.route.entry_id),
            phone_number_id=column(self.route.phone_number_id),
            display_phone_number=column(_named_number(self.value)),
            wamid=column(wamid),
            wa_id=column(person.wa_id),
            user_id=column(person.user_id),
            field=self.field[:LONGEST_COLUMN],
            event=column(text(self.value.get("event"))),
            message=message,
        )

    def unwritable(self, path: str, *place: str) -> EventDraft:
        """The event of what is nested too deeply to be written again: it points into `raw`.

        `place` tells an item of the change from the change itself.
        """
        number = ".".join((str(self.entry), str(self.change), *place))
        key = self.key("meta", self.field, self.body_hash(), number, of=None)
        return self.draft(META_OTHER, key=key, data={"field": self.field}, path=path)

    def whole(
        self, event_type: EventType, *parts: str | None, person: Person | None = None
    ) -> list[EventDraft]:
        """One event for the whole value: its members and `field`. The key is made of `parts`.

        The customer is `person`, or the only one among the value's contacts.
        """
        data = {**self.value, "field": self.field}
        key = self.key(*parts, of=self.value)
        who = person_of(self.value.get("contacts")) if person is None else person
        return [self.draft(event_type, key=key, data=data, path=self.path, person=who)]


def route_of(entry_id: str | None, value: JsonObject) -> Route:
    """What a change says about whose it is; management fields name a number by its display form only."""
    named = _named_number(value)
    return Route(
        waba_info_id=text(member(value, "waba_info").get("waba_id")),
        phone_number_id=(
            text(member(value, "metadata").get("phone_number_id"))
            or text(member(value, "recipient").get("phone_number_id"))
            or text(member(value, "phone_number_settings").get("phone_number_id"))
        ),
        entry_id=entry_id,
        display_phone_number=_NOT_A_DIGIT.sub("", named) or None if named else None,
    )


def person_of(contacts: object) -> Person:
    """The customer whom `contacts` describe, where that is a single one."""
    if not isinstance(contacts, list) or len(contacts) != 1 or not isinstance(contacts[0], dict):
        return NOBODY
    return Person(text(contacts[0].get("wa_id")), text(contacts[0].get("user_id")))


def column(identifier: str | None) -> str | None:
    """An identifier as an indexed column holds it: one longer than 255 characters becomes None."""
    return identifier if identifier is None or len(identifier) <= LONGEST_COLUMN else None


def _named_number(value: JsonObject) -> str | None:
    return (
        text(member(value, "metadata").get("display_phone_number"))
        or text(member(value, "recipient").get("display_phone_number"))
        or text(value.get("display_phone_number"))
        or text(value.get("phone_number"))
    )
