"""Normaliser: splits a notification into event drafts, the first step of the incoming flow.

Called with the raw body after the check of its signature. Pure: no database, no settings, no clock. Never raises, for
any bytes. Each change of a well-formed notification yields at least one draft. Nothing is dropped: unknown content
becomes `meta.other` with the whole value, and a change beyond the limits becomes `meta.other` that refers to `raw`.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import orjson

from gateway.upstream.notifications import events as management
from gateway.upstream.notifications import events as message
from gateway.upstream.notifications.change import (
    Change,
    EventDraft,
    EventType,
    Normalised,
    NoRoomError,
    Room,
    Route,
    Source,
    route_of,
)
from gateway.upstream.notifications.lossless_json import LARGEST_BODY, JsonObject, loads, text

__all__ = ["FIELDS", "Change", "EventDraft", "EventType", "Normalised", "Route", "normalise"]

Handler = Callable[[Source], list[EventDraft]]

# Meta's fields, each with the function that makes its events. A new field needs a function, a line and a golden file.
FIELDS: Mapping[str, Handler] = {
    "messages": message.messages,
    "message_echoes": message.message_echoes,
    "smb_message_echoes": message.message_echoes,
    "history": message.history,
    "smb_app_state_sync": message.app_state_sync,
    "user_preferences": message.user_preferences,
    "user_id_update": message.user_id_update,
    "calls": message.calls,
    "group_lifecycle_update": message.groups,
    "group_participants_update": message.groups,
    "group_participant_update": message.groups,
    "group_settings_update": message.groups,
    "group_status_update": message.groups,
    "automatic_events": message.automatic_events,
    "standby": message.standby,
    "messaging_handovers": management.handover,
    "message_template_status_update": management.template_status,
    "message_template_quality_update": management.template_quality,
    "message_template_components_update": management.template_components,
    "template_category_update": management.template_category,
    "template_correct_category_detection": management.template_category,
    "phone_number_quality_update": management.number_quality,
    "phone_number_name_update": management.number_name,
    "business_username_update": management.username,
    "business_username_updates": management.username,
    "account_update": management.account_update,
    "account_review_update": management.account_update,
    "account_settings_update": management.account_update,
    "business_status_update": management.account_update,
    "account_alerts": management.account_alerts,
    "business_capability_update": management.account_capability,
    "security": management.security,
    "flows": management.other,
    "partner_solutions": management.other,
    "payment_configuration_update": management.other,
    "tracking_events": management.other,
    "campaign_status_update": management.other,
}

# Fields of changes that name no field, by a member of their value. The first match wins.
_FIELD_BY_MEMBER: Mapping[str, str] = {
    "new_quality_score": "message_template_quality_update",
    "message_template_element": "message_template_components_update",
    "correct_category": "template_category_update",
    "new_category": "template_category_update",
    "message_template_id": "message_template_status_update",
    "history": "history",
    "message_echoes": "smb_message_echoes",
    "state_sync": "smb_app_state_sync",
    "user_preferences": "user_preferences",
    "user_id_update": "user_id_update",
    "calls": "calls",
    "groups": "group_lifecycle_update",
    "automatic_events": "automatic_events",
    "standby": "standby",
    "messages": "messages",
    "statuses": "messages",
    "user_actions": "messages",
    "alert_info": "account_alerts",
    "event": "account_update",
}


MOST_OBJECTS, MOST_MEMBERS = 100_000, 1_000_000
"""Limits of a body that is larger than those of Meta, checked before parsing. Of a body beyond them, only what names
its owner is read.
"""
MOST_CHANGES = 10_000
"""Maximum number of changes in a notification. Meta sends at most 1,000. A notification with more is stored whole, with
the reason, and makes no events. If it were rejected, Meta would repeat it for days.
"""


def normalise(body: bytes) -> Normalised:
    """The changes of a notification, each with its route and its events, in the order of the body.

    Never raises. `error` names what is malformed: the whole body (then there are no changes), or the first unreadable
    entry (then all other entries have their changes). `error` contains nothing of the body's content.
    """
    is_larger = len(body) > LARGEST_BODY
    if is_larger and (body.count(b"{") > MOST_OBJECTS or body.count(b",") > MOST_MEMBERS):
        return _outlined(body, f"more than {MOST_OBJECTS} objects or {MOST_MEMBERS} members")
    try:
        notification = loads(body)
    except ValueError:
        error = "the body is not JSON"
        return _outlined(body, error) if is_larger else Normalised((), error)
    if not isinstance(notification, dict):
        return Normalised((), "the body is not an object")
    if notification.get("object") != "whatsapp_business_account":
        return Normalised((), "object is not whatsapp_business_account")
    entries = notification.get("entry")
    if not isinstance(entries, list):
        return Normalised((), "entry is not a list")
    listed = [entry.get("changes") if isinstance(entry, dict) else None for entry in entries]
    if sum(len(changes) for changes in listed if isinstance(changes, list)) > MOST_CHANGES:
        return Normalised((), f"more than {MOST_CHANGES} changes")

    body_hash, room = _BodyHash(body), Room()
    changes: list[Change] = []
    unreadable: str | None = None
    for i, (entry, of_entry) in enumerate(zip(entries, listed, strict=True)):
        if isinstance(of_entry, list):
            changes += [_change(entry, i, change, j, body_hash, room) for j, change in enumerate(of_entry)]
        elif unreadable is None:
            unreadable = (
                f"entry[{i}].changes is not a list"
                if isinstance(entry, dict)
                else f"entry[{i}] is not an object"
            )
    return Normalised(tuple(changes), unreadable)


class _Identifiers(msgspec.Struct):
    phone_number_id: str | int | None = None
    display_phone_number: str | int | None = None
    waba_id: str | int | None = None


class _Value(msgspec.Struct):
    metadata: _Identifiers | None = None
    waba_info: _Identifiers | None = None


class _OutlinedChange(msgspec.Struct):
    value: _Value
    field: str = ""


class _OutlinedEntry(msgspec.Struct):
    changes: tuple[_OutlinedChange]
    id: str | int | None = None


class _Outline(msgspec.Struct):
    """A notification with one change, as nearly all have: only the members that name its owner."""

    object: Literal["whatsapp_business_account"]
    entry: tuple[_OutlinedEntry]


def _outlined(body: bytes, error: str) -> Normalised:
    """The change of a notification that is too large to be parsed whole. Its only event refers to `raw`. `error` is
    returned if the change's owner cannot be read.
    """
    # msgspec rejects half a surrogate pair even in a text that it skips. No identifier has an escape.
    readable = body.replace(rb"\u", rb"\n")
    try:
        (entry,) = msgspec.json.decode(readable, type=_Outline).entry
    except (ValueError, RecursionError):
        return Normalised((), error)
    (change,) = entry.changes
    field, members = text(change.field) or "", msgspec.to_builtins(change.value)
    route = route_of(text(entry.id), members)
    source = Source(0, 0, "entry[0].changes[0].value", field, None, members, route, _BodyHash(body), Room())
    return Normalised((Change(0, 0, field, route, None, (source.unwritable(source.path),)),))


class _BodyHash:
    """SHA-256 of the body, in hex. Computed on demand, because few notifications need it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._digest: str | None = None

    def __call__(self) -> str:
        if self._digest is None:
            self._digest = hashlib.sha256(self._body).hexdigest()
        return self._digest


def _change(
    entry: JsonObject, i: int, change: Any, j: int, body_hash: Callable[[], str], room: Room
) -> Change:
    path = f"entry[{i}].changes[{j}]"
    if isinstance(change, dict) and "value" in change:
        path, value = f"{path}.value", change["value"]
    else:
        value = change
    readable = isinstance(value, dict)
    members: JsonObject = value if readable else {"value": value}
    field = _field(entry, change, members)
    source = Source(
        entry=i,
        change=j,
        path=path,
        field=field,
        time=text(entry.get("time")),
        value=members,
        route=route_of(text(entry.get("id")), members),
        body_hash=body_hash,
        room=room,
    )
    return Change(
        entry=i,
        change=j,
        field=field,
        route=source.route,
        value=members if readable else None,
        drafts=_drafts(source, FIELDS.get(field, management.other) if readable else management.other),
    )


def _drafts(source: Source, handler: Handler) -> tuple[EventDraft, ...]:
    try:
        return tuple(handler(source) or management.other(source))
    except (orjson.JSONEncodeError, NoRoomError):
        # A value can be read with up to 1,024 nested levels, but written with only 254.
        return (source.unwritable(source.path),)


def _field(entry: JsonObject, change: Any, value: JsonObject) -> str:
    """The field of a change. In Meta's own samples it may be inside `value`, beside `changes`, or wrong."""
    beside = text(change.get("field")) if isinstance(change, dict) else None
    field = beside or text(value.get("field")) or text(entry.get("field"))
    if field == "message_template_status_update" and "new_quality_score" in value:
        return "message_template_quality_update"
    if field is None:
        return next((known for name, known in _FIELD_BY_MEMBER.items() if name in value), "")
    return field
