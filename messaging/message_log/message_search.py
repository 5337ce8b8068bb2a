"""Reads the message log: searches by keyset, and one message with its events, their contents and their deliveries.

Called by `/v1/messages*`, the console and the conversations. A search walks one index from the newest match and reads
a bounded number of rows. A filter on a column without an index is a condition on these rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from gateway import ids
from gateway.api.errors import NotFound
from gateway.clock import now
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
from gateway.database.statements import StoredRows, bulk_cursor, uuids
from webhooks.events.envelope import within_retention
from webhooks.events.publish import LOOK_BACK
from webhooks.events.retention import LONGEST_RETENTION_DAYS
from webhooks.events.search import DELIVERIES, EVENTS
from webhooks.models import EXPUNGED, STATUS_CONDITIONS, Delivery, Event, Message

MOST_EVENTS = 200
"""How many events are shown with one message. A message to a group has a status for each participant."""
MOST_DELIVERIES = 500
LAST_REPLAY = timedelta(days=LONGEST_RETENTION_DAYS + 1)
"""How long after an event its last delivery can be created. A later replay is impossible, because the event's body has
expired.
"""
EARLIER = timedelta(minutes=10)
"""How much earlier than a message's first published event another event of the message can have been created."""

MESSAGES = StoredRows(Message)
_MESSAGES = BoundedList(MESSAGES, by_month=True)
_SCOPE = "tenant_id = %(tenant_id)s AND environment = %(environment)s"
_INDEXED = ("wa_id", "user_id", "batch_id", "referral_source_id")
"""Columns with an index that ends in the id. A filter on another column is a condition on the rows of a walk."""

# These statements are prepared, because planning for every partition takes many times as long as running. At run time,
# the ranges of the partition keys exclude partitions.
_EVENTS = f"""
SELECT {EVENTS} FROM events
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND wamid = %(wamid)s
  AND id >= %(first)s AND id < %(last)s
ORDER BY id DESC LIMIT %(most)s
"""  # noqa: S608 - only column names are formatted in
_CONTENTS = """
SELECT p.id, p.body, (SELECT retention_days FROM tenants_tenant WHERE id = %(tenant_id)s) AS retention_days
FROM event_payloads p
WHERE p.tenant_id = %(tenant_id)s AND p.id = ANY(%(ids)s::uuid[]) AND p.expires_on = ANY(%(days)s::date[])
  AND p.expires_on BETWEEN %(first_day)s AND %(last_day)s
"""
_FIND = f"""
SELECT {MESSAGES} FROM messages
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND key = %(key)s
"""  # noqa: S608 - only column names are formatted in
# The CTE has no tenant condition, so that the planner uses the index by event and never the index by tenant.
_DELIVERIES = f"""
WITH found AS MATERIALIZED (
    SELECT {DELIVERIES} FROM webhook_deliveries
    WHERE event_id = ANY(%(events)s::uuid[]) AND id >= %(first)s AND id < %(last)s
)
SELECT found.*, NULL::bytea, NULL::smallint FROM found
WHERE tenant_id = %(tenant_id)s ORDER BY id DESC LIMIT %(most)s
"""  # noqa: S608 - only column names are formatted in
# One statement reads contents and deliveries, which saves a round trip.
_CONTENTS_AND_DELIVERIES = f"""
SELECT contents.id, {"NULL, " * (len(DELIVERIES.columns) - 1)} contents.body, contents.retention_days
FROM ({_CONTENTS}) AS contents
UNION ALL ({_DELIVERIES})
"""  # noqa: S608 - only column names are formatted in


def search(
    *,
    tenant_id: UUID,
    environment: str,
    equal: Mapping[str, Any],
    status: str | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> Page[Message]:
    """A tenant's messages in one environment, newest first, filtered by column values, status and time of creation. A
    list in `equal` stands for any of its values.

    `begin` is inclusive, `end` exclusive. If the walk ends early, a page has fewer than `limit` messages, even none,
    and still has a next page.
    """
    conditions = conditions_of(equal)
    if status is not None:
        conditions.append(STATUS_CONDITIONS[status])
    return _MESSAGES.page(
        _walks(equal, status),
        conditions=conditions,
        parameters={"tenant_id": tenant_id, "environment": environment, **equal},
        first=ids.first_at(begin) if begin else FIRST_ID,
        before=min(before or LAST_ID, ids.first_at(end) if end else LAST_ID),
        limit=limit,
    )


def _walks(equal: Mapping[str, Any], status: str | None) -> list[Walk]:
    """The indexes that can serve a search: the indexes of the given columns, else the index of failed messages, else
    the index of all messages.
    """
    walks = [Walk(_SCOPE, name, values_of(equal[name])) for name in _INDEXED if name in equal]
    return walks or [Walk(f"{_SCOPE} AND failed_at IS NOT NULL" if status == "failed" else _SCOPE)]


def find(*, tenant_id: UUID, environment: str, key: str) -> Message:
    """A tenant's message in one environment, by its id. The row with the message itself is preferred to a row that only
    has statuses.

    Raises NotFound.
    """
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_FIND, {"tenant_id": tenant_id, "environment": environment, "key": key})
        rows = [MESSAGES.instance(row) for row in cursor.fetchall()]
    if not rows or key.startswith(EXPUNGED):
        raise NotFound("There is no such message.")
    return min(rows, key=lambda row: (row.event_id is None, row.month))


def events_of(message: Message) -> list[Event]:
    """The events of a message, oldest first: the newest `MOST_EVENTS`, and always the event that holds the message."""
    first = min(message.id, message.event_id or message.id)
    found: dict[UUID, Event] = {}
    if message.wamid is not None:
        made_at = ids.created_at(first)
        with bulk_cursor(prepared=True) as cursor:
            cursor.execute(
                _EVENTS,
                {
                    "tenant_id": message.tenant_id,
                    "environment": message.environment,
                    "wamid": message.wamid,
                    "first": ids.first_at(made_at - EARLIER),
                    "last": min(ids.first_at(made_at + LOOK_BACK), id_after_all()),
                    "most": MOST_EVENTS,
                },
            )
            named = [EVENTS.instance(row) for row in cursor.fetchall()]
        found = {event.id: event for event in named}
    if message.event_id is not None and message.event_id not in found:
        rows = Event.objects.for_environment(message.tenant_id, message.environment)
        found |= {event.id: event for event in rows.filter(pk=message.event_id)}
    return sorted(found.values(), key=lambda event: event.id)


def contents(tenant_id: UUID, events: Sequence[Event]) -> dict[UUID, bytes]:
    """The `data` of a tenant's events, by event. Events whose bodies are past retention are left out."""
    if not events:
        return {}
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_CONTENTS, _of_contents(tenant_id, events))
        return _within_retention(cursor.fetchall())


def contents_and_deliveries(
    tenant_id: UUID, events: Sequence[Event]
) -> tuple[dict[UUID, bytes], dict[UUID, list[Delivery]]]:
    """`contents`, and the newest `MOST_DELIVERIES` deliveries of a tenant's events. One query reads both."""
    deliveries: dict[UUID, list[Delivery]] = {event.id: [] for event in events}
    if not events:
        return {}, deliveries
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(
            _CONTENTS_AND_DELIVERIES,
            {
                **_of_contents(tenant_id, events),
                "events": uuids(deliveries),
                "first": ids.first_at(ids.created_at(min(deliveries))),
                "last": min(ids.first_at(ids.created_at(max(deliveries)) + LAST_REPLAY), id_after_all()),
                "most": MOST_DELIVERIES,
            },
        )
        rows = cursor.fetchall()
    bodies = [(row[0], *row[-2:]) for row in rows if row[-1] is not None]
    for row in sorted((row for row in rows if row[-1] is None), key=itemgetter(0), reverse=True):
        delivery = DELIVERIES.instance(row[:-2])
        deliveries[delivery.event_id].append(delivery)
    return _within_retention(bodies), deliveries


def _of_contents(tenant_id: UUID, events: Sequence[Event]) -> dict[str, Any]:
    days = {event.payload_expires_on for event in events}
    return {
        "tenant_id": tenant_id,
        "ids": uuids(event.id for event in events),
        "days": list(days),
        "first_day": min(days),
        "last_day": max(days),
    }


def _within_retention(bodies: Iterable[tuple[UUID, bytes, int]]) -> dict[UUID, bytes]:
    moment = now()
    return {
        event_id: bytes(body)
        for event_id, body, retention_days in bodies
        if within_retention(event_id, retention_days, moment)
    }
