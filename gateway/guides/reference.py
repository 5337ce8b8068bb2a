"""The API reference as Markdown pages, generated from the committed OpenAPI document: a page for each tag.

The MkDocs hooks call it. The examples are the OpenAPI document's.
"""

import html
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from generator.operations import read
from generator.samples import Sample, tabs

from gateway.api.openapi.names import Json, resolved

ORDER = (
    "Messages",
    "Media",
    "Templates",
    "Numbers",
    "Connect sessions",
    "Webhooks",
    "Events",
    "API keys",
    "Tenant",
    "Tenants",
    "Billing",
    "Console sessions",
    "Health",
)
"""Tags of operations for tenants, in this order. Tags of operations for staff have no page."""
STAFF_TAGS = frozenset({"Admin"})
DEPTH = 2
"""How many levels of an object's members are listed. The contract has the deeper levels."""

_MOMENTS = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-22T00:00:00Z"}
"""Values of the parameters that an example call needs."""


@cache
def pages(document: Path) -> list[tuple[str, str, str]]:
    """(file name, title, Markdown) of each page, in the order of the navigation."""
    contract: Json = json.loads(document.read_text())
    by_tag: dict[str, list[tuple[str, str, Json]]] = defaultdict(list)
    for path, operations in contract["paths"].items():
        for method, operation in operations.items():
            for tag in operation["tags"]:
                by_tag[tag].append((method.upper(), path, operation))
    tags = [tag for tag in ORDER if tag in by_tag]
    tags += sorted(tag for tag in by_tag if tag not in ORDER and tag not in STAFF_TAGS)
    reader = _Reader(contract)
    return [(f"reference/{_slug(tag)}.md", tag, reader.page(tag, by_tag[tag])) for tag in tags]


class _Reader:
    """Renders operations of one contract."""

    def __init__(self, contract: Json) -> None:
        self._contract = contract
        self._groups = read(contract)

    def page(self, tag: str, operations: list[tuple[str, str, Json]]) -> str:
        parts = [f"# {tag}\n"]
        parts += [self._operation(method, path, operation) for method, path, operation in operations]
        return "\n".join(parts)

    def _operation(self, method: str, path: str, operation: Json) -> str:
        lines = [f"## {operation['summary']}", "", f"**{method}** `{path}`", "", operation["description"], ""]
        if parameters := [
            resolved(self._contract, parameter) for parameter in operation.get("parameters", [])
        ]:
            lines += ["| parameter | in | type | meaning |", "|---|---|---|---|"]
            lines += [self._parameter(parameter) for parameter in parameters] + [""]
        kind, schema = self._body(operation)
        if schema is not None:
            rows = list(self._members(schema))
            if rows:
                lines += ["| member of the body | type | meaning |", "|---|---|---|", *rows, ""]
        lines += self._samples(method, path, operation, kind, schema)
        if kind != "multipart/form-data":
            lines += self._try_it(method, path, operation, has_body=schema is not None)
        lines += self._answers(operation)
        return "\n".join(lines)

    def _parameter(self, parameter: Json) -> str:
        need = "" if not parameter.get("required") or parameter["in"] == "path" else " (required)"
        return (
            f"| `{parameter['name']}`{need} | {parameter['in']} | {self._type(parameter['schema'])} "
            f"| {_cell(parameter.get('description', ''))} |"
        )

    def _body(self, operation: Json) -> tuple[str, Json | None]:
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            return kind, content.get("schema", {})
        return "", None

    def _members(self, schema: Json, prefix: str = "", depth: int = 1) -> list[str]:
        schema = self._object(schema)
        rows = []
        for name, member in schema.get("properties", {}).items():
            full = resolved(self._contract, member)
            need = "required" if name in schema.get("required", []) else ""
            meaning = _cell(" ".join(part for part in (need, full.get("description", "")) if part))
            rows.append(f"| `{prefix}{name}` | {self._type(member)} | {meaning} |")
            if depth < DEPTH:
                rows += self._members(full, f"{prefix}{name}.", depth + 1)
        return rows

    def _object(self, schema: Json) -> Json:
        """A schema with its references resolved and its `allOf` parts merged."""
        schema = resolved(self._contract, schema)
        if "discriminator" in schema:
            return self._union(schema)
        if "allOf" not in schema:
            return schema
        joined: Json = {"properties": {}, "required": []}
        for part in map(self._object, schema["allOf"]):
            joined["properties"] |= part.get("properties", {})
            joined["required"] += part.get("required", [])
        return joined

    def _union(self, schema: Json) -> Json:
        """A union as one object with the members of all its kinds. A member that every kind requires is required."""
        kinds = [self._object(part) for part in schema["oneOf"]]
        members: Json = {}
        for kind in kinds:
            members |= kind["properties"]
        mapping = schema["discriminator"]["mapping"]
        members["type"] = {"enum": list(mapping), "description": "The member of this name holds the content."}
        required = set.intersection(*(set(kind["required"]) for kind in kinds))
        return {"properties": members, "required": sorted(required)}

    def _type(self, schema: Json) -> str:
        schema = resolved(self._contract, schema)
        for union in ("oneOf", "anyOf"):
            if union in schema:
                return " or ".join(dict.fromkeys(self._type(part) for part in schema[union]))
        if "allOf" in schema:
            return "object"
        if "enum" in schema:
            return ", ".join(f"`{value}`" for value in schema["enum"])
        if "const" in schema:
            return f"`{schema['const']}`"
        kind = schema.get("type", "any JSON")
        if isinstance(kind, list):
            return " or ".join(kind)
        if kind == "array":
            return f"array of {self._type(schema.get('items', {}))}"
        return f"{kind} ({schema['format']})" if "format" in schema else str(kind)

    def _samples(self, method: str, path: str, operation: Json, kind: str, schema: Json | None) -> list[str]:
        if kind == "multipart/form-data":
            form = resolved(self._contract, schema or {})
            fields = {name: name.upper() for name in form.get("required", []) if name != "file"}
            return tabs(Sample(method=method, path=path, fields=fields), self._groups)
        body = None if schema is None else self._example(operation)
        needed = [
            f"{each['name']}={_MOMENTS[each['name']]}"
            for each in (resolved(self._contract, parameter) for parameter in operation.get("parameters", []))
            if each["in"] == "query" and each.get("required")
        ]
        query = f"?{'&'.join(needed)}" if needed else ""
        return tabs(Sample(method=method, path=path + query, body=body), self._groups)

    def _try_it(self, method: str, path: str, operation: Json, *, has_body: bool) -> list[str]:
        """The data from which `docs/try_it.js` makes a form."""
        parameters = (resolved(self._contract, parameter) for parameter in operation.get("parameters", []))
        shown = {
            "method": method,
            "path": path,
            "parameters": [
                {"name": each["name"], "in": each["in"], "required": bool(each.get("required"))}
                for each in parameters
                if each["in"] in {"path", "query"}
            ],
            "body": json.dumps(self._example(operation), indent=2, ensure_ascii=False) if has_body else None,
        }
        data = html.escape(json.dumps(shown))
        return [f'<details class="try-it" data-operation="{data}"><summary>Try it</summary></details>', ""]

    def _example(self, operation: Json) -> Any:
        content = next(iter(operation["requestBody"]["content"].values()))
        for example in content.get("examples", {}).values():
            return example["value"]
        return content["example"]

    def _answers(self, operation: Json) -> list[str]:
        lines = ["| answer | meaning |", "|---|---|"]
        members: list[str] = []
        shown: list[str] = []
        for status, answer in sorted(operation["responses"].items()):
            full = resolved(self._contract, answer)
            body = full.get("content", {}).get("application/json", {})
            schema = body.get("schema")
            if status.startswith("2") and "example" in body and not shown:
                example = json.dumps(body["example"], indent=2, ensure_ascii=False)
                shown = [f"An answer ({status}):", "", "```json", example, "```", ""]
            if status.startswith("2") and schema is not None and not members:
                members = self._members(schema)
            lines.append(f"| {status} | {_cell(full.get('description') or 'Done.')} |")
        if members:
            lines = ["| member of the answer | type | meaning |", "|---|---|---|", *members, "", *lines]
        return [*lines, "", *shown]


def _slug(tag: str) -> str:
    return tag.lower().replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
