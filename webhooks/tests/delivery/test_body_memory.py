"""Memory for bodies: a tenant that fills its part delays only itself."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import redis
from aiohttp import web

from tenants.models import Tenant
from tests.receiver import Received, Receiver
from webhooks.delivery import caps, dispatcher, senders
from webhooks.delivery.caps import BodyMemory, InFlightCaps, Room
from webhooks.models import Delivery
from webhooks.tests.delivering import copied, publish_one
from webhooks.tests.delivery.conftest import HangingRequests
from webhooks.tests.delivery.test_in_flight_caps import handed_over
from webhooks.tests.delivery.test_wake_up import running, wait_until


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 kB in total, 100 kB for each tenant."""
    monkeypatch.setattr(caps, "MOST_BYTES", 400_000)


def test_a_tenant_waits_for_its_own_bodies_and_takes_no_memory_from_the_others() -> None:
    bodies, large, other = BodyMemory(), uuid4(), uuid4()
    bodies.add(large, 90_000)
    assert bodies.full_tenants == set()
    assert (bodies.fits(large, 20_000), bodies.fits(other, 20_000)) == (False, True)
    bodies.add(large, 900_000)
    assert bodies.full_tenants == {large}
    assert bodies.has_room, "it counts with its part alone"
    assert bodies.fits(other, 250_000)
    bodies.remove(large, 900_000)
    bodies.remove(large, 90_000)
    assert bodies.full_tenants == set()
    assert bodies.fits(large, 900_000), "one alone may have any size"


def test_many_tenants_together_fill_the_memory() -> None:
    bodies, tenants = BodyMemory(), [uuid4() for _ in range(4)]
    for tenant_id in tenants:
        bodies.add(tenant_id, 100_000)
    assert not bodies.has_room
    assert not bodies.fits(uuid4(), 1)
    bodies.remove(tenants[0], 100_000)
    assert bodies.fits(uuid4(), 1)


def test_nothing_more_of_a_full_tenant_is_taken() -> None:
    bodies = BodyMemory()
    shares = InFlightCaps(capacity=400, of_tenant=100, bodies=bodies)
    of_full, of_other = handed_over(), handed_over()
    bodies.add(of_full.tenant_id, 100_000)
    assert shares.within_caps([of_full, of_other]) == [of_other]
    ready = [(each.endpoint_id, each.tenant_id, False) for each in (of_full, of_other)]
    quick = {each.endpoint_id: 192 for each in (of_full, of_other)}
    room = Room(400, 16, caps=quick, full_tenants=bodies.full_tenants)
    assert set(room.shares(ready)) == {of_other.endpoint_id}, "however quick its endpoint is"
    unserved = room.unserved({of_full.endpoint_id: of_full.tenant_id}, {}, [of_full.endpoint_id])
    assert unserved == (set(), {of_full.tenant_id}, False), "it waits for its own requests"
    bodies.remove(of_full.tenant_id, 100_000)
    assert of_full.tenant_id not in shares.room(10).full_tenants


@pytest.mark.django_db(transaction=True)
def test_what_waited_too_long_for_memory_is_left_to_its_lease(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + passed[0], thread_time=time.thread_time, time=time.time
    )
    monkeypatch.setattr(senders, "time", clock)
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.0)

    def hang(_: Received) -> web.Response:
        passed[0] = 600.0
        return web.Response()

    receiver.answer = hang
    for number in range(2):
        publish_one(tenant, f"k{number}", raw=b'"' + b"x" * 60_000 + b'"')
    dispatcher.run()
    assert len(receiver.received) == 1, "the other was sent although its lease was over"
    assert Delivery.objects.filter(status="delivered").count() == 1
    assert Delivery.objects.filter(status="pending", attempts=0, leased_until__isnull=False).count() == 1


@pytest.mark.django_db(transaction=True)
def test_large_bodies_to_an_endpoint_that_hangs_keep_no_other_tenant_waiting(
    tenant: Tenant,
    other_tenant: Tenant,
    endpoint: dict[str, Any],
    receiver: Receiver,
    hanging: HangingRequests,
    empty_valkey: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied(endpoint["id"], other_tenant, f"{receiver.url}/healthy")
    with running(monkeypatch, empty_valkey):
        for number in range(3):
            publish_one(tenant, f"k{number}", raw=b'"' + b"x" * 500_000 + b'"')
        receiver.wait_for(1)
        publish_one(other_tenant)
        assert receiver.wait_for(2)[-1].path.endswith("/healthy")
        hanging.end()
        wait_until(lambda: Delivery.objects.filter(status="delivered").count() == 4, "all are delivered")
    assert len(receiver.received) == 4
