"""The lane of calls: calls' notifications overtake everything else that waits for their endpoint."""

import threading
from typing import Any

import pytest
from aiohttp import web
from django.db import connection

from gateway.role_loop import LoopThread
from tenants.models import Tenant
from tests.receiver import Received, Receiver
from webhooks import wake_up
from webhooks.delivery import caps, dispatcher
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.tests.delivery.conftest import HangingRequests
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

BACKLOG = 3 * caps.FIRST_CAP


def backlog(tenant: Tenant, count: int = BACKLOG) -> None:
    """Messages that wait for their endpoint."""
    for place in range(count):
        publish_one(tenant, f"msg:wamid.{place}")


def call(tenant: Tenant, name: str = "A", event: str = "connect") -> None:
    publish_one(
        tenant,
        f"call:wacid.{name}:{event}",
        type="meta.other",
        data=b'{"call": {"id": "wacid.%b", "event": "connect"}, "field": "calls"}' % name.encode(),
    )


def arrived(receiver: Receiver, name: str = "A") -> bool:
    return any(f"wacid.{name}" in str(got.body) for got in receiver.received)


def wait_for_call(receiver: Receiver, name: str = "A") -> None:
    with receiver.arrived:
        assert receiver.arrived.wait_for(lambda: arrived(receiver, name), 20), (
            "the call waits behind messages"
        )


@pytest.fixture(autouse=True)
def _one_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())


def test_a_call_is_delivered_while_its_endpoint_has_all_in_flight_that_it_may_have(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, hanging: HangingRequests
) -> None:
    backlog(tenant)
    with LoopThread(dispatcher):
        receiver.wait_for(caps.FIRST_CAP)
        call(tenant)
        wait_for_call(receiver)
        assert Delivery.objects.filter(status="pending", attempts=0).count() > caps.FIRST_CAP
        hanging.end()
        receiver.wait_for(BACKLOG + 1)


def test_a_call_that_no_dispatcher_was_handed_is_claimed_before_older_messages(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backlog(tenant)
    monkeypatch.setattr(wake_up, "soon", lambda _fresh: None)
    call(tenant)
    with connection.cursor() as cursor:
        # This is the state after a dispatcher that had claimed the delivery has ended.
        cursor.execute("UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = now()")
    with LoopThread(dispatcher):
        wait_for_call(receiver)
        assert len(receiver.received) <= caps.FIRST_CAP + 1
        hanging.end()


def test_a_call_that_failed_overtakes_the_messages_at_its_retry_too(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, hanging: HangingRequests
) -> None:
    answered = []

    async def answer(request: Received) -> web.StreamResponse:
        if b"wacid" not in request.body:
            return await hanging.answer(request)
        answered.append(request)
        return web.Response(status=500 if len(answered) == 1 else 200)

    receiver.answer = answer
    backlog(tenant)
    with LoopThread(dispatcher):
        receiver.wait_for(caps.FIRST_CAP)
        call(tenant)
        wait_for_call(receiver)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE event_type = 'meta.other'"
            )
        with receiver.arrived:
            assert receiver.arrived.wait_for(lambda: len(answered) == 2, 20)
        hanging.end()


def test_calls_that_hang_take_a_bounded_number_of_requests(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, hanging: HangingRequests
) -> None:
    backlog(tenant, caps.FIRST_CAP)
    with LoopThread(dispatcher):
        receiver.wait_for(caps.FIRST_CAP)
        for number in range(2 * caps.CALLS_OF_ENDPOINT):
            call(tenant, str(number))
        receiver.wait_for(caps.FIRST_CAP + caps.CALLS_OF_ENDPOINT)
        publish_one(tenant, "msg:wamid.last")
        with receiver.arrived:
            assert not receiver.arrived.wait_for(
                lambda: len(receiver.received) > caps.FIRST_CAP + caps.CALLS_OF_ENDPOINT, 1.5
            )
        hanging.end()
        receiver.wait_for(caps.FIRST_CAP + 2 * caps.CALLS_OF_ENDPOINT + 1)


def test_a_tenant_whose_calls_hang_leaves_others_their_part_of_the_lane(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lane has four places, of which a tenant may use three."""
    monkeypatch.setattr(caps, "MOST_CALLS", 4)
    monkeypatch.setattr(caps, "CALLS_OF_TENANT", 3)
    other = Tenant.objects.create(name="Other", status=Tenant.Status.ACTIVE)
    endpoint_of(other, url=receiver.url)
    backlog(other, caps.FIRST_CAP)
    with LoopThread(dispatcher):
        receiver.wait_for(caps.FIRST_CAP)
        for number in range(4):
            call(tenant, str(number))
        receiver.wait_for(caps.FIRST_CAP + 4)
        call(other, "of the other")
        wait_for_call(receiver, "of the other")
        hanging.end()


def test_the_lane_has_an_end(
    tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a free place, a call waits like a message."""
    monkeypatch.setattr(caps, "MOST_CALLS", 0)
    backlog(tenant, caps.FIRST_CAP)
    with LoopThread(dispatcher):
        receiver.wait_for(caps.FIRST_CAP)
        call(tenant)
        with receiver.arrived:
            assert not receiver.arrived.wait_for(lambda: arrived(receiver), 1.5)
        hanging.end()
        wait_for_call(receiver)


def test_an_ordered_endpoint_gets_a_call_in_its_customers_order(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    Endpoint.objects.update(ordered=True)
    customer: dict[str, Any] = {"phone_number_id": "200300400500600", "wa_id": "919812345678"}
    publish_one(tenant, "msg:wamid.first", **customer)
    publish_one(tenant, "call:wacid.A:connect", data=b'{"call": "wacid.A"}', **customer)
    with LoopThread(dispatcher):
        first, second = receiver.wait_for(2)
    assert (b"wacid.A" in first.body, b"wacid.A" in second.body) == (False, True)
