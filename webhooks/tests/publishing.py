"""Rows for tests: events like those of flows, created at any time, endpoints, and a dead delivery."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import orjson
from django.db import transaction

from gateway import ids
from tenants.models import Tenant
from webhooks.events import envelope
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Endpoint, Event

_NEW = ids.uuid7


def uuid_at(moment: datetime) -> UUID:
    """A new UUIDv7 with a given time."""
    return UUID(int=ids.first_at(moment).int | _NEW().int & ((1 << 80) - 1))


def endpoint_of(tenant: Tenant, **values: Any) -> Endpoint:
    """An active endpoint that subscribes to every event, at an address without a server."""
    row = {
        "url": "http://127.0.0.1:9/",
        "event_types": ["*"],
        "secret": "whsec_c2VjcmV0",
        "secret_prefix": "whsec_c2Vj",
        "status": "active",
    }
    return Endpoint.objects.create(tenant=tenant, **row | values)


def dead_delivery(endpoint: Endpoint, event: Event, **values: Any) -> Delivery:
    """A dead delivery of an event to an endpoint, in the endpoint's environment."""
    return Delivery.objects.create(
        tenant_id=endpoint.tenant_id,
        environment=endpoint.environment,
        endpoint_id=endpoint.id,
        event_id=event.id,
        event_type=event.type,
        status="dead",
        **values,
    )


def make(
    tenant: Tenant,
    kind: str = "message.inbound",
    *,
    age: timedelta = timedelta(),
    count: int = 1,
    **values: Any,
) -> list[Event]:
    """Publish `count` events of one notification, a millisecond apart. The last one is `age` old."""
    moment = datetime.now(UTC) - age
    raw = values.pop("raw", orjson.dumps({"notification": str(_NEW())}))
    event_ids = [uuid_at(moment - timedelta(milliseconds=n)) for n in reversed(range(count))]
    with (
        transaction.atomic(),
        patch("gateway.ids.uuid7", lambda: uuid_at(moment + timedelta(milliseconds=1))),
    ):
        publish(
            tenant_id=tenant.id,
            raw=raw,
            events=[
                NewEvent(
                    **{
                        "id": event_id,
                        "type": kind,
                        "environment": "live",
                        "dedupe_key": f"msg:{event_id}",
                        "phone_number_id": "1",
                        "wamid": "wamid.A",
                        "data": b'{"message":{"id":"wamid.A","timestamp":"1","type":"text","text":{"body":"Hi"}},'
                        b'"n":1.50}',
                        "raw_path": "entry[0]" if raw else None,
                        **values,
                    }
                )
                for event_id in event_ids
            ],
        )
    return list(Event.objects.filter(pk__in=event_ids).order_by("id"))


def readable(*events: Event) -> list[bool]:
    """For each event, whether its envelope still exists, with its notification."""
    stored = [envelope.load([event.id], tenant_id=event.tenant_id)[event.id] for event in events]
    return [
        each is not None and each.has_raw is (event.raw_id is not None)
        for each, event in zip(stored, events, strict=True)
    ]
