"""Templates: creation rules, review, sending, editing, deleting, library."""

from typing import Any

import pytest

from simulator.tests.conftest import WABA, Gateway, Graph, until

BODY = {
    "type": "BODY",
    "text": "Hi {{1}}, order {{2}} is on its way.",
    "example": {"body_text": [["Asha", "17"]]},
}
URL_BUTTON = {"type": "URL", "text": "Track", "url": "https://e.x/{{1}}", "example": ["https://e.x/17"]}


async def create(graph: Graph, **changes: Any) -> tuple[int, dict[str, Any]]:
    body = {
        "name": "order_update",
        "language": "en_US",
        "category": "UTILITY",
        "components": [BODY],
        **changes,
    }
    return await graph.call("POST", f"{WABA}/message_templates", json=body)


async def approved(graph: Graph, **changes: Any) -> str:
    status, body = await create(graph, **changes)
    assert status == 200, body
    await until(lambda: graph.sim.state.templates[body["id"]].status == "APPROVED")
    return str(body["id"])


async def send(
    graph: Graph, components: list[dict[str, Any]], name: str = "order_update"
) -> tuple[int, dict[str, Any]]:
    template = {"name": name, "language": {"code": "en_US"}, "components": components}
    return await graph.send(type="template", template=template)


def texts(*values: str) -> dict[str, Any]:
    return {"type": "body", "parameters": [{"type": "text", "text": value} for value in values]}


async def test_a_template_is_reviewed_and_announced(graph: Graph, gateway: Gateway) -> None:
    status, body = await create(graph)
    assert (status, body["status"], body["category"]) == (200, "PENDING", "UTILITY")
    await until(lambda: gateway.bodies)
    change = gateway.changes[0]
    assert change["field"] == "message_template_status_update"
    assert change["value"]["event"] == "APPROVED"
    assert change["value"]["message_template_id"] == int(body["id"])
    _, template = await graph.call("GET", body["id"])
    assert (template["status"], template["components"]) == ("APPROVED", [BODY])


async def test_rejection_and_category_by_rule(graph: Graph, gateway: Gateway) -> None:
    _, body = await create(graph, name="please_reject")
    await until(lambda: gateway.bodies)
    assert gateway.changes[0]["value"]["event"] == "REJECTED"
    _, template = await graph.call("GET", body["id"], params={"fields": "status,rejected_reason"})
    assert template == {"id": body["id"], "status": "REJECTED", "rejected_reason": "INVALID_FORMAT"}
    assert (await create(graph, name="big_promo"))[1]["category"] == "MARKETING"


async def test_sending_fills_the_text(graph: Graph, gateway: Gateway) -> None:
    await approved(graph)
    status, body = await send(graph, [texts("Asha", "17")])
    assert status == 200
    assert body["messages"][0]["message_status"] == "accepted"
    message = graph.sim.state.messages[body["messages"][0]["id"]]
    assert message.rendered is not None
    assert message.rendered["body"] == "Hi Asha, order 17 is on its way."
    await until(lambda: "sent" in gateway.statuses(message.id))
    pricing = [
        s["pricing"] for c in gateway.changes for s in c["value"].get("statuses", ()) if "pricing" in s
    ]
    assert pricing[0]["category"] == "utility"


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], 132000),
        ([texts("Asha")], 132000),
        ([texts("Asha", "17", "x")], 132000),
        ([texts("12 MG Road\nBengaluru", "17")], 132018),
        ([texts("Asha", "1\t7")], 132018),
        ([texts("Asha", "1     7")], 132018),
        ([{"type": "body", "parameters": [{"type": "image"}, {"type": "text", "text": "x"}]}], 132012),
        ([texts("Asha", "17"), {**texts("x"), "type": "header"}], 132000),
        ([texts("Asha", "17"), {**texts("x"), "type": "button", "sub_type": "url", "index": "0"}], 132000),
    ],
)
async def test_parameters_must_fit(graph: Graph, components: list[dict[str, Any]], code: int) -> None:
    await approved(graph)
    assert (await send(graph, components))[1]["error"]["code"] == code


async def test_a_parameter_of_a_button_that_the_template_lacks_is_refused(graph: Graph) -> None:
    await approved(graph, components=[BODY, {"type": "BUTTONS", "buttons": [URL_BUTTON]}])
    buttons = [{**texts("x"), "type": "button", "sub_type": "url", "index": index} for index in "01"]
    assert (await send(graph, [texts("Asha", "17"), buttons[0]]))[0] == 200
    assert (await send(graph, [texts("Asha", "17"), *buttons]))[1]["error"]["code"] == 132000


async def test_url_buttons_need_their_parameter(graph: Graph) -> None:
    await approved(graph, components=[BODY, {"type": "BUTTONS", "buttons": [URL_BUTTON]}])
    assert (await send(graph, [texts("Asha", "17")]))[1]["error"]["code"] == 131008
    button = {
        "type": "button",
        "sub_type": "url",
        "index": "0",
        "parameters": [{"type": "text", "text": "17"}],
    }
    assert (await send(graph, [texts("Asha", "17"), button]))[0] == 200


async def test_a_coupon_button_needs_a_short_code(graph: Graph) -> None:
    button = {"type": "COPY_CODE", "example": "SAVE10"}
    await approved(graph, category="MARKETING", components=[BODY, {"type": "BUTTONS", "buttons": [button]}])
    for parameter, code in (
        ({"type": "text", "text": "SAVE10"}, 132012),
        ({"type": "coupon_code"}, 131008),
        ({"type": "coupon_code", "coupon_code": "SAVE10" * 3}, 131009),
        ({"type": "coupon_code", "coupon_code": "SAVE10"}, None),
    ):
        filled = {"type": "button", "sub_type": "copy_code", "index": "0", "parameters": [parameter]}
        _, answer = await send(graph, [texts("Asha", "17"), filled])
        assert answer.get("error", {}).get("code") == code, parameter


async def test_an_authentication_template_needs_the_code_twice(graph: Graph) -> None:
    components = [
        {"type": "BODY", "add_security_recommendation": True},
        {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]},
    ]
    template_id = await approved(graph, name="login", category="AUTHENTICATION", components=components)
    _, template = await graph.call("GET", template_id)
    assert template["components"][1]["buttons"][0]["type"] == "URL"
    assert (await send(graph, [texts("482913")], "login"))[1]["error"]["code"] == 131008
    button = {
        "type": "button",
        "sub_type": "url",
        "index": 0,
        "parameters": [{"type": "text", "text": "482913"}],
    }
    for wrong, code in (("copy_code", 132012), (None, 131008)):
        refused = await send(graph, [texts("482913"), {**button, "sub_type": wrong}], "login")
        assert refused[1]["error"]["code"] == code
    assert (await send(graph, [texts("482913"), button], "login"))[0] == 200


async def test_media_headers(graph: Graph) -> None:
    header = {"type": "HEADER", "format": "IMAGE", "example": {"header_handle": ["4::nothing"]}}
    status, body = await create(graph, components=[header, BODY])
    assert (status, body["error"]["code"], body["error"]["error_subcode"]) == (400, 100, 2494102)
    graph.sim.state.handles["4::nothing"] = None  # type: ignore[assignment]
    await approved(graph, components=[header, BODY])
    wrong = {"type": "header", "parameters": [{"type": "video", "video": {"id": "1"}}]}
    empty = {"type": "header", "parameters": [{"type": "image"}]}
    unknown = {"type": "header", "parameters": [{"type": "image", "image": {"id": "1"}}]}
    right = {"type": "header", "parameters": [{"type": "image", "image": {"link": "https://e.x/a.png"}}]}
    assert (await send(graph, [wrong, texts("a", "b")]))[1]["error"]["code"] == 132012
    assert (await send(graph, [empty, texts("a", "b")]))[1]["error"]["code"] == 131008
    assert (await send(graph, [unknown, texts("a", "b")]))[1]["error"]["code"] == 100
    assert (await send(graph, [right, texts("a", "b")]))[0] == 200


async def test_named_parameters(graph: Graph) -> None:
    examples = [{"param_name": "name", "example": "Asha"}]
    body = {"type": "BODY", "text": "Hi {{name}}, shipped.", "example": {"body_text_named_params": examples}}
    await approved(graph, parameter_format="NAMED", components=[body])
    named = {"type": "body", "parameters": [{"type": "text", "parameter_name": "name", "text": "Asha"}]}
    assert (await send(graph, [named]))[0] == 200
    assert (await send(graph, [texts("Asha")]))[1]["error"]["code"] == 132012


@pytest.mark.parametrize(
    ("changes", "subcode"),
    [
        ({"name": "Bad Name"}, None),
        ({"category": "SPAM"}, None),
        ({"language": "hi_IN"}, None),
        ({"language": "en-US"}, None),
        ({"components": []}, 2388043),
        ({"components": [{"type": "BODY", "text": "x" * 1025}]}, 2388040),
        ({"components": [{"type": "BODY", "text": "Hi {{1}} you"}]}, 2388043),
        ({"components": [{"type": "BODY", "text": "{{1}} hi", "example": {"body_text": [["a"]]}}]}, 2388299),
        ({"components": [{**BODY, "text": "Hi {{1}}{{2}}, it is on its way."}]}, 2388293),
        ({"components": [BODY, {"type": "FOOTER", "text": "x {{1}}"}]}, 2388073),
        ({"components": [BODY, {"type": "HEADER", "format": "NONE"}]}, 2388047),
        ({"components": [BODY, {"type": "BUTTONS", "buttons": [URL_BUTTON] * 3}]}, 2388047),
        ({"message_send_ttl_seconds": 5}, None),
    ],
)
async def test_templates_refused(graph: Graph, changes: dict[str, Any], subcode: int | None) -> None:
    status, body = await create(graph, **changes)
    assert (status, body["error"]["code"], body["error"].get("error_subcode")) == (400, 100, subcode)


async def test_the_same_name_and_language_once(graph: Graph) -> None:
    await create(graph)
    assert (await create(graph))[1]["error"]["error_subcode"] == 2388024
    assert (await create(graph, language="hi"))[0] == 200


async def test_paused_and_disabled_templates_cannot_be_sent(graph: Graph, gateway: Gateway) -> None:
    template_id = await approved(graph)
    for event, code in (("PAUSED", 132015), ("DISABLED", 132016)):
        await graph.control("POST", f"templates/{template_id}", {"event": event})
        assert (await send(graph, [texts("a", "b")]))[1]["error"]["code"] == code
    await until(
        lambda: [c["value"].get("event") for c in gateway.changes] == ["APPROVED", "PAUSED", "DISABLED"]
    )
    await graph.control("POST", f"templates/{template_id}", {"event": "PAUSED"})
    assert (await graph.call("POST", f"{template_id}/unpause"))[0] == 200
    assert (await send(graph, [texts("a", "b")]))[0] == 200


async def test_a_template_that_meta_deleted_is_announced_and_gone(graph: Graph, gateway: Gateway) -> None:
    template_id = await approved(graph)
    await graph.control("POST", f"templates/{template_id}", {"event": "DELETED"})
    await until(lambda: [c["value"].get("event") for c in gateway.changes] == ["APPROVED", "DELETED"])
    assert (await graph.call("GET", template_id))[1]["error"]["error_subcode"] == 33
    assert (await graph.call("GET", f"{WABA}/message_templates"))[1]["data"] == []
    assert (await send(graph, [texts("a", "b")]))[1]["error"]["code"] == 132001


async def test_quality_and_category_are_announced(graph: Graph, gateway: Gateway) -> None:
    template_id = await approved(graph)
    await graph.control("POST", f"templates/{template_id}", {"quality": "YELLOW"})
    await graph.control("POST", f"templates/{template_id}", {"correct_category": "MARKETING"})
    await graph.control("POST", f"templates/{template_id}", {"category": "MARKETING"})
    await until(lambda: len(gateway.changes) == 4)
    by_field = [(change["field"], change["value"]) for change in gateway.changes[1:]]
    assert {field for field, _ in by_field} == {"message_template_quality_update", "template_category_update"}
    assert any(value.get("previous_category") == "UTILITY" for _, value in by_field)
    assert any(value.get("new_quality_score") == "YELLOW" for _, value in by_field)


async def test_editing(graph: Graph) -> None:
    template_id = await approved(graph)
    new = {"type": "BODY", "text": "Shipped."}
    status, body = await graph.call("POST", template_id, json={"components": [new]})
    assert (status, body["success"]) == (200, True)
    await until(lambda: graph.sim.state.templates[template_id].status == "APPROVED")
    assert graph.sim.state.templates[template_id].components == [new]
    assert (await graph.call("POST", template_id, json={"components": [new]}))[0] == 400
    graph.sim.state.templates[template_id].edited_at.clear()
    assert (await graph.call("POST", template_id, json={"category": "MARKETING"}))[0] == 400


async def test_listing_filters_and_pages(graph: Graph) -> None:
    for name in ("alpha", "beta", "gamma"):
        await approved(graph, name=name)
    await create(graph, name="reject_me")
    path = f"{WABA}/message_templates"
    await until(lambda: all(t.status != "PENDING" for t in graph.sim.state.templates.values()))
    _, body = await graph.call("GET", path, params={"status": "APPROVED", "limit": "2", "fields": "name"})
    assert len(body["data"]) == 2
    _, rest = await graph.call(
        "GET",
        path,
        params={"status": "APPROVED", "after": body["paging"]["cursors"]["after"], "fields": "name"},
    )
    assert {row["name"] for row in body["data"] + rest["data"]} == {"alpha", "beta", "gamma"}
    _, body = await graph.call("GET", path, params={"name": "beta"})
    assert [row["name"] for row in body["data"]] == ["beta"]


async def test_deleting(graph: Graph) -> None:
    english = await approved(graph)
    hindi = await approved(graph, language="hi")
    path = f"{WABA}/message_templates"
    _, body = await graph.call("DELETE", path, params={"hsm_id": english, "name": "other"})
    assert body["error"]["code"] == 100
    params = {"hsm_id": english, "name": "order_update"}
    assert await graph.call("DELETE", path, params=params) == (200, {"success": True})
    assert set(graph.sim.state.templates) == {hindi}
    assert (await create(graph))[1]["error"]["error_subcode"] == 2388023
    assert (await graph.call("DELETE", path, params={"name": "order_update"}))[0] == 200
    assert not graph.sim.state.templates
    assert (await graph.call("DELETE", path, params={"name": "order_update"}))[0] == 400


async def test_the_library(graph: Graph) -> None:
    for path in ("message_template_library", f"{WABA}/message_template_library"):
        _, body = await graph.call("GET", path, params={"topic": "PAYMENTS"})
        assert {row["topic"] for row in body["data"]} == {"PAYMENTS"}
    inputs = [
        {"type": "URL", "url": {"base_url": "https://e.x/{{1}}", "url_suffix_example": "https://e.x/17"}}
    ]
    status, body = await create(
        graph,
        library_template_name="order_confirmation_1",
        library_template_button_inputs=inputs,
        components=None,
    )
    assert (status, body["status"]) == (200, "APPROVED")
    assert (await create(graph, name="x", library_template_name="none"))[0] == 400


async def test_marketing_messages_take_marketing_templates_only(graph: Graph) -> None:
    await approved(graph)
    await approved(graph, name="sale", category="MARKETING")
    body = {"messaging_product": "whatsapp", "to": "919812345678", "type": "template"}

    async def code(name: str) -> int | None:
        template = {"name": name, "language": {"code": "en_US"}, "components": [texts("a", "b")]}
        _, answer = await graph.call(
            "POST", "200300400500600/marketing_messages", json={**body, "template": template}
        )
        return int(answer["error"]["code"]) if "error" in answer else None

    assert await code("order_update") == 134100
    assert await code("sale") is None
