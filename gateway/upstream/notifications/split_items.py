"""Split into items: a change value with lists (messages, statuses, calls …) becomes one event per item.

Each list comes with a function that describes one of its items; this module puts around the item what
belongs to it: `messaging_product`, `metadata`, the contacts of its customer, and every other member of the
value. It promises that an item of an unexpected kind still comes out, as `meta.other`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from gateway.upstream.notifications.change import META_OTHER, NOBODY, Person, Source, person_of
from gateway.upstream.notifications.drafts import EventDraft, EventType
from gateway.upstream.notifications.lossless_json import JsonObject, text
from gateway.upstream.notifications.message_facts import MessageFacts


class Described(NamedTuple):
    """What one item becomes. `name` is its member in `data`; None keeps the upstream's list, for it alone."""

    type: EventType
    key: str
    name: str | None
    person: Person = NOBODY
    wamid: str | None = None
    kind: str | None = None
    message: MessageFacts | None = None


Describe = Callable[[Source, int, JsonObject], Described]

_HEAD = ("messaging_product", "metadata")


def split_items(source: Source, lists: Mapping[str, Describe], inside: str | None = None) -> list[EventDraft]:
    """One event per item of the value's `lists`, or of the lists of its member `inside`; [] without items."""
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
        described = [_describe(source, describe, index, item) for index, item in enumerate(items)]
        directory = _Directory(contacts, [each.person for each in described])
        for index, (item, each) in enumerate(zip(items, described, strict=True)):
            theirs = directory.contacts_of(each.person)
            around: JsonObject = {"contacts": theirs} if theirs else {}
            if each.name is None:
                around[list_name] = [item]
            else:
                around[each.name] = item
            for name, member in beside.items():
                around.setdefault(name, member)
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
        # Too deep for a hash of its content; its draft fails the same way and becomes `Source.unwritable`.
        return Described(META_OTHER, "", None)


def _completed(person: Person, theirs: list[Any]) -> Person:
    """The ids of an item, with those that only its contact tells."""
    contact = person_of(theirs)
    return Person(person.wa_id or contact.wa_id, person.user_id or contact.user_id)


class _Directory:
    """The contacts of a value, found by the person they describe.

    Contacts may be fewer than items, more (groups), or carry an id in another form than the item. So an
    item that matches none gets all those that match no other item: never another customer's profile.
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
