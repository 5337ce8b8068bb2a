"""Positions of the values in a JSON text, so that some bytes can be replaced and all others stay the same.

Used to split a notification by tenant, and to rewrite the links of a template library's page. For whole messages,
`messaging/sending/outbound.py` uses msgspec. It is much faster but gives no positions, so blanks and repeated members
would be lost. A parser must already have accepted the text. No function recurses.
"""

import json
import re
from typing import NamedTuple

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = re.compile(rb"[^\s,\]}]+")
_STRING_OR_BRACKET = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)


class ByteSpan(NamedTuple):
    start: int
    end: int


class Member(NamedTuple):
    """A member of an object, from its name to the end of its value."""

    start: int
    value: int
    end: int


def cut(body: bytes, span: ByteSpan | Member) -> bytes:
    """The bytes of a value, or of a member with its name."""
    return body[span.start : span.end]


def root_members(body: bytes) -> dict[str, Member]:
    """The members of the object that is the whole text."""
    return members_at(body, _after_space(body, 0))


def members_at(body: bytes, at: int) -> dict[str, Member]:
    """The members of the object at `at`. For a repeated name, the last member is used."""
    members: dict[str, Member] = {}
    at = _after_space(body, at + 1)
    while body[at] != ord("}"):
        start, name_end = at, _end(body, at)
        colon = _after_space(body, name_end)
        value = _after_space(body, colon + 1)
        end = _end(body, value)
        members[json.loads(body[start:name_end])] = Member(start, value, end)
        at = _after_comma(body, end)
    return members


def items_at(body: bytes, at: int) -> list[ByteSpan]:
    """The items of the array at `at`."""
    items: list[ByteSpan] = []
    at = _after_space(body, at + 1)
    while body[at] != ord("]"):
        items.append(ByteSpan(at, _end(body, at)))
        at = _after_comma(body, items[-1].end)
    return items


def _end(body: bytes, at: int) -> int:
    """The end of the value at `at`. Any depth of nesting works, because the function does not recurse."""
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
