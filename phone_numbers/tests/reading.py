"""Readers of published events, for tests."""

from typing import Any

import orjson
from django.db.models import QuerySet

from phone_numbers.models import AppData, BusinessAccount, PhoneNumber
from tenants.models import Tenant
from webhooks.models import Event, EventPayload


def published(tenant: Tenant, event_type: str) -> list[dict[str, Any]]:
    """The `data` of a tenant's events of one type, oldest first."""
    events = list(Event.objects.for_tenant(tenant.id).filter(type=event_type).order_by("id"))
    bodies = {payload.id: bytes(payload.body) for payload in EventPayload.objects.filter(tenant_id=tenant.id)}
    return [orjson.loads(bodies[event.id]) for event in events]


def moves(tenant: Tenant) -> list[tuple[str, str, str | None]]:
    """The state changes in a tenant's `number.connection` events as (from, to, detail), oldest first."""
    changes = published(tenant, "number.connection")
    return [(data["from"], data["to"], data["detail"]) for data in changes if data["from"] != data["to"]]


def rows_besides(number: PhoneNumber) -> list[dict[str, Any]]:
    """All columns of the numbers other than this one, of their syncs of app data, and of the other accounts."""
    rows: tuple[QuerySet[Any], ...] = (
        PhoneNumber.objects.exclude(pk=number.pk),
        AppData.objects.exclude(number=number),
        BusinessAccount.objects.exclude(pk=number.account_id),
    )
    return [dict(row) for each in rows for row in each.order_by("id").values()]
