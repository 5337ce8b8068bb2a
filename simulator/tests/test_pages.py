"""The pages are complete, have a strict content security policy, and receive event streams."""

import asyncio
import json
import re

import pytest

from simulator.tests.conftest import CUSTOMER, NUMBER, Graph

PAGES = ("/", "/phone", "/inbox/main", "/embedded-signup")


@pytest.mark.parametrize("path", PAGES)
async def test_pages_are_strict_and_whole(graph: Graph, path: str) -> None:
    async with graph.client.get(path) as response:
        assert response.status == 200
        assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
        html = await response.text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)
    assert 'name="viewport"' in html
    referred = re.findall(r'(?:src|href)="(/static/[^"]+)"', html)
    assert referred
    seen: set[str] = set()
    while referred:
        name = referred.pop()
        if name in seen:
            continue
        seen.add(name)
        async with graph.client.get(name) as response:
            assert response.status == 200, name
            if name.endswith(".js"):
                referred += re.findall(r'from "(/static/[^"]+)"', await response.text())


async def test_every_field_of_a_page_has_a_label(graph: Graph) -> None:
    for path in PAGES:
        async with graph.client.get(path) as response:
            html = await response.text()
        for field in re.findall(r"<(?:input|select)\b[^>]*>", html):
            before = html[: html.index(field)]
            assert before.rfind("<label") > before.rfind("</label>"), f"{path}: {field}"


async def test_the_sdk_can_be_loaded_by_other_origins(graph: Graph) -> None:
    for path in ("/sdk.js", "/en_US/sdk.js"):
        async with graph.client.get(path, headers={"Origin": "http://localhost:8000"}) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert "FB" in await response.text()


async def next_change(response: object) -> dict[str, object]:
    async for line in response.content:  # type: ignore[attr-defined]
        if line.startswith(b"data: "):
            return dict(json.loads(line.removeprefix(b"data: ")))
    raise AssertionError("the stream ended")


async def test_the_phone_receives_messages(graph: Graph) -> None:
    async with graph.client.get("/sim/messages/stream") as response:
        assert response.content_type == "text/event-stream"
        await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "hi"})
        change = await asyncio.wait_for(next_change(response), 5)
        assert change["message"]["body"]["text"] == {"body": "hi"}  # type: ignore[index]


async def test_the_inbox_page_receives_deliveries(graph: Graph) -> None:
    async with graph.client.get("/sim/inboxes/shop/stream") as response:
        async with graph.client.post("/inbox/shop", json={"id": "evt_1", "type": "message.inbound"}):
            pass
        change = await asyncio.wait_for(next_change(response), 5)
        assert change["delivery"]["event_type"] == "message.inbound"  # type: ignore[index]


async def test_stored_media_are_shown_to_the_phone(graph: Graph) -> None:
    body = {"phone_number_id": NUMBER, "from": CUSTOMER, "type": "image"}
    message = await graph.control("POST", "inbound", body)
    async with graph.client.get(f"/sim/media/{message['body']['image']['id']}") as response:
        assert response.content_type == "image/png"
        assert (await response.read()).startswith(b"\x89PNG")
    async with graph.client.get("/sim/media/1") as response:
        assert response.status == 404
