"""Reads of the event log: search of events and deliveries by keyset, and the state of bodies and deliveries.

Called by `/v1/events*`, `/v1/webhook-deliveries*` and the console. Each search walks an index, newest first, past a
bounded number of rows that do not match (`bounded_walk`). So its cost does not depend on how many events are stored.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from gateway import ids
from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.database import replica
from gateway.database.bounded_walk import (
    FIRST_ID,
    LAST_ID,
    BoundedList,
    Page,
    Walk,
    conditions_of,
    id_after_all,
    values_of,
)
from gateway.database.distribution import of_tenant
from gateway.database.statements import StoredRows, bulk_cursor, uuids
from webhooks.events.envelope import within_retention
from webhooks.models import LIVE, Delivery, Event

DELIVERIES = StoredRows(Delivery, without={"attempt_log", "answers"})
_DELIVERIES = BoundedList(DELIVERIES, finds_oldest=True)
_TENANT = "tenant_id = %(tenant_id)s"
# 'test' is written out, because a parameter would not match the condition of the partial index.
_WALKS = {LIVE: Walk(_TENANT), "test": Walk(f"{_TENANT} AND environment = 'test'")}


def search_deliveries(
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
    """A tenant's deliveries of one environment with these column values, made in a time range. Does not load their
    attempts.

    A page can have fewer than `limit` deliveries, even none, and still have a next page.
    """
    conditions = ["environment = %(environment)s", *(f"{name} = %({name})s" for name in equal)]
    walk = _WALKS[environment]
    first = ids.first_at(begin) if begin is not None else FIRST_ID
    if event_types:
        conditions.append("event_type = ANY(%(event_types)s)")
    if event_id is not None:
        # Deliveries are created with their event or later, so older partitions can be skipped.
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


EVENTS = StoredRows(Event)
_EVENTS = BoundedList(EVENTS, finds_oldest=True)
_OF_ONE_CUSTOMER = ("wamid", "wa_id", "user_id")
_NO_DELIVERIES = dict.fromkeys(Delivery.Status.values, 0)
MAX_DELIVERIES = 200
"""The maximum number of deliveries that are shown with one event. An event has up to twenty original deliveries, and
replays.
"""

# Planned once for all days and ids, because planning for the partitions would take longer than reading them. With
# ranges, but not with an array, the running statement skips all but a few partitions. Deliveries are created with their
# event or later.
_STORED = """
SELECT p.id, NULL, (SELECT retention_days FROM tenants_tenant WHERE id = %(tenant_id)s)::bigint
FROM event_payloads p
WHERE p.tenant_id = %(tenant_id)s AND p.expires_on = ANY(%(days)s::date[]) AND p.id = ANY(%(ids)s::uuid[])
  AND p.expires_on BETWEEN %(first_day)s AND %(last_day)s
"""
_DELIVERIES_OF_EVENTS = f"""
SELECT event_id, status, count(*)
FROM webhook_deliveries
WHERE {of_tenant("webhook_deliveries")} AND event_id = ANY(%(events)s::uuid[]) AND id >= %(first)s AND id < %(last)s
GROUP BY event_id, status
"""  # noqa: S608 - only a condition is formatted in
_STATE = f"{_STORED} UNION ALL {_DELIVERIES_OF_EVENTS}"


def search(
    *,
    tenant_id: UUID,
    environment: str,
    types: Collection[str] = (),
    equal: Mapping[str, Any],
    begin: datetime | None = None,
    end: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> Page[Event]:
    """A tenant's events of one environment, newest first.

    The events have one of the types and these column values, and were created at or after `begin` and before `end`. A
    list in `equal` stands for any of its values. The page begins with the newest event before the id `before`. A page
    can have fewer than `limit` events, even none, and still have a next page.
    """
    conditions = ["environment = %(environment)s", *conditions_of(equal)]
    if types:
        conditions.append("type = ANY(%(types)s)")
    return replica.read(
        lambda alias: _EVENTS.page(
            _walks(environment, types, equal),
            conditions=conditions,
            parameters={
                "tenant_id": tenant_id,
                "environment": environment,
                "types": list(types),
                **equal,
            },
            first=ids.first_at(begin) if begin is not None else FIRST_ID,
            before=min(before or LAST_ID, ids.first_at(end) if end is not None else LAST_ID),
            limit=limit,
            using=alias,
        )
    )


def may_have_since(*, tenant_id: UUID, environment: str, first: UUID) -> bool:
    """Whether a tenant has events of one environment with ids from `first` on.

    True as well if the bounded walk ends before it finds one: the events may be farther back.
    """
    found = _EVENTS.page(
        _walks(environment, (), {}),
        conditions=["environment = %(environment)s"],
        parameters={"tenant_id": tenant_id, "environment": environment},
        first=first,
        limit=1,
    )
    return bool(found.rows) or found.before is not None


def _walks(environment: str, types: Collection[str], equal: Mapping[str, Any]) -> list[Walk]:
    """The indexes that can serve a search, the most likely first."""
    for name in _OF_ONE_CUSTOMER:
        if name in equal:
            return [Walk(_TENANT, name, values_of(equal[name]))]
    walks = [Walk(_TENANT, name, [equal[name]]) for name in ("phone_number_id", "waba_id") if name in equal]
    if types:
        walks.insert(0, Walk(_TENANT, "type", sorted(set(types))))
    if environment == LIVE:
        return walks or [Walk(_TENANT)]
    # 'test' is written out, because a parameter would not match the condition of the partial index.
    return [*walks, Walk(f"{_TENANT} AND environment = 'test'")]


def find(*, tenant_id: UUID, environment: str, event_id: str) -> Event:
    """A tenant's event in one environment, by its public id. Raises NotFound."""
    key = ids.decode(ids.EVENT, event_id)
    event = Event.objects.for_environment(tenant_id, environment).filter(pk=key).first() if key else None
    if event is None:
        raise NotFound("There is no such event.")
    return event


def with_stored_state(events: Sequence[Event], *, tenant_id: UUID) -> Sequence[Event]:
    """Set `payload_available` and `delivery_counts` of a tenant's events, for lists. One query reads both.

    An event's body is available while its `data` is stored and within retention.
    """
    if not events:
        return events
    days = {event.payload_expires_on for event in events}
    # Keyed by integers, because hashing a UUID runs Python code.
    kept_days: dict[int, int] = {}
    counts = {event.id.int: _NO_DELIVERIES.copy() for event in events}
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(
            _STATE,
            {
                "tenant_id": tenant_id,
                "days": list(days),
                "ids": uuids(event.id for event in events),
                "first_day": min(days),
                "last_day": max(days),
                **_delivery_parameters(events),
            },
        )
        for row_id, status, value in cursor.fetchall():
            if status is None:
                kept_days[row_id.int] = value
            else:
                counts[row_id.int][status] = value
    moment = now()
    for event in events:
        days_kept = kept_days.get(event.id.int)
        event.payload_available = days_kept is not None and within_retention(event.id, days_kept, moment)
        event.delivery_counts = counts[event.id.int]
    return events


def delivery_counts(events: Sequence[Event], *, tenant_id: UUID) -> dict[UUID, dict[str, int]]:
    """The number of deliveries by status, for each of a tenant's events. One query reads all counts."""
    counts = _no_counts(events)
    if counts:
        with bulk_cursor(prepared=True) as cursor:
            cursor.execute(_DELIVERIES_OF_EVENTS, {"tenant_id": tenant_id, **_delivery_parameters(events)})
            for event_id, status, count in cursor.fetchall():
                counts[event_id][status] = count
    return counts


def _no_counts(events: Iterable[Event]) -> dict[UUID, dict[str, int]]:
    return {event.id: _NO_DELIVERIES.copy() for event in events}


def _delivery_parameters(events: Collection[Event]) -> dict[str, Any]:
    event_ids = [event.id for event in events]
    return {"events": uuids(event_ids), "first": _first_delivery(min(event_ids)), "last": id_after_all()}


def deliveries(event: Event) -> list[Delivery]:
    """An event's deliveries, newest first, at most `MAX_DELIVERIES`."""
    rows = Delivery.objects.for_tenant(event.tenant_id).filter(
        event_id=event.id, id__gte=_first_delivery(event.id)
    )
    return list(rows.defer("attempt_log", "answers").order_by("-id")[:MAX_DELIVERIES])


def _first_delivery(event_id: UUID) -> UUID:
    return ids.first_at(ids.created_at(event_id))
