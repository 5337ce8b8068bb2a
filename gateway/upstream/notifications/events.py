"""Events of each notification field, called through the table of `normalise`. Pure functions.

A public function receives the change of one field and returns its events. A field with items (messages, statuses, calls
…) makes one event per item. `split_items` adds `messaging_product`, `metadata`, the contacts of the item's customer and
every other member of the value to each event. A private function decides the item's event type, dedupe key and
customer. An item of an unexpected kind becomes `meta.other`. A value without items has no events here, and the caller
makes one.

Any other field makes one event of its whole value: templates, numbers, the account, and every unknown field. Its key
contains the entry's sending time. So a repetition with another time counts as new, and no second change is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from gateway.upstream.notifications import change
from gateway.upstream.notifications.change import (
    META_OTHER,
    NOBODY,
    EventDraft,
    EventType,
    MessageFacts,
    Person,
    Source,
    person_of,
)
from gateway.upstream.notifications.lossless_json import JsonObject, digest, member, objects, text


class Described(NamedTuple):
    """The event of one item. `name` is the member of `data` that has the item. If it is None, `data` keeps Meta's list,
    with only this item.
    """

    type: EventType
    key: str
    name: str | None
    person: Person = NOBODY
    wamid: str | None = None
    kind: str | None = None
    message: MessageFacts | None = None
    shown: JsonObject | None = None
    """The item in `data`, if it differs from what Meta sent."""


Describe = Callable[[Source, int, JsonObject], Described]

_HEAD = ("messaging_product", "metadata")


def split_items(source: Source, lists: Mapping[str, Describe], inside: str | None = None) -> list[EventDraft]:
    """One event per item in the value's `lists`, or in the lists of its member `inside`. Empty without items."""
    value = source.value
    holder: Any = value if inside is None else value.get(inside)
    if not isinstance(holder, dict):
        return []
    head = {name: value[name] for name in _HEAD if name in value}
    taken = {name for name in (*lists, "contacts") if isinstance(holder.get(name), list)}
    beside = {name: member for name, member in holder.items() if name not in taken and name not in head}
    outside = {} if inside is None else {n: m for n, m in value.items() if n not in head and n != inside}
    contacts = holder["contacts"] if "contacts" in taken else []
    path = source.path if inside is None else f"{source.path}.{inside}"

    drafts: list[EventDraft] = []
    for list_name, describe in lists.items():
        if list_name not in taken:
            continue
        items = holder[list_name]
        source.room.expect(len(items))
        described = [_describe(source, describe, index, item) for index, item in enumerate(items)]
        directory = _Directory(contacts, [each.person for each in described])
        for index, (item, each) in enumerate(zip(items, described, strict=True)):
            theirs = directory.contacts_of(each.person)
            around: JsonObject = {"contacts": theirs} if theirs else {}
            if each.name is None:
                around[list_name] = [item]
            else:
                around[each.name] = item if each.shown is None else each.shown
            for name, other_member in beside.items():
                around.setdefault(name, other_member)
            data = {**head, **around} if inside is None else {**head, inside: around, **outside}
            if each.kind is not None:
                data["kind"] = each.kind
            if each.type == META_OTHER:
                data["field"] = source.field
            item_path = f"{path}.{list_name}[{index}]"
            try:
                draft = source.draft(
                    each.type,
                    key=each.key,
                    data=data,
                    path=item_path,
                    person=_completed(each.person, theirs),
                    wamid=each.wamid,
                    message=each.message,
                )
            except orjson.JSONEncodeError:
                draft = source.unwritable(item_path, list_name, str(index))
            drafts.append(draft)
    return drafts


def _describe(source: Source, describe: Describe, index: int, item: object) -> Described:
    try:
        if isinstance(item, dict):
            return describe(source, index, item)
        return Described(META_OTHER, source.unnamed_key(item), None)
    except orjson.JSONEncodeError:
        # The item is nested too deeply to hash. Its draft fails in the same way, and `Source.unwritable` replaces it.
        return Described(META_OTHER, "", None)


def _completed(person: Person, theirs: list[Any]) -> Person:
    """The ids of an item, completed by the ids of its contact."""
    contact = person_of(theirs)
    return Person(person.wa_id or contact.wa_id, person.user_id or contact.user_id)


class _Directory:
    """The contacts of a value, found by the customer that they describe.

    There may be fewer contacts than items, more contacts (groups), or a contact with another form of the item's id. So
    an item without a matching contact gets all contacts that match no other item. No item gets another customer's
    profile.
    """

    def __init__(self, contacts: list[Any], persons: Iterable[Person]) -> None:
        self._by_user_id: dict[str, Any] = {}
        self._by_wa_id: dict[str, Any] = {}
        for contact in contacts:
            if isinstance(contact, dict):
                if user_id := text(contact.get("user_id")):
                    self._by_user_id.setdefault(user_id, contact)
                if wa_id := text(contact.get("wa_id")):
                    self._by_wa_id.setdefault(wa_id, contact)
        matches = [self._match(person) for person in persons]
        matched = {id(match) for match in matches if match is not None}
        self._unmatched = [contact for contact in contacts if id(contact) not in matched]

    def contacts_of(self, person: Person) -> list[Any]:
        match = self._match(person)
        return self._unmatched if match is None else [match]

    def _match(self, person: Person) -> Any:
        found = self._by_user_id.get(person.user_id) if person.user_id else None
        if found is None and person.wa_id:
            found = self._by_wa_id.get(person.wa_id)
        return found


def messages(source: Source) -> list[EventDraft]:
    """Inbound messages, statuses, errors without a message, and clicks. One value can contain several kinds."""
    lists = {"messages": _message, "statuses": _status, "errors": _error, "user_actions": _user_action}
    return split_items(source, lists)


def message_echoes(source: Source) -> list[EventDraft]:
    """Messages that the business wrote in its own WhatsApp Business app."""
    return split_items(source, {"message_echoes": _echo})


def history(source: Source) -> list[EventDraft]:
    """One event for a piece of the old chats, and `message.history` for each message.

    Bots would answer old messages if their type were `message.inbound`. The files of messages come later, in separate
    lists. A value with a part that is too deep to write again fails as a whole, in `_piece`.
    """
    return [*_piece(source), *_old_messages(source)]


def _old_messages(source: Source) -> Iterator[EventDraft]:
    value = source.value
    for name in ("messages", "message_echoes"):
        for index, item in objects(value, name):
            # A file that the business sent comes in `messages`, too.
            is_own = name == "message_echoes" or _is_own(source, item)
            to = Person(text(item.get("to")), text(item.get("to_user_id")))
            yield _old_message(
                source, item, f"{name}[{index}]", to if is_own else _sender(item), is_own=is_own
            )
    for place, piece in objects(value, "history"):
        for number, thread in objects(piece, "threads"):
            known = member(thread, "context")
            person = Person(text(thread.get("id")) or text(known.get("wa_id")), text(known.get("user_id")))
            for index, item in objects(thread, "messages"):
                path = f"history[{place}].threads[{number}].messages[{index}]"
                yield _old_message(source, item, path, person, is_own=_is_own(source, item))


def _is_own(source: Source, item: JsonObject) -> bool:
    """Whether the business wrote an old message."""
    said = member(item, "history_context").get("from_me")
    if isinstance(said, bool):
        return said
    sender = text(item.get("from"))
    return sender is not None and sender == source.route.display_phone_number


def _old_message(source: Source, item: JsonObject, path: str, person: Person, *, is_own: bool) -> EventDraft:
    wamid = text(item.get("id"))
    return source.draft(
        "message.history",
        key=source.key("hist", wamid, text(item.get("type")), of=item),
        data={**{name: source.value[name] for name in _HEAD if name in source.value}, "message": item},
        path=f"{source.path}.{path}",
        person=person,
        wamid=wamid,
        message=change.of_old_message(item, "outbound" if is_own else "inbound"),
    )


def _piece(source: Source) -> list[EventDraft]:
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
    """Changes of contacts in the business's own app."""
    return split_items(source, {"state_sync": _contact_change})


def user_preferences(source: Source) -> list[EventDraft]:
    """Customers who stop or resume marketing messages at Meta."""
    return split_items(source, {"user_preferences": _preference})


def user_id_update(source: Source) -> list[EventDraft]:
    """New business-scoped ids of customers."""
    return split_items(source, {"user_id_update": _new_user_id})


def calls(source: Source) -> list[EventDraft]:
    """Calls, their ringing states and their errors."""
    return split_items(source, {"calls": _call, "statuses": _call_status, "errors": _call_error})


def groups(source: Source) -> list[EventDraft]:
    """Creation, members, settings and suspension of groups."""
    return split_items(source, {"groups": _group})


def automatic_events(source: Source) -> list[EventDraft]:
    """Leads and purchases that Meta recognised in a chat."""
    return split_items(source, {"automatic_events": _automatic_event})


def standby(source: Source) -> list[EventDraft]:
    """Messages in chats that Meta's own agent handles. They are not `message.inbound`, because bots must not answer."""
    lists = {"messages": _standby_message, "message_echoes": _standby_message, "statuses": _standby_status}
    return split_items(source, lists, inside="standby")


def _message(source: Source, _index: int, item: JsonObject) -> Described:
    wamid = text(item.get("id"))
    key = source.key("msg", wamid, of=item)
    facts = change.of_message(item, "inbound")
    shown = _with_flow_response(item)
    return Described("message.inbound", key, "message", _sender(item), wamid, message=facts, shown=shown)


def _with_flow_response(item: JsonObject) -> JsonObject | None:
    """A finished Flow with the member `response`, its `flow_response`. None for any other message."""
    interactive = member(item, "interactive")
    reply = member(interactive, "nfm_reply")
    response = change.flow_response(item)
    if response is None or "response" in reply:
        return None
    return {**item, "interactive": {**interactive, "nfm_reply": {**reply, "response": response}}}


def _status(source: Source, _index: int, item: JsonObject) -> Described:
    if item.get("type") == "payment":
        return _payment(source, item)
    wamid = text(item.get("id"))
    key = source.key("status", wamid, text(item.get("status")), *_participant(item), of=item)
    facts = change.of_status(item)
    if facts.is_group and _recipient(item) != NOBODY:
        facts = facts._replace(is_participants=True)
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
    facts = change.of_message(item, "outbound")
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
    # Meta documents two forms: {"user_id": {"previous", "current"}} and flat members.
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
    # An echo's `message` is the body that was sent, so its recipient is the customer.
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
    """The customer of a status. In a group that is a participant, because `recipient_id` is the group."""
    if item.get("recipient_type") == "group":
        return Person(
            text(item.get("recipient_participant_id")) or text(item.get("participant_recipient_id")),
            text(item.get("recipient_participant_user_id")),
        )
    return Person(text(item.get("recipient_id")), text(item.get("recipient_user_id")))


def _participant(item: JsonObject) -> tuple[str | None, ...]:
    """An addition to the key of a group's status, because each participant has a status for the same message."""
    if item.get("recipient_type") != "group":
        return ()
    person = _recipient(item)
    return (person.wa_id or person.user_id,)


def _key_by_place(source: Source, prefix: str, index: int) -> str:
    """The key of an error, made of its place in the notification, because an error has no identity."""
    return f"{prefix}:{source.body_hash()}:{source.entry}.{source.change}.{index}"


def template_status(source: Source) -> list[EventDraft]:
    """Review results, pauses, locks and deletions of a message template."""
    return source.whole(
        "template.status", *_template(source), "status", text(source.value.get("event")), source.time
    )


def template_quality(source: Source) -> list[EventDraft]:
    """A new quality score of a message template."""
    value = source.value
    scores = f"{_optional(value, 'previous_quality_score')}-{_optional(value, 'new_quality_score')}"
    return source.whole("template.quality", *_template(source), "quality", scores, source.time)


def template_category(source: Source) -> list[EventDraft]:
    """A template that was moved to another category, or will be."""
    value = source.value
    # Notifications of Direct Send name the current category `category`.
    present = _optional(value, "new_category") or _optional(value, "category")
    categories = f"{_optional(value, 'previous_category')}-{present}-{_optional(value, 'correct_category')}"
    time = text(value.get("category_update_timestamp")) or source.time
    return source.whole("template.category", *_template(source), "category", categories, time)


def template_components(source: Source) -> list[EventDraft]:
    """A template whose text, header or buttons were edited."""
    return source.whole(META_OTHER, *_template(source), "components", source.time)


def number_quality(source: Source) -> list[EventDraft]:
    """A new messaging limit or throughput of a number, or a flag on it."""
    value = source.value
    limit = _optional(value, "current_limit") or _optional(value, "max_daily_conversations_per_business")
    return source.whole(
        "number.quality", *_number(source, "num"), "quality", text(value.get("event")), limit, source.time
    )


def number_name(source: Source) -> list[EventDraft]:
    """The decision on a number's display name."""
    decision = text(source.value.get("decision"))
    return source.whole("number.name", *_number(source, "num"), "name", decision, source.time)


def username(source: Source) -> list[EventDraft]:
    """A business username that was reserved, approved or deleted."""
    status, name = text(source.value.get("status")), _optional(source.value, "username")
    return source.whole(META_OTHER, *_number(source, "uname"), status, name, source.time)


def account_update(source: Source) -> list[EventDraft]:
    """Restriction, ban, partners, deletion, review or settings, by `field` and `event`."""
    account = source.route.waba_info_id or source.route.entry_id
    what = text(source.value.get("event")) or source.field
    return source.whole("account.update", "acct", account, what, source.time, digest(source.value)[:8])


def account_alerts(source: Source) -> list[EventDraft]:
    """Warnings about a business, an account or a number. Older warnings have the `alert_*` members at the top level."""
    value = source.value
    alert = member(value, "alert_info") or value
    return source.whole(
        "account.alerts",
        "alert",
        text(value.get("entity_id")),
        text(alert.get("alert_type")),
        text(alert.get("alert_status")),
        source.time,
    )


def account_capability(source: Source) -> list[EventDraft]:
    """New limits of the business: daily conversations, count of numbers."""
    account = source.route.waba_info_id or source.route.entry_id
    return source.whole("account.capability", "cap", account, digest(source.value)[:8], source.time)


def security(source: Source) -> list[EventDraft]:
    """Changes of a number's two-step PIN, and requests to reset it."""
    return source.whole(
        "account.security", *_number(source, "sec"), text(source.value.get("event")), source.time
    )


def handover(source: Source) -> list[EventDraft]:
    """A chat that passed between apps and Meta's own agent."""
    sender = member(source.value, "sender")
    person = Person(
        text(sender.get("phone_number")) or text(sender.get("wa_id")), text(sender.get("user_id"))
    )
    return source.whole(META_OTHER, *source.unnamed(source.value), person=person)


def other(source: Source) -> list[EventDraft]:
    """The whole value of a change whose field does not have its own event type."""
    return source.whole(META_OTHER, *source.unnamed(source.value))


def _template(source: Source) -> tuple[str, str | None]:
    return "tpl", text(source.value.get("message_template_id"))


def _number(source: Source, prefix: str) -> tuple[str, str | None]:
    return prefix, source.route.display_phone_number


def _optional(value: JsonObject, name: str) -> str:
    return text(value.get(name)) or ""
