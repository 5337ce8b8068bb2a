"""Expunging: a tenant's bodies are deleted before their time, and what is kept of the events names nobody.

Called by `manage.py expunge` at a tenant's request. The rows of events and deliveries stay for the record of what was
delivered when; ids of messages and customers leave them. Safe to run again: what is expunged is not found twice.
"""

from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from gateway import ids
from webhooks.models import Event

BATCH_EVENTS = 500

_DELETE_BODIES = """
DELETE FROM event_payloads p USING unnest(%s::date[], %s::uuid[]) AS gone (expires_on, id)
WHERE p.expires_on = gone.expires_on AND p.id = gone.id
"""
_FORGET_PERSONS = """
UPDATE events SET wamid = NULL, wa_id = NULL, user_id = NULL, dedupe_key = 'expunged:' || id
WHERE id = ANY(%s)
"""
# What an endpoint answered may quote what it was sent.
_FORGET_ANSWERS = """
UPDATE webhook_deliveries SET attempt_log = '[]' WHERE event_id = ANY(%s) AND id >= %s AND attempt_log <> '[]'
"""


def expunge(
    *,
    tenant_id: UUID,
    wa_id: str | None = None,
    user_id: str | None = None,
    before: datetime | None = None,
    batch: int = BATCH_EVENTS,
) -> int:
    """Delete the bodies of a tenant's events: of one customer, or older than a moment, or all. Returns how many events.

    The notification that an event came in goes with it, and with that the bodies of other events that it held.
    """
    rows = Event.objects.for_tenant(tenant_id).exclude(dedupe_key__startswith="expunged:")
    if wa_id is not None:
        rows = rows.filter(wa_id=wa_id)
    if user_id is not None:
        rows = rows.filter(user_id=user_id)
    if before is not None:
        rows = rows.filter(id__lt=ids.first_at(before))
    expunged = 0
    after = UUID(int=0)
    while events := list(
        rows.filter(id__gt=after).order_by("id").only("id", "raw_id", "payload_expires_on")[:batch]
    ):
        after = events[-1].id
        bodies = [
            (event.payload_expires_on, body) for event in events for body in (event.id, event.raw_id) if body
        ]
        event_ids = [event.id for event in events]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_DELETE_BODIES, [[day for day, _ in bodies], [body for _, body in bodies]])
            cursor.execute(_FORGET_PERSONS, [event_ids])
            cursor.execute(_FORGET_ANSWERS, [event_ids, ids.first_at(events[0].created_at)])
        expunged += len(events)
    return expunged
