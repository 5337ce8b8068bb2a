"""The rate of an endpoint: deliveries keep their distance, whoever claims them, and hold up nobody else."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from gateway.clock import now
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.delivery.claim import Claimed, claim
from webhooks.delivery.room import Room
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

ROOM = Room(1000, 1000)


def paced(api: Api, receiver: Receiver, rate: int, path: str = "") -> Endpoint:
    answer = api.post("/v1/webhooks", {"url": f"{receiver.url}{path}", "rate_per_second": rate})
    assert answer.status_code == 201, answer.content
    assert answer.json()["rate_per_second"] == rate
    return Endpoint.objects.get(pk=answer.json()["id"])


def publish_many(tenant: Tenant, count: int) -> None:
    for number in range(count):
        publish_one(tenant, f"k{number}")


def waits(deliveries: list[Claimed]) -> list[float]:
    """Seconds from the claim to each slot."""
    return sorted(round(each.send_at - each.claimed_monotonic, 3) for each in deliveries)


def later(seconds: float) -> None:
    """Let time pass for the endpoint's slots."""
    Endpoint.objects.update(paced_until=F("paced_until") - timedelta(seconds=seconds))


def test_slots_are_the_rate_apart_and_a_second_ahead(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    paced(api, receiver, 4)
    publish_many(tenant, 20)
    assert waits(claim(ROOM)) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert claim(ROOM) == []
    later(0.5)
    assert waits(claim(ROOM)) == pytest.approx([0.75, 1.0], abs=0.2)
    later(60)
    assert waits(claim(ROOM)) == [0.0, 0.25, 0.5, 0.75, 1.0], "what was not used is not caught up"


def test_a_claim_takes_slots_for_what_it_claims_alone(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    paced(api, receiver, 10)
    publish_many(tenant, 1)
    assert waits(claim(ROOM)) == [0.0]
    until = Endpoint.objects.get().paced_until
    assert until is not None
    assert until - now() < timedelta(seconds=0.1)


def test_deliveries_arrive_at_the_rate_and_others_do_not_wait(
    api: Api,
    other_api: Api,
    tenant: Tenant,
    other_tenant: Tenant,
    receiver: Receiver,
) -> None:
    paced(api, receiver, 10, "/paced")
    other_api.post("/v1/webhooks", {"url": f"{receiver.url}/free"})
    publish_many(tenant, 25)
    publish_many(other_tenant, 25)
    begun = time.monotonic()
    while Delivery.objects.exclude(status="delivered").exists():
        assert time.monotonic() < begun + 20
        dispatcher.run()
    slow = [got.at for got in receiver.received if got.path.endswith("/paced")]
    free = [got.at for got in receiver.received if got.path.endswith("/free")]
    assert len(slow) == len(free) == 25
    # By the first slot, not by the first arrival: a busy machine may make one late, but none early.
    early = [place for place, at in enumerate(slow) if at - begun < 0.1 * place - 0.05]
    assert early == [], "each has a slot a tenth of a second after the one before it"
    assert max(free) < slow[10], "the other business is done long before"


def test_a_dispatcher_that_stops_gives_back_what_waits_for_its_slot(
    api: Api, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LONGEST_RUN_SECONDS", 0.3)
    paced(api, receiver, 1)
    publish_many(tenant, 2)
    dispatcher.run()
    assert len(receiver.received) == 1
    (waiting,) = Delivery.objects.exclude(status="delivered")
    assert (waiting.attempts, waiting.leased_until) == (0, None)
    assert waiting.next_attempt_at is not None
    assert waiting.next_attempt_at <= now()


@pytest.mark.parametrize("rate", [None, 5])
def test_the_rate_can_be_changed_and_ended(
    api: Api, tenant: Tenant, receiver: Receiver, rate: int | None
) -> None:
    endpoint = paced(api, receiver, 1)
    answer: Any = api.patch(f"/v1/webhooks/{endpoint.id}", {"rate_per_second": rate})
    assert answer.json()["rate_per_second"] == rate
    publish_many(tenant, 20)
    assert len(claim(ROOM)) == (20 if rate is None else 6)
