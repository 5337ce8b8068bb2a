"""Signals name fresh deliveries, which are claimed by their ids; a lost signal costs a moment, never a delivery."""

import threading
from typing import Any
from uuid import uuid4

import pytest
import redis

from gateway import ids
from gateway.database.statements import run
from tenants.models import Tenant
from tests.receiver import Receiver
from webhooks import wake_up
from webhooks.delivery import dispatcher
from webhooks.delivery.claim import claim, claiming_fresh
from webhooks.delivery.listener import Listener
from webhooks.delivery.room import Room
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.wake_up import LOOK, Fresh, named_in


def some(count: int) -> list[Fresh]:
    return [Fresh(ids.uuid7(), uuid4(), uuid4()) for _ in range(count)]


def fresh_rows() -> list[Fresh]:
    return [Fresh(row.id, row.endpoint_id, row.tenant_id) for row in Delivery.objects.order_by("id")]


def test_a_signal_names_deliveries() -> None:
    fresh = some(3)
    assert named_in(b"".join(each.packed() for each in fresh)) == fresh


@pytest.mark.parametrize("signal", [LOOK, b"", b"1", b"x" * 47])
def test_any_other_signal_asks_to_look(signal: bytes) -> None:
    assert named_in(signal) is None


def test_more_than_a_signal_names_asks_to_look() -> None:
    unsent = wake_up._Unsent()
    unsent.add(some(wake_up.MOST_NAMED))
    unsent.add(some(1))
    named, look = unsent.take()
    assert (len(named) // 48, look) == (wake_up.MOST_NAMED, LOOK)
    assert unsent.take() == []


def test_signals_that_nobody_takes_are_bounded(empty_valkey: redis.Redis) -> None:
    for _ in range(wake_up.MOST_SIGNALS + 10):
        wake_up._send([some(1)[0].packed()])
    waiting: Any = empty_valkey.lrange(wake_up.SIGNAL, 0, -1)
    assert len(waiting) <= wake_up.MOST_SIGNALS + 1
    assert LOOK in waiting, "what was dropped is found by a look"


async def test_a_signal_that_comes_as_the_dispatcher_ends_wakes_another(empty_valkey: redis.Redis) -> None:
    listener = Listener(in_flight=lambda: 0, poll_seconds=5, stopping=threading.Event())
    waiting = listener.waiting
    listener.close()
    empty_valkey.rpush(wake_up.SIGNAL, some(1)[0].packed())
    await waiting
    assert empty_valkey.lrange(wake_up.SIGNAL, 0, -1) == [LOOK]


@pytest.mark.django_db(transaction=True)
def test_publishing_names_its_deliveries(
    tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[Fresh] = []
    monkeypatch.setattr(wake_up, "soon", signalled.extend)
    publish_one(tenant)
    assert signalled == fresh_rows()
    assert len(signalled) == 1


@pytest.mark.django_db(transaction=True)
def test_what_is_named_is_claimed_once(tenant: Tenant, endpoint: dict[str, Any]) -> None:
    event_id = publish_one(tenant)
    named = fresh_rows()
    (claimed,) = run(claiming_fresh(named))
    assert (claimed.event_id, claimed.attempts, claimed.probe) == (event_id, 0, False)
    assert claimed.envelope is not None
    assert claimed.envelope.body().startswith(b'{"id":"evt_')
    assert Delivery.objects.get().leased_until is not None
    assert run(claiming_fresh(named)) == []
    assert claim(Room(10, 10)) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "refused",
    [
        lambda: Endpoint.objects.update(status="paused"),
        lambda: Endpoint.objects.update(circuit_open_until="2999-01-01T00:00:00Z"),
        lambda: Tenant.objects.update(status="suspended"),
        lambda: Delivery.objects.update(status="delivered"),
        lambda: Delivery.objects.update(next_attempt_at="2999-01-01T00:00:00Z"),
        lambda: Endpoint.objects.all().delete(),
    ],
    ids=["paused", "circuit open", "suspended", "delivered", "leased", "deleted"],
)
def test_what_may_not_be_sent_is_not_claimed(tenant: Tenant, endpoint: dict[str, Any], refused: Any) -> None:
    publish_one(tenant)
    named = fresh_rows()
    refused()
    assert run(claiming_fresh(named)) == []


@pytest.mark.django_db(transaction=True)
def test_a_lost_signal_loses_no_delivery(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, empty_valkey: redis.Redis
) -> None:
    for number in range(5):
        publish_one(tenant, f"k{number}")
    empty_valkey.delete(wake_up.SIGNAL)
    dispatcher.run()
    assert len(receiver.wait_for(5)) == 5


def test_a_lone_quick_tenant_uses_what_nobody_else_wants() -> None:
    tenant, endpoints = uuid4(), [uuid4() for _ in range(4)]
    room = Room(400, 16, caps=dict.fromkeys(endpoints, 192), per_tenant=128)
    shares = room.shares([(endpoint, tenant, False) for endpoint in endpoints])
    assert sum(shares.values()) == 300, "all but a quarter"


def test_a_slow_tenant_stays_within_its_cap() -> None:
    tenant, endpoints = uuid4(), [uuid4() for _ in range(40)]
    shares = Room(400, 16, per_tenant=128).shares([(endpoint, tenant, False) for endpoint in endpoints])
    assert sum(shares.values()) == 128


def test_what_one_tenant_gets_more_is_taken_from_nobody() -> None:
    greedy, modest = uuid4(), uuid4()
    quick, other = uuid4(), uuid4()
    room = Room(400, 16, caps={quick: 192, other: 20}, per_tenant=128)
    shares = room.shares([(quick, greedy, False), (other, modest, False)])
    assert shares[other] == 20
    assert shares[quick] <= 192
    assert sum(shares.values()) <= 300
