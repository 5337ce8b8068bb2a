"""Everything in the contract has a description: members, parameters, and each value of an enumeration."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import path as route_to
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.views import APIView

from gateway.api.openapi.words import meanings
from tests.api_contract.contract import DOCUMENT

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def members(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every member of a schema and of the objects in it, with its place."""
    if not isinstance(schema, dict):
        return
    for name, member in schema.get("properties", {}).items():
        yield f"{place}.{name}", member
        yield from members(member, f"{place}.{name}")
    for union in ("oneOf", "anyOf", "allOf"):
        for part in schema.get(union, []):
            yield from members(part, place)
    yield from members(schema.get("items"), place)


def parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                yield f"{method} {path} {parameter['name']}", parameter


def enumerations() -> Iterator[tuple[str, list[Any], str]]:
    """Yield the place and the values of each enumeration, and the description that must explain the values."""
    for name, schema in SCHEMAS.items():
        if "enum" in schema:
            yield name, schema["enum"], schema.get("description", "")
        for place, member in members(schema, name):
            values = member.get("enum") or (member.get("items") or {}).get("enum")
            if values:
                yield place, values, member["description"]
    for place, parameter in parameters():
        if "enum" in parameter["schema"]:
            yield place, parameter["schema"]["enum"], parameter["description"]


def test_every_member_is_described() -> None:
    found = [
        place
        for name, schema in SCHEMAS.items()
        for place, member in members(schema, name)
        if not member.get("description")
    ]
    assert found == []


def test_every_description_of_a_member_is_a_whole_sentence() -> None:
    """An unquoted comma in a one-line mapping of YAML cuts off a description."""
    found = [
        f"{place}: {member['description']}"
        for name, schema in SCHEMAS.items()
        for place, member in members(schema, name)
        if not member["description"].endswith(".")
    ]
    assert found == []


def test_an_operation_without_a_description_does_not_get_its_views() -> None:
    class Keys(APIView):
        """Keys of tenants."""

        @extend_schema(operation_id="revoke_some_key", request=None, responses=None)
        def delete(self) -> None: ...

    with pytest.raises(LookupError, match="revoke_some_key"):
        SchemaGenerator(patterns=[route_to("v1/keys", Keys.as_view())]).get_schema(public=True)


def test_every_parameter_is_described() -> None:
    assert [place for place, parameter in parameters() if not parameter.get("description")] == []


def test_every_value_of_an_enumeration_is_described() -> None:
    found = [
        f"{place}: {value}"
        for place, values, text in enumerations()
        for value in values
        if value is not None and f"`{value}`:" not in text
    ]
    assert found == []


def test_a_set_of_values_that_nobody_described_has_no_meanings() -> None:
    assert meanings(["pending", "no such value"]) == {}


def test_members_that_mean_something_else_in_a_group_of_schemas_are_described_for_the_group() -> None:
    """A pattern in `words.yaml` describes `data` and `type` of events differently from those of lists."""
    event, page, tax = SCHEMAS["MessageInboundEvent"], SCHEMAS["MessageList"], SCHEMAS["Tax"]
    assert event["properties"]["data"]["description"].startswith("The content of the event.")
    assert page["properties"]["data"]["description"] == "The entries of the page, in order."
    assert event["properties"]["type"]["description"] == "The type of the event."
    assert tax["properties"]["type"]["description"].startswith("The tax:")


def test_moments_and_money_have_their_unit() -> None:
    for name, schema in SCHEMAS.items():
        for place, member in members(schema, name):
            if place.endswith("_paise"):
                assert "paise" in member["description"], place
            if place.endswith("_ms"):
                assert "illiseconds" in member["description"], place


def can_be_null(schema: dict[str, Any]) -> bool:
    """Return whether a schema admits null. A schema without a type admits everything."""
    if "$ref" in schema:
        return can_be_null(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    parts = [*schema.get("oneOf", []), *schema.get("anyOf", []), *schema.get("allOf", [])]
    if parts:
        return any(can_be_null(part) for part in parts)
    kinds = schema.get("type", "null")
    return kinds == "null" or "null" in kinds


def test_no_description_promises_null_where_there_is_none() -> None:
    found = [
        f"{place}: {member['description']}"
        for name, schema in SCHEMAS.items()
        for place, member in members(schema, name)
        if re.search(r"\bnull\b", member["description"], re.IGNORECASE) and not can_be_null(member)
    ]
    assert found == []


def test_numbers_of_metas_notifications_are_in_digits() -> None:
    for name, schema in SCHEMAS.items():
        member = schema.get("properties", {}).get("display_phone_number", {})
        if name.endswith(("Event", "Data")) and member:
            assert "in digits" in member["description"], name


BEGINNINGS = {"How many ": {"integer", "object"}, "Whether ": {"boolean"}, "When ": {"string", "array"}}
"""The beginning of a description → the type of its member."""


def types_of(member: dict[str, Any]) -> set[str]:
    """Return the types of a member, without null. The set is empty for a union or a reference."""
    kinds = member.get("type", [])
    return {kinds} - {"null"} if isinstance(kinds, str) else set(kinds) - {"null"}


def test_a_description_fits_the_type_of_its_member() -> None:
    """Members of the same name share a description. The description is wrong if the members mean different things in
    two schemas.
    """
    found = [
        f"{place}: {member['description']}"
        for name, schema in SCHEMAS.items()
        for place, member in members(schema, name)
        for beginning, kinds in BEGINNINGS.items()
        if member["description"].startswith(beginning)
        if not types_of(member) <= kinds and "enum" not in member
    ]
    assert found == []
