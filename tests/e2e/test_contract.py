"""The OpenAPI document and the running service: no 500, no undocumented status, no violation of a schema.

schemathesis generates positive and negative cases for every operation, with the right credentials. The long form
(`make fuzz`) makes more examples of each. Only the tests themselves import schemathesis. At the top of this file, the
import would cost every test process that collects the file 0.7 s and 80 MB.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.e2e.conftest import ROOT, Stack, until

pytestmark = pytest.mark.e2e

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
"""The number of valid and of invalid examples for each operation. The short form always draws the same few examples."""
PART, PARTS = (int(number) for number in os.environ.get("FUZZ_PART", "1/1").split("/"))
"""The part of the operations that is tested. `2/4` is the second quarter."""
NEVER_CALLED = {
    # These calls would end the credentials that the other cases use.
    ("DELETE", "/v1/api-keys/{key_id}"),
    ("DELETE", "/v1/console/sessions/current"),
}

CUSTOMER = "919812345678"


@pytest.fixture(scope="module")
def credentials(stack: Stack) -> dict[str, str]:
    """A token for each kind of operation: a platform's, a staff member's, and a tenant's.

    Only these tests use the tenant, so other tests are not affected by the rows that the cases leave.
    """
    app = stack.platform_key("Fuzz")
    tenant = stack.made("/v1/tenants", {"name": "Fuzzed"}, key=app)["id"]
    key = stack.made("/v1/api-keys", {"name": "fuzz"}, key=app, **{"X-Service-Tenant": tenant})["key"]
    return {"tenant": key, "app": app, "staff": stack.staff_token}


@pytest.fixture(scope="module")
def existing(stack: Stack, credentials: dict[str, str]) -> dict[str, str]:
    """Path parameters of the tenant's objects, because a random id would end every call at the first look-up."""
    key = credentials["tenant"]
    number = furnish(stack, key)
    lists = {
        "endpoint_id": "/v1/webhooks",
        "event_id": "/v1/events",
        "delivery_id": "/v1/webhook-deliveries",
        "message_id": "/v1/messages",
        "batch_id": "/v1/messages/batch",
        "template_id": "/v1/templates",
        "request_id": "/v1/requests",
    }

    def first(path: str) -> str | None:
        rows = stack.api("GET", path, key=key).json()["data"]
        return str(rows[0]["id"]) if rows else None

    found = {name: until(partial(first, path), path) for name, path in lists.items()}
    return {"phone_number_id": number, "customer_id": CUSTOMER, **found}


def furnish(stack: Stack, key: str) -> str:
    """Create a number, an endpoint, messages in both directions, a batch, a template and a connect session.

    Returns the number's id.
    """
    inbox = f"{stack.ready['simulator_url']}/inbox/fuzzed"
    written = stack.api("POST", "/v1/test/inbound", {"from": CUSTOMER, "text": "Hello"}, key=key)
    assert written.status_code == 201, written.text
    number = str(written.json()["phone_number_id"])
    text = {"to": f"+{CUSTOMER}", "type": "text", "text": {"body": "Hello"}}
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
    return number


def kind_of(path: str) -> str:
    if path.startswith("/v1/tenants"):
        return "app"
    return "staff" if path.startswith(("/v1/admin", "/v1/console")) else "tenant"


def operations() -> list[tuple[str, str, str]]:
    """Each operation's method, path and kind of input: "good" for every operation, also "bad" for an operation with
    input.
    """
    found = []
    for path, methods in json.loads((ROOT / "docs/openapi.json").read_bytes())["paths"].items():
        for method, operation in methods.items():
            if (method.upper(), path) not in NEVER_CALLED:
                found.append((method.upper(), path, "good"))
                if operation.get("parameters") or "requestBody" in operation:
                    found.append((method.upper(), path, "bad"))
    return found[PART - 1 :: PARTS]


@pytest.fixture(scope="module")
def document() -> Any:
    import schemathesis

    schema = schemathesis.openapi.from_path(ROOT / "docs/openapi.json")
    # A random token would end each call at once. `tests/api_contract` tests the permissions.
    schema.config.generation.update(with_security_parameters=False)
    return schema


@pytest.fixture(scope="module")
def answers(pytestconfig: pytest.Config) -> Iterator[Counter[int]]:
    """The count of responses by status, printed at the end of the long form."""
    counted: Counter[int] = Counter()
    yield counted
    plugins = pytestconfig.pluginmanager
    terminal, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if terminal is not None and capture is not None:
        statuses = ", ".join(f"{count:,} of {status}" for status, count in sorted(counted.items()))
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"\n{counted.total():,} answers: {statuses}")


def aim(case: Any, existing: dict[str, str]) -> None:
    """Direct the input at existing objects, at the number, and at the key's own tenant.

    A call that deletes keeps its random id, because the other cases need the objects.
    """
    case.headers.pop("X-Service-Tenant", None)
    if case.method != "DELETE":
        case.path_parameters.update(
            {name: existing[name] for name in case.path_parameters if name in existing}
        )
    if isinstance(case.body, dict) and "from" in case.body and case.path.startswith("/v1/messages"):
        case.body["from"] = existing["phone_number_id"]


@pytest.mark.parametrize(("method", "path", "kind"), operations())
def test_every_operation_keeps_its_contract(
    method: str,
    path: str,
    kind: str,
    document: Any,
    stack: Stack,
    credentials: dict[str, str],
    existing: dict[str, str],
    answers: Counter[int],
) -> None:
    from schemathesis import Case, GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as of_schema

    headers = {"Authorization": f"Bearer {credentials[kind_of(path)]}"}
    mode = GenerationMode.POSITIVE if kind == "good" else GenerationMode.NEGATIVE
    always = [of_schema.status_code_conformance, of_schema.content_type_conformance]
    if path != "/v1/events/stream":
        # OpenAPI 3.1 has one schema for a whole stream, but schemathesis would validate each event against that schema.
        always.append(of_schema.response_schema_conformance)

    # A stream ends only when its reader disconnects.
    seconds = 3 if path == "/v1/events/stream" else 30
    is_aimed = cycle([True, False])

    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def keeps_it(case: Case) -> None:
        # Aim only every second invalid input. In the others, the path parameter may be the error.
        if kind == "good" or next(is_aimed):
            aim(case, existing)
        response = case.call(base_url=stack.ready["base_url"], headers=headers, timeout=seconds)
        answers[response.status_code] += 1
        is_disabled = response.status_code == 503 and response.json()["error"]["code"] == "billing_disabled"
        checks = always if is_disabled else [not_a_server_error, *always]
        case.validate_response(response, checks=checks, headers=headers)

    keeps_it()
