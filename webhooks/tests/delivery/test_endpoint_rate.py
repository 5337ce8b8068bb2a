"""The rate of an endpoint: deliveries keep their distance across workers, and delay no other endpoint."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from django.db.models import F

from gateway.clock import now
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Received, Receiver
from webhooks.delivery import dispatcher, ordering
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
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


def slots(deliveries: list[Claimed]) -> list[float]:
    """The time of each slot, by the database's clock."""
    return sorted(each.claimed_at.timestamp() + each.send_at - each.claimed_monotonic for each in deliveries)


def later(seconds: float) -> None:
    """Let time pass for the endpoint's slots."""
    Endpoint.objects.update(paced_until=F("paced_until") - timedelta(seconds=seconds))


def test_slots_are_the_rate_apart_and_a_second_ahead(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    endpoint = paced(api, receiver, 4)
    publish_many(tenant, 20)

    def claimed() -> tuple[float, list[float]]:
        """Claim deliveries. Returns the time of the claim, and its slots, which are a quarter of a second apart."""
        found = claim(ROOM)
        at, times = found[0].claimed_at.timestamp(), slots(found)
        assert times == [pytest.approx(times[0] + number / 4, abs=1e-3) for number in range(len(times))]
        assert times[-1] <= at + 1.001 < times[-1] + 0.25, "no slot is further ahead than a second"
        return at, times

    at, times = claimed()
    assert len(times) == 5
    assert times[0] == pytest.approx(at, abs=1e-3)
    Endpoint.objects.update(paced_until=now() + timedelta(minutes=1))
    assert claim(ROOM) == []
    # Half of the five slots are in the past, or more on a slow machine.
    Endpoint.objects.update(paced_until=datetime.fromtimestamp(times[3], tz=UTC))
    at, following = claimed()
    assert following[0] == pytest.approx(max(at, times[3]), abs=1e-3)
    endpoint.refresh_from_db()
    assert endpoint.paced_until is not None
    assert endpoint.paced_until.timestamp() == pytest.approx(following[-1] + 0.25, abs=1e-3)
    later(60)
    at, times = claimed()
    assert len(times) == 5
    assert times[0] == pytest.approx(at, abs=1e-3), "what was not used is not caught up"


def test_a_claim_takes_slots_for_what_it_claims_alone(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    paced(api, receiver, 10)
    publish_many(tenant, 1)
    assert [each.send_at - each.claimed_monotonic for each in claim(ROOM)] == pytest.approx([0.0], abs=1e-6)
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
    # Measured from the first slot, because a busy machine may delay an arrival, but never makes one early.
    early = [place for place, at in enumerate(slow) if at - begun < 0.1 * place - 0.05]
    assert early == [], "each has a slot a tenth of a second after the one before it"
    assert max(free) < slow[10], "the other business is done long before"


def test_a_dispatcher_that_stops_releases_what_waits_for_its_slot(
    api: Api, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(request: Received) -> web.Response:
        dispatcher.stop()
        return web.Response()

    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    monkeypatch.setattr(ordering, "AHEAD_SECONDS", 60.0)
    endpoint = paced(api, receiver, 1, "/paced")
    api.post("/v1/webhooks", {"url": f"{receiver.url}/free"})
    slot = now() + timedelta(seconds=30)
    Endpoint.objects.filter(pk=endpoint.pk).update(paced_until=slot)
    receiver.answer = stop
    publish_one(tenant, "k0")
    dispatcher.run()
    assert [got.path for got in receiver.received] == ["/hook/free"]
    endpoint.refresh_from_db()
    assert endpoint.paced_until == slot + timedelta(seconds=1), "the other delivery was claimed for its slot"
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
