"""Endpoints with `format: meta`: Meta's handshake, its notifications with one change each, its signature."""

import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web
from pytest_django import Settings
from standardwebhooks.webhooks import Webhook

from gateway import ids
from gateway.clock import isoformat, now
from gateway.upstream.notifications.normalise import EventDraft, normalise
from gateway.upstream.tests.notifications import BODIES, NAMES
from messaging.tests.incoming import notification, number_of, post, text_change
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.receiver import Received, Receiver
from webhooks.delivery import dispatcher
from webhooks.events import retention
from webhooks.events.envelope import EVENT_TYPES, OPERATIONAL_TYPES, Envelope
from webhooks.models import Delivery, Endpoint, Event
from webhooks.requests import cloud_api_form
from webhooks.tests.delivering import publish_one

WABA, NUMBER = "100200300400500", "200300400500600"
OWN_EVENTS = {
    "message.outbound",
    "message.history",
    "customer.opt_out",
    "batch.completed",
    "number.connection",
    "token.expiring",
    "token.invalid",
    *OPERATIONAL_TYPES,
}
with_database = pytest.mark.django_db(transaction=True)


def stored(draft: Any, raw: bytes, *, is_deleted: bool = False) -> Envelope:
    """An event in the form in which envelopes are read. Its notification may be deleted."""
    event_id = ids.encode(ids.EVENT, ids.uuid7())
    waba_id = orjson.loads(raw)["entry"][draft.entry].get("id")
    head = orjson.dumps({"id": event_id, "type": draft.type, "waba_id": waba_id})
    return Envelope(
        id=event_id,
        head=head,
        data=draft.data,
        raw=b"null" if is_deleted else raw,
        raw_path=draft.raw_path,
    )


def without_media_urls(data: bytes) -> Any:
    """`data` without the addresses of Meta or of the service."""
    value = orjson.loads(data)
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if {"url", "id", "mime_type"} <= each.keys():
                del each["url"]
            each.pop("kind", None) if each.get("kind") == "payment_status" else None
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return value


def _delivered(drafts: Iterable[EventDraft]) -> list[EventDraft]:
    """The drafts of items in the notification. An old message has no item of its own."""
    return [draft for draft in drafts if draft.type != "message.history"]


@pytest.mark.parametrize("name", NAMES)
def test_each_event_in_the_upstreams_form_is_the_same_event_again(name: str) -> None:
    body = BODIES[name]
    for change in normalise(body).changes:
        for draft in _delivered(change.drafts):
            sent = cloud_api_form.notification(stored(draft, body))
            again = normalise(sent)
            assert again.error is None
            (same,) = again.changes
            (made,) = _delivered(same.drafts)
            assert (made.type, made.wamid, made.wa_id, made.user_id, same.field) == (
                draft.type, draft.wamid, draft.wa_id, draft.user_id, change.field,
            )  # fmt: skip
            assert without_media_urls(made.data) == without_media_urls(draft.data)


COMPLETED = {
    "account_update__field_beside_changes",
    "account_update__field_inside_value",
    "account_update__field_missing",
    "account_update__without_value",
    "message_template_status_update__large_id",
    "message_template_status_update__quality_slip",
    "messages__interactive_address_reply",
    "messages__interactive_flow_reply",
    "messages__text_group",
    "standby__messages",
}
"""Notifications whose changes normalising completes or corrects."""


def test_a_change_with_one_event_has_the_members_that_the_upstream_gave_it() -> None:
    compared = 0
    for name in set(NAMES) - COMPLETED:
        entries = orjson.loads(BODIES[name])["entry"]
        for change in normalise(BODIES[name]).changes:
            drafts = _delivered(change.drafts)
            if len(drafts) != 1:
                continue
            (entry,) = orjson.loads(cloud_api_form.notification(stored(drafts[0], BODIES[name])))["entry"]
            place = re.match(r"entry\[(\d+)\]\.changes\[(\d+)\]", drafts[0].raw_path or "")
            assert place is not None
            given = entries[int(place[1])]["changes"][int(place[2])]
            (sent,) = entry["changes"]
            assert without_media_urls(orjson.dumps(sent)) == without_media_urls(orjson.dumps(given)), name
            if isinstance(given, dict) and isinstance(given["value"], dict):
                assert sent["value"].keys() == given["value"].keys(), name
                assert ("time" in entry) is not (drafts[0].raw_path or "").endswith("]"), name
                assert entry.get("time", time.time()) == pytest.approx(time.time(), abs=120), name
            compared += 1
    assert compared > 150


def test_a_single_message_is_written_as_the_upstream_wrote_it() -> None:
    body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
    ((draft,),) = [change.drafts for change in normalise(body).changes]
    assert orjson.loads(cloud_api_form.notification(stored(draft, body))) == orjson.loads(body)


def test_a_change_that_cannot_be_written_again_is_cut_out_of_the_notification() -> None:
    deep = b"[" * 300 + b"]" * 300
    change = b'{"field":"messages","value":{"messages":[{"id":"wamid.1","deep":' + deep + b"}]}}"
    body = b'{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[%b,%b]}]}' % (
        orjson.dumps(text_change(NUMBER, "wamid.2")),
        change,
    )
    draft = normalise(body).changes[1].drafts[0]
    sent = cloud_api_form.notification(stored(draft, body))
    assert change in sent
    assert b"wamid.2" not in sent
    without_content = orjson.loads(cloud_api_form.notification(stored(draft, body, is_deleted=True)))
    assert without_content["entry"] == [{"id": "1", "changes": [{"field": "messages"}]}]


@pytest.mark.parametrize(
    "change",
    [
        text_change(NUMBER, "wamid.1"),
        {"field": "smb_message_echoes", "value": {"message_echoes": [{"id": "wamid.1", "type": "text"}]}},
        {"field": "flows", "value": "not an object"},
    ],
    ids=["message", "echo", "no object"],
)
def test_a_change_is_written_without_its_notification(change: dict[str, Any]) -> None:
    body = notification((WABA, [change]))
    ((draft,),) = [each.drafts for each in normalise(body).changes]
    sent = orjson.loads(cloud_api_form.notification(stored(draft, body, is_deleted=True)))
    assert sent["entry"] == [{"id": WABA, "changes": [change]}]


@pytest.mark.parametrize("name", ["messages__text", "smb_message_echoes__text", "standby__messages"])
def test_media_are_at_the_services_own_address(name: str, settings: Settings) -> None:
    settings.BASE_URL = "https://gateway.example"

    def message_in(body: bytes) -> Any:
        value = orjson.loads(body)["entry"][0]["changes"][0]["value"]
        lists = {**value, **value.get("standby", {})}
        return next(lists[name][0] for name in ("messages", "message_echoes") if name in lists)

    def sent(media_id: str) -> Any:
        text = orjson.dumps({"text": message_in(BODIES[name])["text"]})[1:-1]
        content = {"mime_type": "image/jpeg", "url": "https://lookaside.example/x", "id": media_id}
        body = orjson.dumps(orjson.loads(BODIES[name])).replace(text, orjson.dumps({"image": content})[1:-1])
        draft = normalise(body).changes[0].drafts[0]
        return message_in(cloud_api_form.notification(stored(draft, body)))["image"]

    own = f"https://gateway.example/{settings.META_GRAPH_VERSION}/123456/content"
    assert sent("123456")["url"] == own
    assert "url" not in sent("no/../number")


def test_no_notification_has_metas_own_address_of_media_at_any_depth() -> None:
    replaced = set()
    for name, body in BODIES.items():
        for draft in (draft for change in normalise(body).changes for draft in _delivered(change.drafts)):
            sent = cloud_api_form.notification(stored(draft, body))
            assert b"lookaside" not in sent, name
            replaced.update([name] if b"/content" in sent else [])
    assert {"messages__image", "messages__edit"} <= replaced


def make(api: Api, receiver: Receiver, **members: Any) -> dict[str, Any]:
    answer = api.post(
        "/v1/webhooks", {"url": receiver.url, "format": "meta", "verify_token": "open sesame", **members}
    )
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def assert_signed(got: Received, secret: str) -> None:
    """Check both signatures: Meta's, with the text of the secret, and the service's own."""
    digest = hmac.new(secret.encode(), got.body, hashlib.sha256).hexdigest()
    assert got.headers["X-Hub-Signature-256"] == f"sha256={digest}"
    Webhook(secret).verify(got.body, {name.lower(): value for name, value in got.headers.items()})


@with_database
def test_the_handshake_is_the_upstreams(api: Api, receiver: Receiver) -> None:
    receiver.url += "?tenant=7"
    endpoint = make(api, receiver, headers={"X-Route": "7"})
    (ping,) = receiver.pings
    assert ping.headers["X-Route"] == "7"
    assert (endpoint["status"], endpoint["format"]) == ("active", "meta")
    assert "verify_token" not in endpoint
    assert ping.body == b""
    assert ping.query["tenant"] == "7"
    assert (ping.query["hub.mode"], ping.query["hub.verify_token"]) == ("subscribe", "open sesame")
    assert ping.query["hub.challenge"].isdigit()
    assert api.post(f"/v1/webhooks/{endpoint['id']}/verify").status_code == 200
    assert receiver.pings[1].query["hub.challenge"] != ping.query["hub.challenge"]


@with_database
@pytest.mark.parametrize(
    "answer",
    [
        lambda request: web.Response(text="0"),
        lambda request: web.Response(status=403, text=request.query["hub.challenge"]),
        lambda request: web.Response(text=f"challenge={request.query['hub.challenge']}"),
    ],
)
def test_another_answer_to_the_handshake_leaves_the_endpoint_pending(
    api: Api, receiver: Receiver, answer: Any
) -> None:
    receiver.ping_answer = answer
    body = {"url": receiver.url, "format": "meta", "verify_token": "t"}
    assert_error(api.post("/v1/webhooks", body), 422, "webhook_verify_failed")
    assert Endpoint.objects.get().status == "pending"


@with_database
def test_a_notification_arrives_in_the_upstreams_form_with_both_signatures(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = make(api, receiver)
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)
    assert post(notification((WABA, [text_change(NUMBER, "wamid.1", "wamid.2")]))).status_code == 200
    dispatcher.run()
    received = receiver.wait_for(2)
    assert sorted(got.json["entry"][0]["changes"][0]["value"]["messages"][0]["id"] for got in received) == [
        "wamid.1", "wamid.2",
    ]  # fmt: skip
    for got in received:
        (entry,) = got.json["entry"]
        assert (got.json["object"], entry["id"]) == ("whatsapp_business_account", WABA)
        (message,) = entry["changes"][0]["value"]["messages"]
        assert message["text"] == {"body": "Hello"}
        assert_signed(got, endpoint["secret"])

    rotated = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": 1}).json()
    delivery = api.get("/v1/webhook-deliveries").json()["data"][0]
    assert api.post(f"/v1/webhook-deliveries/{delivery['id']}/replay").json()["status"] == "delivered"
    again = receiver.received[-1]
    assert again.body in {got.body for got in received}
    assert_signed(again, rotated["secret"])


@with_database
def test_an_event_outlives_the_erasure_of_another_customer_in_its_notification(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    make(api, receiver)
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)
    post(notification((WABA, [text_change(NUMBER, "wamid.1", "wamid.2")])))
    retention.expunge(Event.objects.filter(wamid="wamid.1"))
    dispatcher.run()
    in_envelope, as_meta = sorted(
        (got.json for got in receiver.wait_for(2)), key=lambda body: "entry" in body
    )
    change = text_change(NUMBER, "wamid.2")
    assert in_envelope["data"]["message"] == change["value"]["messages"][0]
    assert (in_envelope["wamid"], in_envelope["raw"], in_envelope["raw_path"]) == ("wamid.2", None, None)
    assert as_meta["entry"] == [{"id": WABA, "changes": [change]}]
    states = sorted(Delivery.objects.values_list("status", "last_error"), key=str)
    assert states == [("dead", "payload_expired")] * 2 + [("delivered", None)] * 2


@with_database
def test_a_failed_delivery_is_retried_with_the_same_bytes(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    make(api, receiver)
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)
    receiver.answer = lambda request: web.Response(status=500)
    post(notification((WABA, [text_change(NUMBER, "wamid.1")])))
    dispatcher.run()
    receiver.wait_for(1)
    receiver.answer = lambda request: web.Response()
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    first, second = receiver.wait_for(2)
    assert first.body == second.body
    assert Delivery.objects.get().status == "delivered"


@with_database
def test_the_services_own_events_are_not_sent_in_the_upstreams_form(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    publish_one(tenant, "before", type="token.invalid", raw_path=None)
    endpoint = make(api, receiver)
    publish_one(tenant, "after", type="message.outbound", raw_path=None)
    assert not Delivery.objects.exists()
    hour = timedelta(hours=1)
    range_ = {"from": isoformat(now() - hour), "to": isoformat(now() + hour)}
    path = f"/v1/webhooks/{endpoint['id']}/replay"
    assert api.post(path, {**range_, "status": ["missed"], "preview": True}).json()["count"] == 0


@with_database
def test_examples_come_in_the_upstreams_form(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver)
    for event_type in EVENT_TYPES:
        answer = api.post(f"/v1/webhooks/{endpoint['id']}/test", {"event_type": event_type})
        if event_type in OWN_EVENTS:
            assert_error(answer, 400, "invalid_request")
            continue
        assert answer.json()["delivered"] is True
        got = receiver.received[-1]
        assert got.json == answer.json()["event"]
        assert got.json["object"] == "whatsapp_business_account"
        assert got.headers["X-Service-Test"] == "true"
        assert_signed(got, endpoint["secret"])


@with_database
def test_the_token_and_the_format_go_together(api: Api, receiver: Receiver) -> None:
    def refused(answer: Any, field: str) -> None:
        assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == [field]

    refused(api.post("/v1/webhooks", {"url": receiver.url, "format": "meta"}), "verify_token")
    refused(api.post("/v1/webhooks", {"url": receiver.url, "verify_token": "t"}), "verify_token")
    refused(api.post("/v1/webhooks", {"url": receiver.url, "format": "xml"}), "format")
    assert not Endpoint.objects.exists()

    meta, plain = make(api, receiver), api.post("/v1/webhooks", {"url": receiver.url}).json()
    refused(api.patch(f"/v1/webhooks/{plain['id']}", {"format": "meta"}), "format")
    refused(api.patch(f"/v1/webhooks/{plain['id']}", {"verify_token": "t"}), "verify_token")
    assert api.patch(f"/v1/webhooks/{meta['id']}", {"format": "meta"}).status_code == 200


@with_database
def test_a_new_token_is_taken_when_the_receiver_takes_it(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver)
    path = f"/v1/webhooks/{endpoint['id']}"
    receiver.ping_answer = lambda request: web.Response(
        text=request.query["hub.challenge"], status=200 if request.query["hub.verify_token"] == "new" else 403
    )
    assert_error(api.patch(path, {"verify_token": "newer"}), 422, "webhook_verify_failed")
    assert Endpoint.objects.get().verify_token == "open sesame"
    assert api.patch(path, {"verify_token": "new"}).status_code == 200
    assert Endpoint.objects.get().verify_token == "new"


@with_database
def test_a_token_that_no_key_opens_can_be_set_again(api: Api, receiver: Receiver, settings: Settings) -> None:
    endpoint = make(api, receiver)
    settings.ENCRYPTION_KEYS = ["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]
    path = f"/v1/webhooks/{endpoint['id']}"
    assert api.post(f"{path}/rotate-secret", {}).status_code == 200
    assert_error(api.post(f"{path}/verify"), 409, "conflict")
    assert api.get(path).json()["format"] == "meta"
    assert api.patch(path, {"verify_token": "new"}).status_code == 200
    assert api.post(f"{path}/verify").status_code == 200
