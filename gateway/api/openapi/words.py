"""Descriptions in the contract: `words.yaml` describes the tags, and everything that no serializer describes.

A postprocessing hook of drf-spectacular, after `names.py`. A member usually means the same everywhere, so it is
described once. The list `of` describes the exceptions; `*` in its keys stands for any text. A member that
cannot be null is absent in the cases in which its description says null; if it is required, these cases are left out.
The description of an enumeration ends with the meaning of each value.
"""

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gateway.api.errors import error_kinds
from gateway.api.openapi.names import Json

_NULL = re.compile(r"(; n|\. N)ull(?: or absent)?( [^.;]*)(?=\.)")
"""The part of a description that says when a member is null."""


@cache
def _words() -> Json:
    words: Json = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text())
    # When several error classes share a code, the most general one describes it, regardless of the order of loading.
    kinds = sorted(error_kinds(), key=lambda kind: (-len(kind.__mro__), kind.status, kind.message))
    words["values"].append({kind.code: kind.message.rstrip(".") for kind in kinds})
    return words


def described(result: Json, **_: Any) -> Json:
    """Postprocessing: add the missing descriptions, and those of all tags."""
    schemas = result["components"]["schemas"]
    for name, schema in schemas.items():
        _describe(schema, name, schemas)
        _list_values(schema)
    for operations in result["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if not parameter.get("description"):
                    parameter["description"] = _words()["parameters"][parameter["name"]]
                _list_values(parameter, parameter["schema"])
    used = {tag for methods in result["paths"].values() for each in methods.values() for tag in each["tags"]}
    result["tags"] = [{"name": tag, "description": _words()["tags"][tag]} for tag in sorted(used)]
    return result


def meanings(values: list[Any]) -> dict[str, str]:
    """The meaning of each value of an enumeration. Empty when no list has all values."""
    wanted = {str(value) for value in values if value is not None}
    lists = [known for known in _words()["values"] if wanted <= known.keys()]
    # The shortest list fits best, because a value such as `pending` differs in meaning between lists.
    known: Json = min(lists, key=len, default={})
    return {str(value): known[str(value)] for value in values if value is not None} if lists else {}


def _describe(schema: Any, place: str, schemas: Json) -> None:
    if not isinstance(schema, dict):
        return
    words = _words()
    for name, member in schema.get("properties", {}).items():
        if not member.get("description"):
            text = _text_of(f"{place}.{name}") or words["members"].get(name)
            if text is None:
                raise LookupError(f"{place}.{name} has no description: help_text, or a line in words.yaml.")
            if not _can_be_null(member, schemas):
                text = _NULL.sub("" if name in schema.get("required", []) else _absent, text)
            member["description"] = text
        _list_values(member)
        _describe(member, f"{place}.{name}", schemas)
    for union in ("oneOf", "anyOf", "allOf"):
        for part in schema.get(union, []):
            _describe(part, place, schemas)
    _describe(schema.get("items"), place, schemas)


def _absent(null: re.Match[str]) -> str:
    """The part about null, for a member that is absent instead."""
    return f"{'; a' if null[1] == '; n' else '. A'}bsent{null[2]}"


def _can_be_null(schema: Json, schemas: Json) -> bool:
    """Whether a schema admits null. A schema without a type admits everything."""
    if "$ref" in schema:
        return _can_be_null(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    parts = [part for union in ("oneOf", "anyOf", "allOf") for part in schema.get(union, [])]
    if parts:
        return any(_can_be_null(part, schemas) for part in parts)
    return "null" in schema.get("type", "null")


def _text_of(place: str) -> str | None:
    """The description in `of` for a member of one schema: its exact entry, otherwise the first pattern that fits."""
    texts: dict[str, str] = _words()["of"]
    if place in texts:
        return texts[place]
    return next((text for key, text in texts.items() if "*" in key and fnmatchcase(place, key)), None)


def _list_values(owner: Json, schema: Json | None = None) -> None:
    """Append the meanings of an enumeration to the description of its member."""
    schema = owner if schema is None else schema
    values = schema.get("enum") or (schema.get("items") or {}).get("enum")
    if not values and "oneOf" in schema:
        values = next((part["enum"] for part in schema["oneOf"] if "enum" in part), None)
    found = meanings(values) if values else {}
    text = owner.get("description", "")
    missing = [f"`{value}`: {meaning}" for value, meaning in found.items() if f"`{value}`:" not in text]
    if missing:
        owner["description"] = f"{text} {'; '.join(missing)}.".strip()
