"""`send_batch` of the Python SDK: rows determine the names of batches, and a reused name with different messages is
rejected.
"""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.pages import ROOT
from tests.sdk_import import sdk_from


@pytest.fixture
def sdk() -> Iterator[ModuleType]:
    with sdk_from(ROOT / "sdks/python/src") as module:
        yield module


def rows(*places: int) -> list[dict[str, Any]]:
    return [{"to": f"+91980000{place:04d}", "type": "text", "text": {"body": "Hi"}} for place in places]


class Service:
    """Accepts each batch, and stores its name."""

    def __init__(self, **answer: Any) -> None:
        self.names: list[str] = []
        self.answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.names.append(body["client_ref"])
        answer = {
            "id": "bat_1",
            "client_ref": body["client_ref"],
            "total": len(body["messages"]),
            **self.answer,
        }
        return httpx.Response(202, json=answer)


def sent(sdk: ModuleType, service: Service, given: list[dict[str, Any]], *, from_: str = "1") -> list[str]:
    """Send rows in batches of two. Returns the names of the batches."""
    service.names.clear()
    http = httpx.Client(transport=httpx.MockTransport(service))
    with sdk.Whabuzz("wb_test_x", "https://gateway.example", http_client=http) as client:
        made = client.messages.send_batch(iter(given), from_=from_, client_ref="news", size=2)
    assert [batch["client_ref"] for batch in made] == service.names
    return list(service.names)


def test_a_batch_is_named_by_its_rows(sdk: ModuleType) -> None:
    service = Service()
    first = sent(sdk, service, rows(1, 2, 3))
    assert len(set(first)) == 2
    assert all(name.startswith("news-") for name in first)
    assert sent(sdk, service, rows(1, 2, 3)) == first, "a job that starts again sends the same names"
    turned = [dict(reversed(list(row.items()))) for row in rows(1, 2, 3)]
    assert sent(sdk, service, turned) == first, "the order of members does not matter"
    # If a job skips the first row because that row was already sent, all its batches differ and need new names.
    assert not set(sent(sdk, service, rows(2, 3))) & set(first)
    assert not set(sent(sdk, service, rows(1, 2, 3), from_="2")) & set(first)


def test_rows_that_are_meant_twice_are_sent_twice(sdk: ModuleType) -> None:
    names = sent(sdk, Service(), rows(1, 1, 1, 1, 1, 1))
    assert len(set(names)) == 3
    assert sent(sdk, Service(), rows(1, 1, 1, 1, 1, 1)) == names


def test_a_batch_is_cut_before_it_is_too_large_for_the_service(
    sdk: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [{**row, "text": {"body": "नमस्ते" * 10}} for row in rows(1, 2, 3, 4, 5)]
    row_bytes = len(json.dumps(given[0], ensure_ascii=False, separators=(",", ":")).encode())
    sizes: list[tuple[int, int]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        sizes.append((len(body["messages"]), len(request.content)))
        return httpx.Response(202, json={"id": "bat_1", "client_ref": body["client_ref"]})

    monkeypatch.setattr(importlib.import_module("whabuzz.batches"), "MOST_BYTES", 2 * row_bytes + 10)
    for asynchronous in (False, True):
        if asynchronous:
            http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
            client = sdk.AsyncWhabuzz("wb_test_x", "https://gateway.example", http_client=http)
            asyncio.run(client.messages.send_batch(given, from_="1", client_ref="news"))
        else:
            http = httpx.Client(transport=httpx.MockTransport(answer))
            client = sdk.Whabuzz("wb_test_x", "https://gateway.example", http_client=http)
            client.messages.send_batch(given, from_="1", client_ref="news")
    assert [count for count, _ in sizes] == [2, 2, 1] * 2
    # The limit leaves room for the members around the messages.
    assert max(length for _, length in sizes) < 2 * row_bytes + 100


@pytest.mark.parametrize("answer", [{}, {"same_messages": True}])
def test_a_repeat_with_the_same_messages_is_fine(sdk: ModuleType, answer: dict[str, bool]) -> None:
    assert len(sent(sdk, Service(**answer), rows(1))) == 1


def test_other_messages_under_a_name_are_an_error(sdk: ModuleType) -> None:
    with pytest.raises(sdk.BatchDiffers, match="bat_1 of other messages"):
        sent(sdk, Service(same_messages=False), rows(1))

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for row in rows(1, 2):
            yield row

    async def send(given: Any) -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(Service(same_messages=False)))
        async with sdk.AsyncWhabuzz("wb_test_x", "https://gateway.example", http_client=http) as client:
            await client.messages.send_batch(given, from_="1", client_ref="news")

    for given in (stream(), rows(1)):
        with pytest.raises(sdk.BatchDiffers):
            asyncio.run(send(given))


def test_an_error_of_whatsapp_says_its_sentence_its_details_and_what_to_do(sdk: ModuleType) -> None:
    error = {"message": "(#131009) Parameter value is not valid", "code": 131009}
    body = {
        "source": "meta",
        "hint": "Write the number like +919812345678.",
        "doc_url": "https://gateway.example/errors/131009",
        "request_id": "req_1",
        "error": {**error, "error_data": {"details": "Recipient phone number is not valid."}},
    }
    http = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(400, json=body)))
    with (
        sdk.Whabuzz("wb_test_x", "https://gateway.example", http_client=http) as client,
        pytest.raises(sdk.InvalidRequest) as raised,
    ):
        client.messages.send({"from": "1", "to": "12", "type": "text", "text": {"body": "hi"}})
    assert (raised.value.hint, raised.value.doc_url) == (body["hint"], body["doc_url"])
    for sentence in (error["message"], "Recipient phone number is not valid.", body["hint"]):
        assert str(sentence) in str(raised.value)
