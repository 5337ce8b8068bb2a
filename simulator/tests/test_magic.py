"""Magic texts: the last line of a message decides the outcome of the message and the customer's reply."""

from typing import Any

import pytest

from simulator.tests.conftest import CUSTOMER, NUMBER, Gateway, Graph, until


async def say(graph: Graph, text: str) -> tuple[int, dict[str, Any]]:
    return await graph.send(type="text", text={"body": text})


def inbound(gateway: Gateway) -> list[dict[str, Any]]:
    return [message for change in gateway.changes for message in change["value"].get("messages", ())]


@pytest.fixture
async def quick(graph: Graph) -> Graph:
    await graph.control("PUT", "settings", {"preset": "instant"})
    return graph


async def test_a_text_refuses_itself(graph: Graph) -> None:
    status, body = await say(graph, "Your order\n#refuse 131031")
    assert (status, body["error"]["code"]) == (403, 131031)


async def test_a_text_fails_itself(quick: Graph, gateway: Gateway) -> None:
    _, body = await say(quick, "#fail 131049")
    await until(lambda: gateway.statuses(body["messages"][0]["id"]) == ["failed"])
    assert gateway.changes[0]["value"]["statuses"][0]["errors"][0]["code"] == 131049


async def test_texts_that_are_read_late_never_or_without_a_word(quick: Graph, gateway: Gateway) -> None:
    ids = {
        text: (await say(quick, text))[1]["messages"][0]["id"] for text in ("#unread", "#silent", "#late 60")
    }
    plain = (await say(quick, "#silentium"))[1]["messages"][0]["id"]
    await until(lambda: set(gateway.statuses(plain)) == {"sent", "delivered", "read"})
    await until(lambda: set(gateway.statuses(ids["#unread"])) == {"sent", "delivered"})
    assert gateway.statuses(ids["#silent"]) == gateway.statuses(ids["#late 60"]) == []


@pytest.mark.parametrize(
    "text", ["#", "#refuse", "#refuse 7", "#fail x", "#tap", "#reply", "#late -1", "#nonsense", "no #image"]
)
async def test_what_is_no_magic_text_is_ordinary(quick: Graph, gateway: Gateway, text: str) -> None:
    status, body = await say(quick, text)
    assert status == 200
    await until(lambda: "read" in gateway.statuses(body["messages"][0]["id"]))
    assert inbound(gateway) == []


async def test_the_customer_answers(quick: Graph, gateway: Gateway) -> None:
    wamid = (await say(quick, "Hello\n#reply Thank you"))[1]["messages"][0]["id"]
    await until(lambda: inbound(gateway))
    (message,) = inbound(gateway)
    assert message["text"] == {"body": "Thank you"}
    assert message["from"] == CUSTOMER
    assert message["context"]["id"] == wamid


@pytest.mark.parametrize(
    "kind", ["image", "video", "audio", "document", "sticker", "location", "contacts", "order"]
)
async def test_the_customer_answers_with_any_type(quick: Graph, gateway: Gateway, kind: str) -> None:
    await say(quick, f"#{kind}")
    await until(lambda: [message["type"] for message in inbound(gateway)] == [kind])


async def test_the_customer_reacts_and_taps(quick: Graph, gateway: Gateway) -> None:
    wamid = (await say(quick, "#react 👍"))[1]["messages"][0]["id"]
    await until(lambda: inbound(gateway))
    assert inbound(gateway)[0]["reaction"] == {"message_id": wamid, "emoji": "👍"}
    replies = [{"type": "reply", "reply": {"id": f"b{n}", "title": f"Choice {n}"}} for n in (1, 2)]
    asked = {"type": "button", "body": {"text": "Which?\n#tap 2"}, "action": {"buttons": replies}}
    await quick.send(type="interactive", interactive=asked)
    await until(lambda: len(inbound(gateway)) == 2)
    chosen = {"type": "button_reply", "button_reply": {"id": "b2", "title": "Choice 2"}}
    assert inbound(gateway)[1]["interactive"] == chosen
    rows = [{"id": "r1", "title": "Row", "description": "First"}]
    listed = {
        "type": "list",
        "body": {"text": "#tap"},
        "action": {"button": "Open", "sections": [{"rows": rows}]},
    }
    await quick.send(type="interactive", interactive=listed)
    await until(lambda: len(inbound(gateway)) == 3)
    assert inbound(gateway)[2]["interactive"] == {"type": "list_reply", "list_reply": rows[0]}


async def test_the_customer_edits_and_deletes(quick: Graph, gateway: Gateway) -> None:
    await say(quick, "#edit")
    await until(lambda: [message["type"] for message in inbound(gateway)] == ["text", "edit"])
    first, change = inbound(gateway)
    assert change["edit"]["original_message_id"] == first["id"]
    assert change["edit"]["message"]["text"] == {"body": "Hello"}
    original = quick.sim.state.messages[first["id"]]
    assert (original.change, original.body["text"]) == ("edited", {"body": "Hello"})
    await say(quick, "#delete")
    await until(lambda: [message["type"] for message in inbound(gateway)][2:] == ["text", "revoke"])
    assert quick.sim.state.messages[inbound(gateway)[2]["id"]].change == "deleted"


async def test_magic_texts_can_be_switched_off(graph: Graph) -> None:
    await graph.control("PUT", "settings", {"recipients": {"magic": False}})
    assert (await say(graph, "#refuse 131031"))[0] == 200


async def test_a_customer_changes_only_messages_of_their_own(graph: Graph) -> None:
    first = await graph.control("POST", "inbound", {"phone_number_id": NUMBER, "from": CUSTOMER, "text": "a"})
    for kind in ("edit", "revoke"):
        for original, sender in ((first["id"], "919800000777"), ("wamid.none", CUSTOMER), (None, CUSTOMER)):
            body: dict[str, Any] = {"phone_number_id": NUMBER, "from": sender, "type": kind, "text": "b"}
            body |= {kind: {"original_message_id": original}}
            async with graph.client.post("/sim/inbound", json=body) as response:
                assert response.status == 400
    assert graph.sim.state.messages[first["id"]].change is None
