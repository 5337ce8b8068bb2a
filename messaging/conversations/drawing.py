"""Builds the bubbles of a conversation, as the team sees it, from the stored bodies of events. Pure functions.

A bubble looks the same as on the customer's phone, but the business is on the right. For a body of an unknown form, the
bubble shows only the type. So one odd message does not hide the conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from messaging.message_templates import parameters
from phone_numbers.sandbox import bubbles
from phone_numbers.sandbox.bubbles import Bubble
from webhooks.models import Message

EXPIRED = "The text is no longer kept."
CHANGES = {"edit": "edited", "revoke": "deleted"}
"""Types of messages that change another message, each with the label for the changed message."""
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""The errors that occur when members of a body do not have the types in WhatsApp's documentation."""
Documents = Mapping[tuple[str, str], Mapping[str, Any]]
"""Templates as WhatsApp describes them, by name and language."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the log, with the content of its event's stored body."""

    row: Message
    body: Mapping[str, Any] | None = field(repr=False)
    """The message object. None past retention."""
    name: str = ""
    """The customer's name from the notification."""


@dataclass(frozen=True, slots=True)
class Line:
    """A message of a thread."""

    row: Message
    bubble: Bubble

    @property
    def ticks(self) -> str:
        """The tick marks for the status of the business's own message."""
        return bubbles.TICKS.get(self.row.status, "")

    @property
    def steps(self) -> list[tuple[str, datetime]]:
        """The time at which each status was reached."""
        row = self.row
        if row.direction == "inbound":
            return []
        times = (
            ("Accepted", row.accepted_at),
            ("Sent", row.sent_at),
            ("Delivered", row.delivered_at),
            ("Read", row.read_at),
            ("Failed", row.failed_at),
        )
        return [(word, at) for word, at in times if at is not None]


def said(row: Message, content: bytes | None) -> Said:
    """A message from its row and from the stored `data` of its event."""
    try:
        data = orjson.loads(content) if content is not None else None
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        return Said(row, None)
    body = data.get("request") or data.get("message")
    return Said(
        row, body if isinstance(body, dict) else {}, _name(data) if row.direction == "inbound" else ""
    )


def recipient(message: Said) -> str:
    """The recipient in the sent request. Empty for a customer's message, and past retention."""
    body = message.body if message.body is not None and message.row.direction == "outbound" else {}
    to = body.get("to") or body.get("recipient")
    return to if isinstance(to, str) else ""


def lines_of(messages: Sequence[Said], documents: Documents) -> list[Line]:
    """The lines of a thread, oldest first. `messages` are newest first. A reaction or change is shown at the message
    that it refers to.
    """
    own = [message for message in messages if not _is_about_another(message)]
    known = {message.row.key for message in own}
    marks = _marks(reversed(messages))
    gists = {message.row.key: gist(message, documents, marks.get(message.row.key, {})) for message in own}
    lines = [
        Line(message.row, _bubble(message, marks.get(message.row.key, {}), gists, documents))
        for message in reversed(own)
    ]
    strays = [
        Line(message.row, _plain(message, _reacted(emoji)))
        for message in messages
        if message.row.type == "reaction" and message.body is not None
        for target, emoji in [_reaction(message.body)]
        if target not in known
    ]
    return sorted([*lines, *strays], key=lambda line: line.row.id)


def gist(message: Said, documents: Documents, mark: Mapping[str, Any] | None = None) -> str:
    """A message in one line. `mark` is its edit or deletion, if any."""
    if message.body is None:
        return EXPIRED
    kind = message.row.type or ""
    if kind == "reaction":
        return _reacted(_reaction(message.body)[1])
    if kind == "revoke":
        return "Deleted a message"
    if kind == "edit":
        return _edited(message, _change(message.body, kind).get("message"))
    try:
        return bubbles.gist(_drawable(message, mark or {}, documents))
    except _UNREADABLE:
        return _named_by_type(message)


def texts(message: Said, documents: Documents) -> str:
    """All texts in a message."""
    drawn = _bubble(message, {}, {}, documents)
    name = drawn.file.name if drawn.file else ""
    return "\n".join(filter(None, (message.name, drawn.head, *drawn.lines, drawn.foot, name)))


def failure(row: Message, cause: str | None) -> str:
    """Why a message was not delivered, as a sentence."""
    if row.failed_at is None and row.error_code is None:
        return ""
    reason = cause or "WhatsApp gave no reason."
    return f"{reason} (code {row.error_code})" if row.error_code else reason


def _bubble(message: Said, mark: Mapping[str, Any], gists: Mapping[str, str], documents: Documents) -> Bubble:
    if message.body is None:
        return _plain(message, EXPIRED)
    try:
        return bubbles.bubble_of(_drawable(message, mark, documents), gists)
    except _UNREADABLE:
        return _plain(message, _named_by_type(message))


def _plain(message: Said, text: str) -> Bubble:
    """A bubble with a sentence instead of the content."""
    empty = bubbles.bubble_of(_drawable(replace(message, body={}), {"change": "deleted"}, {}), {})
    return replace(empty, lines=[text], change="")


def _named_by_type(message: Said) -> str:
    return f"A message of the type {message.row.type or 'unknown'}"


def _drawable(message: Said, mark: Mapping[str, Any], documents: Documents) -> dict[str, Any]:
    """The message for the drawing code. The page itself decides on which side the bubble is."""
    row, body = message.row, mark.get("body") or message.body or {}
    return {
        "id": row.key,
        "direction": row.direction,
        "body": body,
        "timestamp": (row.sent_at or row.accepted_at or row.created_at).timestamp(),
        "status": row.status,
        "reaction": mark.get("reaction"),
        "change": mark.get("change"),
        "rendered": _rendered(body.get("template"), documents),
    }


def _rendered(template: object, documents: Documents) -> dict[str, Any]:
    """A sent template as the customer reads it. For a template that is no longer known, only its name."""
    if not isinstance(template, Mapping):
        return {}
    language = template.get("language")
    code = str(language.get("code")) if isinstance(language, Mapping) else ""
    name = str(template.get("name"))
    document = documents.get((name, code))
    if document is None:
        return {"body": f"Template {name}"}
    parts = parameters.as_read(document, parameters.values_of(template))
    text = dict(parts)
    return {
        "header": {"type": "text", "text": text.get("header", "")},
        "body": text.get("body", ""),
        "footer": text.get("footer", ""),
        "buttons": [{"type": "QUICK_REPLY", "text": label} for kind, label in parts if kind == "button"],
    }


def _marks(messages: Iterable[Said]) -> dict[str, dict[str, Any]]:
    """The reactions, edits and deletions among messages (oldest first), by the id of the message that they refer to."""
    marks: dict[str, dict[str, Any]] = {}
    for message in messages:
        body, kind = message.body, message.row.type or ""
        if body is None:
            continue
        if kind == "reaction":
            target, emoji = _reaction(body)
            marks.setdefault(target, {})["reaction"] = emoji
        elif kind in CHANGES:
            about = _change(body, kind)
            mark = marks.setdefault(str(about.get("original_message_id")), {})
            mark["change"] = CHANGES[kind]
            if isinstance(about.get("message"), Mapping):
                mark["body"] = about["message"]
    return marks


def _is_about_another(message: Said) -> bool:
    return message.row.type == "reaction" or message.row.type in CHANGES


def _change(body: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """What a message edits or deletes, and its new content. Empty if the body has an unknown form."""
    about = body.get(kind)
    return about if isinstance(about, Mapping) else {}


def _edited(message: Said, content: object) -> str:
    """An edit in one line, from the new content of the edited message."""
    with suppress(*_UNREADABLE):
        if isinstance(content, Mapping):
            return f"Edited: {bubbles.gist(_drawable(message, {'body': content}, {}))}"
    return "Edited a message"


def _reacted(emoji: str) -> str:
    return f"Reacted with {emoji}" if emoji else "Took a reaction back"


def _reaction(body: Mapping[str, Any]) -> tuple[str, str]:
    """The id of the message that a reaction refers to, and its emoji. The emoji is empty for a removed reaction."""
    reaction = body.get("reaction")
    if not isinstance(reaction, Mapping):
        return "", ""
    return str(reaction.get("message_id") or ""), str(reaction.get("emoji") or "")


def _name(data: Mapping[str, Any]) -> str:
    contacts = data.get("contacts")
    first = contacts[0] if isinstance(contacts, list) and contacts else None
    profile = first.get("profile") if isinstance(first, Mapping) else None
    name = profile.get("name") if isinstance(profile, Mapping) else None
    return name.strip() if isinstance(name, str) else ""
