"""The Python SDK, installed from its wheel, against the running service."""

import asyncio
import importlib
import io
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from tests.e2e.conftest import Stack, messages, until
from tests.e2e.dropping_proxy import dropping_proxy
from tests.e2e.sdks.homes import run
from tests.e2e.sdks.packages import bot, customer_writes, endpoints_at, remove_endpoint, sends_to, settings
from tests.pages import blocks
from tests.sdk_import import sdk_from

pytestmark = pytest.mark.e2e

README = "sdks/python/README.md"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(scope="module")
def sdk(python_home: Path) -> Iterator[ModuleType]:
    """The installed package, imported."""
    with sdk_from(python_home) as module:
        yield module


@pytest.fixture
def client(sdk: ModuleType, stack: Stack) -> Iterator[Any]:
    with sdk.Whabuzz(stack.ready["api_key"], stack.ready["base_url"]) as client:
        yield client


def text_to(stack: Stack, customer: str) -> dict[str, Any]:
    return {"from": stack.ready["phone_number_id"], "to": customer, "type": "text", "text": {"body": "Hello"}}


def test_the_quickstart_of_the_readme(stack: Stack, python_home: Path, tmp_path: Path) -> None:
    send, _, asynchronous = blocks(README, "python")
    for name, program in (("send.py", send), ("async.py", asynchronous)):
        (tmp_path / name).write_text(program)
        printed = run([sys.executable, name], tmp_path, PYTHONPATH=str(python_home), **settings(stack))
        assert "sent wamid." in printed
        assert ("logged evt_" in printed) is (name == "send.py")


def test_the_bot_of_the_readme_answers_a_customer(stack: Stack, python_home: Path, tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(blocks(README, "python")[1])
    environment = {"PYTHONPATH": str(python_home), **settings(stack)}
    with bot([sys.executable, "bot.py"], tmp_path, environment) as first:
        [made] = endpoints_at(stack, first)
    with bot([sys.executable, "bot.py"], tmp_path, environment) as port:
        assert endpoints_at(stack, first) == []
        assert [each["id"] for each in endpoints_at(stack, port)] == [made["id"]]
        customer_writes(stack, "917000900001")
        until(lambda: sends_to(stack, "917000900001"), "the bot's answer")
        remove_endpoint(stack, port)
    assert len(sends_to(stack, "917000900001")) == 1


def test_a_lost_answer_does_not_double_a_message(sdk: ModuleType, stack: Stack) -> None:
    with (
        dropping_proxy(stack.ready["base_url"], drops={1, 2}) as proxy,
        sdk.Whabuzz(stack.ready["api_key"], proxy.url) as client,
    ):
        sent = client.messages.send(text_to(stack, "+917000900002"))
    assert proxy.requests == [("POST", "/v1/messages")] * 3
    assert [event["wamid"] for event in sends_to(stack, "917000900002")] == [sent["messages"][0]["id"]]


def test_what_has_no_key_is_not_repeated(sdk: ModuleType, stack: Stack) -> None:
    with (
        dropping_proxy(stack.ready["base_url"], drops={1}) as proxy,
        sdk.Whabuzz(stack.ready["api_key"], proxy.url) as client,
    ):
        with pytest.raises(sdk.NoAnswer):
            client.api_keys.create({"name": "lost"})
        made = [key for key in client.api_keys.list() if key["name"] == "lost"]
    assert len(made) == 1
    assert [path for method, path in proxy.requests if method == "POST"] == ["/v1/api-keys"]


def test_pages_are_read_as_they_are_iterated(client: Any, stack: Stack) -> None:
    for place in range(5):
        client.messages.send(text_to(stack, f"+91700090010{place}"))
    listed = client.events.list(type="message.outbound", limit=2)
    seen = [event["id"] for _, event in zip(range(5), listed, strict=False)]
    assert len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)
    assert len(client.events.list(limit=2).first_page()) == 2


def test_errors_say_what_to_do(sdk: ModuleType, client: Any) -> None:
    with pytest.raises(sdk.InvalidRequest) as found:
        client.messages.send({"to": "+917000900001", "type": "text", "text": {"body": "x"}})
    assert found.value.code == "invalid_request"
    assert "from" in found.value.details["fields"]
    assert found.value.hint
    assert found.value.request_id.startswith("req_")
    with pytest.raises(sdk.NotFound):
        client.events.get("evt_01M6AYX330E008000000000001")
    with (
        sdk.Whabuzz("wb_live_" + "a" * 40, client._options.base_url) as stranger,
        pytest.raises(sdk.Unauthorized),
    ):
        stranger.tenant.get()
    with pytest.raises(sdk.WhabuzzError, match="event_id is empty"):
        client.events.get("")


def test_a_file_goes_up_and_comes_back(client: Any, stack: Stack, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"\xff\xd8\xff" + bytes(200_000))
    for file in (
        photo,
        photo.read_bytes(),
        io.BytesIO(photo.read_bytes()),
        ("a.jpg", photo.read_bytes(), "image/jpeg"),
    ):
        uploaded = client.media.upload(file=file, from_=stack.ready["phone_number_id"], type="image/jpeg")
        with client.media.get(uploaded["id"]) as download:
            assert download.content_type == "image/jpeg"
            assert download.size == photo.stat().st_size
            assert download.save(tmp_path / "copy.jpg").read_bytes() == photo.read_bytes()
    assert client.media.describe(uploaded["id"])["mime_type"] == "image/jpeg"
    assert client.media.delete(uploaded["id"]) == {"success": True}


def test_rows_become_batches_and_a_repeat_sends_nothing(
    client: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whabuzz.client.POLL_SECONDS", 0.1)
    number = stack.ready["phone_number_id"]

    def send() -> list[Any]:
        return client.messages.send_batch(iter(messages(5)), from_=number, client_ref="sdk-python", size=2)

    first, again = send(), send()
    assert [batch["total"] for batch in first] == [2, 2, 1]
    assert [batch["id"] for batch in again] == [batch["id"] for batch in first]
    for batch in first:
        assert client.messages.wait_for_batch(batch["id"], seconds=60)["accepted"] == batch["total"]
        assert [item["status"] for item in client.messages.list_batch_items(batch["id"])] == [
            "accepted"
        ] * batch["total"]


def test_the_asynchronous_client_does_the_same(sdk: ModuleType, stack: Stack) -> None:
    async def rows() -> Any:
        for message in messages(3):
            yield message

    async def journey() -> None:
        number = stack.ready["phone_number_id"]
        async with sdk.AsyncWhabuzz(stack.ready["api_key"], stack.ready["base_url"]) as client:
            sends = [client.messages.send(text_to(stack, f"+91700090020{place}")) for place in range(4)]
            assert len({sent["messages"][0]["id"] for sent in await asyncio.gather(*sends)}) == 4
            listed = client.events.list(type="message.outbound", limit=2)
            assert len([event["id"] async for event in listed]) >= 4
            uploaded = await client.media.upload(file=b"\xff\xd8\xff", from_=number, type="image/jpeg")
            async with client.media.get(uploaded["id"]) as download:
                assert download.size == 3
                assert await download.read() == b"\xff\xd8\xff"
            [batch] = await client.messages.send_batch(rows(), from_=number, client_ref="sdk-python-async")
            assert batch["total"] == 3
            with pytest.raises(sdk.NotFound):
                await client.events.get("evt_01M6AYX330E008000000000001")
        with dropping_proxy(stack.ready["base_url"], drops={1}) as proxy:
            async with sdk.AsyncWhabuzz(stack.ready["api_key"], proxy.url) as client:
                await client.messages.send(text_to(stack, "+917000900003"))

    asyncio.run(journey())
    assert len(sends_to(stack, "917000900003")) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_the_service_says_how_long_to_wait(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    answers = iter(
        [
            httpx.Response(status, headers={"Retry-After": "7"}, json={"error": {"code": "rate_limited"}}),
            httpx.Response(200, json={"id": "a business"}),
        ]
    )
    http = httpx.Client(transport=httpx.MockTransport(lambda request: next(answers)))
    read = sdk.Whabuzz("wb_test_key", "http://gateway.test", http_client=http).tenant.get()
    assert read == {"id": "a business"}
    assert waits == [7.0]


def test_a_final_answer_is_not_asked_for_again(sdk: ModuleType) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["Idempotency-Key"])
        body = {"source": "whabuzz", "error": {"code": "meta_unreachable", "message": "Unknown outcome."}}
        return httpx.Response(502, headers={"Idempotent-Replayed": "true"}, json=body)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with pytest.raises(sdk.ServerError):
        sdk.Whabuzz("wb_test_key", "http://gateway.test", http_client=http).messages.send(
            {}, idempotency_key="mine"
        )
    assert asked == ["mine"]


def test_deliveries_are_verified(sdk: ModuleType) -> None:
    body = b'{"type":"webhook.verify","challenge":"chl"}'
    now = int(time.time())

    def headers(secret: str, at: int) -> dict[str, str]:
        signature = Webhook(secret).sign("evt_1", datetime.fromtimestamp(at, UTC), body.decode())
        return {"Webhook-Id": "evt_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signature}

    other = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    verifier = sdk.WebhookVerifier([other, SECRET])
    assert verifier.verify(body, headers(SECRET, now))["challenge"] == "chl"
    for bad in (
        headers(SECRET, now - 310),
        headers(SECRET, now + 330),
        headers("whsec_" + "A" * 32, now),
        {},
        {**headers(SECRET, now), "Webhook-Id": "evt_2"},
        {**headers(SECRET, now), "Webhook-Signature": "v1"},
        {**headers(SECRET, now), "Webhook-Timestamp": "now"},
    ):
        with pytest.raises(sdk.InvalidSignature):
            verifier.verify(body, bad)
    with pytest.raises(sdk.InvalidSignature):
        verifier.verify(body + b" ", headers(SECRET, now))


def test_a_customer_without_a_number_is_answered_by_user_id(sdk: ModuleType) -> None:
    replies = importlib.import_module("whabuzz.replies")
    event = {
        "id": "evt_1",
        "phone_number_id": "2003",
        "user_id": "IN.1",
        "data": {"message": {"id": "wamid.1"}},
    }
    assert replies.reply_body(event, "Hi", quote=True) == {
        "from": "2003",
        "recipient": "IN.1",
        "context": {"message_id": "wamid.1"},
        "type": "text",
        "text": {"body": "Hi"},
    }
    with pytest.raises(sdk.WhabuzzError):
        replies.reply_body({**event, "user_id": None}, "Hi")
    # Without `+`, WhatsApp would take a full number of ten digits for one of the business's own country.
    known = {**event, "data": {"message": {"id": "wamid.1", "from": "6581234567"}}}
    assert replies.reply_body(known, "Hi")["to"] == "+6581234567"


@pytest.mark.parametrize(
    ("message", "chosen"),
    [
        ({"type": "button", "button": {"payload": "yes", "text": "Yes"}}, ("yes", "Yes")),
        (
            {
                "type": "interactive",
                "interactive": {"type": "button_reply", "button_reply": {"id": "b", "title": "B"}},
            },
            ("b", "B"),
        ),
        (
            {
                "type": "interactive",
                "interactive": {"type": "list_reply", "list_reply": {"id": "r", "title": "R"}},
            },
            ("r", "R"),
        ),
        ({"type": "interactive", "interactive": {"type": "nfm_reply", "nfm_reply": {}}}, None),
        ({"type": "text", "text": {"body": "Yes"}}, None),
    ],
)
def test_a_choice_is_read_whatever_offered_it(
    sdk: ModuleType, message: dict[str, Any], chosen: tuple[str, str] | None
) -> None:
    choice = sdk.choice_of({"data": {"message": message}})
    assert (choice and (choice.id, choice.title)) == chosen
