"""Notifications: bytes, signature, batches, retries, faults, and messages from customers."""

import asyncio
import json
from typing import Any

import pytest

from simulator.notifier import signature, wire_bytes
from simulator.tests.conftest import CUSTOMER, NUMBER, WABA, Gateway, Graph, until

SECRET = "sim_app_secret_0123456789abcdef"


def test_signature_vectors() -> None:
    """The test vectors of upstream fact 3.1."""
    body = b'{"object":"whatsapp_business_account","entry":[]}'
    assert (
        signature(SECRET, body) == "sha256=d32d45b1acf8e37d734b76e21c7e04866525f006be20421633408a581cbc656a"
    )
    assert wire_bytes({"a": "café / b"}) == b'{"a":"caf\\u00e9 \\/ b"}'


async def inbound(graph: Graph, **body: Any) -> dict[str, Any]:
    return await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, **body})


async def test_a_text_arrives_like_upstreams(graph: Graph, gateway: Gateway) -> None:
    message = await inbound(graph, text="café / é", name="Asha R", username="@asha.r")
    await until(lambda: gateway.bodies)
    assert b"caf\\u00e9 \\/" in gateway.bodies[0]
    body = json.loads(gateway.bodies[0])
    assert body["object"] == "whatsapp_business_account"
    assert set(body["entry"][0]) == {"id", "changes"}
    value = body["entry"][0]["changes"][0]["value"]
    user_id = value["contacts"][0]["user_id"]
    assert value["contacts"] == [
        {"profile": {"name": "Asha R", "username": "@asha.r"}, "wa_id": CUSTOMER, "user_id": user_id}
    ]
    assert value["messages"][0] == {
        "from": CUSTOMER,
        "from_user_id": user_id,
        "id": message["id"],
        "timestamp": value["messages"][0]["timestamp"],
        "type": "text",
        "text": {"body": "café / é"},
    }


@pytest.mark.parametrize(
    ("identity", "members"),
    [("both", {"from", "from_user_id"}), ("phone", {"from"}), ("user_id", {"from_user_id"})],
)
async def test_customers_are_named_three_ways(
    graph: Graph, gateway: Gateway, identity: str, members: set[str]
) -> None:
    await inbound(graph, identity=identity)
    await until(lambda: gateway.bodies)
    value = gateway.changes[0]["value"]
    assert {name for name in value["messages"][0] if name.startswith("from")} == members
    assert ("wa_id" in value["contacts"][0]) == ("from" in members)


@pytest.mark.parametrize(
    "kind",
    [
        "text",
        "image",
        "video",
        "audio",
        "document",
        "sticker",
        "location",
        "contacts",
        "interactive",
        "button",
        "order",
    ],
)
async def test_every_type_has_a_default(graph: Graph, gateway: Gateway, kind: str) -> None:
    await inbound(graph, type=kind)
    await until(lambda: gateway.bodies)
    message = gateway.changes[0]["value"]["messages"][0]
    assert message["type"] == kind
    assert message[kind]


async def test_special_types(graph: Graph, gateway: Gateway) -> None:
    _, sent = await graph.send()
    wamid = sent["messages"][0]["id"]
    await inbound(graph, type="reaction", reaction={"message_id": wamid, "emoji": "👍"})
    assert graph.sim.state.messages[wamid].reaction == "👍"
    await inbound(graph, type="unsupported")
    await inbound(graph, type="system", system={"wa_id": "919822222222"})
    await inbound(graph, text="yes", context={"id": wamid})
    await inbound(graph, type="brand_new", brand_new={"a": 1})
    await until(lambda: sum("messages" in c["value"] for c in gateway.changes) == 5)
    by_type = {
        c["value"]["messages"][0]["type"]: c["value"] for c in gateway.changes if "messages" in c["value"]
    }
    assert by_type["unsupported"]["messages"][0]["errors"][0]["code"] == 131051
    assert "contacts" not in by_type["system"]
    assert by_type["text"]["messages"][0]["context"] == {"id": wamid, "from": "919800000001"}
    assert by_type["brand_new"]["messages"][0]["brand_new"] == {"a": 1}


async def test_refused_notifications_are_tried_again(graph: Graph, gateway: Gateway) -> None:
    await graph.control("PUT", "settings", {"notifications": {"retry_seconds": [0.01] * 50}})
    gateway.status = 500
    await inbound(graph)
    await until(lambda: len(gateway.bodies) >= 3)
    gateway.status = 200
    await until(lambda: graph.sim.notifier.counters["delivered"] == 1)
    assert len(set(gateway.bodies)) == 1
    await until(lambda: graph.sim.notifier.backlog() == {"ready": 0, "in_flight": 0, "waiting": 0})


async def test_retries_end(graph: Graph, gateway: Gateway) -> None:
    await graph.control("PUT", "settings", {"notifications": {"retry_seconds": [0, 0]}})
    gateway.status = 500
    await inbound(graph)
    await until(lambda: graph.sim.notifier.counters["given_up"] == 1)
    assert len(gateway.bodies) == 3


async def test_an_unreachable_gateway_is_tried_again(graph: Graph, unused_tcp_port: int) -> None:
    await graph.control("PUT", "settings", {"notifications": {"retry_seconds": [0]}})
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    await graph.control("POST", "notify", {"waba_id": WABA, "field": "flows", "value": {}, "url": url})
    await until(lambda: graph.sim.notifier.counters["given_up"] == 1)
    assert graph.sim.notifier.counters["posted"] == 2


async def test_batches(graph: Graph, gateway: Gateway) -> None:
    await graph.control("PUT", "settings", {"notifications": {"batch_size": 1000, "batch_wait_ms": 100}})
    for number in range(25):
        await inbound(graph, text=str(number))
    await graph.control("POST", "notify", {"waba_id": WABA, "field": "flows", "value": {}})
    await until(lambda: len(gateway.changes) == 26)
    assert len(gateway.bodies) < 6
    for body in gateway.bodies:
        for entry in json.loads(body)["entry"]:
            assert ("time" in entry) == (entry["changes"][0]["field"] != "messages")


async def test_pausing_duplicates_and_missing_delivered(graph: Graph, gateway: Gateway) -> None:
    faults = {"paused": True, "duplicate": 1.0, "drop_delivered": 1.0}
    await graph.control("PUT", "settings", {"notifications": faults})
    _, body = await graph.send()
    wamid = body["messages"][0]["id"]
    await until(lambda: graph.sim.state.messages[wamid].status == "read")
    await asyncio.sleep(0)
    assert gateway.bodies == []
    await graph.control("PUT", "settings", {"notifications": {"paused": False}})
    await until(lambda: len(gateway.bodies) == 4)
    assert sorted(gateway.statuses(wamid)) == ["read", "read", "sent", "sent"]


async def test_a_late_failure(graph: Graph, gateway: Gateway) -> None:
    _, body = await graph.send()
    wamid = body["messages"][0]["id"]
    await until(lambda: "delivered" in gateway.statuses(wamid))
    await graph.control("POST", f"messages/{wamid}/status", {"status": "failed", "code": 131049})
    await until(lambda: "failed" in gateway.statuses(wamid))


async def test_any_notification_can_be_posted(graph: Graph, gateway: Gateway) -> None:
    value = {"event": "PARTNER_REMOVED", "waba_info": {"waba_id": WABA}}
    await graph.control(
        "POST",
        "notify",
        {"waba_id": WABA, "field": "account_update", "value": value, "entry_id": "999888777666555"},
    )
    await until(lambda: gateway.bodies)
    entry = json.loads(gateway.bodies[0])["entry"][0]
    assert entry["id"] == "999888777666555"
    assert entry["time"]
    await graph.control("POST", "notify", {"raw": "{not json"})
    await until(lambda: gateway.bodies[-1] == b"{not json")
