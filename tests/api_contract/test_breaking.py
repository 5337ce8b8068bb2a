"""The contract has no breaking change since the last release."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from tests.api_contract.breaking import RELEASED, changes, last_release, without_words
from tests.api_contract.contract import DOCUMENT
from tests.pages import page

Json = dict[str, Any]
BASE: Json = {
    "paths": {
        "/v1/things": {
            "post": {
                "parameters": [
                    {"in": "query", "name": "limit", "schema": {"type": "integer", "maximum": 200}}
                ],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/schemas/Asked"}}}},
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/schemas/Thing"}}}}
                },
            }
        }
    },
    "schemas": {
        "Asked": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "maxLength": 50},
                "kind": {"type": "string", "enum": ["a", "b"]},
                "parts": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"size": {"type": "number"}}},
                },
            },
        },
        "Thing": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string"},
                "end": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "of": {"oneOf": [{"type": "string"}, {"$ref": "#/schemas/Other"}]},
                "self": {"$ref": "#/schemas/Thing"},
                "size": {"type": ["integer", "string"]},
            },
        },
        "Other": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
}


def operation(document: Json) -> Json:
    found: Json = document["paths"]["/v1/things"]["post"]
    return found


def asked(document: Json) -> Json:
    found: Json = document["schemas"]["Asked"]
    return found


def thing(document: Json) -> Json:
    found: Json = document["schemas"]["Thing"]
    return found


BREAKING: dict[str, tuple[Callable[[Json], Any], str]] = {
    "a path goes": (lambda d: d["paths"].clear(), "POST /v1/things: removed"),
    "a parameter goes": (lambda d: operation(d)["parameters"].clear(), "parameter limit removed"),
    "a parameter is needed": (
        lambda d: operation(d)["parameters"].append(
            {"in": "query", "name": "day", "required": True, "schema": {}}
        ),
        "parameter day is required now",
    ),
    "a bound falls": (
        lambda d: operation(d)["parameters"][0]["schema"].update(maximum=100),
        "maximum is 100 now",
    ),
    "an answer goes": (lambda d: operation(d)["responses"].clear(), "answer 200 removed"),
    "a member of a request goes": (lambda d: asked(d)["properties"].pop("kind"), ".kind: removed"),
    "a member of a request is needed": (lambda d: asked(d)["required"].append("kind"), ".kind: required now"),
    "a value goes": (lambda d: asked(d)["properties"]["kind"]["enum"].pop(), "values ['b'] removed"),
    "a text is shorter": (lambda d: asked(d)["properties"]["name"].update(maxLength=5), "maxLength is 5 now"),
    "a text has a pattern": (
        lambda d: asked(d)["properties"]["name"].update(pattern="^x"),
        "pattern is ^x now",
    ),
    "a list's item changes": (
        lambda d: asked(d)["properties"]["parts"]["items"]["properties"]["size"].update(type="string"),
        ".parts[].size: type",
    ),
    "a member of an answer goes": (lambda d: thing(d)["properties"].pop("id"), ".id: removed"),
    "a member of an answer may be missing": (lambda d: thing(d)["required"].clear(), ".id: optional now"),
    "a member of an answer may be null": (
        lambda d: thing(d)["properties"]["id"].update(type=["string", "null"]),
        ".id: type",
    ),
    "a variant goes": (lambda d: thing(d)["properties"]["of"]["oneOf"].pop(), "variant Other removed"),
    "a kind of value goes": (
        lambda d: thing(d)["properties"]["size"].update(type="integer"),
        "variant string removed",
    ),
    "a member of a variant changes": (
        lambda d: d["schemas"]["Other"]["properties"]["x"].update(type="string"),
        ".x: type",
    ),
}
HARMLESS: dict[str, Callable[[Json], Any]] = {
    "nothing": lambda d: d,
    "a path": lambda d: d["paths"].update({"/v1/more": {}}),
    "a parameter": lambda d: operation(d)["parameters"].append({"in": "query", "name": "day", "schema": {}}),
    "a member of a request": lambda d: asked(d)["properties"].update(more={"type": "string"}),
    "a member of an answer": lambda d: thing(d)["properties"].update(more={"type": "string"}),
    "a promise": lambda d: thing(d)["required"].append("end"),
    "a value": lambda d: asked(d)["properties"]["kind"]["enum"].append("c"),
    "a variant": lambda d: thing(d)["properties"]["of"]["oneOf"].append({"type": "boolean"}),
    "a wider bound": lambda d: asked(d)["properties"]["name"].update(maxLength=500),
    "several types as a union": lambda d: thing(d)["properties"].update(
        size={"anyOf": [{"type": "integer"}, {"type": "string"}]}
    ),
    "a request asks for less": lambda d: asked(d)["required"].clear(),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_breaking_change_is_reported(name: str) -> None:
    change, line = BREAKING[name]
    new = copy.deepcopy(BASE)
    change(new)
    assert any(line in each for each in changes(BASE, new)), changes(BASE, new)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_change_is_not_reported(name: str) -> None:
    new = copy.deepcopy(BASE)
    HARMLESS[name](new)
    assert [
        each for each in changes(BASE, new) if "Asked" not in each or name != "a request asks for less"
    ] == []


IN_FORCE_BEFORE = {
    "POST /v1/webhooks.url: maxLength is 2048 now",
    "PATCH /v1/webhooks/{endpoint_id}.url: maxLength is 2048 now",
    "POST /v1/webhooks.secret: maxLength is 94 now",
    "POST /v1/webhooks.secret: pattern is ^whsec_ now",
    "POST /v1/test/inbound.phone_number_id: maxLength is 64 now",
    "POST /v1/admin/apps/{app_id}/keys.scopes: removed",
    "POST /v1/admin/apps/{app_id}/keys.phone_number_ids: removed",
}
"""Limits that the release already enforced, but that its contract did not name. The last two are members that its
contract named, but that it answered with 500.
"""
OF_CELLS = "status: values ['arriving', 'moved', 'moving'] removed"
"""Only operators could filter by these values, and no answer has them any more."""


def test_nothing_of_the_last_release_is_broken() -> None:
    """A breaking change needs a new date version that runs beside the old one (docs/api.md, "Version")."""
    found = {each for each in changes(last_release(), DOCUMENT) if not each.endswith(OF_CELLS)}
    assert found <= IN_FORCE_BEFORE


def test_a_release_is_stored_without_words_but_with_every_member() -> None:
    document = {"description": "x", "properties": {"description": {"type": "string", "description": "x"}}}
    assert without_words(document) == {"properties": {"description": {"type": "string"}}}


def test_the_last_release_is_dated_and_stored() -> None:
    [version] = re.findall(r'^version = "(.*)"$', page("sdks/python/pyproject.toml"), re.MULTILINE)
    assert (RELEASED / f"{version}.json.gz").is_file()
    assert re.search(
        rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", page("docs/changelog.md"), re.MULTILINE
    )
    assert last_release()["info"]["version"] == settings.API_VERSION
    assert json.loads(page("sdks/typescript/package.json"))["version"] == version
