"""`POST /v1/webhooks/{id}/test`: an example of each type reaches the endpoint, and leaves nothing behind."""

from typing import Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.receiver import Receiver
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event

pytestmark = pytest.mark.django_db(transaction=True)


def send(api: Api, endpoint: dict[str, Any], **body: Any) -> Any:
    return api.post(f"/v1/webhooks/{endpoint['id']}/test", body)


def test_each_type_arrives_signed_and_marked_and_leaves_nothing_behind(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    before = Endpoint.objects.values().get()
    for kind in EVENT_TYPES:
        answer = send(api, endpoint, event_type=kind)
        assert answer.status_code == 200, answer.content
        body = answer.json()
        assert (body["delivered"], body["http_status"], body["body_excerpt"]) == (True, 200, "ok")
        got = receiver.received[-1]
        Webhook(endpoint["secret"]).verify(
            got.body, {name.lower(): value for name, value in got.headers.items()}
        )
        assert got.json == body["event"]
        assert (got.json["type"], got.json["tenant_id"], got.json["test"]) == (kind, str(tenant.id), True)
        assert list(got.json)[-1] == "test"
        assert got.headers["webhook-id"] == got.json["id"]
        assert got.headers["X-Service-Test"] == "true"
        assert got.headers["X-Service-Event-Type"] == kind
    assert len({got.json["dedupe_key"] for got in receiver.received}) == len(EVENT_TYPES)
    assert Endpoint.objects.values().get() == before
    assert not Event.objects.exists()
    assert not Delivery.objects.exists()


def test_what_the_receiver_said_is_in_the_answer_and_does_not_count(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500, text="no such table")
    body = send(api, endpoint, event_type="message.status").json()
    assert (body["delivered"], body["http_status"], body["error"]) == (False, 500, "http_5xx")
    assert body["body_excerpt"] == "no such table"
    assert Endpoint.objects.get().consecutive_failures == 0


def test_an_endpoint_that_is_not_verified_can_be_tried(api: Api, receiver: Receiver) -> None:
    endpoint = api.post("/v1/webhooks", {"url": receiver.url, "status": "pending"}).json()
    assert send(api, endpoint, event_type="message.inbound").json()["delivered"] is True


@pytest.mark.parametrize("body", [{}, {"event_type": "*"}, {"event_type": "message.unknown"}])
def test_an_unknown_type_is_named(
    api: Api, endpoint: dict[str, Any], receiver: Receiver, body: dict[str, Any]
) -> None:
    answer = send(api, endpoint, **body)
    assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == ["event_type"]
    assert receiver.received == []
