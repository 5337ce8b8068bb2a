"""What staff find of each app: hits of the global search, and the lines of a tenant's page.

Each app registers a finder for what it owns, and the lines that lead to a tenant's rows. A finder looks up exact,
indexed values, or a part of a name in a small table; it is asked only for staff who may see its model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tenants.models import Tenant

MOST_HITS = 10
"""Hits of one finder."""
LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that the search found."""

    kind: str
    title: str
    note: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a tenant's page: how many rows it has of a kind, and where they are."""

    title: str
    text: str
    url: str = ""


Finder = Callable[[str], Iterable[Hit]]
Lines = Callable[[Tenant], Iterable[Line]]

_finders: list[tuple[str, Finder]] = []
_lines: list[tuple[str, Lines]] = []


def register_finder(permission: str) -> Callable[[Finder], Finder]:
    """Add a finder for staff with a permission."""

    def registered(finder: Finder) -> Finder:
        _finders.append((permission, finder))
        return finder

    return registered


def register_lines(permission: str) -> Callable[[Lines], Lines]:
    """Add lines to the page of a tenant, for staff with a permission."""

    def registered(lines: Lines) -> Lines:
        _lines.append((permission, lines))
        return lines

    return registered


def find(user: Any, text: str) -> list[Hit]:
    """Everything that a text names, as far as the person may see it."""
    wanted = text.strip()[:LONGEST_TEXT]
    if len(wanted) < 2:
        return []
    return [
        hit
        for permission, finder in _finders
        if user.has_perm(permission)
        for hit in islice(finder(wanted), MOST_HITS)
    ]


def lines_of(user: Any, tenant: Tenant) -> Iterator[Line]:
    """The lines of a tenant's page that the person may see."""
    for permission, lines in _lines:
        if user.has_perm(permission):
            yield from lines(tenant)
