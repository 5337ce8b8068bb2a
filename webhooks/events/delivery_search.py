"""Search of a tenant's deliveries, newest first: each page walks a bounded number of them (`bounded_walk`)."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from gateway import ids
from gateway.database.bounded_walk import FIRST_ID, LAST_ID, BoundedList, Page, Walk
from gateway.database.stored_rows import StoredRows
from webhooks.models import LIVE, Delivery

DELIVERIES = StoredRows(Delivery, without={"attempt_log", "answers"})
_DELIVERIES = BoundedList(DELIVERIES, finds_oldest=True)
_TENANT = "tenant_id = %(tenant_id)s"
# Written out: a parameter would not match the condition of the partial index.
_WALKS = {LIVE: Walk(_TENANT), "test": Walk(f"{_TENANT} AND environment = 'test'")}


def search(
    *,
    tenant_id: UUID,
    environment: str,
    equal: Mapping[str, Any],
    event_types: Collection[str] = (),
    event_id: UUID | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> Page[Delivery]:
    """A tenant's deliveries of one environment, without their attempts: with these column values, made in a time range.

    A page can hold fewer than `limit` deliveries, even none, and still have a next one.
    """
    conditions = ["environment = %(environment)s", *(f"{name} = %({name})s" for name in equal)]
    walk = _WALKS[environment]
    first = ids.first_at(begin) if begin is not None else FIRST_ID
    if event_types:
        conditions.append("event_type = ANY(%(event_types)s)")
    if event_id is not None:
        # Deliveries are made with their event or later: older partitions are left aside.
        walk = Walk(_TENANT, "event_id", [event_id])
        first = max(first, ids.first_at(ids.created_at(event_id)))
    return _DELIVERIES.page(
        [walk],
        conditions=conditions,
        parameters={
            "tenant_id": tenant_id,
            "environment": environment,
            "event_types": list(event_types),
            **equal,
        },
        first=first,
        before=min(before or LAST_ID, ids.first_at(end) if end is not None else LAST_ID),
        limit=limit,
    )
