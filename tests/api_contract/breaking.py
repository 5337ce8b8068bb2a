"""Finds the changes of the contract that break clients of an earlier release: `changes(released, today)`.

Clients ignore members, values and operations that they do not know. So responses and events may gain members, but not
lose any. Requests may require fewer members, but not more.

`python -m tests.api_contract.breaking 1.1.0` stores today's contract as the contract of release 1.1.0.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gateway.api.openapi.names import resolved

Json = dict[str, Any]

RELEASED = Path(__file__).with_name("released")
CONTRACT = Path(__file__).resolve().parents[2] / "docs/openapi.json"
_WORDS = frozenset({"description", "summary", "example", "examples"})
_UPPER = ("maxLength", "maxItems", "maximum")
_LOWER = ("minLength", "minItems", "minimum")


def last_release() -> Json:
    """Return the contract of the newest release."""
    newest = max(
        RELEASED.glob("*.json.gz"), key=lambda path: [int(part) for part in path.name.split(".")[:3]]
    )
    document: Json = json.loads(gzip.decompress(newest.read_bytes()))
    return document


def changes(old: Json, new: Json) -> list[str]:
    """Return a line for each breaking change, with its place in the contract."""
    return list(_Comparison(old, new).all())


class _Comparison:
    def __init__(self, old: Json, new: Json) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str, bool]] = set()

    def all(self) -> Iterator[str]:
        for section in ("paths", "webhooks"):
            for path, operations in self._old.get(section, {}).items():
                for method, operation in operations.items():
                    at = f"{method.upper()} {path}"
                    found = self._new.get(section, {}).get(path, {}).get(method)
                    if found is None:
                        yield f"{at}: removed"
                    else:
                        yield from self._operation(operation, found, at, is_event=section == "webhooks")

    def _operation(self, old: Json, new: Json, at: str, *, is_event: bool) -> Iterator[str]:
        before, after = (
            {
                (each["in"], each["name"]): each
                for each in map(partial(resolved, side), side_of.get("parameters", []))
            }
            for side, side_of in ((self._old, old), (self._new, new))
        )
        yield from (f"{at}: parameter {name} removed" for _, name in before.keys() - after.keys())
        for key, parameter in after.items():
            required = parameter.get("required", False)
            if required and not before.get(key, {}).get("required", False):
                yield f"{at}: parameter {key[1]} is required now"
            if key in before:
                yield from self._schema(
                    before[key]["schema"], parameter["schema"], f"{at} {key[1]}", asks=True
                )
        body = old.get("requestBody", {}).get("content", {})
        yield from self._contents(body, new.get("requestBody", {}).get("content", {}), at, asks=not is_event)
        for status, answer in old["responses"].items():
            found = new["responses"].get(status)
            if status.startswith("2") and found is None:
                yield f"{at}: answer {status} removed"
            elif status.startswith("2"):
                contents = (
                    resolved(side, each).get("content", {})
                    for side, each in ((self._old, answer), (self._new, found))
                )
                yield from self._contents(*contents, f"{at} {status}", asks=False)

    def _contents(self, old: Json, new: Json, at: str, *, asks: bool) -> Iterator[str]:
        for kind, content in old.items():
            if kind not in new:
                yield f"{at}: {kind} removed"
            elif "schema" in content:
                yield from self._schema(content["schema"], new[kind].get("schema", {}), at, asks=asks)

    def _schema(self, old: Json, new: Json, at: str, *, asks: bool) -> Iterator[str]:
        """Compare two schemas. `asks` is true in a request, and false in an answer or an event."""
        if "$ref" in old and "$ref" in new:
            pair = (old["$ref"], new["$ref"], asks)
            if pair in self._seen:
                return
            self._seen.add(pair)
        old, new = self._whole(self._old, old), self._whole(self._new, new)
        if "variants" in old or "variants" in new:
            yield from self._union(old, new, at, asks=asks)
            return
        before, after = _types(old), _types(new)
        if before and after and not (before <= after if asks else after <= before):
            yield f"{at}: type {sorted(before)} is {sorted(after)} now"
        values = set(map(str, _values(old)))
        if _values(new) and values - set(map(str, _values(new))):
            yield f"{at}: values {sorted(values - set(map(str, _values(new))))} removed"
        if asks:
            yield from self._bounds(old, new, at)
        yield from self._members(old, new, at, asks=asks)
        if "items" in old and "items" in new:
            yield from self._schema(old["items"], new["items"], f"{at}[]", asks=asks)

    def _bounds(self, old: Json, new: Json, at: str) -> Iterator[str]:
        for name in _UPPER:
            if name in new and new[name] < old.get(name, float("inf")):
                yield f"{at}: {name} is {new[name]} now"
        for name in _LOWER:
            if name in new and new[name] > old.get(name, float("-inf")) and new[name] > 0:
                yield f"{at}: {name} is {new[name]} now"
        if "pattern" in new and new["pattern"] != old.get("pattern"):
            yield f"{at}: pattern is {new['pattern']} now"
        if _values(new) and not _values(old):
            yield f"{at}: only {_values(new)} now"

    def _members(self, old: Json, new: Json, at: str, *, asks: bool) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in before:
            if name in after:
                yield from self._schema(before[name], after[name], f"{at}.{name}", asks=asks)
            else:
                yield f"{at}.{name}: removed"
        needed, given = set(old.get("required", [])), set(new.get("required", []))
        if asks:
            yield from (f"{at}.{name}: required now" for name in sorted(given - needed))
        else:
            yield from (f"{at}.{name}: optional now" for name in sorted((needed - given) & after.keys()))

    def _union(self, old: Json, new: Json, at: str, *, asks: bool) -> Iterator[str]:
        before, after = self._variants(self._old, old), self._variants(self._new, new)
        for name, variant in before.items():
            if name in after:
                yield from self._schema(variant, after[name], f"{at}({name})", asks=asks)
            else:
                yield f"{at}: variant {name} removed"
        if not asks and "null" in after.keys() - before.keys():
            yield f"{at}: may be null now"

    def _variants(self, document: Json, schema: Json) -> dict[str, Json]:
        """Return the schemas of a union by name. If it is not a union, the only variant is the schema itself."""
        found: dict[str, Json] = {}
        for place, each in enumerate(schema.get("variants", [schema])):
            name = each["$ref"].rpartition("/")[2] if "$ref" in each else str(each.get("type", place))
            whole = self._whole(document, each)
            found.update(self._variants(document, whole) if "variants" in whole else {name: each})
        return found

    def _whole(self, document: Json, schema: Json) -> Json:
        """Return a schema with references resolved, `allOf` merged, and unions under `variants`."""
        schema = resolved(document, schema)
        for union in ("oneOf", "anyOf"):
            if union in schema:
                return {"variants": schema[union]}
        kinds = schema.get("type")
        if isinstance(kinds, list) and len(set(kinds) - {"null"}) > 1:
            return {"variants": [{"type": kind} for kind in kinds]}
        if "allOf" not in schema:
            return schema
        parts = [self._whole(document, part) for part in schema["allOf"]]
        joined: Json = {name: value for part in parts for name, value in part.items()}
        joined["properties"] = {
            name: value for part in parts for name, value in part.get("properties", {}).items()
        }
        joined["required"] = [name for part in parts for name in part.get("required", [])]
        return joined


def _types(schema: Json) -> set[str]:
    kind = schema.get("type", [])
    found = {kind} if isinstance(kind, str) else set(kind)
    return found | ({"integer"} if "number" in found else set())


def _values(schema: Json) -> list[Any]:
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def without_words(part: Any, *, are_names: bool = False) -> Any:
    """Return the contract without descriptions and examples.

    `are_names` says that the keys of `part` are names of members. A member may be named `description`.
    """
    if isinstance(part, list):
        return [without_words(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: without_words(value, are_names=name == "properties" and not are_names)
        for name, value in part.items()
        if are_names or name not in _WORDS
    }


def store(version: str) -> None:
    """Store today's contract as the contract of a release."""
    text = json.dumps(without_words(json.loads(CONTRACT.read_text())), separators=(",", ":"))
    RELEASED.mkdir(exist_ok=True)
    (RELEASED / f"{version}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    store(sys.argv[1])
