"""The OpenAPI document against the running service: no 500, no undocumented status, no breach of a schema.

Positive and negative cases for every operation, made by schemathesis, with the credentials that open it. The long
form (`make fuzz`) makes more examples of each.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.e2e.conftest import ROOT, Stack

pytestmark = pytest.mark.e2e

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
"""Good and bad ones of each operation. The short form draws the same each time, so more of them would find little."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
NEVER_CALLED = {
    # They would end what the other cases call with.
    ("DELETE", "/v1/api-keys/{key_id}"),
    ("DELETE", "/v1/console/sessions/current"),
}


@pytest.fixture(scope="module")
def credentials(stack: Stack) -> dict[str, str]:
    """A token for each kind of operation: a platform's, a staff member's, and that of a tenant made for these cases.

    The tenant has one of everything, so that lists have rows; no other test works with what the cases leave there.
    """
    app_id = stack.manage("create_app", "Fuzz")
    app = stack.manage("create_key", "--app", app_id, "--environment", "test")
    made = stack.api("POST", "/v1/tenants", {"name": "Fuzzed"}, key=app)
    assert made.status_code == 201, made.text
    key = stack.api(
        "POST", "/v1/api-keys", {"name": "fuzz"}, key=app, **{"X-Service-Tenant": made.json()["id"]}
    )
    assert key.status_code == 201, key.text
    furnish(stack, key.json()["key"])
    login = {"email": stack.ready["staff_email"], "password": stack.ready["staff_password"]}
    session = stack.api("POST", "/v1/console/sessions", login)
    assert session.ok, session.text
    return {"tenant": key.json()["key"], "app": app, "staff": session.json()["token"]}


def furnish(stack: Stack, key: str) -> None:
    """A number, an endpoint, messages in both directions, a batch, a template and a connect session."""
    inbox = f"{stack.ready['simulator_url']}/inbox/fuzzed"
    customer = "919812345678"
    written = stack.api("POST", "/v1/test/inbound", {"from": customer, "text": "Hello"}, key=key)
    assert written.status_code == 201, written.text
    number = written.json()["phone_number_id"]
    text = {"to": f"+{customer}", "type": "text", "text": {"body": "Hello"}}
    template = {"name": "fuzzed", "language": "en_US", "category": "UTILITY"}
    for path, body in (
        ("/v1/webhooks", {"url": inbox}),
        ("/v1/messages", {"from": number, **text}),
        ("/v1/messages/batch", {"from": number, "messages": [text]}),
        ("/v1/templates", {**template, "components": [{"type": "BODY", "text": "Hello"}]}),
        ("/v1/connect-sessions", {"return_url": "https://shop.example/connected"}),
    ):
        answer = stack.api("POST", path, body, key=key)
        assert answer.ok, answer.text


def kind_of(path: str) -> str:
    if path.startswith("/v1/tenants"):
        return "app"
    return "staff" if path.startswith(("/v1/admin", "/v1/console")) else "tenant"


DOCUMENT = schemathesis.openapi.from_path(ROOT / "docs/openapi.json")


def cases() -> Iterator[Any]:
    """Every operation with good input, and with bad input where it takes any."""
    for found in DOCUMENT.get_all_operations():
        operation = found.ok()
        if (operation.method.upper(), operation.path) in NEVER_CALLED:
            continue
        yield pytest.param(operation, GenerationMode.POSITIVE, id=f"{operation.label} good")
        if any(True for _ in operation.iter_parameters()) or operation.body:
            yield pytest.param(operation, GenerationMode.NEGATIVE, id=f"{operation.label} bad")


@pytest.mark.parametrize(("operation", "mode"), list(cases()))
def test_every_operation_keeps_its_contract(
    operation: Any, mode: GenerationMode, stack: Stack, credentials: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {credentials[kind_of(operation.path)]}"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def keeps_it(case: Case) -> None:
        response = case.call(base_url=stack.ready["base_url"], headers=headers, timeout=30)
        checks = CHECKS
        if response.status_code == 503 and response.json()["error"]["code"] == "billing_disabled":
            checks = [check for check in CHECKS if check is not not_a_server_error]
        case.validate_response(response, checks=checks, headers=headers)

    keeps_it()
