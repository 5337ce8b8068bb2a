"""The Cloud API front with complete sequences of calls: flows, resumable uploads, and the calls of Chatwoot and
Typebot.
"""

from typing import Any

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import Settings

from messaging.tests.incoming import notification, post, text_change
from messaging.tests.test_cloud_api import CUSTOMER, error_of, sent_bodies
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tests.fixtures import Api
from tests.receiver import Receiver
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db(transaction=True)

PICTURE = b"\xff\xd8\xff\xe0" + b"picture" * 1000


class TestFlows:
    @pytest.fixture
    def flow(self, api: Api, account: SimulatedAccount, number: PhoneNumber) -> str:
        body = {"name": "booking", "categories": ["APPOINTMENT_BOOKING"]}
        made = api.post(f"/v25.0/{account.waba_id}/flows", body)
        assert made.status_code == 200, made.content
        flow_id: str = made.json()["id"]
        return flow_id

    def test_a_flow_is_read_filled_changed_and_published_by_its_id(self, api: Api, flow: str) -> None:
        path = f"/v25.0/{flow}"
        assert api.get(f"{path}?fields=id,name").json() == {"id": flow, "name": "booking"}
        assert api.get(path).json()["status"] == "DRAFT"
        file = SimpleUploadedFile("flow.json", b'{"version": "7.2", "screens": []}', "application/json")
        form = {"name": "flow.json", "asset_type": "FLOW_JSON", "file": file}
        answer = api.client.post(f"{path}/assets", form, headers=api.headers)
        assert answer.json()["success"] is True, answer.content
        assert [row["name"] for row in api.get(f"{path}/assets").json()["data"]] == ["flow.json"]
        assert api.post(path, {"name": "appointments"}).json() == {"success": True}
        assert api.post(f"{path}/publish").json() == {"success": True}
        assert api.get(f"{path}?fields=name,status").json() == {
            "id": flow, "name": "appointments", "status": "PUBLISHED",
        }  # fmt: skip
        assert api.delete(path).status_code == 400, "the upstream deletes drafts alone"

    def test_a_call_has_one_file(self, api: Api, flow: str) -> None:
        form = {name: SimpleUploadedFile("flow.json", b"{}", "application/json") for name in ("file", "more")}
        answer = api.client.post(f"/v25.0/{flow}/assets", form, headers=api.headers)
        assert error_of(answer, 400, 100)["error_data"]["details"] == "more: A call can upload only one file."

    def test_a_draft_is_deleted(self, api: Api, flow: str) -> None:
        assert api.delete(f"/v25.0/{flow}").json() == {"success": True}
        error_of(api.get(f"/v25.0/{flow}?fields=id"), 400, 100, 33)


class TestResumableUploads:
    def session(self, api: Api) -> str:
        query = f"file_name=a.jpg&file_length={len(PICTURE)}&file_type=image/jpeg"
        answer = api.post(f"/v25.0/123456789/uploads?{query}")
        assert answer.status_code == 200, answer.content
        session: str = answer.json()["id"]
        assert session.startswith("upload:")
        return session

    def test_a_file_goes_up_under_the_callers_own_app_and_gives_a_handle(
        self, api: Api, key: api_keys.NewKey, account: SimulatedAccount, number: PhoneNumber
    ) -> None:
        session = self.session(api)
        assert api.get(f"/v25.0/{session}").json()["file_offset"] == 0
        answer = api.client.generic(
            "POST", f"/v25.0/{session}", PICTURE, "application/octet-stream",
            headers={"Authorization": f"OAuth {key.key}", "file_offset": "0"},
        )  # fmt: skip
        assert answer.status_code == 200, answer.content
        handle = answer.json()["h"]
        assert handle.startswith("4::")
        header = {"type": "HEADER", "format": "IMAGE", "example": {"header_handle": [handle]}}
        template = {
            "name": "picture",
            "language": "en_US",
            "category": "UTILITY",
            "components": [header, {"type": "BODY", "text": "Your order."}],
        }
        assert api.post(f"/v25.0/{account.waba_id}/message_templates", template).status_code == 200

    def test_an_interrupted_one_goes_on_also_where_a_proxy_drops_the_header_with_the_offset(
        self, api: Api, number: PhoneNumber
    ) -> None:
        session = self.session(api)

        def send(content: bytes, **headers: str) -> Any:
            return api.client.generic(
                "POST", f"/v25.0/{session}", content, "application/octet-stream",
                headers={**api.headers, **headers},
            )  # fmt: skip

        error_of(send(PICTURE[:100], file_offset="0"), 400, 100)
        assert api.get(f"/v25.0/{session}").json()["file_offset"] == 100
        for offset in ("7", "-1", "100.0"):
            error_of(send(PICTURE, file_offset=offset), 400, 100)
        assert send(PICTURE[100:]).json()["h"].startswith("4::")

    def test_what_is_wrong_is_named(self, api: Api, number: PhoneNumber) -> None:
        answer = api.post("/v25.0/123456789/uploads?file_type=image/jpeg")
        assert "file_length" in error_of(answer, 400, 131008)["error_data"]["details"]
        empty = api.post("/v25.0/123456789/uploads?file_type=image/jpeg&file_length=0")
        assert "file_length" in error_of(empty, 400, 100)["error_data"]["details"]
        assert api.post("/v25.0/123456789/uploads?file_type=image/jpeg&file_length=1").status_code == 200
        error_of(api.get("/v25.0/upload:bm90aGluZw?sig=AR0"), 400, 100, 33)
        error_of(api.post("/v25.0/upload:bm90aGluZw?sig=AR0", PICTURE), 400, 100, 33)
        error_of(api.get("/v25.0/upload:bm90aGluZw?sig=AR0%26x=1"), 400, 100)

    def test_without_a_key_or_an_account_nothing_is_uploaded(self, other_api: Api) -> None:
        error_of(Api(None).post("/v25.0/123456789/uploads?file_length=1&file_type=image/jpeg"), 401, 190)
        error_of(Api(None).get("/v25.0/upload:bm90aGluZw"), 401, 190)
        error_of(other_api.get("/v25.0/upload:bm90aGluZw"), 400, 100)


def test_chatwoots_calls(
    api: Api,
    key: api_keys.NewKey,
    account: SimulatedAccount,
    number: PhoneNumber,
    simulator: RunningSimulator,
    receiver: Receiver,
    settings: Settings,
) -> None:
    """Chatwoot sets up an inbox, syncs templates, replies, fetches a picture, and removes the inbox."""
    anonymous, phone = Api(None), number.phone_number_id
    override = {"override_callback_uri": receiver.url, "verify_token": "t"}
    assert api.post(f"/v22.0/{account.waba_id}/subscribed_apps", override).json()["success"] is True
    numbers = anonymous.get(f"/v22.0/{account.waba_id}/phone_numbers?access_token={key.key}").json()
    assert [row["id"] for row in numbers["data"]] == [phone]
    assert "code_verification_status" in api.get(f"/v22.0/{phone}").json()

    for name in ("one", "two", "three"):
        body = {"type": "BODY", "text": "Hello there."}
        made = {"name": name, "language": "en_US", "category": "UTILITY", "components": [body]}
        assert api.post(f"/v14.0/{account.waba_id}/message_templates", made).status_code == 200
    listed, url = [], f"/v14.0/{account.waba_id}/message_templates?limit=2&access_token={key.key}"
    while url:
        page = anonymous.get(url)
        assert page.status_code == 200, page.content
        assert account.access_token not in page.content.decode()
        listed += page.json()["data"]
        following = page.json().get("paging", {}).get("next")
        # For the next page, Chatwoot calls only this URL, which contains the credential.
        url = following and following.removeprefix(settings.BASE_URL)
        assert not url or url.startswith("/v14.0/"), "at the service's own address"
    assert {row["name"] for row in listed} >= {"one", "two", "three"}

    picture = {"phone_number_id": phone, "from": CUSTOMER, "type": "image"}
    inbound = simulator.control("POST", "inbound", picture)
    media_id = inbound["body"]["image"]["id"]
    change = text_change(phone, "wamid.picture")
    change["value"]["messages"][0] |= {"type": "image", "image": {"id": media_id, "mime_type": "image/png"}}
    assert post(notification((account.waba_id, [change]))).status_code == 200
    described = api.get(f"/v13.0/{media_id}?phone_number_id={phone}").json()
    content = api.get("/" + described["url"].split("/", 3)[3])
    assert len(b"".join(content.streaming_content)) == int(described["file_size"])

    head = {"messaging_product": "whatsapp", "context": None, "to": CUSTOMER}
    text = {**head, "text": {"body": "Thank you"}, "type": "text"}
    link = {**head, "type": "image", "image": {"link": "https://shop.example/p.jpg", "caption": None}}
    template = {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": CUSTOMER,
        "type": "template",
        "template": {
            "name": "hello_world",
            "language": {"policy": "deterministic", "code": "en_US"},
            "components": [],
        },
    }
    sends: list[dict[str, Any]] = [text, link]
    for body in sends:
        answer = api.post(f"/v13.0/{phone}/messages", body)
        assert answer.status_code == 200, answer.content
        assert answer.json()["messages"][0]["id"].startswith("wamid.")
    action = {"buttons": [{"type": "reply", "reply": {"id": "yes", "title": "Yes"}}]}
    interactive = {"type": "button", "body": {"text": "Ok?"}, "action": orjson.dumps(action).decode()}
    buttons = {
        "messaging_product": "whatsapp",
        "to": CUSTOMER,
        "type": "interactive",
        "interactive": interactive,
    }
    assert api.post(f"/v13.0/{phone}/messages", buttons).status_code == 200
    refused = api.post(f"/v13.0/{phone}/messages", template)
    assert "message" in error_of(refused, 404, 132001), "an inbox shows what the upstream says"
    assert sent_bodies(simulator, number) == [text, link, buttons, template], (
        "the action stays the text it was"
    )
    assert api.delete(f"/v22.0/{account.waba_id}/subscribed_apps").json() == {"success": True}


def test_typebots_calls(
    api: Api,
    key: api_keys.NewKey,
    account: SimulatedAccount,
    number: PhoneNumber,
    simulator: RunningSimulator,
    receiver: Receiver,
) -> None:
    """Typebot checks the token, finds the number, subscribes, shows a typing indicator, and uploads a picture."""
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    phone = number.phone_number_id
    token = api.get(f"/v17.0/debug_token?input_token={key.key}").json()["data"]
    assert {"app_id", "application", "expires_at", "scopes"} <= set(token)
    proof = "appsecret_proof=" + "0" * 64
    numbers = f"/v17.0/{account.waba_id}/phone_numbers?fields=id,display_phone_number&limit=100&{proof}"
    found = api.get(numbers)
    assert found.status_code == 200, found.content
    assert [(row["id"], bool(row["display_phone_number"])) for row in found.json()["data"]] == [(phone, True)]
    subscribed = f"/v17.0/{account.waba_id}/subscribed_apps?{proof}"
    assert api.client.post(subscribed, headers=api.headers).json() == {"success": True}
    [app] = api.get(subscribed).json()["data"]
    assert app["whatsapp_business_api_data"]["id"] == token["app_id"]

    inbound = simulator.control("POST", "inbound", {"phone_number_id": phone, "from": CUSTOMER, "text": "Hi"})
    typing = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": inbound["id"],
        "typing_indicator": {"type": "text"},
    }
    assert api.post(f"/v21.0/{phone}/messages", typing).json() == {"success": True}
    form = {
        "file": SimpleUploadedFile("blob", PICTURE, "image/jpeg"),
        "type": "image/jpeg",
        "messaging_product": "whatsapp",
    }
    uploaded = api.client.post(f"/v21.0/{phone}/media", form, headers=api.headers).json()["id"]
    image = {"messaging_product": "whatsapp", "to": CUSTOMER, "type": "image", "image": {"id": uploaded}}
    assert api.post(f"/v17.0/{phone}/messages", image).status_code == 200
    assert [orjson.loads(orjson.dumps(body)) for body in sent_bodies(simulator, number)][-1] == image
