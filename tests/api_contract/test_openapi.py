"""The committed OpenAPI document is the document that the service serves, and covers the specification."""

import gzip
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any, get_args

import drf_spectacular.validation
import jsonschema_rs
import pytest
import yaml
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from gateway.api.errors import error_kinds
from gateway.api.json import dumps
from gateway.api.openapi.document import DocumentView
from gateway.upstream.contract.bodies import MESSAGE_TYPES, OPERATIONS, reference
from gateway.upstream.contract.bodies import schemas as schemas_of_meta
from gateway.upstream.notifications.change import EventType
from gateway.upstream.tests.notifications import BODIES, drafts_of
from webhooks.events.contract import schema_name
from webhooks.events.envelope import EVENT_TYPES

ROOT = Path(__file__).resolve().parents[2]

SPECIFICATION = """
GET /v1/health | GET /v1/tenant | PATCH /v1/tenant | GET /v1/tenants | POST /v1/tenants | GET /v1/tenants/{}
GET /v1/api-keys | POST /v1/api-keys | DELETE /v1/api-keys/{} | POST /v1/api-keys/{}/rotate
GET /v1/numbers | GET /v1/numbers/{} | POST /v1/numbers/embedded-signup | POST /v1/numbers/connect
POST /v1/numbers/migrate | POST /v1/numbers/{}/register | POST /v1/numbers/{}/deregister
POST /v1/numbers/{}/request-code | POST /v1/numbers/{}/verify-code | POST /v1/numbers/{}/two-step
POST /v1/numbers/{}/subscribe | GET /v1/numbers/{}/business-profile | POST /v1/numbers/{}/business-profile
POST /v1/connect-sessions | GET /v1/connect-sessions/{}
POST /v1/messages | POST /v1/messages/read | POST /v1/messages/batch | GET /v1/messages/batch/{}
GET /v1/messages/batch/{}/items | POST /v1/messages/batch/{}/cancel
POST /v1/media | GET /v1/media/{} | DELETE /v1/media/{}
GET /v1/templates | POST /v1/templates | GET /v1/templates/{} | POST /v1/templates/{} | DELETE /v1/templates/{}
POST /v1/templates/sync | GET /v1/templates/library | POST /v1/templates/media-handle
GET /v1/webhooks | POST /v1/webhooks | GET /v1/webhooks/{} | PATCH /v1/webhooks/{} | DELETE /v1/webhooks/{}
POST /v1/webhooks/{}/verify | POST /v1/webhooks/{}/rotate-secret | POST /v1/webhooks/{}/replay
GET /v1/webhook-deliveries | GET /v1/webhook-deliveries/{} | POST /v1/webhook-deliveries/{}/replay
GET /v1/events | GET /v1/events/{}
GET /v1/billing | POST /v1/billing/mandate | GET /v1/billing/invoices | GET /v1/billing/invoices/{}
POST /v1/billing/invoices/{}/pay
GET /v1/admin/tenants | POST /v1/admin/tenants/{}/approve | POST /v1/admin/tenants/{}/reject
POST /v1/admin/tenants/{}/suspend | POST /v1/admin/tenants/{}/reinstate | GET /v1/admin/numbers
GET /v1/admin/health | GET /v1/admin/audit | GET /v1/admin/billing | GET /v1/admin/mail/last
GET /v1/admin/apps | POST /v1/admin/apps | POST /v1/admin/apps/{}/keys
"""


UNTYPED = [
    {"type": "object", "additionalProperties": {}},
    {"type": "object", "additionalProperties": True},
    {},
]
_DATA = yaml.safe_load((ROOT / "webhooks/events/data.yaml").read_text())["data"]
DATA_OF_META = {name for kind, name in _DATA.items() if kind in get_args(EventType)}
DATA_OF_ITS_OWN = set(_DATA.values()) - DATA_OF_META
EXAMPLES = json.loads((ROOT / "webhooks/events/examples.json").read_text())


@cache
def generated() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(dumps(SchemaGenerator().get_schema(public=True)))
    return document


def test_the_committed_document_is_the_generated_one() -> None:
    committed = json.loads((ROOT / "docs/openapi.json").read_text())
    assert committed == generated(), "run `make openapi`"


def test_the_document_is_valid_and_describes_every_operation_of_the_specification() -> None:
    document = generated()
    # `validate_schema` of drf-spectacular checks the same schema, but takes 2 seconds of CPU.
    meta_schema = Path(drf_spectacular.validation.__file__).with_name("openapi_3_1_schema.json")
    assert document["openapi"].startswith("3.1")
    jsonschema_rs.validate(json.loads(meta_schema.read_text()), document)
    described = {
        f"{method.upper()} " + "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
        for path, operations in document["paths"].items()
        for method in operations
    }
    specified = {entry.strip() for line in SPECIFICATION.strip().splitlines() for entry in line.split("|")}
    assert specified - described == set()


def test_every_operation_has_a_summary_of_its_own_and_its_errors() -> None:
    ids, summaries = [], []
    for operations in generated()["paths"].values():
        for operation in operations.values():
            ids.append(operation["operationId"])
            summaries.append(operation["summary"])
            assert operation["tags"]
            assert operation["description"].rstrip().endswith("."), operation["operationId"]
            assert not re.search(r"section \d|\.py\b|gateway/", operation["description"])
            assert {"400", "408", "413", "414", "431", "500"} <= operation["responses"].keys()
            assert any(status.startswith("2") for status in operation["responses"])
    assert len(ids) == len(set(ids))
    assert len(summaries) == len(set(summaries))


def test_a_report_of_health_promises_no_time_to_wait() -> None:
    for name in ("health", "health_ready"):
        assert "Retry-After" not in operations()[name]["responses"]["503"]["headers"]


def operations() -> dict[str, dict[str, Any]]:
    """Return every operation by its id."""
    paths = generated()["paths"].values()
    return {operation["operationId"]: operation for path in paths for operation in path.values()}


def test_no_operation_but_those_of_one_tenant_takes_the_tenant_to_act_on() -> None:
    with_tenant, without = set(), set()
    for operation in operations().values():
        names = [parameter["name"] for parameter in operation.get("parameters", [])]
        (with_tenant if "X-Service-Tenant" in names else without).update(operation["tags"])
    assert without == {"Admin", "Console sessions", "Device logins", "Health", "Tenants"}
    assert with_tenant.isdisjoint(without)


def schemas(contents: dict[str, Any]) -> list[Any]:
    return [content.get("schema", {}) for kind, content in contents.items() if kind == "application/json"]


@cache
def validator(name: str) -> Any:
    document = generated()
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def reachable(part: Any, components: dict[str, Any], passed: set[str]) -> set[str]:
    """Return the schemas that a part of the document refers to, directly or through other schemas.

    Schemas in `passed` are left out, and their references are not followed.
    """
    found: set[str] = set()
    open_parts = [part]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, list):
            open_parts += part
        elif isinstance(part, dict):
            open_parts += [value for name, value in part.items() if name not in {"example", "examples"}]
            name = str(part.get("$ref", "")).removeprefix("#/components/schemas/")
            if name in components.keys() - found - passed:
                found.add(name)
                open_parts.append(components[name])
    return found


def objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema of every object in a part of the document, without following references."""
    if isinstance(part, list):
        for each in part:
            yield from objects(each)
    elif isinstance(part, dict):
        if isinstance(part.get("properties"), dict):
            yield part
        for name, value in part.items():
            if name not in {"example", "examples"}:
                yield from objects(value)


def absent_of(schema: dict[str, Any]) -> set[str]:
    """Return the members that an object may lack."""
    return schema["properties"].keys() - set(schema.get("required", []))


def test_no_body_and_no_answer_is_untyped() -> None:
    untyped = []
    for name, operation in operations().items():
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [answer.get("content", {}) for answer in operation["responses"].values()]
        untyped += [name for content in contents for schema in schemas(content) if schema in UNTYPED]
    assert untyped == []


def test_the_upstreams_bodies_belong_to_operations_that_exist() -> None:
    assert OPERATIONS.keys() <= operations().keys()


@pytest.mark.parametrize("kind", MESSAGE_TYPES)
def test_a_message_is_validated_by_its_type(kind: str) -> None:
    bodies = [
        example["value"]
        for operation in ("send_message", "mark_message_read")
        for example in operations()[operation]["requestBody"]["content"]["application/json"][
            "examples"
        ].values()
        if example["value"].get("type") == kind
    ]
    assert bodies
    for body in bodies:
        assert validator("OutgoingMessage").is_valid(body), list(
            validator("OutgoingMessage").iter_errors(body)
        )
        assert validator("OutgoingMessage").is_valid({**body, "a_member_of_tomorrow": {"deep": [1]}})
        assert validator("BatchMessage").is_valid(
            {name: value for name, value in body.items() if name != "from"}
        )
        assert not validator("OutgoingMessage").is_valid({**body, kind: None})
        assert not validator("OutgoingMessage").is_valid({**body, "type": "fax"})


def test_uploads_are_binary() -> None:
    for name in ("upload_media", "upload_template_sample"):
        [content] = operations()[name]["requestBody"]["content"].values()
        schema = content["schema"]
        if "$ref" in schema:
            schema = generated()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        file = schema["properties"]["file"]
        assert (file["type"], file["format"]) == ("string", "binary")


def test_each_event_type_is_a_webhook_with_its_example() -> None:
    document = generated()
    assert document["webhooks"].keys() == {*EVENT_TYPES, "webhook.verify"}
    mapping = document["components"]["schemas"]["Event"]["discriminator"]["mapping"]
    assert mapping.keys() == set(EVENT_TYPES)
    for kind in EVENT_TYPES:
        body = document["webhooks"][kind]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"]["$ref"] == mapping[kind]
        for example in body["examples"].values():
            assert not list(validator(schema_name(kind)).iter_errors(example["value"]))
            assert validator("Event").is_valid(example["value"])
            assert not validator("Event").is_valid({**example["value"], "type": "message.unheard"})


@pytest.mark.parametrize(
    "name",
    sorted(name for name in BODIES if name != "messages__odd_items" and not name.startswith("malformed")),
)  # those do not have the shape of Meta's notifications
def test_what_a_notification_becomes_has_the_shape_of_its_event(name: str) -> None:
    drafts = drafts_of(BODIES[name])
    assert drafts
    for draft in drafts:
        event = {**EXAMPLES[draft.type], "data": json.loads(draft.data)}
        assert not list(validator(schema_name(draft.type)).iter_errors(event))


MAY_BE_ABSENT = {
    "FlowEndpoint": {"secret"},
    "MessageFigures": {"direction", "phone_number_id", "template"},
    "RefreshedPhoneNumber": {"meta_snapshot"},
    "SignedUpNumber": {"pin"},
    "Sync": {"failed"},
}
"""Members that the service's own responses and events may lack. Secrets are shown once, and groups only on request."""


def test_the_services_own_answers_and_events_have_every_member_but_these() -> None:
    """Every test that calls the API detects missing members. This test detects members that are needlessly optional."""
    components = generated()["components"]["schemas"]
    passed = {*schemas_of_meta(), *DATA_OF_META, "Event", "Template"}
    asked = reachable(
        [operation.get("requestBody") for operation in operations().values()], components, passed
    )
    answers = [
        answer
        for operation in operations().values()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    ]
    own = reachable([answers, [reference(name) for name in DATA_OF_ITS_OWN]], components, passed)
    optional = {
        name: absent
        for name in own - asked
        if (absent := {member for part in objects(components[name]) for member in absent_of(part)})
    }
    assert optional == MAY_BE_ABSENT
    assert not [part for part in objects(answers) if absent_of(part)]


def test_error_codes_are_listed() -> None:
    codes = generated()["components"]["schemas"]["ErrorCode"]["enum"]
    assert codes == sorted({kind.code for kind in error_kinds()})


def test_no_schema_has_the_name_of_a_constructor_and_no_enumeration_is_there_twice() -> None:
    named = generated()["components"]["schemas"]
    assert not [name for name in named if name.startswith("New") and name[3:] in named]
    assert not [name for name in named if name.endswith(("Out", "In"))]
    constants = [value for schema in named.values() for value in schema.get("enum", [])]
    assert len(constants) == len(set(constants))


def test_every_body_and_answer_has_an_example_of_its_schema() -> None:
    document = generated()
    for name, operation in operations().items():
        answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        for part in [operation.get("requestBody", {}), *answers]:
            body = part.get("content", {}).get("application/json")
            if body is None:
                continue
            shown = [example["value"] for example in body.get("examples", {}).values()] or [body["example"]]
            schema = {**body["schema"], "components": document["components"]}
            checker = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            problems = [str(error) for value in shown for error in checker.iter_errors(value)]
            assert problems == [], name


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Clear the generated document. Returns a list of the threads that generate it from now on."""
    generated_by: list[int] = []
    generate = SchemaGenerator.get_schema

    def noted(generator: SchemaGenerator, *args: Any, **kwargs: Any) -> Any:
        generated_by.append(get_ident())
        return {**generate(generator, *args, **kwargs), "paths": {}, "components": {}}

    monkeypatch.setattr(SchemaGenerator, "get_schema", noted)
    monkeypatch.setattr(DocumentView, "_generated", None)
    return generated_by


def test_the_document_is_generated_once_for_all_callers(generators: list[int]) -> None:
    """The generator fails if two threads run it at once. Each run also takes seconds of CPU."""
    meeting = Barrier(4)

    def ask() -> Any:
        meeting.wait(30)
        return Client().get("/v1/openapi.json").json()

    with ThreadPoolExecutor(4) as threads:
        answers = [future.result(60) for future in [threads.submit(ask) for _ in range(4)]]
    assert answers == [answers[0]] * 4
    assert len(generators) == 1


def test_the_document_is_written_once_in_each_form(
    generators: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendering takes tenths of a second of CPU for JSON, and seconds for YAML."""
    forms = [("json", "application/json"), ("json", "application/vnd.oai.openapi+json"), ("yaml", "*/*")]

    def ask() -> list[bytes]:
        return [Client().get(f"/v1/openapi.{name}", headers={"Accept": kind}).content for name, kind in forms]

    first = ask()
    for form in (OpenApiJsonRenderer, OpenApiYamlRenderer):
        monkeypatch.setattr(form, "render", lambda *_, **__: b"written again")
    assert ask() == first


def test_the_first_request_changes_nothing_for_later_ones(generators: list[int]) -> None:
    version = json.loads((ROOT / "docs/openapi.json").read_text())["info"]["version"]
    options = Client().options("/v1/openapi.yaml")
    assert b"openapi: " not in options.content
    first = Client().get("/v1/openapi.json?version=mine&lang=de")
    assert first["Content-Disposition"] == 'inline; filename="openapi.json"'
    assert first.json()["info"]["version"] == version
    assert Client().options("/v1/openapi.yaml").content == options.content
    as_yaml = Client().get("/v1/openapi.yaml")
    assert as_yaml["Content-Disposition"] == 'inline; filename="openapi.yaml"'
    assert yaml.safe_load(as_yaml.content) == first.json()


def test_the_document_comes_compressed_and_as_yaml(generators: list[int]) -> None:
    asked = {name: Client().get(f"/v1/openapi.{name}") for name in ("json", "yaml")}
    assert asked["json"].json() == yaml.safe_load(asked["yaml"].content)
    assert not asked["yaml"].content.startswith(b"{")
    packed = Client().get("/v1/openapi.yaml", headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == asked["yaml"].content
    assert len(packed.content) < len(asked["yaml"].content) / 5
