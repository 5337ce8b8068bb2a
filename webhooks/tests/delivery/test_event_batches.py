"""Several events in one request: when the request is sent, that all or none of its events are accepted, and that a
customer's messages are collected.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from gateway.clock import now
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.pages import ROOT
from tests.receiver import Received, Receiver
from tests.sdk_import import sdk_from
from webhooks.delivery import dispatcher
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import claim
from webhooks.events import retention
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests.delivering import publish_one
from webhooks.tests.endpoints.test_lifecycle import verifies
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)


def make(api: Api, receiver: Receiver, **given: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {"url": receiver.url, **given})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def keys(request: Received) -> list[str]:
    assert request.json["type"] == request.headers["X-Service-Event-Type"] == "events"
    return [event["dedupe_key"] for event in request.json["events"]]


def publish(tenant: Tenant, names: Sequence[str], **members: Any) -> None:
    for name in names:
        publish_one(tenant, name, **members)


def test_a_request_holds_as_many_as_there_are_up_to_its_limit(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = make(api, receiver, batch={"events": 4, "milliseconds": 100})
    publish(tenant, [f"k{n}" for n in range(10)])
    dispatcher.run()
    assert sorted(len(keys(got)) for got in receiver.received) == [2, 4, 4]
    assert sorted(key for got in receiver.received for key in keys(got)) == [f"k{n}" for n in range(10)]
    assert all(verifies(endpoint["secret"], got) for got in receiver.received)
    ids = {got.headers["webhook-id"] for got in receiver.received}
    assert (len(ids), {id_[:4] for id_ in ids}) == (3, {"evs_"})
    event = receiver.received[0].json["events"][0]
    assert event == api.get(f"/v1/events/{event['id']}").json()["event"]
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 1)}
    api.post(f"/v1/webhooks/{endpoint['id']}/test", {"event_type": "message.status"})
    api.post(f"/v1/webhook-deliveries/{Delivery.objects.all()[0].public_id}/replay")
    assert [len(keys(got)) for got in receiver.received[3:]] == [1, 1]


def test_a_failed_request_is_one_failure_and_its_events_come_again_together(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    make(api, receiver, batch={"events": 20})
    receiver.answer = lambda _: web.Response(status=500, text="no")
    publish(tenant, [f"k{n}" for n in range(12)])
    dispatcher.run()
    (first,) = receiver.received
    assert set(Delivery.objects.values_list("status", "last_http_status")) == {("failed", 500)}
    assert len(set(Delivery.objects.values_list("next_attempt_at", flat=True))) == 1
    endpoint = Endpoint.objects.get()
    assert (endpoint.consecutive_failures, endpoint.circuit_open_until) == (1, None)
    receiver.answer = lambda _: web.Response()
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    again = receiver.received[1]
    assert keys(again) == keys(first) == [f"k{n}" for n in range(12)]
    assert again.headers["webhook-id"] == first.headers["webhook-id"]
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 2)}


def test_what_is_past_retention_leaves_the_others_of_its_request(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    make(api, receiver, batch={"events": 3})
    publish(tenant, ["k0", "k1"])
    gone = Delivery.objects.order_by("event_id")[0]
    retention.expunge(Event.objects.filter(pk=gone.event_id))
    dispatcher.run()
    assert [keys(got) for got in receiver.received] == [["k1"]]
    states = dict(Delivery.objects.values_list("event_id", "last_error"))
    assert states.pop(gone.event_id) == "payload_expired"
    assert list(states.values()) == [None]


def test_a_customers_messages_are_collected_from_the_first_on(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = make(api, receiver, ordered=True, quiet_seconds=10)
    asha = {"phone_number_id": "1", "wa_id": "919800000001"}
    ravi = {"phone_number_id": "1", "wa_id": "919800000002"}
    publish(tenant, ["a1", "a2"], **asha)
    publish(tenant, ["r1"], **ravi)
    publish(tenant, ["s1"], **ravi, type="message.status")
    dispatcher.run()
    assert receiver.received == [], "the status waits behind the message of its customer"
    (first, *_) = Delivery.objects.order_by("event_id")
    wait = (first.next_attempt_at or now()) - now()
    assert timedelta(seconds=5) < wait <= timedelta(seconds=10)
    # The collection of Asha's messages ends when her first message is due, although the second is due later.
    Delivery.objects.filter(pk=first.pk).update(next_attempt_at=now())
    dispatcher.run()
    assert [keys(got) for got in receiver.received] == [["a1", "a2"]]
    receiver.answer = lambda _: web.Response(status=503)
    Delivery.objects.filter(status="pending").update(next_attempt_at=now())
    dispatcher.run()
    assert keys(receiver.received[1]) == ["r1", "s1"]
    publish(tenant, ["r2"], **ravi)
    receiver.answer = lambda _: web.Response()
    Delivery.objects.filter(status="failed").update(next_attempt_at=now())
    dispatcher.run()
    assert [keys(got) for got in receiver.received[2:]] == [["r1", "s1", "r2"]]
    publish(tenant, ["s2"], **asha, type="message.status")
    dispatcher.run()
    assert keys(receiver.received[3]) == ["s2"], "other events do not wait"
    assert api.get(f"/v1/webhooks/{endpoint['id']}").json()["quiet_seconds"] == 10


@pytest.mark.parametrize(
    ("second", "claimed"),
    [
        ({}, 3),
        ({"status": "failed", "attempts": 1}, 1),
        ({"leased_until": "2999-01-01T00:00:00Z"}, 0),
    ],
)
def test_only_messages_that_were_never_sent_leave_with_the_first_one(
    tenant: Tenant, second: dict[str, Any], claimed: int
) -> None:
    endpoint_of(tenant, ordered=True, quiet_seconds=10)
    publish(tenant, ["a1", "a2", "a3"], phone_number_id="1", wa_id="919800000001")
    rows = list(Delivery.objects.order_by("event_id"))
    Delivery.objects.filter(pk=rows[0].pk).update(next_attempt_at=now())
    Delivery.objects.filter(pk=rows[1].pk).update(**second)
    assert len(claim(Room(10, 10))) == claimed


@pytest.mark.parametrize(
    ("given", "members"),
    [
        ({"batch": {"events": 1}}, {"batch.events"}),
        ({"batch": {"events": 101}}, {"batch.events"}),
        ({"batch": {"events": 5, "milliseconds": 1001}}, {"batch.milliseconds"}),
        ({"batch": {}}, {"batch.events"}),
        ({"batch": {"events": 5}, "ordered": True}, {"batch"}),
        ({"quiet_seconds": 5}, {"quiet_seconds"}),
        ({"quiet_seconds": 61, "ordered": True}, {"quiet_seconds"}),
        ({"quiet_seconds": 5, "ordered": True, "rate_per_second": 9}, {"rate_per_second"}),
        ({"batch": {"events": 5}, "format": "meta", "verify_token": "x"}, {"format"}),
    ],
)
def test_what_does_not_go_together_is_refused(
    api: Api, receiver: Receiver, given: dict[str, Any], members: set[str]
) -> None:
    answer = api.post("/v1/webhooks", {"url": receiver.url, **given})
    assert set(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == members
    assert not Endpoint.objects.exists()


def test_a_change_is_checked_with_what_stays(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver, batch={"events": 5})
    path = f"/v1/webhooks/{endpoint['id']}"
    assert endpoint["batch"] == {"events": 5, "milliseconds": 200}
    assert_error(api.patch(path, {"ordered": True}), 400, "invalid_request")
    changed = api.patch(path, {"ordered": True, "batch": None, "quiet_seconds": 3}).json()
    assert (changed["batch"], changed["quiet_seconds"]) == (None, 3)
    assert_error(api.patch(path, {"ordered": False}), 400, "invalid_request")


def test_the_sdk_reads_the_list(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    endpoint = make(api, receiver, batch={"events": 5})
    publish(tenant, ["k0", "k1"])
    dispatcher.run()
    with sdk_from(ROOT / "sdks/python/src") as sdk:
        verifier = sdk.WebhookVerifier(endpoint["secret"])
        events = verifier.verify_all(receiver.received[0].body, receiver.received[0].headers)
        pings = verifier.verify_all(receiver.pings[0].body, receiver.pings[0].headers)
    assert {event["dedupe_key"] for event in events} == {"k0", "k1"}
    assert orjson.loads(receiver.pings[0].body) == pings[0]


@pytest.mark.parametrize("given", [{"batch": {"events": 9}}, {"ordered": True, "quiet_seconds": 60}])
def test_a_call_comes_alone_and_waits_for_no_messages(
    api: Api, tenant: Tenant, receiver: Receiver, given: dict[str, Any]
) -> None:
    make(api, receiver, **given)
    asha = {"phone_number_id": "1", "wa_id": "919800000001"}
    publish(tenant, ["m1"], **asha)
    # More calls than an endpoint's share of the lane of calls.
    calls = [f"call:wacid.{n}:connect" for n in range(12)]
    publish(tenant, calls, **asha, type="meta.other")
    dispatcher.run()
    got = [keys(each) for each in receiver.received]
    assert sorted(each for each in got if each != ["m1"]) == sorted([name] for name in calls)


@pytest.mark.parametrize("given", [{"batch": {"events": 9}}, {"ordered": True, "quiet_seconds": 1}])
def test_large_bodies_are_shared_out_over_requests_in_their_order(
    api: Api, tenant: Tenant, receiver: Receiver, given: dict[str, Any]
) -> None:
    make(api, receiver, **given)
    large = b'{"text": "%b"}' % (b"x" * 600_000)
    for name in ("k1", "k2", "k3"):
        publish_one(tenant, name, phone_number_id="1", wa_id="919800000001", data=large)
    Delivery.objects.update(next_attempt_at=now())
    for _ in range(2):
        dispatcher.run()
    requests = [keys(got) for got in receiver.received]
    if given.get("ordered"):
        assert requests == [["k1", "k2"], ["k3"]]
    # Without order, any two events may share a request, because all are due at the same moment.
    assert sorted(map(len, requests)) == [1, 2]
    assert sorted(name for request in requests for name in request) == ["k1", "k2", "k3"]
    assert all(request == sorted(request) for request in requests)
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 1)}
