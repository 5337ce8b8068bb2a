"""Retention: bodies move when a tenant's `retention_days` changes, and old keys are forgotten (docs/architecture.md).

A body is stored in the partition of the week in which it expires, and a partition is dropped as a whole. After a change
of retention a tenant's bodies move to the partitions of their new weeks, in small batches, resumable and idempotent.
Reads do not wait for the move: a body past its retention counts as gone at once. Beat calls `move_bodies` and
`forget_keys`.
"""

import time
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

import structlog
from django.db import connection, transaction

from gateway import ids
from gateway.clock import now
from gateway.database.outage import concerns_all
from gateway.database.pruning import delete_before
from webhooks.models import EventKey, RetentionMove, expires_on

log = structlog.get_logger(__name__)

BATCH_EVENTS = 500
RUN_SECONDS = 50.0
KEY_DAYS = 8
"""The upstream repeats a notification for up to seven days (upstream fact 3.1)."""
NOTIFICATION_SPAN = timedelta(seconds=60)
"""All events of one notification are made within this time before it is stored."""
_BEGIN = UUID(int=0)

# A tenant's events are gone through once when the tenant is new here, and again after each change of its retention.
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
# The events of a notification share its bytes, so they move together, also past the end of a batch.
_TOGETHER = """
SELECT id, raw_id, payload_expires_on FROM events
WHERE tenant_id = %(tenant_id)s
  AND (id = ANY(%(ids)s) OR (id BETWEEN %(low)s AND %(high)s AND raw_id = ANY(%(raw_ids)s)))
FOR NO KEY UPDATE
"""
_MOVE_EVENTS = """
UPDATE events e SET payload_expires_on = m.expires_on
FROM unnest(%s::uuid[], %s::date[]) AS m (id, expires_on) WHERE e.id = m.id
"""
_MOVE_BODIES = """
UPDATE event_payloads p SET expires_on = m.later
FROM unnest(%s::uuid[], %s::date[], %s::date[]) AS m (id, before, later)
WHERE p.expires_on = m.before AND p.id = m.id
"""


def move_bodies(*, seconds: float = RUN_SECONDS, batch: int = BATCH_EVENTS) -> int:
    """Move the bodies of tenants whose retention changed, for some seconds. Returns how many events moved.

    A tenant whose bodies cannot be moved is logged and passed over until the next run.
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


def forget_keys() -> int:
    """Forget the dedupe keys that no repeat can come for any more."""
    return delete_before(EventKey, "created_at", now() - timedelta(days=KEY_DAYS))


@dataclass(frozen=True, slots=True)
class _Stored:
    """An event and where its body lies."""

    id: UUID
    raw_id: UUID | None
    expires_on: date

    def belongs_on(self, retention_days: int) -> date:
        """By the moment at which its notification was stored: the same day for all events of it."""
        return expires_on(ids.created_at(self.raw_id or self.id), retention_days)


def _move_batch(size: int, failed: set[UUID]) -> int | None:
    """Move the next events of one tenant that has not `failed`; None when no tenant is left that nobody else holds."""
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
    """Move the bodies of a tenant's next events; returns how many events moved."""
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
            [[event.id for event in events], [event.belongs_on(work.retention_days) for event in events]],
        )
        cursor.execute(
            _MOVE_BODIES,
            [[body for body, _ in moves], [before for _, before in moves], list(moves.values())],
        )
        return len(events)
