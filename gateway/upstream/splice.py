"""Cuts a notification down to the changes of one tenant without rewriting what stays.

Called by the incoming flow when one notification holds changes of several tenants: each tenant's `raw` may
hold nothing of another one. It promises that each change and each other member that stays is copied byte for
byte, and that of duplicate keys only the last survives: the one that counts.
"""

import json
import re
from collections.abc import Collection
from typing import NamedTuple

Place = tuple[int, int]  # the indexes of an entry and of a change in it

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = re.compile(rb"[^\s,\]}]+")
_STRING_OR_BRACKET = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_PLACE = re.compile(r"entry\[\d+\]\.changes\[\d+\]")


class _Span(NamedTuple):
    start: int
    end: int


class _Member(NamedTuple):
    """A member of an object, from its name to the end of its value."""

    start: int
    value: int
    end: int


def split(body: bytes, keep: Collection[Place]) -> tuple[bytes, dict[Place, Place]]:
    """The notification with only the changes at the places of `keep`, and the new place of each.

    Entries of which nothing stays are left out; where everything stays the body comes back as it is. `body`
    must be one that `normalise` could read. Raises ValueError when it has no change at a place of `keep`.
    """
    notification = _members(body, _after_space(body, 0))
    entries: list[bytes] = []
    moved: dict[Place, Place] = {}
    left_out = False
    for i, entry in enumerate(_items(body, notification["entry"].value)):
        members = _members(body, entry.start) if body[entry.start] == ord("{") else {}
        listed = members.get("changes")
        changes = _items(body, listed.value) if listed and body[listed.value] == ord("[") else []
        kept = [j for j in range(len(changes)) if (i, j) in keep]
        left_out = left_out or len(kept) < len(changes)
        if kept:
            moved |= {(i, j): (len(entries), new) for new, j in enumerate(kept)}
            entries.append(_with_list(body, members, "changes", [_cut(body, changes[j]) for j in kept]))
    if len(moved) != len(set(keep)):
        raise ValueError("the notification has no change at one of the places to keep")
    if not left_out:
        return body, {place: place for place in moved}
    return _with_list(body, notification, "entry", entries), moved


def rebase(raw_path: str, place: Place) -> str:
    """`raw_path` as it reads when its change stands at `place`, which `split` told."""
    return _PLACE.sub(f"entry[{place[0]}].changes[{place[1]}]", raw_path, count=1)


def _with_list(body: bytes, members: dict[str, _Member], name: str, items: list[bytes]) -> bytes:
    """The object of `members`, its member `name` holding `items` instead."""
    parts = [
        body[each.start : each.value] + b"[" + b",".join(items) + b"]" if key == name else _cut(body, each)
        for key, each in members.items()
    ]
    return b"{" + b",".join(parts) + b"}"


def _cut(body: bytes, span: _Span | _Member) -> bytes:
    return body[span.start : span.end]


def _members(body: bytes, at: int) -> dict[str, _Member]:
    """The members of the object that begins at `at`, the last one of each name."""
    members: dict[str, _Member] = {}
    at = _after_space(body, at + 1)
    while body[at] != ord("}"):
        start, name_end = at, _end(body, at)
        colon = _after_space(body, name_end)
        value = _after_space(body, colon + 1)
        end = _end(body, value)
        members[json.loads(body[start:name_end])] = _Member(start, value, end)
        at = _after_comma(body, end)
    return members


def _items(body: bytes, at: int) -> list[_Span]:
    """The items of the array that begins at `at`."""
    items: list[_Span] = []
    at = _after_space(body, at + 1)
    while body[at] != ord("]"):
        items.append(_Span(at, _end(body, at)))
        at = _after_comma(body, items[-1].end)
    return items


def _end(body: bytes, at: int) -> int:
    """Where the value that begins at `at` ends; however deep it is, there is no recursion."""
    if body[at] not in b'"[{':
        scalar = _SCALAR.match(body, at)
        if scalar is None:
            raise ValueError("not JSON")
        return scalar.end()
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(body, at):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        if depth == 0:
            return token.end()
    raise ValueError("not JSON")


def _after_space(body: bytes, at: int) -> int:
    space = _SPACE.match(body, at)
    return at if space is None else space.end()


def _after_comma(body: bytes, at: int) -> int:
    at = _after_space(body, at)
    return _after_space(body, at + 1) if body[at] == ord(",") else at
