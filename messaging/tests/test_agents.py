"""`/mcp` with the official client: tools, guides, limits and rejections, with the caller's own key.

Only the tests themselves import `mcp`, because the import would cost every test process 0.7 s.
"""

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import Client as DjangoClient
from django.test import TestCase
from pydantic import AnyUrl
from pytest_django import Settings

from gateway.api import access_log, limits
from gateway.api.access_log import FinishedCall
from gateway.api.limits import API_BODY_BYTES
from gateway.clock import isoformat, now
from gateway.database import bounded_walk
from gateway.guides import documentation
from gateway.valkey import write_behind
from gateway.valkey.connection import valkey
from messaging.agents import api_calls, tools
from messaging.agents.tools import PROMPTS, TOOLS
from messaging.batches.views import BatchesView
from messaging.models import Batch
from messaging.tests.conftest import connected_number
from messaging.tests.sending.test_send import sent_bodies
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import AppConnection, Tenant, User
from tenants.tests.connected_apps import REDIRECT_URI, answer_to, member_of
from tests.browsers import logged_in
from tests.fixtures import assert_error
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests.publishing import dead_delivery, endpoint_of

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp.client.auth import OAuthClientProvider

pytestmark = pytest.mark.django_db(transaction=True)

TO = "+919812345678"
TEXT = {"type": "text", "text": {"body": "Hello"}}


class DjangoTransport(httpx2.AsyncBaseTransport):
    """Passes the official client's requests to Django on the test's thread."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        return await sync_to_async(self._answer)(request, body)

    def _answer(self, request: httpx2.Request, body: bytes) -> httpx2.Response:
        sent = {name: value for name, value in request.headers.items() if name != "content-type"}
        with TestCase.captureOnCommitCallbacks(execute=True):
            answer = DjangoClient(raise_request_exception=False).generic(
                request.method,
                request.url.raw_path.decode(),
                body,
                content_type=request.headers.get("content-type", ""),
                headers={**sent, "host": "testserver"},
            )
        return httpx2.Response(answer.status_code, headers=dict(answer.items()), content=answer.content)


class Agent:
    """An agent that authenticates with a key or with OAuth."""

    def __init__(self, key: str | None, auth: "OAuthClientProvider | None" = None) -> None:
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.auth = auth

    def do(self, work: "Callable[[Client], Awaitable[Any]]") -> Any:
        """Run `work` with a connected official client. Returns its result."""
        from mcp.client import Client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared.exceptions import MCPError

        async def connected() -> Any:
            transport = DjangoTransport()
            async with (
                httpx2.AsyncClient(transport=transport, headers=self._headers, auth=self.auth) as http,
                Client(streamable_http_client("http://gateway.test/mcp", http_client=http)) as client,
            ):
                try:
                    return await work(client)
                except MCPError as error:
                    return error

        return async_to_sync(connected)()

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its result. Fails if the tool returns an error."""
        result = self.do(lambda client: client.call_tool(tool, arguments))
        assert not result.is_error, result.content
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    def offered(self) -> list[str]:
        """The names of the listed tools."""
        return [tool.name for tool in self.do(lambda client: client.list_tools()).tools]

    def read(self, uri: str) -> str:
        """The text of a guide."""
        from mcp.shared.exceptions import MCPError

        read = self.do(lambda client: client.read_resource(uri))
        return read.message if isinstance(read, MCPError) else str(read.contents[0].text)

    def refused(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its error. Fails if the tool returns no error."""
        result = self.do(lambda client: client.call_tool(tool, arguments))
        assert result.is_error
        return result.structured_content["error"]


def agent_of(tenant: Tenant, environment: str = "test") -> Agent:
    return Agent(api_keys.create(name="agent", environment=environment, tenant=tenant).key)


@pytest.fixture
def agent(tenant: Tenant) -> Agent:
    return agent_of(tenant)


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account(), environment="test")


def test_the_official_client_finds_every_tool(agent: Agent) -> None:
    listed = agent.do(lambda client: client.list_tools()).tools
    assert agent.offered() == [tool.name for tool in TOOLS]
    changing = {tool.name for tool in listed if not tool.annotations.read_only_hint}
    assert changing == {
        "send_message",
        "replay_deliveries",
        "submit_template",
        "upload_media",
        "write_as_test_customer",
    }
    assert {tool.name for tool in listed if tool.annotations.destructive_hint} == {
        "send_message",
        "replay_deliveries",
    }
    for tool in listed:
        assert tool.title == tool.annotations.title
        assert tool.output_schema["type"] == "object"
        for name, schema in tool.input_schema["properties"].items():
            assert isinstance(schema["description"], str), f"{tool.name}: {name}"


def test_a_client_offers_prompts(agent: Agent) -> None:
    from mcp.client import Client
    from mcp.shared.exceptions import MCPError
    from mcp_types import TextContent

    async def filled(client: Client) -> dict[str, str]:
        prompts = (await client.list_prompts()).prompts
        texts = {}
        for prompt in prompts:
            given = {argument.name: "{the order has left}" for argument in prompt.arguments or []}
            got = await client.get_prompt(prompt.name, given)
            assert got.description == prompt.description
            [message] = got.messages
            assert isinstance(message.content, TextContent)
            texts[prompt.name] = message.content.text
        return texts

    texts = agent.do(filled)
    assert set(texts) == {prompt.name for prompt in PROMPTS}
    assert "{the order has left}" in texts["write_template"]
    tools = {tool.name for tool in TOOLS}
    for text in texts.values():
        assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)) <= tools
    wrong: list[tuple[str, dict[str, str]]] = [
        ("none", {}),
        ("why_did_it_fail", {}),
        ("check_up", {"x": "y"}),
    ]
    for name, given in wrong:
        refused = agent.do(partial(Client.get_prompt, name=name, arguments=given))
        assert isinstance(refused, MCPError)


class Keeper:
    """The official client's storage of its registration and its tokens."""

    client: Any = None
    tokens: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def connected_agent(member: User, kept: Keeper, **chosen: Any) -> Agent:
    """The official client, which knows only the server's address. A member confirms it on the console's page."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

    sent_to: list[str] = []

    def confirm(address: str) -> None:
        browser = logged_in(member)
        assert browser.get(address.removeprefix("http://gateway.test")).status_code == 200
        form = {**answer_to(address), "environment": "test", "scopes": ["messages", "events"], **chosen}
        sent_to.append(browser.post("/console/connect-app", form)["Location"])

    async def to_page(address: str) -> None:
        await sync_to_async(confirm)(address)

    async def come_back() -> AuthorizationCodeResult:
        answer = answer_to(sent_to[-1])
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    provider = OAuthClientProvider(
        "http://gateway.test/mcp",
        OAuthClientMetadata(client_name="Assistant", redirect_uris=[AnyUrl(REDIRECT_URI)]),
        kept,
        redirect_handler=to_page,
        callback_handler=come_back,
    )
    return Agent(None, provider)


def test_the_official_client_connects_by_the_address_alone(
    tenant: Tenant, number: PhoneNumber, settings: Settings
) -> None:
    settings.BASE_URL = settings.APP_URL = "http://gateway.test"
    member, kept = member_of(tenant), Keeper()
    agent = connected_agent(member, kept)
    message = {"to": [TO], "message": TEXT, "from": number.phone_number_id}
    assert agent.call("send_message", **message, idempotency_key="k")["environment"] == "test"
    assert len(agent.call("find_events")["data"]) == 1
    refused = agent.refused("numbers_health")
    assert (refused["code"], refused["details"]["scope"]) == ("forbidden", "numbers")

    AppConnection.objects.update(access_expires_at=now())
    former = kept.tokens.refresh_token
    agent.auth.context.token_expiry_time = 1.0  # type: ignore[union-attr]
    assert agent.call("find_events", limit=1)["data"], "the client refreshes its token by itself"
    assert kept.tokens.refresh_token != former
    assert AppConnection.objects.count() == 1

    User.objects.filter(pk=member.pk).update(role="read_only")
    refused = agent.refused("send_message", **message, idempotency_key="k2")
    assert refused["code"] == "forbidden", "the member's role bounds the app"
    reader = connected_agent(member_of(tenant), Keeper(), only_reads="on")
    assert reader.call("find_events")["data"]
    assert reader.refused("send_message", **message, idempotency_key="k3")["code"] == "forbidden"
    assert "send_message" not in reader.offered()
    live = connected_agent(member_of(tenant), Keeper(), environment="live")
    assert live.call("find_events")["data"] == [], "each environment by itself"


def test_a_message_is_sent_once_and_looked_up(agent: Agent, number: PhoneNumber) -> None:
    arguments = {"to": [TO], "message": TEXT, "idempotency_key": "welcome-1"}
    first, again = (agent.call("send_message", **arguments) for _ in range(2))
    assert first == again
    assert first["environment"] == "test"
    wamid = first["answer"]["messages"][0]["id"]
    assert Event.objects.get(type="message.outbound").wamid == wamid
    assert agent.call("get_message", message_id=wamid)["events"]
    assert [row["wamid"] for row in agent.call("find_messages", direction="outbound")["data"]] == [wamid]
    [event] = agent.call("find_events", type="message.outbound", limit=1)["data"]
    assert agent.call("get_event", event_id=event["id"])["event"]["wamid"] == wamid


def test_a_repeated_recipient_gets_one_message_and_a_user_id_is_addressed_as_such(
    agent: Agent, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    agent.call("send_message", to=[TO, TO], message=TEXT, idempotency_key="k1")
    agent.call("send_message", to=["IN.77889900112233445566"], message=TEXT, idempotency_key="k2")
    agent.call("send_message", to=["+91 98123-45678"], message=TEXT, idempotency_key="k3")
    sent = [json.loads(body) for body in sent_bodies(simulator, number)]
    addressed = [(body.get("to"), body.get("recipient")) for body in sent]
    assert addressed == [(TO, None), (None, "IN.77889900112233445566"), ("+91 98123-45678", None)]


def test_several_recipients_need_a_confirmation(
    agent: Agent, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    arguments = {"to": [TO, "+919812345679"], "message": TEXT, "idempotency_key": "news-1"}
    asked = agent.call("send_message", **arguments)
    assert (asked["sent"], asked["recipients"]) == (False, 2)
    assert not Batch.objects.exists()
    first, again = (agent.call("send_message", **arguments, confirm=True)["batch"] for _ in range(2))
    assert (first["total"], first["id"]) == (2, again["id"])
    other = arguments | {"message": {"type": "text", "text": {"body": "Bye"}}, "confirm": True}
    refused = agent.refused("send_message", **other)
    assert refused["code"] == "idempotency_conflict", "nothing was sent, so the agent must not say so"
    assert first["id"] in refused["message"]
    one = {"to": [TO], "message": TEXT, "idempotency_key": "news-2"}
    agent.call("send_message", **one)
    for changed in (one | {"to": arguments["to"], "confirm": True}, arguments | {"to": [TO]}):
        assert agent.refused("send_message", **changed)["code"] == "idempotency_conflict"
    assert (Batch.objects.count(), Event.objects.filter(type="message.outbound").count()) == (1, 1)
    connected_number(tenant, simulator.account(), environment="live")
    live = agent_of(tenant, "live").call("send_message", **arguments, confirm=True)["batch"]
    assert (live["total"], live["id"] != first["id"]) == (2, True), "each environment by itself"


def test_a_customer_in_two_spellings_gets_one_message(agent: Agent, number: PhoneNumber) -> None:
    spellings = ["+91 98123 45678", "+919812345678", "919812345678", "(91) 98123-45678"]
    sent = agent.call("send_message", to=spellings, message=TEXT, idempotency_key="k")
    assert len(sent["answer"]["messages"]) == 1
    arguments = {"to": [*spellings, "+9812345678", "IN.42"], "message": TEXT, "idempotency_key": "l"}
    assert agent.call("send_message", **arguments)["recipients"] == 3
    # WhatsApp would add the country code of the business: of these, the first would be the customer above.
    for short in ("9812345678", "98123 45678", "6581234567"):
        refused = agent.refused("send_message", **arguments | {"to": [*spellings, short]})
        assert short in refused["message"]


def test_an_id_in_a_path_may_have_any_character(agent: Agent, number: PhoneNumber) -> None:
    for written in ("+91 98123 45678", "(91) 98123-45678"):
        assert "window_open" in agent.call("customer_window", customer=written)
    for other in ("91?98123", "a%2Fb", "a/b"):
        assert agent.refused("customer_window", customer=other)["code"] == "not_found"


def test_of_several_numbers_the_agent_must_name_one(
    agent: Agent, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    second = connected_number(tenant, simulator.account(), environment="test")
    send: dict[str, Any] = {"to": [TO], "message": TEXT, "idempotency_key": "k"}
    file = {"filename": "a.txt", "content_type": "text/plain", "content_base64": "aGVsbG8="}
    for tool, arguments in (
        ("send_message", send),
        ("upload_media", file),
        ("customer_window", {"customer": TO}),
    ):
        assert agent.refused(tool, **arguments)["code"] == "invalid_request", tool
    assert not Event.objects.exists()
    assert agent.call("upload_media", **file, **{"from": second.phone_number_id})["id"]
    assert "window_open" in agent.call("customer_window", customer=TO, phone_number_id=second.phone_number_id)
    PhoneNumber.objects.filter(pk=number.pk).update(connection_state="disconnected")
    assert agent.call("send_message", **send)["answer"]
    assert Event.objects.get().phone_number_id == second.phone_number_id, "the only one that is connected"


def test_the_key_decides_the_world(tenant: Tenant, simulator: RunningSimulator) -> None:
    live = connected_number(tenant, simulator.account(), environment="live")
    arguments = {"to": [TO], "message": TEXT, "idempotency_key": "k", "from": live.phone_number_id}
    assert agent_of(tenant).refused("send_message", **arguments)["code"] == "invalid_request"
    assert agent_of(tenant, "live").call("send_message", **arguments)["environment"] == "live"


def test_an_id_that_spells_another_route_finds_nothing(agent: Agent) -> None:
    assert agent.refused("get_message", message_id="batch")["code"] == "not_found"
    assert agent.refused("get_event", event_id="stream")["code"] == "not_found"
    assert agent.refused("get_event", event_id="../tenant")["code"] == "not_found"
    assert agent.refused("why_is_endpoint_failing", endpoint_id="x")["code"] == "not_found"


def failing(tenant: Tenant) -> Endpoint:
    endpoint = endpoint_of(tenant, environment="test")
    dead_delivery(endpoint, Event.objects.get(type="message.outbound"), last_error="connection_error")
    return endpoint


def test_a_failing_endpoint_is_explained_and_replayed_after_a_preview(
    agent: Agent, tenant: Tenant, number: PhoneNumber
) -> None:
    agent.call("send_message", to=[TO], message=TEXT, idempotency_key="k")
    endpoint = failing(tenant)
    for arguments in ({"endpoint_id": str(endpoint.id)}, {}):
        [found] = agent.call("why_is_endpoint_failing", **arguments)["endpoints"]
        assert found["endpoint"]["id"] == str(endpoint.id)
        assert [row["last_error"] for row in found["failed_deliveries"]] == ["connection_error"]
    since = {
        "endpoint_id": str(endpoint.id),
        "from": isoformat(now() - timedelta(hours=1)),
        "to": isoformat(now()),
    }
    assert agent.call("replay_deliveries", **since)["preview"]["count"] == 1
    assert Delivery.objects.count() == 1
    assert agent.call("replay_deliveries", **since, confirm=True) == {"queued": 1}


def test_why_an_endpoint_fails_is_reported_from_its_health(
    agent: Agent, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead delivery is older than the failed deliveries, and here a page reads only two rows."""
    agent.call("send_message", to=[TO], message=TEXT, idempotency_key="k")
    endpoint = failing(tenant)
    for _ in range(3):
        Delivery.objects.create(
            tenant_id=tenant.id,
            environment="test",
            endpoint_id=endpoint.id,
            event_id=Event.objects.get(type="message.outbound").id,
            event_type="message.outbound",
            status="failed",
            attempts=1,
            last_error="http_5xx",
            last_http_status=503,
            next_attempt_at=now() + timedelta(minutes=10),
        )
    until = now() + timedelta(minutes=5)
    Endpoint.objects.update(consecutive_failures=9, failing_since=now(), circuit_open_until=until)
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", 2)

    def explained() -> Any:
        [found] = agent.call("why_is_endpoint_failing", endpoint_id=str(endpoint.id))["endpoints"]
        return found

    found = explained()
    assert [row["status"] for row in found["failed_deliveries"]] == ["failed", "failed", "dead"]
    assert f"HTTP 503. Nothing is sent before {isoformat(until)}; 3 deliveries wait." in found["why"]
    Endpoint.objects.update(status="paused")
    assert explained()["why"] == "The endpoint is paused, so nothing is sent to it; 3 deliveries wait."
    Endpoint.objects.update(status="active", consecutive_failures=0, circuit_open_until=None)
    assert explained()["why"] == "The last attempt succeeded; 3 deliveries wait."


@pytest.mark.parametrize(
    ("status", "health", "why"),
    [
        ("disabled", {}, "The endpoint is disabled, so nothing is sent to it; 2 deliveries wait."),
        ("active", {"state": "healthy"}, "The last attempt succeeded; 2 deliveries wait."),
        (
            "active",
            {},
            "It has failed since S, the last time with HTTP 503. The next attempt is at T; 2 deliveries wait.",
        ),
        (
            "active",
            {"state": "circuit_open", "reason": {"error": "timeout", "http_status": None}},
            "It has failed since S, the last time with timeout. Nothing is sent before T; 2 deliveries wait.",
        ),
        (
            "active",
            {"reason": None, "retry_at": None},
            "It has failed since S. No attempt is planned; 2 deliveries wait.",
        ),
    ],
)
def test_one_sentence_says_why_an_endpoint_fails(status: str, health: dict[str, Any], why: str) -> None:
    reason = {"error": "http_5xx", "http_status": 503}
    failing_health = {
        "state": "failing",
        "since": "S",
        "reason": reason,
        "retry_at": "T",
        "waiting": {"count": 2},
    }
    assert tools._why({"status": status, "health": failing_health | health}) == why


def test_templates_numbers_and_the_sandbox(agent: Agent, number: PhoneNumber) -> None:
    assert agent.call("list_templates", status="APPROVED") == {"data": [], "next_cursor": None}
    [row] = agent.call("numbers_health")["data"]
    assert row["phone_number_id"] == number.phone_number_id
    assert agent.call("numbers_health", phone_number_id=number.phone_number_id)["can_send_message"]
    assert not agent.call("customer_window", customer="+919812345678")["window_open"]
    assert agent.call("write_as_test_customer", **{"from": "919812345678", "text": "Hi"})["customer"]


def test_templates_and_files(agent: Agent, number: PhoneNumber) -> None:
    body = {"type": "BODY", "text": "Your order {{1}} left.", "example": {"body_text": [["A-17"]]}}
    template = {"name": "order_left", "language": "en", "category": "UTILITY", "components": [body]}
    submitted = agent.call("submit_template", template=template)
    assert submitted["status"] == "PENDING"
    assert agent.call("get_template", template_id=submitted["id"])["name"] == "order_left"
    file = {"filename": "a.txt", "content_type": "text/plain"}
    media = agent.call("upload_media", **file, content_base64=b64encode(b"hello").decode())["id"]
    assert agent.call("media_info", media_id=media)["mime_type"] == "text/plain"
    for content in ("?", "é"):
        assert agent.refused("upload_media", **file, content_base64=content)["code"] == "invalid_request"


def test_a_file_of_700_kb_is_uploaded(agent: Agent, number: PhoneNumber) -> None:
    file = {"filename": "a.txt", "content_type": "text/plain"}
    content = b64encode(b"x" * 700_000).decode()
    media = agent.call("upload_media", **file, content_base64=content)["id"]
    assert agent.call("media_info", media_id=media)["file_size"] == "700000"


def given_to(schema: dict[str, Any]) -> Any:
    """A value that matches the schema of an argument."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "integer":
            return schema["minimum"]
        case "boolean":
            return True
        case "array":
            return [given_to(schema["items"])]
        case "object":
            return dict.fromkeys(schema["required"], "x")
    return (
        isoformat(now()) if "ISO 8601" in schema["description"] or "range" in schema["description"] else "x"
    )


def call_of(tool: str, arguments: dict[str, Any], client: "Client") -> Awaitable[Any]:
    return client.call_tool(tool, arguments)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_no_argument_of_a_tool_crashes_it(agent: Agent, number: PhoneNumber, tool: tools.AgentTool) -> None:
    values = {name: given_to(schema) for name, schema in tool.properties.items()}
    needed = {name: values[name] for name in tool.required}
    for chosen in (needed, values, *({**needed, name: values[name]} for name in values)):
        result = agent.do(partial(call_of, tool.name, chosen))
        error = (result.structured_content or {}).get("error", {})
        assert error.get("code") != "internal_error", (chosen, error)


def test_a_search_finds_how_the_service_behaves_now(agent: Agent) -> None:
    found = agent.call("search_docs", question="before, the page failed with 500")
    assert found["sections"]
    assert "changelog" not in json.dumps([section["guide"] for section in found["sections"]])


def test_an_error_code_is_looked_up_in_the_catalogue(agent: Agent) -> None:
    found = agent.call("search_docs", question="why did my message fail with 131047?")
    [code] = found["whatsapp_errors"]
    assert code["code"] == "131047"
    assert code["repair"]
    assert found["sections"][0]["heading"].startswith("131047")


def test_arguments_that_do_not_fit_are_explained(agent: Agent) -> None:
    from mcp.shared.exceptions import MCPError

    assert "is a required property" in agent.refused("get_message")["message"]
    assert "limit" in agent.refused("find_events", limit=51)["message"]
    sent = {"to": [TO], "idempotency_key": "k", "message": {**TEXT, "to": "+919800000000"}}
    assert agent.refused("send_message", **sent)["message"].startswith("message")
    named = agent.refused("send_message", to=[TO, TO], idempotency_key="order 17", message=TEXT)
    assert named["message"].startswith("idempotency_key")
    many = [f"+9198{number:08}" for number in range(1_001)]
    assert agent.refused("send_message", to=many, idempotency_key="k", message=TEXT)
    unknown = agent.do(lambda client: client.call_tool("drop_everything", {}))
    assert isinstance(unknown, MCPError)


def test_of_a_thousand_wrong_arguments_ten_are_explained(agent: Agent) -> None:
    from messaging.agents.protocol import SHOWN_PROBLEMS

    refused = agent.refused("send_message", to=[1] * 2_000, message=TEXT)
    assert refused["message"].count("to/") == SHOWN_PROBLEMS


def test_a_call_of_too_many_values_is_refused_before_it_is_read(key: api_keys.NewKey) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":[%b]}}' % b",".join([b"1"] * 20_000)
    headers = {"Authorization": f"Bearer {key.key}", "Accept": "application/json, text/event-stream"}
    answer = DjangoClient().post("/mcp", body, content_type="application/json", headers=headers)
    assert "20,000 values" in assert_error(answer, 400, "invalid_request")["message"]


def test_a_body_that_many_recipients_make_too_large_is_refused(
    agent: Agent, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = {"type": "text", "text": {"body": "x" * 100}}
    many = [f"+9198{number:08}" for number in range(100)]
    arguments = {"to": many, "idempotency_key": "k", "message": message, "confirm": True}
    with monkeypatch.context() as patch:
        patch.setattr(BatchesView, "body_limit", 10_000)
        assert agent.refused("send_message", **arguments)["code"] == "payload_too_large"
    # A call of 900 kB for 1,000 recipients would become a batch of 900 MB, so it is refused before it is built.
    monkeypatch.delattr(api_calls.ApiCalls, "post")
    arguments["message"] = {"type": "text", "text": {"body": "x" * 900_000}}
    assert agent.refused("send_message", **arguments)["code"] == "payload_too_large"
    assert not Batch.objects.exists()


def test_a_tool_that_waits_for_the_upstream_has_its_place_among_all_calls(
    agent: Agent, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulkhead = limits.Bulkhead(per_number=1, per_tenant=1, crowded=1, in_all=1)
    monkeypatch.setattr(limits, "upstream", bulkhead)
    arguments = {"to": [TO], "message": TEXT, "idempotency_key": "k"}
    with bulkhead.held(tenant.id):
        assert agent.refused("send_message", **arguments)["code"] == "too_many_in_flight"
    assert agent.call("send_message", **arguments)["answer"]["messages"]


def test_a_crash_is_an_answer_without_its_reason(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("webhooks.views.search.search", crash)
    error = agent.refused("find_events")
    assert error["code"] == "internal_error"
    assert "secret" not in str(error)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Built documentation with two pages."""
    pages = tmp_path / "docs"
    (pages / "reference").mkdir(parents=True)
    (pages / "sending.md").write_text(
        "# Sending\n\nHello.\n\n## Repeats\n\nAn idempotency key.\n```\n# no\n```\n"
    )
    (pages / "reference/messages.md").write_text("# Messages\n\nPOST /v1/messages.\n")
    monkeypatch.setattr(documentation, "PUBLIC", tmp_path)
    return pages


def test_guides_are_searched_and_read(agent: Agent, site: Path) -> None:
    [found] = agent.call("search_docs", question="How do I use an Idempotency key?")["sections"][:1]
    assert (found["guide"], found["heading"]) == ("guide:///sending", "Repeats")
    assert agent.call("search_docs", question="zebra")["sections"] == []
    listed = agent.do(lambda client: client.list_resources()).resources
    assert [resource.uri for resource in listed] == ["guide:///reference/messages", "guide:///sending"]
    assert agent.read("guide:///reference/messages").startswith("# Messages")
    for outside in ("guide:///../../etc/passwd", "file:///etc/passwd"):
        assert agent.read(outside) == "There is no such guide: list the resources."


def test_a_person_who_only_reads_gets_the_tools_that_read(tenant: Tenant, number: PhoneNumber) -> None:
    person = User.objects.create_user("a@traders.example", "pw", tenant=tenant, role="read_only")
    reader = Agent(bearer_tokens.open_session(person).token)
    assert reader.call("find_events")["data"] == []
    sent = {"to": [TO], "message": TEXT, "idempotency_key": "k", "from": number.phone_number_id}
    assert reader.refused("send_message", **sent)["code"] == "forbidden"
    assert reader.offered() == [tool.name for tool in TOOLS if not tool.changes]


def test_a_person_without_the_integration_gets_no_tools(tenant: Tenant) -> None:
    person = User.objects.create_user("bills@traders.example", "pw", tenant=tenant, role="billing")
    assert_error(ask(bearer_tokens.open_session(person).token), 403, "forbidden")


def ask(key: str | None, method: str = "POST", body: bytes = b"{}", **headers: str) -> Any:
    sent = {"Accept": "application/json, text/event-stream", **headers}
    if key:
        sent["Authorization"] = f"Bearer {key}"
    return DjangoClient(raise_request_exception=False).generic(
        method, "/mcp", body, content_type="application/json", headers=sent
    )


def test_a_tool_counts_as_often_as_it_calls_the_api(
    tenant: Tenant, number: PhoneNumber, agent: Agent, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.001, 1_000
    agent.call("send_message", to=[TO], message=TEXT, idempotency_key="k")
    for _ in range(3):
        failing(tenant)
    other = api_keys.create(name="agent", environment="test", tenant=tenant)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps({**asked, "params": {"name": "why_is_endpoint_failing", "arguments": {}}}).encode()
    left = int(ask(other.key)["RateLimit-Remaining"])
    finished: list[FinishedCall] = []
    monkeypatch.setattr(access_log, "_listeners", [finished.append])
    answered = ask(other.key, body=body)
    calls = len([call for call in finished if call.route != "/mcp"])
    assert calls > 3
    assert all(0 <= call.own_ms < 60_000 for call in finished)
    assert left - int(answered["RateLimit-Remaining"]) == calls
    # Flushes pending writes, which would otherwise count against the new burst.
    write_behind.flush()
    settings.API_RATE_BURST = calls // 2
    limits.allowance.clear()
    valkey().delete(f"rate:{tenant.id}")
    refused = ask(other.key, body=body).json()["result"]
    assert refused["isError"]
    assert refused["structuredContent"]["error"]["code"] == "rate_limited"


@pytest.mark.parametrize("is_named", [True, False], ids=["a named number", "the only number"])
def test_a_send_counts_as_one_call_and_needs_the_scope_messages_alone(
    tenant: Tenant,
    number: PhoneNumber,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_named: bool,
) -> None:
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.001, 1_000
    # By this clock, each call of a tool takes a minute.
    monkeypatch.setattr(api_calls, "perf_counter", count(step=60).__next__)
    finished: list[FinishedCall] = []
    monkeypatch.setattr(access_log, "_listeners", [finished.append])
    key = api_keys.create(name="agent", environment="test", tenant=tenant, scopes=["messages"]).key
    given = {"to": [TO], "message": TEXT, "idempotency_key": "k"}
    given |= {"from": number.phone_number_id} if is_named else {}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps({**asked, "params": {"name": "send_message", "arguments": given}}).encode()
    left = int(ask(key)["RateLimit-Remaining"])
    answered = ask(key, body=body)
    assert "messages" in answered.json()["result"]["structuredContent"]["answer"]
    assert left - int(answered["RateLimit-Remaining"]) == 1
    send = next(call for call in finished if call.route == "/v1/messages")
    assert send.upstream_ms > 0
    assert send.own_ms + send.upstream_ms == pytest.approx(60_000), "the wait is no time of the service"


def test_mcp_refuses_as_all_routes_do(tenant: Tenant, key: api_keys.NewKey, settings: Settings) -> None:
    for token, problem in ((None, ""), ("wb_live_" + "x" * 40, 'error="invalid_token", ')):
        refused = ask(token)
        assert_error(refused, 401, "unauthorized")
        assert refused["WWW-Authenticate"].startswith(f'Bearer {problem}resource_metadata="')
    assert_error(ask(key.key, "GET"), 405, "method_not_allowed")
    assert_error(ask(key.key, body=b"x" * (API_BODY_BYTES + 1)), 413, "payload_too_large")
    for body in (b"no JSON", b"[{}]", b"[" * 1_000 + b"]" * 1_000, b"{}{}"):
        assert_error(ask(key.key, body=body), 400, "invalid_request")
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.01, 1
    other = api_keys.create(
        name="x", environment="test", tenant=Tenant.objects.create(name="T", status="active")
    )
    assert ask(other.key).status_code != 429
    assert_error(ask(other.key), 429, "rate_limited")
    closed = Tenant.objects.create(name="Closed", status="suspended")
    suspended = api_keys.create(name="y", environment="test", tenant=closed)
    assert_error(ask(suspended.key), 403, "tenant_suspended")
