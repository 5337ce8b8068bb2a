"""Notifications in Meta's own format with one change each: the bodies of events for endpoints with `format: meta`.

The notification is built from the event's `data`, because the stored notification may be large and many events share
it. `data` has one item of a Meta list under a singular name (gateway/upstream/notifications/events.py). This module
puts the item back into a list, as the only item.
"""

import re
from typing import Any

import orjson

from gateway import ids
from gateway.upstream.media import media_url
from gateway.upstream.notifications.lossless_json import JsonObject
from gateway.upstream.notifications.split_by_tenant import place_in
from webhooks.events.envelope import Envelope

_ITEM = re.compile(r"\.(\w+)\[\d+\]\Z")
_NAMES = {
    "messages": "message",
    "message_echoes": "message",
    "statuses": "status",
    "errors": "error",
    "user_actions": "user_action",
    "user_preferences": "preference",
    "calls": "call",
    "groups": "group",
}
"""For each of Meta's lists, the member of `data` that has the list's item."""
_FIELDS = {
    "message.inbound": "messages",
    "message.status": "messages",
    "message.error": "messages",
    "user.preferences": "user_preferences",
}
"""The field of each event type whose `data` does not name the field."""


def notification(event: Envelope) -> bytes:
    """Build the notification for one event that came from Meta."""
    data: JsonObject = orjson.loads(event.data)
    if data.keys() <= {"field", "value"}:
        return _cut_out(event)
    head: JsonObject = orjson.loads(event.head)
    found = _ITEM.search(event.raw_path or "")
    list_name = found[1] if found else None
    field = data.pop("field") if "field" in data else _FIELDS.get(head["type"]) or _echoes(event)
    if list_name == "statuses" and data.get("kind") == "payment_status":
        del data["kind"]
    value = _with_list(data, list_name)
    _replace_media_urls(value)
    # Meta adds a time to changes that are not messages, and libraries read it there.
    event_id = ids.decode(ids.EVENT, event.id)
    time = {"time": ids.milliseconds(event_id) // 1000} if event_id and not list_name else {}
    entry = {"id": head["waba_id"], **time, "changes": [{"value": value, "field": field}]}
    return _with_entry(entry)


def _with_entry(entry: JsonObject) -> bytes:
    return orjson.dumps({"object": "whatsapp_business_account", "entry": [entry]})


def _with_list(data: JsonObject, list_name: str | None) -> JsonObject:
    """`data` with its item in a list, under Meta's name and in the item's place."""
    if list_name is None or isinstance(data.get(list_name), list):
        return data
    item = _NAMES.get(list_name)
    return {
        (list_name if name == item else name): ([member] if name == item else member)
        for name, member in data.items()
    }


def _echoes(event: Envelope) -> str:
    """The field of an echo. Meta uses two, and mostly the first one."""
    is_smb = b"smb_message_echoes" in event.raw or not event.has_raw
    return "smb_message_echoes" if is_smb else "message_echoes"


def _replace_media_urls(value: JsonObject) -> None:
    """Replace Meta's media URLs by URLs of the service, at any depth: edits and standby chats nest their messages.

    Meta's URLs require the account's token.
    """
    waiting: list[Any] = [value]
    while waiting:
        content = waiting.pop()
        if isinstance(content, list):
            waiting += content
        elif isinstance(content, dict):
            waiting += content.values()
            if {"url", "id", "mime_type"} <= content.keys():
                media_id = str(content["id"])
                if media_id.isascii() and media_id.isdigit():
                    content["url"] = media_url(media_id)
                else:
                    del content["url"]


def _cut_out(event: Envelope) -> bytes:
    """Cut the event's change out of the notification byte for byte. Used for values that are not objects, or that are
    nested too deeply to be serialised again. Without its notification, `data` is the change.
    """
    if not event.has_raw:
        return _with_entry(
            {"id": orjson.loads(event.head)["waba_id"], "changes": [orjson.Fragment(event.data)]}
        )
    return event.raw if place_in(event.raw_path or "") is None else event.with_own_change().raw
