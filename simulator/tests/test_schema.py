"""The declared edges, groups, calls and analytics: the calls in Meta's documentation, and conversions of parameters."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from simulator.tests.conftest import CUSTOMER, NUMBER, WABA, Gateway, Graph, until


async def answer(graph: Graph, method: str, path: str, **options: Any) -> dict[str, Any]:
    """Make a call, which must succeed. Returns the JSON body."""
    status, body = await graph.call(method, path, **options)
    assert status == 200, body
    return body


@pytest.mark.parametrize(
    ("edge", "written", "read"),
    [
        (
            "conversational_automation",
            {"enable_welcome_message": "true", "prompts": '["Hi","Prices"]'},
            {"enable_welcome_message": True, "prompts": ["Hi", "Prices"]},
        ),
        (
            "whatsapp_commerce_settings",
            {"is_cart_enabled": False},
            {"data": [{"id": f"5{NUMBER[1:]}", "is_cart_enabled": False, "is_catalog_visible": False}]},
        ),
        (
            "whatsapp_business_encryption",
            {"business_public_key": "KEY"},
            {"data": [{"business_public_key": "KEY", "business_public_key_signature_status": "VALID"}]},
        ),
        ("username", {"username": "shop"}, {"status": "approved", "username": "shop"}),
    ],
)
@pytest.mark.parametrize("way", ["json", "data", "params"])
async def test_a_document_keeps_what_it_is_sent_however_it_is_written(
    graph: Graph, edge: str, written: dict[str, Any], read: dict[str, Any], way: str
) -> None:
    given = written if way == "json" else {name: str(value) for name, value in written.items()}
    await answer(graph, "POST", f"{NUMBER}/{edge}", **{way: given})
    assert await answer(graph, "GET", f"{NUMBER}/{edge}") == read


async def test_a_parameter_of_another_type_is_refused_and_an_unknown_one_ignored(graph: Graph) -> None:
    status, body = await graph.call(
        "POST", f"{NUMBER}/conversational_automation", json={"enable_welcome_message": "perhaps"}
    )
    assert (status, body["error"]["code"]) == (400, 100)
    assert "enable_welcome_message" in body["error"]["message"]
    status, body = await graph.call("POST", f"{NUMBER}/whatsapp_business_encryption", json={"x": 1})
    assert "business_public_key is required" in body["error"]["message"]
    assert (await graph.call("POST", f"{NUMBER}/username", json={"username": "a", "x": 1}))[0] == 200
    assert (await graph.call("DELETE", f"{NUMBER}/username"))[0] == 200
    assert await answer(graph, "GET", f"{NUMBER}/username") == {"status": "approved"}


async def test_qr_codes(graph: Graph) -> None:
    body = {"prefilled_message": "Hello", "generate_qr_image": "SVG"}
    made = await answer(graph, "POST", f"{NUMBER}/message_qrdls", json=body)
    assert made["deep_link_url"].endswith(made["code"])
    assert "qr_image_url" in made
    changed = {"code": made["code"], "prefilled_message": "Bye"}
    assert (await answer(graph, "POST", f"{NUMBER}/message_qrdls", json=changed))[
        "prefilled_message"
    ] == "Bye"
    one = f"{NUMBER}/message_qrdls/{made['code']}"
    assert (await answer(graph, "GET", one))["data"][0]["prefilled_message"] == "Bye"
    listed = await answer(graph, "GET", f"{NUMBER}/message_qrdls", params={"fields": "code"})
    assert listed["data"] == [{"code": made["code"]}]
    by_code = await answer(graph, "GET", f"{NUMBER}/message_qrdls", params={"code": made["code"]})
    assert len(by_code["data"]) == 1
    assert await answer(graph, "DELETE", one) == {"success": True}
    assert (await graph.call("GET", one))[1]["error"]["error_subcode"] == 33


async def test_a_blocked_customer_gets_nothing_until_unblocked(graph: Graph) -> None:
    users = {"messaging_product": "whatsapp", "block_users": [{"user": f"+{CUSTOMER}"}]}
    blocked = await answer(graph, "POST", f"{NUMBER}/block_users", json=users)
    entry = {"input": f"+{CUSTOMER}", "wa_id": CUSTOMER}
    assert blocked["block_users"] == {"added_users": [entry]}
    assert (await answer(graph, "GET", f"{NUMBER}/block_users"))["data"] == [
        {"messaging_product": "whatsapp", "wa_id": CUSTOMER}
    ]
    assert (await graph.send())[1]["error"]["code"] == 130403
    unblocked = await answer(graph, "DELETE", f"{NUMBER}/block_users", json=users)
    assert unblocked["block_users"] == {"removed_users": [entry]}
    assert (await graph.send())[0] == 200


async def test_a_group_from_its_making_to_its_end(graph: Graph, gateway: Gateway) -> None:
    body = {"messaging_product": "whatsapp", "subject": "Friends"}
    request_id = (await answer(graph, "POST", f"{NUMBER}/groups", json=body))["request_id"]

    def created() -> Any:
        groups = [group for change in gateway.changes for group in change["value"].get("groups", ())]
        return next((group for group in groups if group["request_id"] == request_id), None)

    group_id = (await until(created))["group_id"]
    assert (await answer(graph, "GET", f"{NUMBER}/groups"))["data"]["groups"][0]["id"] == group_id
    assert await answer(graph, "GET", group_id) == {"messaging_product": "whatsapp", "id": group_id}
    await answer(graph, "POST", group_id, data={"description": "All of us"})
    users = {"participants": [{"user": CUSTOMER}]}
    await answer(graph, "POST", f"{group_id}/participants", json=users)
    fields = {"fields": "subject,description,participants,total_participant_count"}
    shown = await answer(graph, "GET", group_id, params=fields)
    assert (shown["subject"], shown["description"]) == ("Friends", "All of us")
    assert shown["participants"] == [{"wa_id": CUSTOMER}]
    await answer(graph, "DELETE", f"{group_id}/participants", json=users)
    assert (await answer(graph, "GET", group_id, params=fields))["total_participant_count"] == 0
    link = (await answer(graph, "GET", f"{group_id}/invite_link"))["invite_link"]
    assert (await answer(graph, "POST", f"{group_id}/invite_link"))["invite_link"] != link
    assert (await answer(graph, "GET", f"{group_id}/join_requests"))["data"] == []
    approved = await answer(graph, "POST", f"{group_id}/join_requests", json={"join_requests": ["1"]})
    assert approved["failed_join_requests"][0]["join_request_id"] == "1"
    await answer(graph, "DELETE", group_id)
    assert (await graph.call("GET", group_id))[1]["error"]["error_subcode"] == 33


async def test_a_customers_call_opens_the_window_for_texts(graph: Graph) -> None:
    caller = "919812345670"
    assert not graph.sim.state.messages.is_open(NUMBER, caller, time.time())
    await graph.control("POST", "calls", {"phone_number_id": NUMBER, "from": caller})
    assert graph.sim.state.messages.is_open(NUMBER, caller, time.time())


async def new_group(graph: Graph) -> str:
    """The id of a new group with two participants."""
    subject = {"messaging_product": "whatsapp", "subject": "Friends"}
    await answer(graph, "POST", f"{NUMBER}/groups", json=subject)
    group_id: str = (await answer(graph, "GET", f"{NUMBER}/groups"))["data"]["groups"][0]["id"]
    users = {"participants": [{"user": CUSTOMER}, {"user": "919812345679"}]}
    await answer(graph, "POST", f"{group_id}/participants", json=users)
    return group_id


async def test_a_message_to_a_group_has_statuses_of_each_participant(graph: Graph, gateway: Gateway) -> None:
    group_id = await new_group(graph)
    body = {"messaging_product": "whatsapp", "recipient_type": "group", "to": group_id, "type": "text"}
    sent = await answer(graph, "POST", f"{NUMBER}/messages", json={**body, "text": {"body": "Hi"}})

    def delivered() -> Any:
        values = [change["value"] for change in gateway.changes if "statuses" in change["value"]]
        found = [value for value in values if value["statuses"][0]["status"] == "delivered"]
        return found if len(found) == 2 else None

    people = set()
    for value in await until(delivered):
        (status,), (person,) = value["statuses"], value["contacts"]
        assert (status["id"], status["recipient_id"]) == (sent["messages"][0]["id"], group_id)
        assert status["recipient_type"] == "group"
        assert person["wa_id"] == status["recipient_participant_id"]
        assert person["user_id"] == status["recipient_participant_user_id"]
        people.add(person["wa_id"])
    assert people == {CUSTOMER, "919812345679"}


async def test_a_message_to_a_group_that_the_number_does_not_have_is_refused(graph: Graph) -> None:
    body = {"messaging_product": "whatsapp", "recipient_type": "group", "to": CUSTOMER, "type": "text"}
    status, refused = await graph.call("POST", f"{NUMBER}/messages", json={**body, "text": {"body": "Hi"}})
    assert (status, refused["error"]["code"]) == (400, 131041)


async def test_a_message_is_pinned_in_a_group_alone(graph: Graph) -> None:
    pin = {"type": "pin", "message_id": "wamid.X", "expiration_days": 4}
    group_id = await new_group(graph)
    body = {"messaging_product": "whatsapp", "recipient_type": "group", "to": group_id, "type": "pin"}
    sent = await answer(graph, "POST", f"{NUMBER}/messages", json={**body, "pin": pin})
    assert sent["messages"][0]["group_id"] == group_id
    unpin = {"type": "unpin", "message_id": "wamid.X"}
    await answer(graph, "POST", f"{NUMBER}/messages", json={**body, "pin": unpin})
    for wrong in (
        {**body, "recipient_type": "individual", "to": CUSTOMER, "pin": pin},
        {**body, "pin": {**pin, "expiration_days": 31}},
        {**body, "pin": {"type": "pin", "message_id": "wamid.X"}},
        {**body, "pin": {**pin, "type": "glue"}},
    ):
        status, refused = await graph.call("POST", f"{NUMBER}/messages", json=wrong)
        assert (status, refused["error"]["code"] in {131008, 131009}) == (400, True), refused


SIGNUP = {
    "signup_message": "Get our offers",
    "confirmation_message": "Welcome: {{promo_code}}",
    "privacy_policy_url": "https://shop.example/privacy",
}


async def test_a_sign_up_link_is_made_changed_and_disabled(graph: Graph) -> None:
    accepted = {"policy": {"tos": "https://www.facebook.com/legal/terms", "accepted": True}}
    for refused in (SIGNUP | {"promo_code": "TEN"}, SIGNUP | accepted, {**accepted, "promo_code": "TEN"}):
        status, body = await graph.call("POST", f"{WABA}/signups", json=refused)
        assert (status, body["error"]["code"]) == (400, 100), "terms, the code, and the texts are asked for"
    made = await answer(graph, "POST", f"{WABA}/signups", json={**SIGNUP, **accepted, "promo_code": "TEN"})
    assert list(made) == ["id"]
    again = await answer(graph, "POST", f"{WABA}/signups", json={**SIGNUP, "promo_code": "TEN"})
    listed = (await answer(graph, "GET", f"{WABA}/signups"))["data"]
    assert [row["id"] for row in listed] == [made["id"], again["id"]]
    one = f"signups/{made['id']}"
    assert (await answer(graph, "POST", one, json={"status": "DISABLED"})) == {"success": True}
    shown = await answer(graph, "GET", one)
    assert (shown["status"], shown["waba_id"], shown["promo_code"]) == ("DISABLED", WABA, "TEN")
    assert (await graph.call("POST", one, json={"status": "GONE"}))[1]["error"]["code"] == 100
    assert (await graph.call("GET", "signups/999"))[1]["error"]["error_subcode"] == 33


async def test_the_contact_book_deletes_a_customer_once(graph: Graph, gateway: Gateway) -> None:
    inbound = {"phone_number_id": NUMBER, "from": CUSTOMER, "type": "text", "text": {"body": "Hi"}}
    await graph.control("POST", "inbound", inbound)

    def met() -> Any:
        contacts = [each for change in gateway.changes for each in change["value"].get("contacts", ())]
        return next((each["user_id"] for each in contacts if each.get("wa_id") == CUSTOMER), None)

    asked = {"messaging_product": "whatsapp", "bsuid": await until(met)}
    for is_known in (True, False):
        gone = await answer(graph, "DELETE", f"{NUMBER}/contact_book", params=asked)
        assert gone == {"messaging_product": "whatsapp", "success": True, "deleted": is_known}
    parent = {"bsuid": "IN.ENT.998877"}
    assert (await graph.call("DELETE", f"{NUMBER}/contact_book", params=parent))[1]["error"]["code"] == 100


async def test_a_call_rings_and_ends(graph: Graph, gateway: Gateway) -> None:
    asked = {"messaging_product": "whatsapp", "to": CUSTOMER, "action": "connect"}
    session = {"sdp_type": "offer", "sdp": "v=0"}
    made = await answer(graph, "POST", f"{NUMBER}/calls", json={**asked, "session": json.dumps(session)})
    call_id = made["calls"][0]["id"]
    await until(lambda: gateway.statuses(call_id) == ["RINGING"])
    ending = {"messaging_product": "whatsapp", "call_id": call_id, "action": "terminate"}
    assert (await answer(graph, "POST", f"{NUMBER}/calls", json=ending))["success"] is True
    assert (await graph.call("POST", f"{NUMBER}/calls", json=ending))[1]["error"]["code"] == 100
    permits = await answer(graph, "GET", f"{NUMBER}/call_permissions", params={"user_wa_id": CUSTOMER})
    assert {action["action_name"] for action in permits["actions"]} == {
        "send_call_permission_request",
        "start_call",
    }


async def test_catalogs_schedules_activities_and_suggestions(graph: Graph) -> None:
    catalogs = f"{WABA}/product_catalogs"
    assert await answer(graph, "POST", catalogs, json={"catalog_id": 123456}) == {"success": True}
    assert [row["id"] for row in (await answer(graph, "GET", catalogs))["data"]] == ["123456"]
    schedule = {"name": "Hours", "days_of_week": ["MONDAY"]}
    made = await answer(graph, "POST", f"{WABA}/schedules", json=schedule)
    [row] = (await answer(graph, "GET", f"{WABA}/schedules"))["data"]
    assert (row["id"], row["days_of_week"]) == (made["id"], ["MONDAY"])
    assert (await answer(graph, "GET", f"{WABA}/activities"))["data"] == []
    [suggested] = (await answer(graph, "GET", f"{NUMBER}/username_suggestions"))["data"]
    assert suggested["username_suggestions"]


async def test_analytics_add_up_what_was_sent(graph: Graph) -> None:
    for _ in range(3):
        assert (await graph.send())[0] == 200
    template = await answer(
        graph,
        "POST",
        f"{WABA}/message_templates",
        json={
            "name": "greeting", "language": "en_US", "category": "UTILITY",
            "components": json.dumps([{"type": "BODY", "text": "Hello there."}]),
        },
    )  # fmt: skip
    await graph.control("POST", f"templates/{template['id']}", {"event": "APPROVED"})
    sent = await graph.send(type="template", template={"name": "greeting", "language": {"code": "en_US"}})
    assert sent[0] == 200
    now = int(time.time())
    window = f"start({now - 100}).end({now + 100}).granularity(DAY)"
    shown = await answer(graph, "GET", WABA, params={"fields": f"id,analytics.{window}"})
    assert sum(point["sent"] for point in shown["analytics"]["data_points"]) == 4
    shown = await answer(graph, "GET", WABA, params={"fields": f"conversation_analytics.{window}"})
    assert shown["conversation_analytics"]["data"][0]["data_points"][0]["conversation"] == 1
    asked = {"start": now - 100, "end": now + 100, "template_ids": f"[{template['id']}]"}
    [row] = (await answer(graph, "GET", f"{WABA}/template_analytics", params=asked))["data"]
    assert sum(point["sent"] for point in row["data_points"]) == 1
    compared = await answer(graph, "GET", f"{template['id']}/compare", params=asked)
    assert compared["data"][1]["number_values"][0]["value"] == 1
    assert (
        "start is required"
        in (await graph.call("GET", WABA, params={"fields": "analytics"}))[1]["error"]["message"]
    )


async def test_an_authentication_template_in_several_languages_at_once(graph: Graph) -> None:
    body = {
        "name": "code",
        "languages": ["en_US", "hi"],
        "category": "AUTHENTICATION",
        "components": [
            {"type": "BODY"},
            {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]},
        ],
    }
    first = await answer(graph, "POST", f"{WABA}/upsert_message_templates", json=body)
    again = await answer(graph, "POST", f"{WABA}/upsert_message_templates", json=body)
    assert [row["language"] for row in first["data"]] == ["en_US", "hi"]
    assert [row["id"] for row in first["data"]] == [row["id"] for row in again["data"]]


async def test_fields_are_expanded(graph: Graph) -> None:
    shown = await answer(graph, "GET", WABA, params={"fields": "name,phone_numbers{display_phone_number}"})
    [row] = shown["phone_numbers"]["data"]
    assert set(row) == {"id", "display_phone_number"}
    flow = await answer(graph, "POST", f"{WABA}/flows", json={"name": "a", "categories": '["OTHER"]'})
    fields = {"fields": "json_version,categories,preview.invalidate(false){preview_url}"}
    shown = await answer(graph, "GET", flow["id"], params=fields)
    assert (shown["categories"], set(shown["preview"])) == (["OTHER"], {"preview_url"})


async def test_objects_of_a_message_may_be_their_json(graph: Graph) -> None:
    """Chatwoot sends `interactive.action` as JSON text. Meta's own SDK sends the type's object as JSON text."""
    action = {"buttons": [{"type": "reply", "reply": {"id": "a", "title": "Yes"}}]}
    interactive = {"type": "button", "body": {"text": "[1, 2]"}, "action": json.dumps(action)}
    status, body = await graph.send(type="interactive", interactive=interactive)
    assert status == 200, body
    kept = graph.sim.state.messages[body["messages"][0]["id"]].body["interactive"]
    assert (kept["action"], kept["body"]["text"]) == (action, "[1, 2]"), (
        "a text that looks like JSON stays one"
    )
    assert (await graph.send(type="text", text='{"body": "Hello"}'))[0] == 200
    form = {"messaging_product": "whatsapp", "to": CUSTOMER, "type": "text", "text": '{"body":"Hi"}'}
    assert (await graph.call("POST", f"{NUMBER}/messages", data=form))[0] == 200


@pytest.mark.parametrize("user_id", ["IN.77889900112233445566", "IN.ENT.99887766"])
async def test_a_user_id_in_to_is_accepted_and_dropped_without_a_word(
    graph: Graph, gateway: Gateway, user_id: str
) -> None:
    status, body = await graph.send(to=user_id)
    dropped = body["messages"][0]["id"]
    assert status == 200
    delivered = (await graph.send())[1]["messages"][0]["id"]
    await until(lambda: "delivered" in gateway.statuses(delivered))
    assert gateway.statuses(dropped) == []


async def test_what_declared_edges_keep_outlives_a_restart(graph: Graph) -> None:
    await answer(graph, "POST", f"{NUMBER}/username", json={"username": "shop"})
    content = graph.sim.snapshot._content()
    assert content["objects"][f"{NUMBER}/username"][""] == {"username": "shop"}


SAMPLES = Path(__file__).parents[2] / "messaging/tests/graph_samples.json"
"""The sample calls of Meta's documentation. `messaging/tests/test_graph_samples.py` names their sources."""
NOT_OF_THE_ACCOUNT = re.compile(
    r"\{(foreign|app|media)\}|debug_token|me/|oauth/|\{account\}/assigned_users|\{phone\}/messages_encrypted"
)
COEXISTENCE = "{phone}/smb_app_data"
"""The edge that works only for numbers in the WhatsApp Business app (`test_numbers.py`)."""
UNKNOWN = re.compile(r"Unknown path|Unsupported \w+ request|nonexisting field \((?!\))")
"""The Graph API's answers for unknown paths, nodes and fields."""


async def test_no_sample_of_the_documentation_is_unknown(graph: Graph) -> None:
    made = {
        "{template}": (f"{WABA}/message_templates", {
            "name": "greeting", "language": "en_US", "category": "UTILITY",
            "components": [{"type": "BODY", "text": "Hello there."}],
        }),
        "{flow}": (f"{WABA}/flows", {"name": "booking", "categories": ["OTHER"]}),
    }  # fmt: skip
    ids = {"{account}": WABA, "{phone}": NUMBER}
    for name, (path, body) in made.items():
        ids[name] = (await answer(graph, "POST", path, json=body))["id"]
    code = await answer(graph, "POST", f"{NUMBER}/message_qrdls", json={"prefilled_message": "Hello"})
    ids["{code}"] = code["code"]
    await answer(graph, "POST", f"{NUMBER}/groups", json={"messaging_product": "whatsapp", "subject": "a"})
    ids["{group}"] = (await answer(graph, "GET", f"{NUMBER}/groups"))["data"]["groups"][0]["id"]
    samples = json.loads(SAMPLES.read_bytes())
    unknown = []
    # Deletions come last. Nodes are deleted after the objects below them.
    for sample in sorted(
        samples, key=lambda each: each["method"] == "DELETE" and 2 - each["path"].count("/")
    ):
        path = sample["path"]
        if NOT_OF_THE_ACCOUNT.match(path) or path == COEXISTENCE:
            continue
        for name, value in ids.items():
            path = path.replace(name, value)
        given = {"params": sample.get("query"), "json": sample.get("json"), "data": sample.get("form")}
        status, content = await graph.call(sample["method"], path, **given)
        assert status < 500, (path, content)
        if UNKNOWN.search(str(content)):
            unknown.append(f"{sample['method']} {sample['path']} {content['error']['message'][:60]}")
    assert unknown == []
