"""A body or a query that names an account or a number of another tenant, or of the other environment, gets the same
response as one with an unknown id, and Meta is not called. The OpenAPI document says where an id may be named.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from gateway import ids
from gateway.api.openapi import names
from gateway.clock import now
from messaging.models import OptOut
from messaging.tests.incoming import number_of
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.api_contract.authorisation import CONNECTING, ROWS, World
from tests.api_contract.contract import DOCUMENT
from tests.fixtures import Api
from tests.scripted_graph import ScriptedGraph
from webhooks.models import Event, Figure, Message

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = {"from", "phone_number_id", "phone_number_ids", "waba_id", "waba_ids"}
"""The parameters and members that name a number or an account."""
NARROWING = {
    "GET /v1/events/stream",
    "POST /v1/api-keys",
    "POST /v1/webhooks",
    "PATCH /v1/webhooks/{endpoint_id}",
}
"""Routes that accept any id, also of a number that is connected later. The ids only narrow what the caller gets."""
ELSEWHERE = ("/v1/admin/", "/v1/test/")
"""Staff reach every tenant. A test key reaches only the numbers of the sandbox."""
TEXT = {"to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
BODIES: Mapping[str, Any] = {
    "POST /v1/messages": TEXT,
    "POST /v1/messages/read": {"message_id": "wamid.1"},
    "POST /v1/messages/scheduled": {**TEXT, "send_at": (now() + timedelta(days=1)).isoformat()},
    "POST /v1/messages/batch": {"messages": [TEXT]},
    "POST /v1/templates": {"name": "order", "language": "en_US", "category": "UTILITY", "components": []},
}
COUNTED_AT = 1_767_225_600
QUERIES = {"GET /v1/analytics": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}}
EVERYTHING_WORKED = {
    "id": "510000000000001",
    "success": True,
    "messages": [{"id": "wamid.1"}],
    "data": [],
    "h": "4:sample",
    "status": "PENDING",
    "category": "UTILITY",
}
"""Meta's response to every call."""


@dataclass(frozen=True)
class Place:
    """Where a call names an id."""

    method: str
    path: str
    name: str
    media_type: str
    """The type of the body, or empty for a query."""

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"

    def __str__(self) -> str:
        return f"{self.route} {self.media_type} {self.name}"


def members(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The members of an object, with their schemas."""
    schema = names.resolved(DOCUMENT, schema)
    yield from schema.get("properties", {}).items()
    for combined in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(combined, ()):
            yield from members(each)


def places() -> list[Place]:
    found = set()
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            if f"{method.upper()} {path}" in CONNECTING | NARROWING or path.startswith(ELSEWHERE):
                continue
            named = [
                ("", item["name"], item["schema"])
                for item in operation.get("parameters", ())
                if item["in"] == "query"
            ]
            for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
                named += [(media_type, name, schema) for name, schema in members(content["schema"])]
            found |= {
                Place(method.upper(), path, name, media_type)
                for media_type, name, schema in named
                if name in NAMES and names.resolved(DOCUMENT, schema).get("format") != "date-time"
            }
    return sorted(found, key=str)


def number_with_rows(tenant: Tenant, environment: str, number: int) -> PhoneNumber:
    """A connected number, with a row that names it in every list."""
    phone_number = number_of(
        tenant, waba_id=f"1000{number}", phone_number_id=f"2000{number}", environment=environment
    )
    scope: dict[str, Any] = {"tenant_id": tenant.id, "environment": environment}
    of_number = {**scope, "phone_number_id": phone_number.phone_number_id}
    row_id = ids.uuid7()
    Event.objects.create(
        **of_number,
        id=row_id,
        waba_id=phone_number.account.waba_id,
        type="message.inbound",
        dedupe_key=str(number),
        payload_expires_on="2030-01-01",
    )
    Message.objects.create(
        **of_number, id=row_id, key=f"wamid.{number}", month=ids.month_of(row_id), direction="inbound"
    )
    OptOut.objects.create(
        **of_number, id=ids.uuid7(), customer="919812345678", wa_id="919812345678", reported_stop=True,
        reported_at=now(),
    )  # fmt: skip
    Figure.objects.create(
        **of_number, hour=COUNTED_AT // 3600, direction="inbound", measure="received", count=1
    )
    return phone_number


@dataclass
class Caller:
    """Calls a route with an id in one place."""

    api: Api
    place: Place
    path: str
    body: Mapping[str, Any]

    def answer(self, value: str) -> tuple[int, str]:
        """The status and the body of the response, without what differs in every response."""
        path, data, media_type = self.path, dict(self.body), "application/json"
        if not self.place.media_type:
            path += "?" + urlencode({**QUERIES.get(self.place.route, {}), self.place.name: value})
        else:
            data[self.place.name] = value
        body: Any = data if self.place.method != "GET" else None
        if self.takes_a_file:
            file = SimpleUploadedFile("a.png", b"\x89PNG", content_type="image/png")
            body, media_type = encode_multipart(BOUNDARY, {**data, "file": file}), MULTIPART_CONTENT
        found = self.api.request(self.place.method, path, body, content_type=media_type)
        return found.status_code, re.sub(
            r'"(request_id|as_of)":"[^"]+"', "", found.content.decode().replace(value, "THE ID")
        )

    @property
    def takes_a_file(self) -> bool:
        operation = DOCUMENT["paths"][self.place.path][self.place.method.lower()]
        return operation.get("requestBody", {}).get("content", {}).keys() == {"multipart/form-data"}


@pytest.mark.parametrize("place", places(), ids=str)
def test_an_id_of_another_owner_gets_the_response_of_an_unknown_id(
    place: Place, api: Api, tenant: Tenant, other_tenant: Tenant, graph: ScriptedGraph
) -> None:
    graph.always_answers(EVERYTHING_WORKED)
    own = number_with_rows(tenant, "live", 1)
    others = number_with_rows(tenant, "test", 2), number_with_rows(other_tenant, "live", 3)
    row = ROWS[place.route]
    world = World(tenant, None, tenant)  # type: ignore[arg-type] # no route of a platform is called
    path = place.path.format(**(row.ids(world) if row.ids else {}))
    caller = Caller(api, place, path, {**BODIES.get(place.route, {}), **row.body})

    def named(number: PhoneNumber) -> str:
        return number.account.waba_id if "waba" in place.name else number.phone_number_id

    of_unknown = caller.answer("909090")
    for number in others:
        assert caller.answer(named(number)) == of_unknown
    assert graph.received == []
    assert caller.answer(named(own)) != of_unknown, "the id in this place has no effect"
