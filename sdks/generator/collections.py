"""Collections of all operations for Postman and for Bruno, in one file each, with the contract's example bodies."""

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

from generator.operations import Json, Operation

NAME = "whabuzz"
POSTMAN = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
BASE_URL, API_KEY = "{{base_url}}", "{{api_key}}"
EXAMPLE_HOST = "http://127.0.0.1:8000"
STAFF = frozenset({"Admin"})
"""Groups of operations for which tenants have no credentials."""
_ABOUT = "Set base_url and api_key in the collection's variables. A test key reaches the sandbox alone."


def write(target: Path, groups: dict[str, list[Operation]], version: str) -> None:
    """Write both collections into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    shown = {group: operations for group, operations in groups.items() if group not in STAFF}
    for name, made in (
        (f"{NAME}.postman_collection.json", postman(shown, version)),
        (f"{NAME}.bruno_collection.json", bruno(shown, version)),
    ):
        (target / name).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def postman(groups: dict[str, list[Operation]], version: str) -> Json:
    """A collection in Postman's format 2.1."""
    return {
        "info": {
            "_postman_id": str(uuid.uuid5(uuid.NAMESPACE_URL, NAME)),
            "name": f"{NAME} {version}",
            "description": _ABOUT,
            "schema": POSTMAN,
        },
        "auth": {"type": "bearer", "bearer": [{"key": "token", "value": API_KEY, "type": "string"}]},
        "variable": [{"key": "base_url", "value": EXAMPLE_HOST}, {"key": "api_key", "value": ""}],
        "item": [
            {
                "name": group,
                "description": operations[0].summary_of_group,
                "item": [_postman_item(operation) for operation in operations],
            }
            for group, operations in groups.items()
        ],
    }


def _postman_item(operation: Operation) -> Json:
    path = _path(operation)
    request: Json = {
        "method": operation.method,
        "description": operation.description,
        "header": [{"key": name, "value": value} for name, value in _headers(operation)],
        "url": {
            "raw": _address(operation),
            "host": [BASE_URL],
            "path": path.lstrip("/").split("/"),
            "variable": [
                {"key": each.name, "value": "", "description": each.description}
                for each in operation.path_parameters
            ],
            "query": [
                {"key": name, "value": "", "description": description, "disabled": not required}
                for name, description, required in _query(operation)
            ],
        },
    }
    if operation.is_open:
        request["auth"] = {"type": "noauth"}
    if operation.form:
        fields = [
            {"key": each.name, "type": "file", "src": []}
            if _is_file(each.schema)
            else {"key": each.name, "type": "text", "value": "", "disabled": not each.required}
            for each in operation.form
        ]
        request["body"] = {"mode": "formdata", "formdata": fields}
    elif operation.body is not None:
        request["body"] = {
            "mode": "raw",
            "raw": _example(operation),
            "options": {"raw": {"language": "json"}},
        }
    return {"name": operation.summary, "request": request, "response": []}


def bruno(groups: dict[str, list[Operation]], version: str) -> Json:
    """A collection in the format of Bruno's exports."""
    environment = {
        "uid": _uid("environment"),
        "name": "local",
        "variables": [
            _variable("base_url", EXAMPLE_HOST, secret=False),
            _variable("api_key", "", secret=True),
        ],
    }
    return {
        "name": f"{NAME} {version}",
        "version": "1",
        "uid": _uid(NAME),
        "root": {
            "docs": _ABOUT,
            "request": {"auth": {"mode": "bearer", "bearer": {"token": API_KEY}}},
        },
        "environments": [environment],
        "items": [
            {
                "uid": _uid(group),
                "type": "folder",
                "name": group,
                "seq": place,
                "items": [_bruno_item(operation, seq) for seq, operation in enumerate(operations, start=1)],
            }
            for place, (group, operations) in enumerate(groups.items(), start=1)
        ],
    }


def _bruno_item(operation: Operation, seq: int) -> Json:
    params = [
        {"type": "path", "name": each.name, "value": "", "enabled": True}
        for each in operation.path_parameters
    ] + [
        {"type": "query", "name": name, "value": "", "enabled": required}
        for name, _, required in _query(operation)
    ]
    body: Json = {"mode": "none"}
    if operation.form:
        fields = [
            {"name": each.name, "type": "file", "value": [], "enabled": True}
            if _is_file(each.schema)
            else {"name": each.name, "type": "text", "value": "", "enabled": each.required}
            for each in operation.form
        ]
        body = {"mode": "multipartForm", "multipartForm": _with_uids(operation.id, "form", fields)}
    elif operation.body is not None:
        body = {"mode": "json", "json": _example(operation)}
    headers = [{"name": name, "value": value, "enabled": True} for name, value in _headers(operation)]
    return {
        "uid": _uid(operation.id),
        "type": "http-request",
        "name": operation.summary,
        "seq": seq,
        "request": {
            "url": _address(operation),
            "method": operation.method,
            "headers": _with_uids(operation.id, "header", headers),
            "params": _with_uids(operation.id, "parameter", params),
            "auth": {"mode": "none" if operation.is_open else "inherit"},
            "body": body,
            "docs": operation.description,
        },
    }


def _path(operation: Operation) -> str:
    return re.sub(r"\{(\w+)\}", r":\1", operation.path)


def _address(operation: Operation) -> str:
    """The whole URL with the required parameters."""
    required = "&".join(f"{name}=" for name, _, is_required in _query(operation) if is_required)
    return BASE_URL + _path(operation) + (f"?{required}" if required else "")


def _query(operation: Operation) -> list[tuple[str, str, bool]]:
    """Each parameter of the query: its name, its description, and whether it is required."""
    found = [(each.name, each.description, each.required) for each in operation.query]
    if operation.item is not None and any(name == "limit" for name, _, _ in found):
        found.append(("cursor", "The former page's next_cursor.", False))
    return found


def _headers(operation: Operation) -> list[tuple[str, str]]:
    # Postman and Bruno create a new value for each request.
    return [("Idempotency-Key", "{{$guid}}")] if operation.keyed else []


def _example(operation: Operation) -> str:
    example = operation.body_example
    return json.dumps({} if example is None else example, indent=2, ensure_ascii=False)


def _is_file(schema: Json) -> bool:
    return schema.get("format") == "binary"


def _variable(name: str, value: str, *, secret: bool) -> Json:
    return {
        "uid": _uid(f"variable {name}"),
        "name": name,
        "value": value,
        "type": "text",
        "enabled": True,
        "secret": secret,
    }


def _with_uids(owner: str, what: str, rows: list[Json]) -> list[Json]:
    return [{"uid": _uid(f"{owner} {what} {row['name']} {row.get('type')}"), **row} for row in rows]


def _uid(what: Any) -> str:
    """An id in Bruno's form. The same `what` always gives the same id."""
    return hashlib.sha256(str(what).encode()).hexdigest()[:21]
