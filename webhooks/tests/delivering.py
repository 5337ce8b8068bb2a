"""Events to deliver, and the endpoints that get them."""

from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from tenants.models import Tenant
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Endpoint


def publish_one(tenant: Tenant, key: str = "k1", raw: bytes | None = None, **members: Any) -> UUID:
    """Publish an event, with a delivery to every endpoint that subscribes. Returns its id."""
    event = NewEvent(
        **{
            "type": "message.inbound",
            "environment": "live",
            "dedupe_key": key,
            "phone_number_id": "1",
            "wamid": "wamid.A",
            "data": b'{"message": {"id": "wamid.A", "timestamp": "1", "type": "text", "text": {"body": "Hi"}}, '
            b'"a": 1.10}',
            "raw_path": "x",
            **members,
        }
    )
    with transaction.atomic():
        (event_id,) = publish(tenant_id=tenant.id, events=[event], raw=raw)
    return event_id


def copied(endpoint_id: str, tenant: Tenant, url: str) -> None:
    """Create another active endpoint with the settings of an existing one."""
    endpoint = Endpoint.objects.get(id=endpoint_id)
    values = {field.attname: getattr(endpoint, field.attname) for field in Endpoint._meta.concrete_fields}
    Endpoint(**{**values, "id": uuid4(), "tenant_id": tenant.id, "url": url}).save(force_insert=True)
