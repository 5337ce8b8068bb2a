"""Events of notification fields that hold items: inbound messages, statuses, echoes, preferences, calls, groups.

Called through the table of `normalise`. A public function takes the change of one field; each `_function`
says of one item what event it becomes, by which key a repetition is known, and which customer it concerns.
It promises one event per item; a value without any item is left to the caller.
"""

from gateway.upstream.notifications import message_facts
from gateway.upstream.notifications.change import META_OTHER, Person, Source
from gateway.upstream.notifications.drafts import EventDraft
from gateway.upstream.notifications.lossless_json import JsonObject, digest, member, text
from gateway.upstream.notifications.split_items import Described, split_items


def messages(source: Source) -> list[EventDraft]:
    """Inbound messages, statuses, errors without a message, and clicks; one value can hold several kinds."""
    lists = {"messages": _message, "statuses": _status, "errors": _error, "user_actions": _user_action}
    return split_items(source, lists)


def message_echoes(source: Source) -> list[EventDraft]:
    """What the business wrote in its own WhatsApp Business app."""
    return split_items(source, {"message_echoes": _echo})


def history(source: Source) -> list[EventDraft]:
    """A piece of the old chats, whole: as `message.inbound` they would make bots answer old mail."""
    pieces = source.value.get("history")
    first = pieces[0] if isinstance(pieces, list) and pieces and isinstance(pieces[0], dict) else {}
    phase, order = (
        text(member(first, "metadata").get("phase")),
        text(member(first, "metadata").get("chunk_order")),
    )
    number = source.route.phone_number_id
    if phase is None or order is None:
        return source.whole(META_OTHER, "history", number, digest(source.value))
    return source.whole(META_OTHER, "history", number, f"{phase}.{order}", digest(source.value)[:8])


def app_state_sync(source: Source) -> list[EventDraft]:
    """Changes of the contact book in the business's own app."""
    return split_items(source, {"state_sync": _contact_change})


def user_preferences(source: Source) -> list[EventDraft]:
    """Customers who stop or resume marketing messages on the upstream's side."""
    return split_items(source, {"user_preferences": _preference})


def user_id_update(source: Source) -> list[EventDraft]:
    """New business-scoped ids of customers."""
    return split_items(source, {"user_id_update": _new_user_id})


def calls(source: Source) -> list[EventDraft]:
    """Calls, their ringing states and their errors."""
    return split_items(source, {"calls": _call, "statuses": _call_status, "errors": _call_error})


def groups(source: Source) -> list[EventDraft]:
    """Life, members, settings and suspension of groups."""
    return split_items(source, {"groups": _group})


def automatic_events(source: Source) -> list[EventDraft]:
    """Leads and purchases that the upstream recognised in a chat."""
    return split_items(source, {"automatic_events": _automatic_event})


def standby(source: Source) -> list[EventDraft]:
    """Traffic of chats that Meta's own agent holds; not `message.inbound`, since a bot must not answer it."""
    lists = {"messages": _standby_message, "message_echoes": _standby_message, "statuses": _standby_status}
    return split_items(source, lists, inside="standby")


def _message(source: Source, _index: int, item: JsonObject) -> Described:
    wamid = text(item.get("id"))
    key = source.key("msg", wamid, of=item)
    facts = message_facts.of_message(item, "inbound")
    return Described("message.inbound", key, "message", _sender(item), wamid, message=facts)


def _status(source: Source, _index: int, item: JsonObject) -> Described:
    if item.get("type") == "payment":
        return _payment(source, item)
    wamid = text(item.get("id"))
    key = source.key("status", wamid, text(item.get("status")), *_participant(item), of=item)
    facts = message_facts.of_status(item)
    return Described("message.status", key, "status", _recipient(item), wamid, message=facts)


def _payment(source: Source, item: JsonObject) -> Described:
    reference = text(member(item, "payment").get("reference_id"))
    key = source.key("payment", text(item.get("id")), reference, digest(item)[:8], of=item)
    return Described(META_OTHER, key, "status", _recipient(item), kind="payment_status")


def _error(source: Source, index: int, _item: JsonObject) -> Described:
    return Described("message.error", _key_by_place(source, "err", index), "error")


def _user_action(source: Source, _index: int, item: JsonObject) -> Described:
    click = text(member(item, "marketing_messages_link_click_data").get("click_id"))
    key = source.unnamed_key(item) if click is None else source.key("click", click, of=item)
    return Described(META_OTHER, key, "user_action", _holder(item))


def _echo(source: Source, _index: int, item: JsonObject) -> Described:
    wamid = text(item.get("id"))
    person = Person(text(item.get("to")), text(item.get("to_user_id")))
    facts = message_facts.of_message(item, "outbound")
    return Described(
        "message.echo", source.key("echo", wamid, of=item), "message", person, wamid, message=facts
    )


def _contact_change(source: Source, _index: int, item: JsonObject) -> Described:
    contact = member(item, "contact")
    person = Person(text(contact.get("phone_number")), text(contact.get("user_id")))
    key = source.key(
        "contact",
        source.route.phone_number_id,
        person.wa_id or person.user_id,
        text(item.get("action")),
        text(member(item, "metadata").get("timestamp")),
        of=item,
    )
    return Described(META_OTHER, key, None, person)


def _preference(source: Source, _index: int, item: JsonObject) -> Described:
    person = _holder(item)
    key = source.key(
        "pref",
        source.route.phone_number_id,
        person.user_id or person.wa_id,
        text(item.get("category")),
        text(item.get("value")),
        text(item.get("timestamp")),
        of=item,
    )
    return Described("user.preferences", key, "preference", person)


def _new_user_id(source: Source, _index: int, item: JsonObject) -> Described:
    # Two shapes were published: {"user_id": {"previous", "current"}} and flat members.
    ids = member(item, "user_id")
    previous = text(ids.get("previous")) or text(item.get("previous_user_id"))
    current = text(ids.get("current")) or text(item.get("user_id"))
    key = source.key("uid", source.route.phone_number_id, previous, current, of=item)
    return Described(META_OTHER, key, None, Person(text(item.get("wa_id")), current))


def _call(source: Source, _index: int, item: JsonObject) -> Described:
    side = "to" if item.get("direction") == "BUSINESS_INITIATED" else "from"
    person = Person(text(item.get(side)), text(item.get(f"{side}_user_id")))
    key = source.key("call", text(item.get("id")), text(item.get("event")), of=item)
    return Described(META_OTHER, key, "call", person)


def _call_status(source: Source, _index: int, item: JsonObject) -> Described:
    key = source.key("call", text(item.get("id")), text(item.get("status")), of=item)
    return Described(META_OTHER, key, "status", _recipient(item))


def _call_error(source: Source, index: int, _item: JsonObject) -> Described:
    return Described(META_OTHER, _key_by_place(source, "call", index), "error")


def _group(source: Source, _index: int, item: JsonObject) -> Described:
    key = source.key(
        "group",
        text(item.get("group_id")),
        text(item.get("type")),
        text(item.get("request_id")) or text(item.get("join_request_id")) or text(item.get("timestamp")),
        digest(item)[:8],
        of=item,
    )
    return Described(META_OTHER, key, "group", _holder(item))


def _automatic_event(source: Source, _index: int, item: JsonObject) -> Described:
    return Described(META_OTHER, source.unnamed_key(item), None, wamid=text(item.get("id")))


def _standby_message(source: Source, _index: int, item: JsonObject) -> Described:
    wamid = text(item.get("id"))
    # An echo's `message` is the body that was sent, so the customer is its recipient.
    sent = member(item, "message") or item
    outgoing = Person(text(sent.get("to")), text(sent.get("to_user_id")) or text(sent.get("recipient")))
    person = outgoing if outgoing != Person() else _sender(item)
    return Described(META_OTHER, source.key("standby", wamid, of=item), None, person, wamid)


def _standby_status(source: Source, _index: int, item: JsonObject) -> Described:
    wamid = text(item.get("id"))
    key = source.key("standby", wamid, text(item.get("status")), *_participant(item), of=item)
    return Described(META_OTHER, key, None, _recipient(item), wamid)


def _sender(item: JsonObject) -> Person:
    return Person(text(item.get("from")), text(item.get("from_user_id")))


def _holder(item: JsonObject) -> Person:
    return Person(text(item.get("wa_id")), text(item.get("user_id")))


def _recipient(item: JsonObject) -> Person:
    """The customer of a status: in a group a participant, since `recipient_id` is the group there."""
    if item.get("recipient_type") == "group":
        return Person(
            text(item.get("recipient_participant_id")) or text(item.get("participant_recipient_id")),
            text(item.get("recipient_participant_user_id")),
        )
    return Person(text(item.get("recipient_id")), text(item.get("recipient_user_id")))


def _participant(item: JsonObject) -> tuple[str | None, ...]:
    """What a status key adds for groups, where each participant has a status of the same message."""
    if item.get("recipient_type") != "group":
        return ()
    person = _recipient(item)
    return (person.wa_id or person.user_id,)


def _key_by_place(source: Source, prefix: str, index: int) -> str:
    """Errors have no identity: each place in each notification is another one."""
    return f"{prefix}:{source.body_hash()}:{source.entry}.{source.change}.{index}"
