"""Expunging: bodies of events are deleted before their retention ends, and the rows that stay name nobody.

The rows of events, deliveries and messages stay as the record of what was delivered when. Message ids and customer ids
are removed from them. Idempotent.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from gateway import ids
from webhooks.message_models import EXPUNGED
from webhooks.models import Event

BATCH_EVENTS = 500

_DELETE_BODIES = """
DELETE FROM event_payloads p USING unnest(%s::date[], %s::uuid[]) AS gone (expires_on, id)
WHERE p.expires_on = gone.expires_on AND p.id = gone.id
"""
_FORGET_PERSONS = """
UPDATE events SET wamid = NULL, wa_id = NULL, user_id = NULL, dedupe_key = %s || id
WHERE id = ANY(%s)
"""
# Locked in the order in which publishing locks them.
_FORGET_MESSAGES = """
WITH locked AS (
    SELECT m.tenant_id, m.environment, m.key, m.month, m.id FROM messages m
    WHERE (m.tenant_id, m.environment, m.key) IN (
        SELECT e.tenant_id, e.environment, e.wamid FROM events e WHERE e.id = ANY(%s) AND e.wamid IS NOT NULL
    )
    ORDER BY m.tenant_id, m.environment, m.key, m.month
    FOR UPDATE
)
UPDATE messages m SET key = %s || locked.id, wa_id = NULL, user_id = NULL
FROM locked
WHERE m.tenant_id = locked.tenant_id AND m.environment = locked.environment AND m.key = locked.key
  AND m.month = locked.month
"""
# An endpoint's answer may quote the event.
_FORGET_ANSWERS = """
UPDATE webhook_deliveries SET attempt_log = '[]', answers = NULL, customer_key = NULL
WHERE event_id = ANY(%s) AND id >= %s
  AND (attempt_log <> '[]' OR answers IS NOT NULL OR customer_key IS NOT NULL)
"""


def remaining(tenant_id: UUID) -> QuerySet[Event]:
    """The events of a tenant that are not expunged."""
    return Event.objects.for_tenant(tenant_id).exclude(dedupe_key__startswith=EXPUNGED)


def in_batches(rows: QuerySet[Event]) -> Iterator[list[Event]]:
    """Events in the order of their ids, in batches; events that were expunged meanwhile are left out."""
    after = UUID(int=0)
    while events := list(
        rows.filter(id__gt=after).order_by("id").only("id", "raw_id", "payload_expires_on")[:BATCH_EVENTS]
    ):
        after = events[-1].id
        yield events


def expunge(rows: QuerySet[Event]) -> int:
    """Delete the bodies of events and remove the ids of customers and messages. Returns how many events."""
    return sum(expunge_events(events) for events in in_batches(rows))


def expunge_events(events: Sequence[Event]) -> int:
    """Expunge some events, given in the order of their ids, in one transaction. Returns how many.

    The notification that an event came in goes with it, and with that the bodies of other events that it held.
    """
    if not events:
        return 0
    bodies = [
        (event.payload_expires_on, body) for event in events for body in (event.id, event.raw_id) if body
    ]
    event_ids = [event.id for event in events]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_DELETE_BODIES, [[day for day, _ in bodies], [body for _, body in bodies]])
        cursor.execute(_FORGET_MESSAGES, [event_ids, EXPUNGED])
        cursor.execute(_FORGET_PERSONS, [EXPUNGED, event_ids])
        cursor.execute(_FORGET_ANSWERS, [event_ids, ids.first_at(events[0].created_at)])
    return len(events)
