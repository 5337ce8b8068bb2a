"""A message's events with their contents and deliveries: only the message's own, including replays months later."""

from datetime import timedelta
from typing import Any

import pytest

from gateway import ids
from gateway.clock import now
from messaging.message_log import message_search
from tenants.models import Tenant
from webhooks.models import Delivery, Event, Message
from webhooks.tests.messages import outbound, status, write
from webhooks.tests.publishing import endpoint_of, make, uuid_at

pytestmark = pytest.mark.django_db


def replayed(event: Event, after: timedelta) -> Delivery:
    delivery = Delivery.objects.get(event_id=event.id, is_replay=False)
    delivery.id, delivery.is_replay, delivery.replay_of = (
        uuid_at(event.created_at + after),
        True,
        delivery.id,
    )
    delivery._state.adding = True
    delivery.save(force_insert=True)
    return delivery


def test_events_of_a_message_are_those_of_its_tenant_and_environment(
    tenant: Tenant, other_tenant: Tenant
) -> None:
    """The other environment and another tenant have events with the same wamid. They must not be returned."""
    write(tenant, [outbound()], [status("sent")], [status("delivered", environment="test")])
    write(other_tenant, [status("read")])
    message = message_search.find(tenant_id=tenant.id, environment="live", key="wamid.A")
    events = message_search.events_of(message)
    assert [(event.tenant_id, event.environment) for event in events] == [(tenant.id, "live")] * 2
    assert set(message_search.contents(tenant.id, events)) == {event.id for event in events}
    assert message_search.contents(other_tenant.id, events) == {}
    with_deliveries, _ = message_search.contents_and_deliveries(tenant.id, events)
    assert with_deliveries == message_search.contents(tenant.id, events)
    assert message_search.contents_and_deliveries(other_tenant.id, events)[0] == {}


def test_of_two_rows_of_a_message_that_with_the_message_is_found_else_the_older(tenant: Tenant) -> None:
    scope: dict[str, Any] = {"tenant_id": tenant.id, "environment": "live", "key": "wamid.A"}
    older, newer = (uuid_at(now() - timedelta(days=days)) for days in (40, 0))
    for event_of_older, event_of_newer, expected in (
        (None, newer, newer),
        (older, None, older),
        (older, newer, older),
        (None, None, older),
    ):
        Message.objects.all().delete()
        for row_id, event_id in ((newer, event_of_newer), (older, event_of_older)):
            Message.objects.create(
                **scope, id=row_id, month=ids.month_of(row_id), event_id=event_id, direction="outbound"
            )
        assert message_search.find(**scope).id == expected


def test_a_replay_of_months_later_is_shown(tenant: Tenant, other_tenant: Tenant) -> None:
    for owner in (tenant, other_tenant):
        endpoint_of(owner)
    (event,) = make(tenant, age=timedelta(days=380))
    (later,) = make(tenant, age=timedelta(days=300))
    (foreign,) = make(other_tenant, age=timedelta(days=380))
    last = replayed(event, timedelta(days=365))
    _, found = message_search.contents_and_deliveries(tenant.id, [event, later, foreign])
    assert found[event.id][0].id == last.id
    assert [row.is_replay for row in found[event.id]] == [True, False]
    assert len(found[later.id]) == 1
    assert found[foreign.id] == [], "another tenant's"
    assert message_search.contents_and_deliveries(tenant.id, []) == ({}, {})
