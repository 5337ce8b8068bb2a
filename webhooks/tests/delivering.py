"""One event, published with a delivery to every endpoint that wants it."""

from typing import Any
from uuid import UUID

from django.db import transaction

from tenants.models import Tenant
from webhooks.events.members import NewEvent
from webhooks.events.publish import publish


def publish_one(tenant: Tenant, key: str = "k1", raw: bytes | None = None, **members: Any) -> UUID:
    """Publish an event; returns its id."""
    event = NewEvent(
        **{
            "type": "message.inbound",
            "environment": "live",
            "dedupe_key": key,
            "data": b'{"message": {"id": "wamid.A", "type": "text"}, "a": 1.10}',
            "raw_path": "x",
            **members,
        }
    )
    with transaction.atomic():
        (event_id,) = publish(tenant_id=tenant.id, events=[event], raw=raw)
    return event_id
