"""POST /{number}/messages: responses, refusals in Meta's order, statuses."""

import base64
from functools import partial
from typing import Any

import pytest

from simulator.tests.conftest import CUSTOMER, NUMBER, WABA, Gateway, Graph, until


async def test_an_accepted_send_is_answered_like_upstream(graph: Graph) -> None:
    status, body = await graph.send(to="+91 98123-45678")
    assert status == 200
    assert body["contacts"] == [{"input": "+91 98123-45678", "wa_id": CUSTOMER}]
    raw = base64.b64decode(body["messages"][0]["id"].removeprefix("wamid."))
    assert raw.startswith(b"\x1c\x18\x0c" + CUSTOMER.encode() + b"\x15\x02\x00\x11\x18\x12")


async def test_any_version_prefix_works(graph: Graph) -> None:
    headers = {"Authorization": "Bearer EAAsimTOKEN123"}
    for version in ("v17.0", "v26.0"):
        async with graph.client.get(f"/{version}/{NUMBER}", headers=headers) as response:
            assert response.status == 200
            assert response.headers["facebook-api-version"] == version
            assert response.headers["x-fb-trace-id"]


async def test_a_user_id_recipient_has_no_wa_id(graph: Graph, gateway: Gateway) -> None:
    status, body = await graph.call(
        "POST",
        f"{NUMBER}/messages",
        json={"messaging_product": "whatsapp", "recipient": "IN.7788", "type": "text", "text": {"body": "x"}},
    )
    assert (status, body["contacts"]) == (200, [{"input": "IN.7788", "user_id": "IN.7788"}])
    await until(lambda: "read" in gateway.statuses(body["messages"][0]["id"]))
    item = gateway.changes[0]["value"]["statuses"][0]
    assert item["recipient_user_id"] == "IN.7788"
    assert "recipient_id" not in item


async def test_a_met_customers_user_id_is_the_same_chat(graph: Graph, gateway: Gateway) -> None:
    """A message to a customer with a hidden phone names the user id, and its statuses do not reveal the phone."""
    body = {"phone_number_id": NUMBER, "from": CUSTOMER, "identity": "user_id", "text": "hi"}
    await graph.control("POST", "inbound", body)
    await until(lambda: gateway.bodies)
    user_id = gateway.changes[0]["value"]["messages"][0]["from_user_id"]
    send = {"messaging_product": "whatsapp", "recipient": user_id, "type": "text", "text": {"body": "x"}}
    _, answer = await graph.call("POST", f"{NUMBER}/messages", json=send)
    wamid = answer["messages"][0]["id"]
    assert graph.sim.state.messages[wamid].customer == CUSTOMER
    await until(lambda: "read" in gateway.statuses(wamid))
    values = [change["value"] for change in gateway.changes[1:]]
    assert {value["statuses"][0]["recipient_user_id"] for value in values} == {user_id}
    assert all("recipient_id" not in value["statuses"][0] for value in values)
    assert all("wa_id" not in value["contacts"][0] for value in values)


async def test_statuses_follow_with_pricing_and_contacts(graph: Graph, gateway: Gateway) -> None:
    _, body = await graph.send(biz_opaque_callback_data="order-17")
    wamid = body["messages"][0]["id"]
    await until(lambda: set(gateway.statuses(wamid)) == {"sent", "delivered", "read"})
    by_status = {
        item["status"]: (change["value"], item)
        for change in gateway.changes
        for item in change["value"]["statuses"]
    }
    value, sent = by_status["sent"]
    assert value["metadata"] == {"display_phone_number": "919800000001", "phone_number_id": NUMBER}
    assert value["contacts"][0]["wa_id"] == CUSTOMER
    assert value["contacts"][0]["user_id"] == sent["recipient_user_id"]
    assert sent["biz_opaque_callback_data"] == "order-17"
    assert sent["pricing"] == {
        "billable": True,
        "pricing_model": "PMP",
        "type": "regular",
        "category": "service",
    }
    assert "pricing" in by_status["delivered"][1]
    assert "pricing" not in by_status["read"][1]


async def test_without_auto_read_read_waits_for_the_customer(graph: Graph, gateway: Gateway) -> None:
    await graph.control("PUT", "settings", {"statuses": {"auto_read": False}})
    _, body = await graph.send()
    wamid = body["messages"][0]["id"]
    await until(lambda: set(gateway.statuses(wamid)) == {"sent", "delivered"})
    await graph.control("POST", "conversations/open", {"phone_number_id": NUMBER, "customer": CUSTOMER})
    await until(lambda: "read" in gateway.statuses(wamid))


async def test_nothing_is_sent_for_an_account_that_is_not_subscribed(graph: Graph, gateway: Gateway) -> None:
    assert await graph.call("DELETE", f"{WABA}/subscribed_apps") == (200, {"success": True})
    _, body = await graph.send()
    wamid = body["messages"][0]["id"]
    await until(lambda: graph.sim.state.messages[wamid].status == "read")
    assert gateway.bodies == []
    assert graph.sim.notifier.counters["published"] == 0


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("919800000030", 131030),
        ("919800000429", 130429),
        ("919800000001", 131021),
        ("x", 131009),
        ("09812345678", 131009),
        ("00919812345678", 131009),
    ],
)
async def test_recipients_refused_at_once(graph: Graph, to: str, code: int) -> None:
    status, body = await graph.send(to=to)
    assert (status, body["error"]["code"]) == (400, code)
    assert body["error"]["fbtrace_id"]


@pytest.mark.parametrize(("to", "code"), [("919800000026", 131026), ("919800000047", 131047)])
async def test_recipients_that_fail_after_the_200(graph: Graph, gateway: Gateway, to: str, code: int) -> None:
    status, body = await graph.send(to=to)
    assert status == 200
    await until(lambda: gateway.statuses(body["messages"][0]["id"]) == ["failed"])
    value = gateway.changes[0]["value"]
    assert "contacts" not in value
    assert value["statuses"][0]["errors"][0]["code"] == code


async def test_magic_recipients_can_be_switched_off(graph: Graph) -> None:
    await graph.control("PUT", "settings", {"recipients": {"magic": False}})
    assert (await graph.send(to="919800000030"))[0] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"type": "text"}, 131008),
        ({"type": "text", "text": {}}, 131008),
        ({"type": "text", "text": {"body": "x" * 4097}}, 131009),
        ({"type": "text", "text": "x"}, 131009),
        ({"type": "nonsense", "nonsense": {}}, 100),
        ({"type": "image", "image": {}}, 131008),
        ({"type": "image", "image": {"link": "ftp://x"}}, 131009),
        ({"type": "location", "location": {"latitude": "91", "longitude": 0}}, 131009),
        ({"type": "contacts", "contacts": [{"name": {"formatted_name": "A"}}]}, 131008),
        ({"type": "reaction", "reaction": {"message_id": "wamid.X"}}, 131008),
        ({"type": "template", "template": {"name": "x"}}, 131008),
        ({"type": "template", "template": {"name": "x", "language": {"code": "en"}}}, 132001),
        ({"type": "text", "text": {"body": "x"}, "biz_opaque_callback_data": "x" * 513}, 131009),
    ],
)
async def test_bodies_refused(graph: Graph, body: dict[str, Any], code: int) -> None:
    _, answer = await graph.send(**body)
    assert answer["error"]["code"] == code


@pytest.mark.parametrize(
    "body",
    [
        {"type": "image", "image": {"link": "https://example.com/a.jpg", "caption": "x"}},
        {"type": "audio", "audio": {"link": "https://shop.example/hello.ogg"}},
        {"type": "location", "location": {"latitude": "28.61", "longitude": 77.2}},
        {"type": "contacts", "contacts": [{"name": {"formatted_name": "A B", "first_name": "A"}}]},
        {"type": "reaction", "reaction": {"message_id": "wamid.X", "emoji": "👍"}},
        {"type": "reaction", "reaction": {"message_id": "wamid.X", "emoji": ""}},
    ],
)
async def test_types_accepted(graph: Graph, body: dict[str, Any]) -> None:
    assert (await graph.send(**body))[0] == 200


def _buttons(*titles: str) -> dict[str, Any]:
    replies = [{"type": "reply", "reply": {"id": f"b{i}", "title": title}} for i, title in enumerate(titles)]
    return {"type": "button", "body": {"text": "Ok?"}, "action": {"buttons": replies}}


def _list(rows: int) -> dict[str, Any]:
    items = [{"id": f"r{i}", "title": f"Row {i}"} for i in range(rows)]
    return {
        "type": "list",
        "body": {"text": "Pick"},
        "action": {"button": "Open", "sections": [{"rows": items}]},
    }


def _named(kind: str, name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    action = {"name": name, "parameters": parameters} if parameters else {"name": name}
    return {"type": kind, "body": {"text": "x"}, "action": action}


def _sections(sections: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "product_list", "body": {"text": "x"}, "action": {"sections": sections}}


def _cards(cards: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "carousel", "body": {"text": "x"}, "action": {"cards": cards}}


@pytest.mark.parametrize(
    ("interactive", "code"),
    [
        (_buttons("Yes", "No"), None),
        (_buttons(), 131009),
        (_buttons("1", "2", "3", "4"), 131009),
        (_buttons("Yes", "Yes"), 131009),
        (_buttons("x" * 21), 131009),
        (_list(10), None),
        (_list(11), 131009),
        (_named("location_request_message", "send_location"), None),
        (_named("location_request_message", "other"), 131009),
        (_named("cta_url", "cta_url", {"display_text": "Open", "url": "https://e.x"}), None),
        (_named("flow", "flow", {"flow_cta": "Go"}), 131008),
        (_named("voice_call", "voice_call"), None),
        (_named("voice_call", "voice_call", {"display_text": "Call us", "ttl_minutes": 100}), None),
        (_named("voice_call", "voice_call", {"display_text": "x" * 21}), 131009),
        (_named("voice_call", "voice_call", {"ttl_minutes": 43_201}), 131009),
        (_named("voice_call", "call"), 131009),
        (_named("unheard_of", "x"), 131009),
        ({**_buttons("Yes"), "type": []}, 131009),
        ({**_buttons("Yes"), "header": {"type": {}}}, 131009),
        ({**_sections([{"product_items": 1}]), "header": {"type": "text", "text": "x"}}, 131009),
        (_cards([{"type": []}, {"type": []}]), None),
        (_cards([{"type": []}, {"type": {}}]), 131009),
    ],
)
async def test_interactive_limits(graph: Graph, interactive: dict[str, Any], code: int | None) -> None:
    status, body = await graph.send(type="interactive", interactive=interactive)
    assert (body.get("error") or {}).get("code") == code, body
    assert (status == 200) == (code is None)


async def test_order_of_refusals(graph: Graph) -> None:
    """Meta's order of checks (upstream fact 1.1.6): token, object, permission, shape, number, account, recipient."""
    bad = {"messaging_product": "whatsapp", "to": "919800000030", "type": "text"}
    good = {**bad, "text": {"body": "x"}}

    async def code(body: dict[str, Any], **options: Any) -> int:
        _, answer = await graph.call("POST", f"{NUMBER}/messages", json=body, **options)
        return int(answer["error"]["code"])

    other = (await graph.control("POST", "accounts", {"name": "Other"}))["access_token"]
    mute = await graph.control("POST", "tokens", {"waba_id": WABA, "variant": "no_messaging"})
    graph.sim.state.numbers[NUMBER].platform_type = "NOT_APPLICABLE"
    graph.sim.state.accounts[WABA].locked = True
    assert await code(bad, token="unknown") == 190
    assert await code(bad, token=other) == 200
    assert await code(bad, token=mute["access_token"]) == 200
    assert await code(bad) == 131008
    assert await code(good) == 133010
    graph.sim.state.numbers[NUMBER].platform_type = "CLOUD_API"
    assert await code(good) == 131031
    graph.sim.state.accounts[WABA].locked = False
    assert await code(good) == 131030


async def test_an_unknown_number_is_error_100_33(graph: Graph) -> None:
    status, body = await graph.call("POST", "999/messages", json={"messaging_product": "whatsapp"})
    assert (status, body["error"]["code"], body["error"]["error_subcode"]) == (400, 100, 33)


async def test_read_marks_what_came_before(graph: Graph) -> None:
    first = await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "a"})
    second = await graph.control(
        "POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "b"}
    )
    body = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": second["id"],
        "typing_indicator": {"type": "text"},
    }
    assert await graph.call("POST", f"{NUMBER}/messages", json=body) == (200, {"success": True})
    assert {graph.sim.state.messages[m["id"]].status for m in (first, second)} == {"read"}
    status, answer = await graph.call("POST", f"{NUMBER}/messages", json={**body, "message_id": "wamid.none"})
    assert (status, answer["error"]["code"]) == (400, 131009)


async def test_throttling_can_be_switched_off(graph: Graph) -> None:
    for _ in range(45):
        graph.sim.throttle.take_pair(graph.sim.state.numbers[NUMBER], CUSTOMER)
    status, body = await graph.send()
    assert (status, body["error"]["code"]) == (400, 131056)
    await graph.control("PUT", "settings", {"throttling": {"pair": False}})
    assert (await graph.send())[0] == 200


async def test_the_window_rule_when_switched_on(graph: Graph, gateway: Gateway) -> None:
    await graph.control("PUT", "settings", {"recipients": {"window": True}})
    _, body = await graph.send()
    await until(lambda: gateway.statuses(body["messages"][0]["id"]) == ["failed"])
    liked = {"type": "reaction", "reaction": {"message_id": body["messages"][0]["id"], "emoji": "👍"}}
    _, reaction = await graph.send(**liked)
    await until(lambda: gateway.statuses(reaction["messages"][0]["id"]) == ["failed"])
    said = {"phone_number_id": NUMBER, "from": CUSTOMER}
    await graph.control("POST", "inbound", {**said, "type": "system", "system": {"wa_id": "919822222222"}})
    _, body = await graph.send()
    await until(lambda: gateway.statuses(body["messages"][0]["id"]) == ["failed"])
    await graph.control("POST", "inbound", {**said, "text": "hi"})
    _, body = await graph.send()
    await until(lambda: "delivered" in gateway.statuses(body["messages"][0]["id"]))
    _, reaction = await graph.send(**liked)
    await until(lambda: gateway.statuses(reaction["messages"][0]["id"]) == ["sent"])


async def test_a_reaction_is_to_a_message_of_the_last_30_days_in_the_same_chat(
    graph: Graph, gateway: Gateway
) -> None:
    async def id_of(**body: Any) -> str:
        return str((await graph.send(**body))[1]["messages"][0]["id"])

    async def reaction(message_id: str) -> str:
        return await id_of(type="reaction", reaction={"message_id": message_id, "emoji": "👍"})

    said = {"phone_number_id": NUMBER, "from": CUSTOMER}
    right, old = await id_of(), await id_of()
    graph.sim.state.messages[old].timestamp -= 30 * 86_400 + 1
    deleted = (await graph.control("POST", "inbound", {**said, "text": "hi"}))["id"]
    revoke = {"type": "revoke", "revoke": {"original_message_id": deleted}}
    await graph.control("POST", "inbound", {**said, **revoke})
    accepted = await reaction(right)
    await until(lambda: gateway.statuses(accepted) == ["sent"])
    assert graph.sim.state.messages[right].reaction == "👍"

    def has_failed(message_id: str) -> bool:
        return gateway.statuses(message_id) == ["failed"]

    for target in ("wamid.X", accepted, old, deleted, await id_of(to="+6591234567")):
        refused = await reaction(target)
        await until(partial(has_failed, refused))
        (status,) = gateway.changes[-1]["value"]["statuses"]
        assert status["errors"][0]["code"] == 131009, target
        found = graph.sim.state.messages.get(target)
        assert found is None or found.reaction is None


async def test_a_message_in_a_group_opens_the_window_of_the_group_alone(
    graph: Graph, gateway: Gateway
) -> None:
    await graph.control("PUT", "settings", {"recipients": {"window": True}})
    await graph.call("POST", f"{NUMBER}/groups", json={"messaging_product": "whatsapp", "subject": "Friends"})
    (group,) = (await graph.call("GET", f"{NUMBER}/groups"))[1]["data"]["groups"]
    said = {"phone_number_id": NUMBER, "from": CUSTOMER, "group_id": group["id"]}
    first = await graph.control("POST", "inbound", {**said, "text": "Hello all"})
    await graph.control("POST", "inbound", {**said, "text": "Me again", "context": first["id"]})
    edit = {"original_message_id": first["id"]}
    await graph.control("POST", "inbound", {**said, "type": "edit", "edit": edit, "text": "Hello you"})

    def quoting() -> list[dict[str, Any]]:
        said = [message for change in gateway.changes for message in change["value"].get("messages", ())]
        return [message["context"] for message in said if "context" in message]

    assert await until(quoting) == [{"id": first["id"], "from": CUSTOMER}]
    _, body = await graph.send()
    await until(lambda: gateway.statuses(body["messages"][0]["id"]) == ["failed"])
    _, to_group = await graph.send(to=group["id"], recipient_type="group")
    await until(lambda: "delivered" in gateway.statuses(to_group["messages"][0]["id"]))
