"""Selection by `fields=` and cursor paging, shared by all Graph reads."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from simulator.errors import GraphError, invalid_parameter
from simulator.graph.dispatch import Call

T = TypeVar("T")
MAX_PAGE = 1000
ARGUMENT = re.compile(r"\.(\w+)\(([^()]*)\)")
"""An argument of a field, such as `.limit(2)`."""


def parse_fields(text: str) -> list[str]:
    """Split `a,b{c,d}` into [`a`, `b`]. Nested selections are left out."""
    names, depth, name = [], 0, ""
    for character in text + ",":
        if character in "{(":
            depth += 1
        elif character in "})":
            depth -= 1
        elif character == "," and depth == 0:
            if name.strip():
                names.append(name.strip().partition(".")[0])
            name = ""
        elif depth == 0:
            name += character
    return names


def select(call: Call, available: Mapping[str, Any], default: Iterable[str]) -> dict[str, Any]:
    """The requested fields and `id`. An unknown field is error 100. Fields with the value None are left out, as at
    Meta.
    """
    asked = call.request.query.get("fields")
    names = parse_fields(asked) if asked else list(default)
    for name in names:
        if name not in available:
            raise invalid_parameter(f"Tried accessing nonexisting field ({name})")
    chosen = {
        name: narrowed(available[name], asked or "", name) for name in names if available[name] is not None
    }
    if "id" in available and "id" not in chosen:
        chosen["id"] = available["id"]
    return chosen


async def with_edges(call: Call, available: Mapping[str, Any]) -> dict[str, Any]:
    """A node's fields, and its edges that were requested as fields, such as `flows.limit(2){name}`."""
    asked, edges = call.request.query.get("fields", ""), {}
    for name in parse_fields(asked):
        handler = call.table.edges.get(("GET", name))
        if handler is None or name in available:
            continue
        arguments = re.search(rf"(?<!\w){re.escape(name)}((?:\.\w+\([^()]*\))*)", asked)
        query = dict(ARGUMENT.findall(arguments[1])) if arguments else {}
        inner = _inner_fields(asked, name)
        edges[name] = await handler(call.expanded(name, query | ({"fields": inner} if inner else {})))
    return {**available, **edges}


def _inner_fields(asked: str, name: str) -> str | None:
    """The text in the braces of an expanded field."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?:\.\w+\([^()]*\))*\{{", asked)
    if found is None:
        return None
    depth, end = 1, found.end()
    while depth and end < len(asked):
        depth += {"{": 1, "}": -1}.get(asked[end], 0)
        end += 1
    return asked[found.end() : end - 1]


def narrowed(value: Any, asked: str, name: str) -> Any:
    """The value of an expanded field. For `name{a,b}`, its objects keep only the fields a and b, and `id`."""
    inner = _inner_fields(asked, name)
    if inner is None or not isinstance(value, dict):
        return value
    names = {*parse_fields(inner), "id"}
    if isinstance(value.get("data"), list):
        rows = [{key: each for key, each in row.items() if key in names} for row in value["data"]]
        return {**value, "data": rows}
    return {key: each for key, each in value.items() if key in names}


def page(
    call: Call, rows: Sequence[T], key: Callable[[T], str], render: Callable[[T], Any], *, size: int = 25
) -> dict[str, Any]:
    """One page of the rows, selected by the parameters `limit`, `after` and `before`. Cursors are built from the rows'
    keys. An invalid cursor is error 131059.
    """
    query = call.request.query
    try:
        limit = min(max(1, int(query.get("limit", size))), MAX_PAGE)
    except ValueError:
        raise invalid_parameter("Param limit must be a positive integer") from None
    start = 0
    after, before = query.get("after"), query.get("before")
    if after:
        start = _position(rows, key, after) + 1
    elif before:
        start = max(0, _position(rows, key, before) - limit)
    shown = rows[start : start + limit]
    answer: dict[str, Any] = {"data": [render(row) for row in shown]}
    if shown:
        first, last = cursor(key(shown[0])), cursor(key(shown[-1]))
        paging: dict[str, Any] = {"cursors": {"before": first, "after": last}}
        if start + limit < len(rows):
            paging["next"] = _link(call, limit, after=last)
        if start > 0:
            paging["previous"] = _link(call, limit, before=first)
        answer["paging"] = paging
    return answer


def cursor(key: str) -> str:
    """The opaque cursor for a row's key."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _position(rows: Sequence[T], key: Callable[[T], str], given: str) -> int:
    try:
        wanted = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except ValueError:
        raise GraphError(131059) from None
    for index, row in enumerate(rows):
        if key(row) == wanted:
            return index
    raise GraphError(131059)


def _link(call: Call, limit: int, **cursors: str) -> str:
    kept = {
        k: v for k, v in call.request.query.items() if k not in {"access_token", "limit", "after", "before"}
    }
    query = urlencode({**kept, "limit": limit, **cursors})
    return f"{call.sim.config.base_url}{call.request.path}?{query}"
