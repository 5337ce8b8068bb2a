"""Deliveries from publishing to the tenant's server: signed, byte for byte, retried, isolated, fenced."""

import asyncio
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web
from django.conf import settings as service
from django.db import connection, transaction
from django.db.models import F
from standardwebhooks.webhooks import Webhook

from gateway import ids
from gateway.clock import now
from tenants.models import Tenant
from tests.database_settings import read_only_for
from tests.fixtures import Api
from tests.receiver import Received, Receiver
from webhooks.delivery import dispatcher
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import claim
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Endpoint, Event
from webhooks.requests.signed_request import new_secret
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_event_arrives_signed_with_the_envelope_of_the_specification(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    event_id = publish_one(
        tenant, raw=b'{ "odd" : "\\u00e9 \\/" , "big": 12345678901234567890 }', wamid="wamid.1"
    )
    dispatcher.run()
    (got,) = receiver.wait_for(1)
    verified = Webhook(endpoint["secret"]).verify(got.body, {k.lower(): v for k, v in got.headers.items()})
    assert list(verified) == [
        "id", "type", "api_version", "created_at", "tenant_id", "waba_id", "phone_number_id",
        "display_phone_number", "wamid", "wa_id", "user_id", "dedupe_key", "data", "raw", "raw_path",
    ]  # fmt: skip
    assert got.headers["webhook-id"] == verified["id"] == ids.encode("evt_", event_id)
    assert b'"raw":{ "odd" : "\\u00e9 \\/" , "big": 12345678901234567890 },"raw_path":"x"}' in got.body
    assert (
        b'"data":{"message": {"id": "wamid.A", "timestamp": "1", "type": "text", "text": {"body": "Hi"}}, "a": 1.10}'
        in got.body
    )
    assert got.headers["X-Service-Event-Type"] == "message.inbound"
    assert got.headers["X-Service-Attempt"] == "1"
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["User-Agent"] == f"{service.SERVICE_NAME}/{service.API_VERSION}"
    delivery = Delivery.objects.get()
    assert got.headers["X-Service-Delivery"] == delivery.public_id
    assert (delivery.status, delivery.attempts, delivery.last_http_status) == ("delivered", 1, 200)
    assert delivery.next_attempt_at is None
    (entry,) = delivery.attempt_log
    assert set(entry) == {"at", "http_status", "ms", "error"}


def test_a_failure_is_retried_on_schedule_with_the_same_bytes(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500, text="broken\0")
    publish_one(tenant, raw=b"{}")
    dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.attempts, delivery.last_error) == ("failed", 1, "http_5xx")
    assert delivery.next_attempt_at is not None
    assert timedelta(seconds=2) < delivery.next_attempt_at - now() < timedelta(seconds=6.1)

    receiver.answer = lambda request: web.Response(text="ok")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    first, second = receiver.wait_for(2)
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert second.headers["X-Service-Attempt"] == "2"
    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempts, delivery.last_error) == ("delivered", 2, None)
    assert [entry["http_status"] for entry in delivery.attempt_log] == [500, 200]


def test_after_the_last_step_a_delivery_is_dead(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
) -> None:
    settings.WEBHOOK_RETRY_SCHEDULE = [5.0, 30.0]
    receiver.answer = lambda request: web.Response(status=404)
    publish_one(tenant)
    for _ in range(3):
        Delivery.objects.update(next_attempt_at=now())
        dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.attempts, delivery.next_attempt_at) == ("dead", 3, None)
    dispatcher.run()
    assert len(receiver.received) == 3


def test_a_gone_endpoint_is_disabled(tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver) -> None:
    receiver.answer = lambda request: web.Response(status=410)
    publish_one(tenant)
    dispatcher.run()
    assert Delivery.objects.get().status == "dead"
    assert Endpoint.objects.get().status == "disabled"
    publish_one(tenant, "k2")
    assert Delivery.objects.count() == 1


def test_an_endpoint_that_cannot_be_disabled_loses_no_outcome(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=410)
    publish_one(tenant)
    with read_only_for(1, "INSERT ON tenants_auditentry"):
        dispatcher.run()
        assert Endpoint.objects.get().status == "active"
        publish_one(tenant, "k2")
        dispatcher.run()
    assert set(Delivery.objects.values_list("status", "attempts")) == {("dead", 1)}
    assert Endpoint.objects.get().status == "disabled"


def test_an_event_goes_only_to_endpoints_that_want_it(
    api: Api, tenant: Tenant, other_tenant: Tenant, other_api: Api, receiver: Receiver
) -> None:
    for path, types in (("all", ["*"]), ("statuses", ["message.status"]), ("inbound", ["message.inbound"])):
        api.post("/v1/webhooks", {"url": f"{receiver.url}/{path}", "event_types": types})
    other_api.post("/v1/webhooks", {"url": f"{receiver.url}/other"})
    publish_one(tenant)
    dispatcher.run()
    assert sorted(got.path for got in receiver.wait_for(2)) == ["/hook/all", "/hook/inbound"]


def test_the_same_dedupe_key_is_one_event(
    tenant: Tenant, other_tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    publish_one(tenant)
    with transaction.atomic():
        repeated = publish(
            tenant_id=tenant.id,
            events=[
                NewEvent(type="message.inbound", environment="live", dedupe_key="k1", data=b"{}"),
                NewEvent(type="message.inbound", environment="live", dedupe_key="k2", data=b"{}"),
            ]
            * 2,
        )
    assert len(repeated) == 1
    assert Event.objects.count() == 2
    publish_one(other_tenant)
    assert Event.objects.count() == 3


def test_while_the_tenant_waits_for_approval_only_its_sandbox_is_delivered(
    tenant: Tenant, api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    Endpoint.objects.create(
        tenant=tenant,
        environment="test",
        url=receiver.url,
        status="active",
        verified_at=now(),
        secret=new_secret(),
        event_types=["*"],
    )
    Tenant.objects.filter(pk=tenant.id).update(status="pending_approval")
    publish_one(tenant, "k1", environment="live")
    of_test = publish_one(tenant, "k2", environment="test")
    dispatcher.run()
    assert [request.json["id"] for request in receiver.received] == [ids.encode(ids.EVENT, of_test)]
    Tenant.objects.filter(pk=tenant.id).update(status="rejected")
    publish_one(tenant, "k3", environment="test")
    dispatcher.run()
    assert len(receiver.received) == 1


def test_deliveries_of_a_deleted_endpoint_end_dead(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    publish_one(tenant)
    assert api.delete(f"/v1/webhooks/{endpoint['id']}").json() == {"id": endpoint["id"], "deleted": True}
    dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.last_error) == ("dead", "endpoint_deleted")
    assert (delivery.next_attempt_at, delivery.dead_at is not None) == (None, True)
    assert receiver.received == []


def test_a_body_past_retention_is_not_delivered(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    publish_one(tenant)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM event_payloads")
    dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.last_error, delivery.attempts) == ("dead", "payload_expired", 0)
    assert receiver.received == []


def test_ten_failures_in_a_row_open_the_circuit_and_a_probe_closes_it(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    for number in range(10):
        publish_one(tenant, f"k{number}")
    dispatcher.run()
    row = Endpoint.objects.get()
    assert row.consecutive_failures == 10
    assert row.circuit_open_until is not None
    publish_one(tenant, "fresh")
    dispatcher.run()
    assert len(receiver.received) == 10, "an open circuit spends no attempt"

    receiver.answer = lambda request: web.Response()
    Delivery.objects.update(next_attempt_at=now())
    Endpoint.objects.update(circuit_open_until=now())
    dispatcher.run()
    assert Delivery.objects.filter(status="delivered").count() == 1, "a single delivery probes"
    row.refresh_from_db()
    assert [row.circuit_open_until, row.consecutive_failures] == [None, 0]
    dispatcher.run()
    assert Delivery.objects.filter(status="delivered").count() == 11


def test_a_probe_that_fails_doubles_the_wait_and_another_attempt_does_not(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500)
    for key in ("k1", "k2"):
        publish_one(tenant, key)
    Endpoint.objects.update(
        circuit_open_until=now(), circuit_opened=3, circuit_generation=3, consecutive_failures=13
    )
    dispatcher.run()
    row = Endpoint.objects.get()
    assert (len(receiver.received), row.circuit_opened, row.consecutive_failures) == (1, 4, 14)
    assert row.circuit_open_until is not None
    assert timedelta(seconds=230) < row.circuit_open_until - now() <= timedelta(seconds=240)
    replayed = api.post(f"/v1/webhook-deliveries/{Delivery.objects.all()[0].public_id}/replay").json()
    assert replayed["status"] == "dead"
    again = Endpoint.objects.get()
    assert (again.circuit_open_until, again.circuit_opened) == (row.circuit_open_until, 4)
    receiver.answer = lambda request: web.Response(status=200)
    path = f"/v1/webhooks/{endpoint['id']}"
    assert api.patch(path, {"status": "paused"}).status_code == 200
    assert api.patch(path, {"status": "active"}).status_code == 200
    assert Endpoint.objects.get().circuit_opened == 0, "the next outage begins with the shortest wait"


@pytest.mark.parametrize("minutes", [-1, 1])
@pytest.mark.parametrize("status", Delivery.Status.values)
def test_only_open_deliveries_that_are_due_are_claimed(
    tenant: Tenant, endpoint: dict[str, Any], status: str, minutes: int
) -> None:
    publish_one(tenant, "due")
    event_id = publish_one(tenant, "other")
    Delivery.objects.update(next_attempt_at=now(), leased_until=None)
    other = Delivery.objects.filter(event_id=event_id)
    other.update(status=status, next_attempt_at=now() + timedelta(minutes=minutes))
    is_claimed = event_id in {each.event_id for each in claim(Room(5, 5))}
    assert is_claimed is (status in {"pending", "failed"} and minutes < 0)


def test_a_success_that_was_in_flight_when_the_circuit_opened_does_not_close_it(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    open_until = now() + timedelta(minutes=1)

    def open_circuit() -> None:
        try:
            Endpoint.objects.update(
                circuit_open_until=open_until,
                circuit_opened=1,
                circuit_generation=F("circuit_generation") + 1,
            )
        finally:
            connection.close()

    async def late(_: Received) -> web.Response:
        await asyncio.to_thread(open_circuit)
        return web.Response()

    receiver.answer = late
    publish_one(tenant)
    dispatcher.run()
    assert Delivery.objects.get().status == "delivered"
    row = Endpoint.objects.get()
    assert (row.circuit_open_until, row.circuit_opened) == (open_until, 1)


@pytest.mark.parametrize("path", ["", "/new"])
def test_a_410_of_before_a_passed_ping_does_not_disable_the_endpoint(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, path: str
) -> None:
    """While the former url waits with its 410, the owner moves the endpoint, or pings it again."""

    def ping() -> None:
        own = f"/v1/webhooks/{endpoint['id']}"
        answer = api.patch(own, {"url": receiver.url + path}) if path else api.post(f"{own}/verify")
        assert answer.status_code == 200, answer.content
        connection.close()

    async def gone_at_first(_: Received) -> web.Response:
        if len(receiver.received) > 1:
            return web.Response()
        await asyncio.to_thread(ping)
        return web.Response(status=410)

    receiver.answer = gone_at_first
    publish_one(tenant)
    dispatcher.run()
    dispatcher.run()
    assert Endpoint.objects.get().status == "active"
    assert receiver.received[1].path == receiver.received[0].path.rstrip("/") + path
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.attempts) == ("delivered", 2)
    assert [attempt["http_status"] for attempt in delivery.attempt_log] == [410, 200]
    assert not Event.objects.filter(type__startswith="webhook.").exists()


def test_a_late_result_does_not_overwrite_a_newer_one(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    from webhooks.delivery.caps import Room
    from webhooks.delivery.claim_statements import claim
    from webhooks.delivery.recorder import Outcome, record
    from webhooks.delivery.retries_and_attempt_log import Decision

    publish_one(tenant)
    (stalled,) = claim(Room(10, 10, {}, {}))
    assert claim(Room(10, 10, {}, {})) == [], "a leased delivery is not claimed twice"
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    late = Outcome(
        stalled.id,
        stalled.tenant_id,
        stalled.endpoint_id,
        stalled.attempts,
        Decision("failed", 5.0),
        error="timeout",
    )
    assert record([late]) == 0
    assert Delivery.objects.get().status == "delivered"


def test_publish_outside_a_transaction_is_refused(tenant: Tenant) -> None:
    with pytest.raises(transaction.TransactionManagementError):
        publish(
            tenant_id=tenant.id,
            events=[NewEvent(type="meta.other", environment="live", dedupe_key="k", data=orjson.dumps({}))],
        )


@pytest.mark.parametrize(("timeout_seconds", "takes", "error"), [(1, 5, "timeout"), (None, 1.3, None)])
def test_an_attempt_ends_with_the_endpoints_own_time_out(
    api: Api,
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    timeout_seconds: int | None,
    takes: float,
    error: str | None,
) -> None:
    async def slowly(_: Received) -> web.Response:
        await asyncio.sleep(takes)
        return web.Response(text="ok")

    api.patch(f"/v1/webhooks/{endpoint['id']}", {"timeout_seconds": timeout_seconds})
    receiver.answer = slowly
    publish_one(tenant)
    dispatcher.run()
    (delivery,) = Delivery.objects.all()
    assert delivery.last_error == error
    replayed = api.post(f"/v1/webhook-deliveries/{delivery.public_id}/replay").json()
    assert (replayed["last_response_ms"] < takes * 1000) is (error is not None)
