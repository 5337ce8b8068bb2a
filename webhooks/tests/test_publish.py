"""Publishing of events: publications share one statement, and each event is published once for its own tenant."""

import threading
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, connection, transaction

from gateway.database.statements import run
from tenants.models import Tenant
from webhooks.events import envelope
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import Publication, publish, publishing
from webhooks.models import Delivery, Endpoint, Event, EventPayload
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)


def an_endpoint(tenant: Tenant) -> Endpoint:
    return endpoint_of(tenant, url=f"https://{tenant.id}.example/")


def an_event(key: str, **values: Any) -> NewEvent:
    return NewEvent(
        **{
            "type": "message.inbound",
            "environment": "live",
            "dedupe_key": key,
            "data": orjson.dumps({"of": key}),
            "raw_path": "entry[0]",
        }
        | values
    )


def as_sent(event: Event) -> dict[str, Any]:
    found = envelope.load([event.id], tenant_id=event.tenant_id)[event.id]
    assert found is not None
    body: dict[str, Any] = orjson.loads(found.body())
    return body


def test_an_event_is_published_in_the_transaction_of_its_cause_or_not_at_all(tenant: Tenant) -> None:
    with pytest.raises(transaction.TransactionManagementError):
        publish(tenant_id=tenant.id, events=[an_event("a")])
    assert not Event.objects.exists()


def test_publications_of_several_tenants_share_a_statement_and_nothing_else(
    tenant: Tenant, other_tenant: Tenant
) -> None:
    ours, theirs = an_endpoint(tenant), an_endpoint(other_tenant)
    with transaction.atomic():
        fresh = run(
            publishing(
                [
                    Publication(tenant.id, [an_event("a"), an_event("b")], b'{"raw":1}'),
                    Publication(other_tenant.id, [an_event("a")], '{"raw":"zwei ☕"}'.encode()),
                    Publication(tenant.id, [an_event("b", data=b'{"of":"repeated"}')], b'{"raw":3}'),
                    Publication(
                        tenant.id, [an_event("c", raw_path=None), an_event("d", raw_path=None)], None
                    ),
                ]
            ),
            prepared=True,
        ).fresh
    assert [len(each) for each in fresh] == [2, 1, 0, 2]
    found = [as_sent(Event.objects.get(pk=event_id)) for each in fresh for event_id in each]
    assert [(event["tenant_id"], event["data"], event["raw"]) for event in found] == [
        (str(tenant.id), {"of": "a"}, {"raw": 1}),
        (str(tenant.id), {"of": "b"}, {"raw": 1}),
        (str(other_tenant.id), {"of": "a"}, {"raw": "zwei ☕"}),
        (str(tenant.id), {"of": "c"}, None),
        (str(tenant.id), {"of": "d"}, None),
    ]
    assert EventPayload.objects.count() == 5 + 2, "a notification with nothing new is not kept"
    assert {
        (delivery.endpoint_id, delivery.tenant_id, delivery.event_id) for delivery in Delivery.objects.all()
    } == {
        *((ours.id, tenant.id, event_id) for event_id in fresh[0] + fresh[3]),
        (theirs.id, other_tenant.id, fresh[1][0]),
    }


def test_many_threads_publish_at_once(tenant: Tenant, other_tenant: Tenant) -> None:
    for each in (tenant, other_tenant):
        an_endpoint(each)
    together = threading.Barrier(8)
    new: list[tuple[Tenant, str, bytes]] = []
    refused: list[str] = []

    def work(number: int) -> None:
        owner = (tenant, other_tenant)[number % 2]
        try:
            together.wait(10)
            for turn in range(15):
                # Each key arrives from four threads. One thread also sends events that the database rejects.
                raw = orjson.dumps({"thread": number, "turn": turn})
                with transaction.atomic():
                    is_new = publish(tenant_id=owner.id, events=[an_event(f"k{turn}")], raw=raw)
                if is_new:
                    new.append((owner, f"k{turn}", raw))
                if number == 0:
                    try:
                        with transaction.atomic():
                            publish(tenant_id=owner.id, events=[an_event(f"bad{turn}", wamid="\0")])
                    except DatabaseError:
                        refused.append(f"bad{turn}")
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted((owner.id, key) for owner, key, _ in new) == sorted(
        (owner.id, f"k{turn}") for owner in (tenant, other_tenant) for turn in range(15)
    )
    assert refused == [f"bad{turn}" for turn in range(15)]
    assert Event.objects.count() == Delivery.objects.count() == 30
    for owner, key, raw in new:
        event = Event.objects.get(tenant_id=owner.id, dedupe_key=key)
        assert as_sent(event)["raw"] == orjson.loads(raw), "the notification of the thread that was first"
