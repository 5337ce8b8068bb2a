"""Examples of responses in the documentation match the contract, and have every member."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.api_contract.contract import DOCUMENT

DOCS = Path(__file__).parents[2] / "docs"
JSON_BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES: dict[str, list[tuple[str, str | None]]] = {
    "ledger.md": [("/v1/ledger", None), ("/v1/usage", None)],
    "messages.md": [
        ("/v1/messages/{message_id}", None),
        ("/v1/numbers/{phone_number_id}/customers/{customer_id}", None),
        ("/v1/analytics", None),
    ],
    "customer-data.md": [("/v1/erasures/{erasure_id}", None)],
    "numbers.md": [("/v1/numbers/{phone_number_id}/health", None)],
    "requests.md": [("/v1/requests", None)],
    "webhooks.md": [("/v1/webhooks/{endpoint_id}", "health")],
}
"""The operations of the JSON examples on each page, in the order of the page. If a member is named, the example shows
only that member of the response."""
CASES = [
    (page, place, path, member)
    for page, shown in EXAMPLES.items()
    for place, (path, member) in enumerate(shown)
]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with references and nullable wrappers resolved."""
    if "$ref" in schema:
        return resolved(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for group in ("allOf", "oneOf", "anyOf"):
        for each in schema.get(group, []):
            if each.get("type") != "null" and "enum" not in each:
                return resolved(each)
    return schema


def answer_schema(path: str, member: str | None) -> dict[str, Any]:
    """Return the schema of an operation's response, or of one member of the response."""
    answer = DOCUMENT["paths"][path]["get"]["responses"]["200"]
    schema: dict[str, Any] = answer["content"]["application/json"]["schema"]
    return schema if member is None else resolved(schema)["properties"][member]


def unlike(example: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    """Return the missing and the unknown members of an example. Only the first item of a list is checked."""
    schema = resolved(schema)
    if isinstance(example, list):
        return unlike(example[0], schema["items"], f"{at}[0]") if example and "items" in schema else []
    if not isinstance(example, dict) or "properties" not in schema:
        return []
    wanted = set(schema.get("required", schema["properties"]))
    found = [f"{at}.{name} is missing" for name in wanted - set(example)]
    found += [f"{at}.{name} is unknown" for name in set(example) - set(schema["properties"])]
    for name in set(example) & set(schema["properties"]):
        found += unlike(example[name], schema["properties"][name], f"{at}.{name}")
    return sorted(found)


@pytest.mark.parametrize("page", EXAMPLES)
def test_every_example_of_the_page_is_checked(page: str) -> None:
    assert len(JSON_BLOCK.findall((DOCS / page).read_text())) == len(EXAMPLES[page])


@pytest.mark.parametrize(("page", "place", "path", "member"), CASES)
def test_an_example_is_an_answer_with_every_member(
    page: str, place: int, path: str, member: str | None
) -> None:
    example = json.loads(JSON_BLOCK.findall((DOCS / page).read_text())[place])
    schema = {**answer_schema(path, member), "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    errors = [error.message for error in validator.iter_errors(example)]
    assert errors + unlike(example, schema) == []
