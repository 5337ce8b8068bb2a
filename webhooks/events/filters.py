"""Filters by content: which events an endpoint or a stream gets, depending on the events' `data`.

A filter is JSON: `{"data.message.type": {"$eq": "button"}}`. When it is stored, it is compiled into a jsonpath of
Postgres. The statement that publishes evaluates the jsonpath with the function `event_passes` (migration 0027), once
for each event and endpoint with a filter.

A path names a member of `data`, or `type`. A path through an array matches any of its elements. A missing member equals
no value. An event cannot be evaluated if its `data` is longer than 256 KiB or has values that jsonb cannot hold. Such
an event passes, so that no filter loses an event.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from gateway import ids
from gateway.api.errors import InvalidRequest
from gateway.api.validation import did_you_mean
from webhooks.events.envelope import WANTED_BY_MEMBERS
from webhooks.models import Endpoint

MOST_CONDITIONS, DEEPEST, LONGEST = 50, 5, 4096
"""Limits of a filter: comparisons, nesting of `$and`, `$or` and `$not`, and characters as JSON."""
_TOO_DEEP = f"Must be nested at most {DEEPEST} levels deep."
LONGEST_PATH = 200
PREVIEWED, LOOKED_AT = 100, 1_000
"""A preview reads the newest LOOKED_AT events. It evaluates up to PREVIEWED of those that pass all other filters."""

_TYPE, _DATA = "type", "data."
_PATH = re.compile(r"type|data(?:\.[A-Za-z0-9_]+)+")
_COMPARISONS = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_OPERATORS = (*_COMPARISONS, "$in", "$startsWith", "$exists")
_GROUPS = {"$and": " && ", "$or": " || "}


class InvalidFilterError(ValueError):
    """A filter is invalid. The message says what is wrong and where."""


def compiled(given: Any) -> str:
    """Compile a filter into a jsonpath. Raises InvalidFilterError."""
    try:
        length = len(json.dumps(given, default=str))
    except RecursionError:
        raise InvalidFilterError(_TOO_DEEP) from None
    if length > LONGEST:
        raise InvalidFilterError(f"Must have at most {LONGEST:,} characters as JSON.")
    compiler = _Compiler()
    path = compiler.group(given, 1)
    if compiler.conditions > MOST_CONDITIONS:
        raise InvalidFilterError(f"Must have at most {MOST_CONDITIONS} comparisons.")
    return path


def checked(given: Mapping[str, Any]) -> str:
    """Compile the filter of a request into a jsonpath. Raises InvalidRequest for the member `filter`."""
    try:
        return compiled(given)
    except InvalidFilterError as error:
        raise InvalidRequest.of(filter=str(error)) from None


class _Compiler:
    """Compiles one filter and counts its comparisons."""

    def __init__(self) -> None:
        self.conditions = 0

    def group(self, given: Any, depth: int) -> str:
        """Compile an object. An event passes if it passes every member. Raises InvalidFilterError."""
        if not isinstance(given, dict) or not given:
            raise InvalidFilterError('Must be an object such as {"data.message.type": {"$eq": "button"}}.')
        if depth > DEEPEST:
            raise InvalidFilterError(_TOO_DEEP)
        return _joined(" && ", [self._member(name, value, depth) for name, value in given.items()])

    def _member(self, name: str, value: Any, depth: int) -> str:
        if name in _GROUPS:
            if not isinstance(value, list) or not value:
                raise InvalidFilterError(f"`{name}` takes a list of filters.")
            return _joined(_GROUPS[name], [self.group(each, depth + 1) for each in value])
        if name == "$not":
            return f"!({self.group(value, depth + 1)})"
        if name.startswith("$"):
            hint = did_you_mean(name, [*_GROUPS, "$not"])
            raise InvalidFilterError(f"`{name[:40]}` is not an operator here.{hint}")
        if not _PATH.fullmatch(name) or len(name) > LONGEST_PATH:
            hint = did_you_mean(name, known_paths()) or did_you_mean(_DATA + name, known_paths())
            raise InvalidFilterError(
                f"`{name[:100]}` is not a path: use `type`, or a path that begins with `data.`.{hint}"
            )
        conditions = value if isinstance(value, dict) else {"$eq": value}
        if not conditions:
            raise InvalidFilterError(f"`{name}` has no condition.")
        return _joined(" && ", [self._condition(name, *each) for each in conditions.items()])

    def _condition(self, name: str, operator: str, value: Any) -> str:
        """Compile one comparison. `exists` makes the comparison true or false, never unknown, so `$not` negates it as
        expected.
        """
        place = "$type" if name == _TYPE else "$" + "".join(f'."{part}"' for part in name.split(".")[1:])
        self.conditions += len(value) if isinstance(value, list) else 1
        match operator:
            case "$exists" if isinstance(value, bool):
                return f"{'' if value else '!'}exists({place})"
            case "$startsWith" if isinstance(value, str) and value:
                return f"exists({place} ? (@ starts with {_literal(name, value)}))"
            case "$in" if isinstance(value, list) and value:
                return f"exists({place} ? ({' || '.join(f'@ == {_literal(name, each)}' for each in value)}))"
            case _ if operator in _COMPARISONS:
                return f"exists({place} ? (@ {_COMPARISONS[operator]} {_literal(name, value)}))"
            case "$exists" | "$startsWith" | "$in":
                takes = {"$exists": "true or false", "$startsWith": "a string", "$in": "a list of values"}
                raise InvalidFilterError(f"`{operator}` of `{name}` takes {takes[operator]}.")
        hint = did_you_mean(operator, _OPERATORS)
        raise InvalidFilterError(f"`{operator[:40]}` of `{name}` is not an operator.{hint}")


def _joined(by: str, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + by.join(parts) + ")"


def _literal(name: str, value: Any) -> str:
    """A value in the syntax of jsonpath, which is that of JSON. Rejects characters that Postgres cannot store."""
    is_storable = isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, str):
        is_storable = "\0" not in value and value.encode(errors="replace").decode() == value
    if not is_storable:
        raise InvalidFilterError(f"`{name}` is compared with a string, a number, true, false or null.")
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=1)
def known_paths() -> tuple[str, ...]:
    """The paths in the examples of all event types. A mistyped path is compared with these."""
    examples = orjson.loads((Path(__file__).parent / "examples.json").read_bytes())
    return (_TYPE, *sorted({path for event in examples.values() for path in _paths(event["data"], "data")}))


def _paths(value: Any, place: str) -> Iterator[str]:
    """The paths below a value. The paths of an array are those of its elements."""
    if isinstance(value, list):
        for each in value:
            yield from _paths(each, place)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield f"{place}.{name}"
            yield from _paths(each, f"{place}.{name}")


def unknown_paths(given: Mapping[str, Any]) -> list[str]:
    """A warning, with a suggestion, for each path in a valid filter, if no example event has this path."""
    known = known_paths()
    return [
        f"No example of an event has {path}.{did_you_mean(path, known)}"
        for path in dict.fromkeys(_named(given))
        if path not in known
    ]


def _named(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if name in _GROUPS:
            for each in value:
                yield from _named(each)
        elif name == "$not":
            yield from _named(value)
        else:
            yield name


# --- Preview: the result of a filter for the events that pass an endpoint's other filters.
_PREVIEW = f"""
WITH e AS MATERIALIZED (
    SELECT id, format, event_types, waba_ids, phone_number_ids, statuses
    FROM webhooks_endpoint WHERE id = %(endpoint_id)s
)
SELECT event.id, event.type, event_passes(p.body, event.type, %(path)s::jsonpath)
FROM (SELECT * FROM events WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s
      ORDER BY id DESC LIMIT %(looked_at)s) AS event
CROSS JOIN e
JOIN event_payloads p ON p.tenant_id = %(tenant_id)s AND p.expires_on = event.payload_expires_on AND p.id = event.id
WHERE {WANTED_BY_MEMBERS.format(event="event")}
ORDER BY event.id DESC LIMIT %(previewed)s
"""  # noqa: S608 - no value is formatted in


@dataclass(frozen=True, slots=True)
class PreviewedEvent:
    """A recent event, and whether the filter lets it pass."""

    id: UUID
    type: str
    passes: bool

    @property
    def public_id(self) -> str:
        return ids.encode(ids.EVENT, self.id)

    @property
    def created_at(self) -> datetime:
        return ids.created_at(self.id)


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview: an endpoint's recent events, newest first."""

    events: Sequence[PreviewedEvent]
    hints: Sequence[str]

    @property
    def checked(self) -> int:
        """Number of evaluated events."""
        return len(self.events)

    @property
    def passed(self) -> int:
        """Number of events that pass the filter."""
        return sum(each.passes for each in self.events)


def preview(endpoint: Endpoint, given: Mapping[str, Any]) -> Preview:
    """Evaluate a filter on the newest events that pass the endpoint's other filters. Raises InvalidRequest.

    Evaluates at most `PREVIEWED` events whose bodies are stored. Ignores the endpoint's current filter.
    """
    values: dict[str, Any] = {
        "path": checked(given),
        "tenant_id": endpoint.tenant_id,
        "environment": endpoint.environment,
        "endpoint_id": endpoint.id,
        "looked_at": LOOKED_AT,
        "previewed": PREVIEWED,
    }
    with connection.cursor() as cursor:
        cursor.execute(_PREVIEW, values)
        events = [PreviewedEvent(*row) for row in cursor.fetchall()]
    return Preview(events, unknown_paths(given))
