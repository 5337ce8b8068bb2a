"""The webhook inbox: verify ping, signatures, counters, and modes that fail."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from simulator.tests.conftest import Graph
from simulator.world.inbox_store import check_signature, created_at

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
Post = Callable[..., Awaitable[tuple[int, bytes]]]


def sign(body: bytes, event_id: str, stamp: int, key: bytes = KEY) -> str:
    content = f"{event_id}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


@pytest.fixture
def post(graph: Graph) -> Post:
    """Post an event to the inbox `shop`, signed by Standard Webhooks."""

    async def do(
        event: dict[str, Any], *, key: bytes = KEY, age: int = 0, name: str = "shop"
    ) -> tuple[int, bytes]:
        body = json.dumps(event).encode()
        event_id, stamp = str(event.get("id", "ping")), int(time.time()) - age
        headers = {
            "Content-Type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": str(stamp),
            "webhook-signature": f"v1,AAAA {sign(body, event_id, stamp, key)}",
        }
        async with graph.client.post(
            f"/inbox/{name}", data=body, headers=headers, allow_redirects=False
        ) as response:
            return response.status, await response.read()

    return do


async def test_the_verify_ping(graph: Graph, post: Post) -> None:
    ping = {"type": "webhook.verify", "challenge": "abc"}
    assert await post(ping) == (200, b'{"challenge":"abc"}')
    await graph.control("PUT", "inboxes/shop", {"verify": "text"})
    assert await post(ping) == (200, b"abc")
    await graph.control("PUT", "inboxes/shop", {"verify": "wrong", "mode": "status:500"})
    assert await post(ping) == (200, b'{"challenge":"not-the-challenge"}')
    await graph.control("PUT", "inboxes/shop", {"verify": "mode"})
    assert (await post(ping))[0] == 500
    inbox = await graph.control("GET", "inboxes/shop")
    assert (inbox["pings"], inbox["total"]) == (4, 0)


async def test_signatures_are_checked(graph: Graph, post: Post) -> None:
    await post({"id": "evt_1", "type": "message.inbound"})
    await graph.control("PUT", "inboxes/shop", {"secrets": [SECRET]})
    await post({"id": "evt_2", "type": "message.inbound"})
    await post({"id": "evt_3", "type": "message.inbound"}, key=b"another")
    await post({"id": "evt_4", "type": "message.inbound"}, age=3600)
    await graph.control(
        "PUT", "inboxes/shop", {"add_secret": "whsec_" + base64.b64encode(b"another").decode()}
    )
    await post({"id": "evt_5", "type": "message.inbound"}, key=b"another")
    inbox = await graph.control("GET", "inboxes/shop")
    verdicts = [delivery["signature"] for delivery in reversed(inbox["deliveries"])]
    assert verdicts == ["no_secret", "valid", "invalid", "stale", "valid"]


def test_a_changed_byte_breaks_the_signature() -> None:
    stamp = int(time.time())
    headers = {
        "webhook-id": "a",
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign(b"body", "a", stamp),
    }
    assert check_signature([SECRET], headers=headers, body=b"body", now=stamp) == "valid"
    assert check_signature([SECRET], headers=headers, body=b"bodY", now=stamp) == "invalid"
    assert (
        check_signature([SECRET], headers={**headers, "webhook-id": "b"}, body=b"body", now=stamp)
        == "invalid"
    )


async def test_counters_separate_unique_from_repeated(graph: Graph, post: Post) -> None:
    for event_id, kind in (
        ("evt_1", "message.inbound"),
        ("evt_2", "message.status"),
        ("evt_1", "message.inbound"),
    ):
        await post({"id": event_id, "type": kind})
    await graph.control("PUT", "inboxes/shop", {"mode": "status:503"})
    assert (await post({"id": "evt_3", "type": "message.status"}))[0] == 503
    inbox = await graph.control("GET", "inboxes/shop?type=message.status&limit=1")
    assert (inbox["total"], inbox["unique"], inbox["accepted"], inbox["duplicates"]) == (4, 3, 2, 1)
    assert inbox["by_type"] == {"message.inbound": 2, "message.status": 2}
    assert inbox["by_status"] == {"200": 3, "503": 1}
    assert [delivery["event_id"] for delivery in inbox["deliveries"]] == ["evt_3"]
    ids = await graph.control("GET", "inboxes/shop/ids")
    assert ids["ids"] == {"evt_1": 2, "evt_2": 1, "evt_3": 0}
    await graph.control("DELETE", "inboxes/shop")
    assert (await graph.control("GET", "inboxes/shop"))["total"] == 0


async def test_the_ring_is_bounded(graph: Graph, post: Post) -> None:
    await graph.control("PUT", "inboxes/shop", {"keep": 3})
    for number in range(10):
        await post({"id": f"evt_{number}", "type": "x"})
    inbox = await graph.control("GET", "inboxes/shop")
    assert [delivery["event_id"] for delivery in inbox["deliveries"]] == ["evt_9", "evt_8", "evt_7"]
    assert inbox["total"] == 10


async def test_count_only_measures(graph: Graph, post: Post) -> None:
    await graph.control("PUT", "inboxes/shop", {"count_only": True})
    now = int(time.time() * 1000)
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    value = (now - 40) << 80
    text = "".join(alphabet[value >> shift & 31] for shift in range(125, -5, -5))
    assert created_at(f"evt_{text}") == pytest.approx((now - 40) / 1000)
    for _ in range(3):
        await post({"id": f"evt_{text}", "type": "x"})
    inbox = await graph.control("GET", "inboxes/shop")
    assert (inbox["total"], inbox["duplicates"], inbox["deliveries"]) == (3, 2, [])
    assert inbox["timing"]["count"] == 3
    assert 40 <= inbox["timing"]["latency_ms"]["p50"] < 5000
    assert await post({"type": "webhook.verify", "challenge": "abc"}) == (200, b'{"challenge":"abc"}')


@pytest.mark.parametrize(
    ("mode", "status"), [("status:404", 404), ("redirect", 302), ("gone", 410), ("slow:5", 200)]
)
async def test_modes_that_answer(graph: Graph, post: Post, mode: str, status: int) -> None:
    await graph.control("PUT", "inboxes/shop", {"mode": mode})
    assert (await post({"id": "evt_1", "type": "x"}))[0] == status


@pytest.mark.parametrize("mode", ["hang", "close", "drip", "big"])
async def test_modes_that_do_not_answer(graph: Graph, mode: str) -> None:
    await graph.control("PUT", "inboxes/shop", {"mode": mode})
    timeout = aiohttp.ClientTimeout(total=0.2)

    async def read_all() -> None:
        async with graph.client.post("/inbox/shop", json={"id": "evt_1"}, timeout=timeout) as response:
            async for _ in response.content.iter_chunked(65536):
                await asyncio.sleep(0.01)

    with pytest.raises((aiohttp.ClientError, asyncio.TimeoutError)):
        await read_all()


async def test_gzip_bomb(graph: Graph) -> None:
    await graph.control("PUT", "inboxes/shop", {"mode": "gzip_bomb"})
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        url = graph.client.make_url("/inbox/shop")
        async with session.post(url, json={"id": "evt_1"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert len(await response.read()) < 1_000_000
