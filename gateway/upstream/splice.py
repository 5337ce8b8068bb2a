"""Cuts a notification down to the changes of one tenant without rewriting what stays.

Called by the incoming flow when one notification holds changes of several tenants: each tenant's `raw` may
hold nothing of another one. It promises that each change and each other member that stays is copied byte for
byte, and that of duplicate keys only the last survives: the one that counts.
"""

import json
import re
from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
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


class _Entry(NamedTuple):
    members: dict[str, _Member]
    changes: list[_Span]


class Splitter:
    """A notification that is read once and cut for as many tenants as it has.

    `body` must be one that `normalise` could read.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._notification = _members(body, _after_space(body, 0))
        self._entries = [_entry(body, span) for span in _items(body, self._notification["entry"].value)]
        self._places = frozenset(
            (i, j) for i, entry in enumerate(self._entries) for j in range(len(entry.changes))
        )

    def split(self, keep: Collection[Place]) -> tuple[bytes, dict[Place, Place]]:
        """The notification with only the changes at the places of `keep`, and the new place of each.

        Entries of which nothing stays are left out; where everything stays the body comes back as it is.
        Raises ValueError when there is no change at one of the places.
        """
        kept = set(keep)
        if not kept <= self._places:
            raise ValueError("the notification has no change at one of the places to keep")
        if len(kept) == len(self._places):
            return self._body, {place: place for place in kept}
        entries: list[bytes] = []
        moved: dict[Place, Place] = {}
        for i, places in groupby(sorted(kept), key=itemgetter(0)):
            changes: list[bytes] = []
            for place in places:
                moved[place] = (len(entries), len(changes))
                changes.append(_cut(self._body, self._entries[i].changes[place[1]]))
            entries.append(_with_list(self._body, self._entries[i].members, "changes", changes))
        return _with_list(self._body, self._notification, "entry", entries), moved


def rebase(raw_path: str, place: Place) -> str:
    """`raw_path` as it reads when its change stands at `place`, its new one."""
    return _PLACE.sub(f"entry[{place[0]}].changes[{place[1]}]", raw_path)


def _entry(body: bytes, span: _Span) -> _Entry:
    """An entry; one that is no object or has no list of changes has nothing to keep."""
    members = _members(body, span.start) if body[span.start] == ord("{") else {}
    changes = members.get("changes")
    if changes is None or body[changes.value] != ord("["):
        return _Entry(members, [])
    return _Entry(members, _items(body, changes.value))


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
