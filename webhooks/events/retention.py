"""Retention: the time-partitioned tables of the event log, bodies that move, and old keys (docs/architecture.md).

A body is stored in the partition of the week in which it expires, and partitions are dropped whole. After a change of a
tenant's `retention_days`, its bodies move to the partitions of their new weeks, in small batches, resumable and
idempotent. Bodies past a shorter retention are deleted. Reads do not wait for the move: a body past retention counts as
gone at once. Beat calls `move_bodies` and `prune_keys`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from gateway import ids
from gateway.database.distribution import together
from gateway.database.partitions import PartitionedTable, delete_before, register
from gateway.database.transactions import concerns_all
from webhooks.models import EXPUNGED, OLDEST_HISTORY, Event, EventKey, RetentionMove, expires_on

LONGEST_RETENTION_DAYS = 365

EVENTS = register(
    PartitionedTable("events", "month", "id", ahead_days=93, keep_days=lambda: settings.EVENT_METADATA_DAYS)
)
PAYLOADS = register(
    PartitionedTable(
        "event_payloads", "week", "date", ahead_days=LONGEST_RETENTION_DAYS + 28, keep_days=lambda: 0
    )
)
DELIVERIES = register(
    PartitionedTable(
        "webhook_deliveries", "week", "id", ahead_days=28, keep_days=lambda: settings.EVENT_METADATA_DAYS
    )
)
MESSAGES = register(
    PartitionedTable(
        "messages",
        "month",
        "date",
        ahead_days=93,
        keep_days=lambda: settings.EVENT_METADATA_DAYS,
        date_column="month",
        fillfactor=70,
        # Old chats of the WhatsApp Business app are stored in the months in which they were sent (upstream fact 3.6).
        behind_days=OLDEST_HISTORY.days,
    )
)
"""Each status updates the row of its message, usually within minutes. The fill factor leaves room for the update on
the row's page.
"""


def deleted_on(created_at: datetime, retention_days: int) -> date:
    """The day in UTC on which a body is deleted: then its partition is dropped."""
    return PAYLOADS.after(PAYLOADS.start_of(expires_on(created_at, retention_days)))


log = structlog.get_logger(__name__)

BATCH_EVENTS = 500
RUN_SECONDS = 50.0
KEY_DAYS = 8
"""How long dedupe keys are stored. Meta repeats a notification for up to seven days (upstream fact 3.1)."""
NOTIFICATION_SPAN = timedelta(seconds=60)
"""All events of one notification are made at most this long before the notification is stored."""
_BEGIN = UUID(int=0)

# Schedules the move of a tenant's bodies if the table has no row of the tenant, and after each change of the tenant's
# retention.
_NOTICE = """
INSERT INTO webhooks_retentionmove (tenant_id, retention_days, after)
SELECT t.id, t.retention_days, %(begin)s FROM tenants_tenant t
LEFT JOIN webhooks_retentionmove m ON m.tenant_id = t.id
WHERE m.tenant_id IS NULL OR m.retention_days <> t.retention_days
FOR KEY SHARE OF t SKIP LOCKED
ON CONFLICT (tenant_id) DO UPDATE SET retention_days = excluded.retention_days, after = excluded.after
"""
_NEXT = """
SELECT id, raw_id FROM events WHERE tenant_id = %s AND id > %s ORDER BY id LIMIT %s
"""
# The events of a notification share its bytes, so their bodies move together, even beyond the size of a batch.
_TOGETHER = """
SELECT id, raw_id, payload_expires_on FROM events
WHERE tenant_id = %(tenant_id)s
  AND (id = ANY(%(ids)s) OR (id BETWEEN %(low)s AND %(high)s AND raw_id = ANY(%(raw_ids)s)))
FOR NO KEY UPDATE
"""
_MOVE_EVENTS = """
UPDATE events e SET payload_expires_on = m.expires_on
FROM unnest(%s::uuid[], %s::date[]) AS m (id, expires_on) WHERE e.tenant_id = %s AND e.id = m.id
"""
# A body past its new retention is deleted, because the partition of its new week may have been dropped.
_DELETE_ENDED_BODIES = """
DELETE FROM event_payloads p USING unnest(%s::uuid[], %s::date[], %s::date[]) AS m (id, before, later)
WHERE p.tenant_id = %s AND p.expires_on = m.before AND p.id = m.id
  AND m.later <= (now() AT TIME ZONE 'UTC')::date
"""
_MOVE_BODIES = """
UPDATE event_payloads p SET expires_on = m.later
FROM unnest(%s::uuid[], %s::date[], %s::date[]) AS m (id, before, later)
WHERE p.tenant_id = %s AND p.expires_on = m.before AND p.id = m.id
"""


def move_bodies(*, seconds: float = RUN_SECONDS, batch: int = BATCH_EVENTS) -> int:
    """Move the bodies of tenants whose retention changed, for some seconds. Returns how many events' bodies moved.

    A tenant whose bodies cannot be moved is logged, and skipped until the next run.
    """
    with connection.cursor() as cursor:
        cursor.execute(_NOTICE, {"begin": _BEGIN})
    moved, deadline = 0, time.monotonic() + seconds
    failed: set[UUID] = set()
    while (step := _move_batch(batch, failed)) is not None:
        moved += step
        if time.monotonic() > deadline:
            break
    if moved:
        log.info("bodies_moved", events=moved)
    return moved


def prune_keys() -> int:
    """Delete the dedupe keys of events that can no longer be repeated. Returns the number of deleted rows."""
    return delete_before(EventKey, "created_at", timedelta(days=KEY_DAYS))


@dataclass(frozen=True, slots=True)
class _Stored:
    """An event, and the day of the partition with its body."""

    id: UUID
    raw_id: UUID | None
    expires_on: date

    def belongs_on(self, retention_days: int) -> date:
        """The day of the partition in which the event's body belongs. It is the same for all events of a
        notification.
        """
        return expires_on(ids.created_at(self.raw_id or self.id), retention_days)


def _move_batch(size: int, failed: set[UUID]) -> int | None:
    """Move the bodies of the next events of one tenant that is not in `failed`. Returns how many events' bodies moved.

    Adds the tenant to `failed` if its bodies cannot be moved. Returns None if every tenant is done, locked by another
    process, or in `failed`.
    """
    with transaction.atomic():
        work = (
            RetentionMove.objects.filter(after__isnull=False)
            .exclude(tenant_id__in=failed)
            .select_for_update(skip_locked=True)
            .order_by("tenant_id")
            .first()
        )
        if work is None:
            return None
        try:
            with transaction.atomic():
                return _move_events(work, size)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("bodies_not_moved", tenant_id=str(work.tenant_id))
            failed.add(work.tenant_id)
            return 0


def _move_events(work: RetentionMove, size: int) -> int:
    """Move the bodies of a tenant's next events. Returns how many events' bodies moved."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [work.tenant_id, work.after, size])
        found = cursor.fetchall()
        work.after = found[-1][0] if len(found) == size else None
        work.save(update_fields=["after"])
        if not found:
            return 0
        raw_ids = {raw_id for _, raw_id in found if raw_id is not None}
        cursor.execute(
            _TOGETHER,
            {
                "tenant_id": work.tenant_id,
                "ids": [event_id for event_id, _ in found],
                "raw_ids": list(raw_ids),
                "low": ids.first_at(ids.created_at(found[0][0]) - NOTIFICATION_SPAN),
                "high": max(raw_ids, default=_BEGIN),
            },
        )
        events = [
            event
            for row in cursor.fetchall()
            if (event := _Stored(*row)).expires_on != event.belongs_on(work.retention_days)
        ]
        moves = {
            (body, event.expires_on): event.belongs_on(work.retention_days)
            for event in events
            for body in (event.id, event.raw_id)
            if body is not None
        }
        cursor.execute(
            _MOVE_EVENTS,
            [
                [event.id for event in events],
                [event.belongs_on(work.retention_days) for event in events],
                work.tenant_id,
            ],
        )
        changes: list[Any] = [
            [body for body, _ in moves],
            [before for _, before in moves],
            list(moves.values()),
            work.tenant_id,
        ]
        cursor.execute(_DELETE_ENDED_BODIES, changes)
        cursor.execute(_MOVE_BODIES, changes)
        return len(events)


# --- Expunging: bodies of events are deleted before their retention ends, and the remaining rows identify no customer.
#
# The rows of events, deliveries and messages remain as the record of what was delivered when. Message ids and customer
# ids are removed from them. Idempotent.
_DELETE_BODIES = """
DELETE FROM event_payloads p USING unnest(%(days)s::date[], %(bodies)s::uuid[]) AS gone (expires_on, id)
WHERE p.tenant_id = ANY(%(tenants)s) AND p.expires_on = gone.expires_on AND p.id = gone.id
"""
_EXPUNGE_PERSONS = """
UPDATE events SET wamid = NULL, wa_id = NULL, user_id = NULL, dedupe_key = %(expunged)s || id::text
WHERE tenant_id = ANY(%(tenants)s) AND id = ANY(%(ids)s)
"""
# Locks messages in the order in which publishing locks them.
_EXPUNGE_MESSAGES = """
WITH locked AS (
    SELECT m.tenant_id, m.environment, m.key, m.month, m.id FROM messages m
    WHERE m.tenant_id = ANY(%(tenants)s) AND (m.tenant_id, m.environment, m.key) IN (
        SELECT e.tenant_id, e.environment, e.wamid FROM events e
        WHERE e.tenant_id = ANY(%(tenants)s) AND e.id = ANY(%(ids)s) AND e.wamid IS NOT NULL
    )
    ORDER BY m.tenant_id, m.environment, m.key, m.month
    FOR UPDATE
)
UPDATE messages m SET key = %(expunged)s || locked.id::text, wa_id = NULL, user_id = NULL, referral_ctwa_clid = NULL
FROM locked
WHERE m.tenant_id = ANY(%(tenants)s) AND m.tenant_id = locked.tenant_id
  AND m.environment = locked.environment AND m.key = locked.key AND m.month = locked.month
"""
# An endpoint's answer may quote the event.
_EXPUNGE_ANSWERS = """
UPDATE webhook_deliveries SET attempt_log = '[]', answers = NULL, customer_key = NULL
WHERE tenant_id = ANY(%(tenants)s) AND event_id = ANY(%(ids)s) AND id >= %(first)s
  AND (attempt_log <> '[]' OR answers IS NOT NULL OR customer_key IS NOT NULL)
"""


def remaining(tenant_id: UUID) -> QuerySet[Event]:
    """The events of a tenant that have not been expunged."""
    return Event.objects.for_tenant(tenant_id).exclude(dedupe_key__startswith=EXPUNGED)


_EXPUNGED_BY = ("id", "tenant_id", "raw_id", "payload_expires_on")


def in_batches(rows: QuerySet[Event]) -> Iterator[list[Event]]:
    """Yield events in batches, in the order of their ids. Leaves out events that are expunged meanwhile."""
    after = UUID(int=0)
    while events := list(rows.filter(id__gt=after).order_by("id").only(*_EXPUNGED_BY)[:BATCH_EVENTS]):
        after = events[-1].id
        yield events


def expunge(rows: QuerySet[Event]) -> int:
    """Delete the bodies of events and remove the ids of customers and messages. Returns the number of events."""
    return sum(expunge_events(events) for events in in_batches(rows))


def expunge_events(events: Sequence[Event]) -> int:
    """Expunge events, given in the order of their ids, in one transaction. Returns their number.

    An event's notification is deleted with the event. The other events of the notification have only their `data` then.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        for _, some in together(events, attrgetter("tenant_id")):
            bodies = [
                (event.payload_expires_on, body)
                for event in some
                for body in (event.id, event.raw_id)
                if body
            ]
            values: dict[str, Any] = {
                "tenants": list({event.tenant_id for event in some}),
                "ids": [event.id for event in some],
                "days": [day for day, _ in bodies],
                "bodies": [body for _, body in bodies],
                "first": ids.first_at(events[0].created_at),
                "expunged": EXPUNGED,
            }
            for statement in (_DELETE_BODIES, _EXPUNGE_MESSAGES, _EXPUNGE_PERSONS, _EXPUNGE_ANSWERS):
                cursor.execute(statement, values)
    return len(events)
