"""Caps: a dispatcher accepts hand-overs only within the caps of their endpoint and tenant."""

import time
from uuid import UUID, uuid4

import pytest

from gateway.clock import now
from webhooks.delivery import caps as limits
from webhooks.delivery.caps import FIRST_CAP, SLOW_MS, BodyMemory, InFlightCaps, Room, Unserved
from webhooks.events.publish import HandedOver
from webhooks.open_deliveries import StoredTarget

TARGET = StoredTarget("https://hooks.example/in", "envelope", "cipher", None, None, None, None)


def handed_over(*, endpoint_id: UUID | None = None, tenant_id: UUID | None = None) -> HandedOver:
    return HandedOver(
        id=uuid4(),
        event_id=uuid4(),
        endpoint_id=endpoint_id or uuid4(),
        tenant_id=tenant_id or uuid4(),
        event_type="message.inbound",
        claimed_at=now(),
        target=TARGET,
        envelope=None,
    )


def test_one_endpoint_gets_its_cap_and_the_others_go_on() -> None:
    caps = InFlightCaps(capacity=400, of_tenant=200, bodies=BodyMemory())
    endpoint_id, tenant_id = uuid4(), uuid4()
    of_one = [handed_over(endpoint_id=endpoint_id, tenant_id=tenant_id) for _ in range(FIRST_CAP + 4)]
    other = handed_over()
    assert caps.within_caps([*of_one, other]) == [*of_one[:FIRST_CAP], other]
    endpoint, tenant = caps.of(endpoint_id=endpoint_id, tenant_id=tenant_id)
    assert (endpoint.has_more, tenant.has_more) == (True, False)
    endpoint.taken = FIRST_CAP - 1
    assert caps.within_caps(of_one) == of_one[:1], "what is under way counts"


def test_one_tenant_gets_its_cap_over_all_its_endpoints_and_the_others_go_on() -> None:
    caps = InFlightCaps(capacity=400, of_tenant=3, bodies=BodyMemory())
    tenant_id = uuid4()
    of_one = [handed_over(tenant_id=tenant_id) for _ in range(5)]
    other = handed_over()
    assert caps.within_caps([*of_one, other]) == [*of_one[:3], other]
    _, tenant = caps.of(endpoint_id=of_one[0].endpoint_id, tenant_id=tenant_id)
    assert tenant.has_more
    tenant.taken = 2
    assert caps.within_caps(of_one) == of_one[:1], "what is under way counts"


def test_calls_have_a_lane_of_which_endpoints_and_tenants_have_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lane of 12 places: 4 for an endpoint, 6 for a tenant. Calls in the lane count in the next claim too."""
    for name, value in (("MOST_CALLS", 12), ("CALLS_OF_TENANT", 6), ("CALLS_OF_ENDPOINT", 4)):
        monkeypatch.setattr(limits, name, value)
    caps = InFlightCaps(capacity=400, of_tenant=100, bodies=BodyMemory())
    first, second, third = uuid4(), uuid4(), uuid4()
    pairs = [(uuid4(), tenant_id) for tenant_id in (first, first, second, second, third)]
    counts = [caps.of(endpoint_id=endpoint_id, tenant_id=tenant_id) for endpoint_id, tenant_id in pairs]

    def held() -> list[int]:
        """How many calls of each endpoint the lane accepts, endpoint by endpoint."""
        taken = [0] * len(pairs)
        for place, count in enumerate(counts):
            while caps.takes_call(*count):
                caps.count_call(*count, change=1)
                taken[place] += 1
        return taken

    asked = caps.room(100).call_shares(pairs)
    assert [asked.get(endpoint_id, 0) for endpoint_id, _ in pairs] == held() == [4, 2, 4, 2, 0]
    assert caps.room(100).call_shares(pairs) == {}
    for place in (0, 3, 3):
        caps.count_call(*counts[place], change=-1)
    assert caps.room(100).call_shares(pairs[1:2]) == {pairs[1][0]: 1}, "its tenant has one place left"
    assert caps.room(100).call_shares(pairs) == {pairs[0][0]: 1, pairs[3][0]: 2}


def test_a_probe_is_alone() -> None:
    endpoint_id, tenant_id = uuid4(), uuid4()
    quick = {endpoint_id: 100}
    assert Room(40, FIRST_CAP, caps=quick).shares([(endpoint_id, tenant_id, True)]) == {endpoint_id: 1}
    under_way = Room(40, FIRST_CAP, caps=quick, taken={endpoint_id: 1})
    assert under_way.shares([(endpoint_id, tenant_id, True)]) == {}


@pytest.mark.parametrize(("cap", "rows"), [(FIRST_CAP, 5), (100, 30)])
def test_who_answers_quickly_gets_what_is_left_beyond_the_tenants_cap(cap: int, rows: int) -> None:
    """A quarter of 40 places stays free, and the tenant's cap is 5."""
    endpoint_id, tenant_id = uuid4(), uuid4()
    room = Room(40, FIRST_CAP, caps={endpoint_id: cap}, per_tenant=5)
    assert room.shares([(endpoint_id, tenant_id, False)]) == {endpoint_id: rows}


def test_a_cap_grows_by_one_and_halves() -> None:
    caps = InFlightCaps(capacity=24, of_tenant=10, bodies=BodyMemory())
    endpoint, _ = caps.of(endpoint_id=uuid4(), tenant_id=uuid4())
    grown = []
    for _ in range(4):
        caps.adapt(endpoint, ok=True, ms=SLOW_MS - 1)
        grown.append(endpoint.cap)
    assert grown == [17, 18, 18, 18], "never into the reserve"
    halved = []
    for ok, ms in ((True, SLOW_MS), *[(False, 1)] * 4):
        caps.adapt(endpoint, ok=ok, ms=ms)
        halved.append(endpoint.cap)
    assert halved == [9, 4, 2, 1, 1]


def test_caps_of_endpoints_without_deliveries_are_dropped_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caps = InFlightCaps(capacity=24, of_tenant=10, bodies=BodyMemory())
    resting, busy = ((uuid4(), uuid4()) for _ in range(2))
    for endpoint_id, tenant_id in (resting, busy):
        caps.of(endpoint_id=endpoint_id, tenant_id=tenant_id)
    for each in caps.of(endpoint_id=busy[0], tenant_id=busy[1]):
        each.taken = 1
    assert set(caps.room(10).caps) == {resting[0], busy[0]}
    later = time.monotonic() + limits.KEPT_SECONDS
    monkeypatch.setattr(limits, "monotonic", lambda: later)
    room = caps.room(10)
    assert (set(room.caps), set(room.taken_by_tenant)) == ({busy[0]}, {busy[1]})


def test_a_request_that_ended_during_a_claim_makes_it_poll_again() -> None:
    caps = InFlightCaps(capacity=24, of_tenant=10, bodies=BodyMemory())
    endpoint_id, tenant_id = uuid4(), uuid4()
    at_cap = Unserved({endpoint_id}, {tenant_id}, lacks_room=False)
    assert not caps.note_unserved(at_cap, caps.room(10))
    endpoint, tenant = caps.of(endpoint_id=endpoint_id, tenant_id=tenant_id)
    endpoint.taken = tenant.taken = 2
    asked = caps.room(10)
    assert not caps.note_unserved(at_cap, asked)
    tenant.taken = 1
    assert caps.note_unserved(at_cap, asked)
