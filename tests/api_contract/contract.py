"""Validates every response in the tests against the committed OpenAPI document."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema_rs

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).resolve().parents[2] / "docs/openapi.json").read_text())
NAME = "urn:contract"
"""The URI by which schemas refer to the document."""


def assert_in_contract(method: str, path: str, response: Any) -> None:
    """Check that the response's status is documented for its operation, and that its JSON body has the documented
    shape.

    A call without an operation in the document (an unknown path, an unsupported method) is not checked.
    """
    template = _template_of(path.partition("?")[0])
    operation = DOCUMENT["paths"].get(template, {}).get(method.lower())
    if operation is None:
        return
    status = str(response.status_code)
    if status not in operation["responses"]:
        status = f"{status[0]}XX"
    assert status in operation["responses"], f"{method} {template}: {response.status_code} is not documented"
    kind = response.get("Content-Type", "").partition(";")[0]
    if kind == "application/json" and (validator := _validator(template, method.lower(), status)) is not None:
        errors = [
            f"{'/'.join(map(str, error.instance_path))}: {error.message}"
            for error in validator.iter_errors(json.loads(response.content))
        ]
        assert not errors, f"{method} {template} {status}: {errors}"


@cache
def _template_of(path: str) -> str | None:
    """Return the documented path that matches a path. Literal parts take precedence over parameters."""
    found = [template for template in DOCUMENT["paths"] if _pattern(template).fullmatch(path)]
    return min(found, key=lambda template: template.count("{"), default=None)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))


@cache
def _registry() -> Any:
    """Parse the document once for all validators, because each copy costs 2.4 MB and 8 ms."""
    return jsonschema_rs.Registry([(NAME, DOCUMENT)])


@cache
def _validator(template: str, method: str, status: str) -> Any:
    answer = DOCUMENT["paths"][template][method]["responses"][status]
    place = ["paths", template, method, "responses", status]
    if "$ref" in answer:
        place = answer["$ref"].removeprefix("#/").split("/")
        answer = DOCUMENT["components"]["responses"][place[-1]]
    if "schema" not in answer.get("content", {}).get("application/json", {}):
        return None
    place += ["content", "application/json", "schema"]
    pointer = "".join(f"/{quote(part.replace('~', '~0').replace('/', '~1'))}" for part in place)
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"{NAME}#{pointer}"}, registry=_registry(), validate_formats=True
    )
