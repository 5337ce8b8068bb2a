"""Split by tenant: reduce a notification to the changes of one tenant. The remaining bytes are unchanged.

The incoming flow splits a notification with changes of several tenants, because a tenant's `raw` must contain nothing
of another tenant. Meta's delivery format uses the splitter to build a notification with a single change. Each remaining
change and member is copied byte for byte. If members have the same key, only the last remains, because parsers use it.
"""

import re
from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from gateway.json_spans import ByteSpan, Member, cut, items_at, members_at, root_members

Place = tuple[int, int]  # the index of an entry, and the index of a change in the entry

_PLACE = re.compile(r"entry\[(\d+)\]\.changes\[(\d+)\]")


class _Entry(NamedTuple):
    members: dict[str, Member]
    changes: list[ByteSpan]


class Splitter:
    """A notification that is parsed once and split for all its tenants.

    `body` must be readable by `normalise`.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._notification = root_members(body)
        self._entries = [_entry(body, span) for span in items_at(body, self._notification["entry"].value)]
        self._places = frozenset(
            (i, j) for i, entry in enumerate(self._entries) for j in range(len(entry.changes))
        )

    def split(self, keep: Collection[Place]) -> tuple[bytes, dict[Place, Place]]:
        """The notification with only the changes at the places `keep`, and the new place of each.

        Leaves out entries without remaining changes. If all changes remain, the body is returned unchanged. Raises
        ValueError when there is no change at one of the places.
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
                changes.append(cut(self._body, self._entries[i].changes[place[1]]))
            entries.append(_with_list(self._body, self._entries[i].members, "changes", changes))
        return _with_list(self._body, self._notification, "entry", entries), moved


def place_in(raw_path: str) -> Place | None:
    """The place of the change to which a `raw_path` leads. None if it leads to no change."""
    found = _PLACE.match(raw_path)
    return (int(found[1]), int(found[2])) if found else None


def rebase(raw_path: str, place: Place) -> str:
    """The `raw_path` of a change that has moved to `place`."""
    return _PLACE.sub(f"entry[{place[0]}].changes[{place[1]}]", raw_path)


def _entry(body: bytes, span: ByteSpan) -> _Entry:
    """Parse an entry. Nothing is kept of an entry that is not an object or has no list of changes."""
    members = members_at(body, span.start) if body[span.start] == ord("{") else {}
    changes = members.get("changes")
    if changes is None or body[changes.value] != ord("["):
        return _Entry(members, [])
    return _Entry(members, items_at(body, changes.value))


def _with_list(body: bytes, members: dict[str, Member], name: str, items: list[bytes]) -> bytes:
    """The object of `members`, where `items` replace the list of the member `name`."""
    parts = [
        body[each.start : each.value] + b"[" + b",".join(items) + b"]" if key == name else cut(body, each)
        for key, each in members.items()
    ]
    return b"{" + b",".join(parts) + b"}"
