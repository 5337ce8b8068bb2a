"""Caps: of what is handed over a dispatcher takes what its endpoint's and its tenant's caps leave room for."""

from uuid import UUID, uuid4

from gateway.clock import now
from webhooks.delivery.caps import FIRST_CAP, BodyMemory, InFlightCaps
from webhooks.delivery_rows import StoredTarget
from webhooks.events.publish import HandedOver

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
