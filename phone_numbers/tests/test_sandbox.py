"""`/v1/test/*` over HTTP, with a simulator as the sandbox: a number that is ready, customers who write, and isolation
of tenants.
"""

import base64
from typing import Any

import pytest

from phone_numbers.models import PhoneNumber, sandbox_number_id_of, sandbox_waba_id_of
from phone_numbers.sandbox import control
from phone_numbers.sandbox.bubbles import bubbles_of
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, wait_until
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("simulator")]


def world_of(tenant: Tenant) -> Api:
    return Api(api_keys.create(name="t", environment="test", tenant=tenant).key)


def test_the_first_call_makes_a_ready_number_and_only_one(tenant: Tenant) -> None:
    control.ensure(tenant.id)
    control.ensure(tenant.id)
    (number,) = world_of(tenant).get("/v1/numbers").json()["data"]
    assert (number["phone_number_id"], number["connection_state"]) == (
        sandbox_number_id_of(tenant.id),
        "connected",
    )


@pytest.mark.django_db(transaction=True)
def test_a_message_to_a_customer_and_the_answer(tenant: Tenant, simulator: RunningSimulator) -> None:
    api = world_of(tenant)
    said = api.post("/v1/test/inbound", {"from": "919812345678", "text": "Hello"})
    assert said.status_code == 201
    number = said.json()["phone_number_id"]
    sent = api.post(
        "/v1/messages",
        {"from": number, "to": "919812345678", "type": "text", "text": {"body": "Welcome"}},
    )
    assert sent.status_code == 200, "a number of the test world needs no endpoint"
    rows = api.get("/v1/test/conversations?customer=919812345678").json()["data"]
    assert [row["direction"] for row in rows] == ["outbound", "inbound"]
    assert rows[1]["id"] == said.json()["id"]


def test_every_type_of_message_can_come(tenant: Tenant) -> None:
    api = world_of(tenant)
    for kind in ("image", "audio", "document", "location", "contacts", "interactive", "button", "order"):
        answer = api.post("/v1/test/inbound", {"from": "919812345678", "type": kind})
        assert answer.status_code == 201, kind
    file = {"data": base64.b64encode(b"parcel").decode(), "mime_type": "image/png"}
    for given in (
        {"image": file},
        {"button": {"payload": "yes", "text": "Yes"}},
        {"text": {"body": "Hello"}},
    ):
        assert api.post("/v1/test/inbound", {"from": "919812345678", **given}).status_code == 201
    said = api.get("/v1/test/conversations?limit=3").json()["data"]
    assert [row["body"]["type"] for row in said] == ["text", "button", "image"], (
        "the type is that of the object"
    )
    assert_error(api.post("/v1/test/inbound", {"from": "1", "type": "reaction"}), 400, "invalid_request")
    assert_error(api.post("/v1/test/inbound", {"text": "x"}), 400, "invalid_request")


def test_every_answer_that_a_phone_offers_can_be_sent(tenant: Tenant) -> None:
    customer, row = "919812345678", {"id": "r", "title": "Red kite", "description": "With a tail"}
    items = [{"product_retailer_id": sku} for sku in ("RED", "BLUE")]
    offers: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "button": ({"buttons": [{"type": "reply", "reply": {"id": "b", "title": "Yes"}}]}, {"Yes": "Yes"}),
        "list": ({"sections": [{"rows": [row]}]}, {"Red kite": "With a tail"}),
        "location_request_message": ({}, {"Send location": "Cubbon Park"}),
        "contact_request": ({}, {"Share my number": "Ravi Kumar"}),
        "flow": ({"parameters": {"flow_cta": "Book"}}, {"Book": '{"answer":"yes"}'}),
        "address_message": ({}, {"Give address": "Sent"}),
        "call_permission_request": ({}, {"Allow calls": "Calls: accept", "Do not allow": "Calls: reject"}),
        "product": ({"product_retailer_id": "RED"}, {"Order": "1 × RED, 100 INR"}),
        "product_list": ({"sections": [{"product_items": items}]}, {"Order": "1 × BLUE, 100 INR"}),
        "catalog_message": ({}, {"Order": "1 × SKU-1, 100 INR"}),
        "cta_url": ({"parameters": {"url": "https://shop.example", "display_text": "Open"}}, {}),
    }
    asked = {"id": "wamid.a", "direction": "outbound", "timestamp": 1.0, "status": "sent"}
    for kind, (action, answers) in offers.items():
        content = {"type": kind, "body": {"text": "Which?"}, "action": action}
        (offered,) = bubbles_of([{**asked, "body": {"type": "interactive", "interactive": content}}])
        assert [choice.label for choice in offered.choices] == list(answers)
        assert offered.links == ([("Open", "https://shop.example")] if kind == "cta_url" else [])
        for choice, answer in zip(offered.choices, answers.values(), strict=True):
            control.write(tenant.id, {"from": customer, **choice.says})
            newest = control.messages(tenant.id, phone_number_id=None, customer=customer, limit=1)
            (drawn,) = bubbles_of(newest)
            assert answer in [drawn.head, *drawn.lines], kind


def test_an_unknown_member_of_a_customers_message_is_named(tenant: Tenant) -> None:
    api = world_of(tenant)
    answer = api.post("/v1/test/inbound", {"from": "919812345678", "txt": "Hello"})
    fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
    assert "Did you mean text?" in fields["txt"][0]
    pasted = {
        "from": "919812345678",
        "from_user_id": "IN.1",
        "id": "wamid.1",
        "timestamp": "1",
        "text": {"body": "x"},
    }
    assert api.post("/v1/test/inbound", pasted).status_code == 201


def test_nobody_reaches_anothers_world(tenant: Tenant, other_tenant: Tenant) -> None:
    api, other = world_of(tenant), world_of(other_tenant)
    api.post("/v1/test/inbound", {"from": "919812345678", "text": "mine"})
    foreign = sandbox_number_id_of(tenant.id)
    assert_error(
        other.post("/v1/test/inbound", {"from": "1234567", "phone_number_id": foreign}), 404, "not_found"
    )
    assert_error(other.get(f"/v1/test/conversations?phone_number_id={foreign}"), 404, "not_found")
    assert other.get("/v1/test/conversations").json()["data"] == []


def test_a_number_connected_elsewhere_is_not_in_the_sandbox(
    tenant: Tenant, simulator: RunningSimulator
) -> None:
    api = world_of(tenant)
    account = simulator.account()
    answer = api.post(
        "/v1/numbers/connect", {"waba_id": account.waba_id, "access_token": account.access_token}
    )
    assert answer.json()["numbers"][0]["connection_detail"] == "no_verified_endpoint"
    body = {"from": "1234567", "phone_number_id": account.phone_number_id}
    assert_error(api.post("/v1/test/inbound", body), 404, "not_found")


def test_live_keys_have_no_sandbox(api: Api) -> None:
    for answer in (
        api.get("/v1/test/recipients"),
        api.get("/v1/test/texts"),
        api.post("/v1/test/statuses", {"message_id": "x", "status": "read"}),
        api.post("/v1/test/templates", {"template_id": "x", "event": "PAUSED"}),
        api.post("/v1/test/number-events", {"event": "FLAGGED"}),
        api.get("/v1/test/conversations"),
        api.post("/v1/test/numbers"),
        api.post("/v1/test/inbound", {"from": "1234567"}),
    ):
        assert_error(answer, 400, "invalid_request")


def test_more_numbers_up_to_the_bound(tenant: Tenant) -> None:
    api = world_of(tenant)
    made = [api.post("/v1/test/numbers") for _ in range(control.MOST_NUMBERS)]
    assert [answer.status_code for answer in made] == [201] * (control.MOST_NUMBERS - 1) + [400]
    assert made[0].json()["connection_state"] == "connected"
    assert (
        PhoneNumber.objects.filter(account__waba_id=sandbox_waba_id_of(tenant.id)).count()
        == control.MOST_NUMBERS
    )


def test_a_number_added_after_a_release_is_new_and_counts(tenant: Tenant) -> None:
    """The simulator still has the released number, so the sandbox gets it again with the new number."""
    api = world_of(tenant)
    released = api.post("/v1/test/numbers").json()["phone_number_id"]
    assert api.delete(f"/v1/numbers/{released}").status_code == 200
    added = api.post("/v1/test/numbers", {"coexistence": True}).json()["phone_number_id"]
    assert added != released
    assert PhoneNumber.objects.get(phone_number_id=added).coexistence
    assert api.delete(f"/v1/numbers/{released}").status_code == 200
    made = [api.post("/v1/test/numbers").status_code for _ in range(control.MOST_NUMBERS - 2)]
    assert made == [201] * (control.MOST_NUMBERS - 3) + [400]
    assert PhoneNumber.objects.count() == control.MOST_NUMBERS


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("to", "status", "code"),
    [("+919800000030", 400, 131030), ("+919800000429", 429, 130429), ("+919800000015", 400, 132015)],
)
def test_magic_recipients_are_refused_as_listed(tenant: Tenant, to: str, status: int, code: int) -> None:
    api = world_of(tenant)
    assert any(
        row["to"] == to and row["code"] == code for row in api.get("/v1/test/recipients").json()["data"]
    )
    number = api.post("/v1/test/inbound", {"from": "919812345678", "text": "x"}).json()["phone_number_id"]
    answer = api.post("/v1/messages", {"from": number, "to": to, "type": "text", "text": {"body": "x"}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_without_the_sandbox_it_is_502(tenant: Tenant, simulator: RunningSimulator, settings: object) -> None:
    settings.SANDBOX_GRAPH_URL = "http://127.0.0.1:9"  # type: ignore[attr-defined]
    answer = world_of(tenant).post("/v1/test/inbound", {"from": "1234567"})
    assert_error(answer, 502, "meta_unreachable")


@pytest.mark.django_db(transaction=True)
def test_magic_texts_do_what_their_list_says(tenant: Tenant, simulator: RunningSimulator) -> None:
    """The simulator does what the list says of each text: it answers, reports a status, or rejects the message."""
    simulator.control("PUT", "settings", {"preset": "instant", "throttling": {"pair": False}})
    api = world_of(tenant)
    listed = [row["text"] for row in api.get("/v1/test/texts").json()["data"]]
    number = control.ensure(tenant.id)[0].phone_number_id
    replies = [{"type": "reply", "reply": {"id": f"b{n}", "title": f"Choice {n}"}} for n in (1, 2)]
    sent: dict[str, Any] = {}
    for place, text in enumerate(listed):
        to = f"9198123{place:05d}"
        asked = {"type": "button", "body": {"text": text}, "action": {"buttons": replies}}
        answer = api.post(
            "/v1/messages", {"from": number, "to": to, "type": "interactive", "interactive": asked}
        )
        sent[to] = (text, answer.status_code)

    def unlike_others() -> set[str]:
        rows = api.get("/v1/test/conversations?limit=200").json()["data"]
        ordinary = {row["customer"] for row in rows if row["status"] == "read"}
        answered = {row["customer"] for row in rows if row["direction"] == "inbound" or row["reaction"]}
        return {
            text
            for to, (text, status) in sent.items()
            if status != 200 or to in answered or to not in ordinary
        }

    wait_until(lambda: unlike_others() == set(listed), "a listed text is ordinary to the simulator")


def test_a_customer_corrects_and_takes_back_a_message(tenant: Tenant) -> None:
    api = world_of(tenant)
    said = api.post("/v1/test/inbound", {"from": "919812345678", "text": "Helo"}).json()
    edit = {"original_message_id": said["id"]}
    for body in (
        {"type": "edit", "edit": edit, "text": "Hello"},
        {"type": "revoke", "revoke": edit},
    ):
        assert api.post("/v1/test/inbound", {"from": "919812345678", **body}).status_code == 201
    (row,) = api.get("/v1/test/conversations").json()["data"]
    assert (row["id"], row["change"], row["body"]["text"]) == (said["id"], "deleted", {"body": "Hello"})


@pytest.mark.django_db(transaction=True)
def test_a_status_can_be_set(tenant: Tenant, other_tenant: Tenant) -> None:
    api, other = world_of(tenant), world_of(other_tenant)
    number = control.ensure(tenant.id)[0].phone_number_id
    text = {"from": number, "to": "+919812345678", "type": "text", "text": {"body": "#silent"}}
    wamid = api.post("/v1/messages", text).json()["messages"][0]["id"]
    assert api.post("/v1/test/statuses", {"message_id": wamid, "status": "played"}).json() == {
        "id": wamid,
        "status": "played",
    }
    failed = {"message_id": wamid, "status": "failed", "code": 131049}
    assert api.post("/v1/test/statuses", failed).json()["status"] == "failed"
    assert_error(other.post("/v1/test/statuses", failed), 404, "not_found")
    assert_error(api.post("/v1/test/statuses", {**failed, "message_id": "../x"}), 404, "not_found")
    assert_error(api.post("/v1/test/statuses", {**failed, "status": "sent"}), 400, "invalid_request")
    assert_error(api.post("/v1/test/statuses", {**failed, "status": "lost"}), 400, "invalid_request")


def test_a_template_can_be_decided_about(tenant: Tenant, other_tenant: Tenant) -> None:
    api, other = world_of(tenant), world_of(other_tenant)
    control.ensure(tenant.id)
    body = {
        "name": "order_update",
        "language": "en",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Your order is on its way."}],
    }
    template_id = api.post("/v1/templates", body).json()["id"]
    paused = {"template_id": template_id, "event": "PAUSED"}
    assert api.post("/v1/test/templates", paused).json()["status"] == "PAUSED"
    assert api.post("/v1/test/templates", {"template_id": template_id, "quality": "RED"}).status_code == 201
    moved = {"template_id": template_id, "category": "MARKETING"}
    assert api.post("/v1/test/templates", moved).json()["category"] == "MARKETING"
    assert_error(other.post("/v1/test/templates", paused), 404, "not_found")
    assert_error(api.post("/v1/test/templates", {**paused, "quality": "RED"}), 400, "invalid_request")
    assert_error(api.post("/v1/test/templates", {"template_id": template_id}), 400, "invalid_request")
    for reasoned in ({"quality": "RED"}, {"category": "MARKETING"}):
        asked = {"template_id": template_id, "reason": "ABUSIVE_CONTENT", **reasoned}
        fields = assert_error(api.post("/v1/test/templates", asked), 400, "invalid_request")["details"][
            "fields"
        ]
        assert list(fields) == ["reason"]
    deleted = {"template_id": template_id, "event": "DELETED"}
    assert api.post("/v1/test/templates", deleted).json()["status"] == "DELETED"
    assert api.post("/v1/templates/sync").status_code == 200
    assert api.get("/v1/templates").json()["data"] == []


def test_a_number_can_be_decided_about(tenant: Tenant, other_tenant: Tenant) -> None:
    api, other = world_of(tenant), world_of(other_tenant)
    flagged = {"phone_number_id": control.ensure(tenant.id)[0].phone_number_id, "event": "FLAGGED"}
    assert api.post("/v1/test/number-events", flagged).json()["quality_rating"] == "RED"
    assert api.post("/v1/test/number-events", {"event": "UNFLAGGED"}).json()["quality_rating"] == "GREEN"
    assert_error(other.post("/v1/test/number-events", flagged), 404, "not_found")
    assert_error(api.post("/v1/test/number-events", {"event": "SOLD"}), 400, "invalid_request")


@pytest.mark.parametrize("event", ["APP_REMOVED", "APP_RECONNECTED"])
def test_an_event_of_the_app_is_refused_at_a_number_without_it(tenant: Tenant, event: str) -> None:
    assert_error(world_of(tenant).post("/v1/test/number-events", {"event": event}), 400, "invalid_request")
    assert control.ensure(tenant.id)[0].connection_state == "connected"


def test_the_app_of_a_coexistence_number_is_removed_and_comes_back(tenant: Tenant) -> None:
    number = control.add_number(tenant.id, coexistence=True)
    for event in ("APP_REMOVED", "APP_RECONNECTED"):
        asked = {"event": event, "phone_number_id": number.phone_number_id}
        assert world_of(tenant).post("/v1/test/number-events", asked).status_code == 201
