"""Bodies in the service's own form: every member of the contract may be sent, and an unknown one is rejected.

Bodies in Meta's form are passed on with unknown members.
"""

import re
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from gateway.clock import now
from gateway.upstream.contract.bodies import OPERATIONS, reference
from tests.api_contract.authorisation import ROWS, Route, registered_routes
from tests.api_contract.contract import DOCUMENT
from tests.api_contract.credentials import Credentials
from tests.api_contract.test_authorisation import credentials
from tests.fixtures import Api, assert_error

__all__ = ["credentials"]

METAS = {name for name, bodies in OPERATIONS.items() if "request" in bodies} - {"create_batch"}
"""Operations with a body in Meta's form. A batch has the service's form, and only its messages have Meta's."""
IN_METAS_FORM = {"send_test_inbound"}
"""The operation whose body is a customer's message in the form of Meta's notification."""


def operation_of(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"].get(route.path, {}).get(route.method.lower(), {})
    return found


def schema_of(route: Route) -> dict[str, Any] | None:
    """Return the schema of a route's JSON body, if it has one."""
    content = operation_of(route).get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    name = content["schema"]["$ref"].rpartition("/")[2]
    assert content["schema"] == reference(name)
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name]
    return found


def example_of(route: Route) -> dict[str, Any]:
    """Return the first example of a route's JSON body, with which collections and the reference fill their forms."""
    content = operation_of(route)["requestBody"]["content"]["application/json"]
    shown = [each["value"] for each in content.get("examples", {}).values()] or [content["example"]]
    found: dict[str, Any] = shown[0]
    return found


WITH_BODY = [route for route in registered_routes() if schema_of(route) is not None]
OWN = [route for route in WITH_BODY if operation_of(route)["operationId"] not in METAS | IN_METAS_FORM]


WITH_OWN_ROWS = [
    route for route in WITH_BODY if route.name not in {"POST /v1/messages", "POST /v1/messages/read"}
]
"""All but the routes that the listener answers. Their examples are samples of `docs/sending.md`, which are sent."""


def test_the_document_says_which_bodies_are_closed() -> None:
    closed = {
        route.name for route in WITH_BODY if (schema_of(route) or {}).get("additionalProperties") is False
    }
    assert closed == {route.name for route in OWN}
    assert len(OWN) > 25


def test_an_example_that_is_sent_unchanged_sets_no_known_secret_and_deletes_nothing() -> None:
    examples = {operation_of(route)["operationId"]: example_of(route) for route in WITH_BODY}
    assert len(examples) > 35
    assert [name for name, body in examples.items() if "secret" in body] == []
    assert examples["register_number"] == {}, "the service then chooses the PIN"
    assert examples["update_tenant"] == {"retention_days": 365}


TEXTS = (
    "https://shop.example/x",
    "IN",
    "91",
    "123456",
    "400001",
    "+919812345678",
    "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
)
FORMATS = {"date-time": (now() + timedelta(hours=1)).isoformat(), "email": "asha@shop.example"}


def value_of(schema: dict[str, Any]) -> Any:
    """A value that a schema allows, with only the required members of an object."""
    if "$ref" in schema:
        return value_of(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if options := schema.get("oneOf") or schema.get("anyOf"):
        return value_of(options[0])
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"] if isinstance(schema["type"], str) else schema["type"][0]:
        case "boolean":
            return True
        case "integer":
            return schema.get("minimum", 1)
        case "array":
            return [value_of(schema["items"])]
        case "object":
            return {name: value_of(schema["properties"][name]) for name in schema.get("required", [])}
    fitting = (text for text in TEXTS if re.search(schema.get("pattern", ""), text))
    return FORMATS[schema["format"]] if schema.get("format") in FORMATS else next(fitting)


@pytest.fixture(autouse=True)
def _billing_is_on(settings: Settings) -> None:
    settings.BILLING_ENABLED = True


def caller_of(route: Route, credentials: Credentials) -> Api:
    if route.path.startswith("/v1/test/"):
        return credentials["test with all"].api
    caller = {
        "open": "nobody",
        "tenant": "owner key",
        "app": "platform",
        "staff": "staff",
        "console": "owner",
    }
    return credentials[caller[route.kind]].api


@pytest.mark.django_db
class TestEachOwnBody:
    @pytest.mark.parametrize("route", OWN, ids=lambda route: route.name)
    def test_every_member_may_be_sent(self, route: Route, credentials: Credentials) -> None:
        """A value may be refused for its content, but no member makes the service fail."""
        schema = schema_of(route)
        assert schema is not None
        row = ROWS[route.name]
        for name, member in schema["properties"].items():
            body = {**row.body, name: value_of(member)}
            path = route.path.format(**(row.ids(credentials.world) if row.ids else {}))
            answer = caller_of(route, credentials).request(route.method, path, body)
            assert answer.status_code != 500, (name, answer.content)
            assert b"This member is unknown" not in answer.content, name

    @pytest.mark.usefixtures("simulator")
    @pytest.mark.parametrize("route", WITH_OWN_ROWS, ids=lambda route: route.name)
    def test_its_example_is_valid(self, route: Route, credentials: Credentials) -> None:
        row = ROWS[route.name]
        path = route.path.format(**(row.ids(credentials.world) if row.ids else {}))
        body = example_of(route)
        if "send_at" in body:
            body = {**body, "send_at": FORMATS["date-time"]}
        answer = caller_of(route, credentials).request(route.method, path, body)
        assert answer.status_code != 500
        if answer.status_code == 400 and answer.json()["source"] != "meta":
            # An example cannot name a number or an account of the caller's own.
            details = answer.json()["error"]["details"]
            assert details is not None, answer.content
            assert details.get("fields", {}).keys() <= {"from", "phone_number_id", "waba_id"}, details

    @pytest.mark.parametrize("route", OWN, ids=lambda route: route.name)
    def test_an_unknown_member_is_refused_with_the_likely_one(
        self, route: Route, credentials: Credentials
    ) -> None:
        schema = schema_of(route)
        assert schema is not None
        row = ROWS[route.name]
        known = min(schema["properties"], key=lambda name: (-len(name), name))
        likely, strange = f"{known}x", "zzzzzzzz"
        body = {**row.body, likely: "x", strange: {"a": [1]}}
        path = route.path.format(**(row.ids(credentials.world) if row.ids else {}))
        answer = caller_of(route, credentials).request(route.method, path, body)
        fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
        assert f"Did you mean {known}?" in fields[likely][0]
        if route.name != "POST /v1/messages/batch":  # its parser stops at the first unknown member
            assert "The known ones are: " in fields[strange][0]


@pytest.mark.django_db
def test_events_for_event_types_subscribes_to_nothing(api: Api) -> None:
    answer = api.post("/v1/webhooks", {"url": "https://shop.example/hooks", "events": ["message.inbound"]})
    fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
    assert "Did you mean event_types?" in fields["events"][0]
    assert api.get("/v1/webhooks").json()["data"] == []


@pytest.mark.django_db
def test_a_long_name_is_not_repeated_in_full(api: Api) -> None:
    fields = assert_error(api.patch("/v1/tenant", {"x" * 5_000: 1}), 400, "invalid_request")["details"][
        "fields"
    ]
    assert list(fields) == ["x" * 100]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/events", "/v1/messages"])
@pytest.mark.parametrize(
    ("written", "status"),
    [
        ("919812345678", 200),
        ("%2B919812345678", 200),
        ("+91 98123-45678", 200),
        ("(91) 98123.45678", 200),
        ("abc", 400),
        ("91981234567x", 400),
        ("IN.ABCDEF123", 400),
        ("%2B", 400),
        ("٩١٩٨", 400),
    ],
)
def test_a_customers_number_is_read_however_it_is_written(
    api: Api, path: str, written: str, status: int
) -> None:
    answer = api.get(f"{path}?wa_id={written.replace(' ', '%20')}")
    assert answer.status_code == status, answer.content
    if status == 400:
        assert "919812345678" in assert_error(answer, 400, "invalid_request")["details"]["fields"]["wa_id"][0]
