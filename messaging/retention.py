"""Retention of the message flows' rows: hourly deletion, and expunging at a tenant's request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Q
from msgspec import Raw, Struct

from gateway import ids
from gateway.clock import now
from gateway.database.distribution import of_tenant
from gateway.database.partitions import delete_before, delete_free
from messaging import csv_batches
from messaging.batches.body import customers_of
from messaging.idempotency import WINDOW
from messaging.models import Batch, BatchFile, IdempotencyRecord, KeptNotification, OptOut
from messaging.sending.customer_hours import country_code
from messaging.sending.outbound import outcome_unknown
from webhooks.events import envelope
from webhooks.events import retention as events
from webhooks.models import EXPUNGED, Event

UNROUTED = timedelta(days=30)
"""How long notifications that belong to no tenant are retained."""

# --- Pruning of rows that the message flows store for a limited time. Called hourly by beat.


def prune_kept_notifications() -> int:
    """Delete notifications that belong to no tenant and are older than `UNROUTED`. Returns the number of rows."""
    return delete_before(KeptNotification, "received_at", UNROUTED)


def prune_idempotency_records() -> int:
    """Delete idempotency records older than 24 hours (specification 8). Returns the number of rows."""
    return delete_before(IdempotencyRecord, "started_at", WINDOW)


def prune_batch_files() -> int:
    """Delete CSV files from which no batch was created within a day. Returns the number of rows."""
    return delete_free(
        BatchFile.objects.filter(batch_id__isnull=True, created_at__lt=now() - csv_batches.KEPT)
    )


# Deletes a few batches at a time, because each has up to 10,000 items.
_DELETE_BATCHES = """
WITH old AS MATERIALIZED (
    SELECT b.id FROM messaging_batch b JOIN tenants_tenant t ON t.id = b.tenant_id
    WHERE b.completed_at < now() - make_interval(days => t.retention_days)
    ORDER BY b.completed_at LIMIT 10
    FOR UPDATE OF b SKIP LOCKED
), items AS (
    DELETE FROM messaging_batchitem i USING old WHERE i.batch_id = old.id
), files AS (
    DELETE FROM messaging_batchfile f USING old WHERE f.batch_id = old.id
)
DELETE FROM messaging_batch b USING old WHERE b.id = old.id
"""


def prune_batches() -> int:
    """Delete ended batches past their tenant's retention, with items and files. Returns the number of batches."""
    deleted = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_DELETE_BATCHES)
            if not cursor.rowcount:
                return deleted
            deleted += cursor.rowcount


# Deletes a limited number of messages in one transaction, so that it holds locks only briefly.
_DELETE_SCHEDULED = """
WITH old AS MATERIALIZED (
    SELECT s.id FROM messaging_scheduledmessage s JOIN tenants_tenant t ON t.id = s.tenant_id
    WHERE s.ended_at < now() - make_interval(days => t.retention_days)
    ORDER BY s.ended_at LIMIT 1000
    FOR UPDATE OF s SKIP LOCKED
)
DELETE FROM messaging_scheduledmessage s USING old WHERE s.id = old.id
"""


def prune_scheduled_messages() -> int:
    """Delete ended scheduled messages past their tenant's retention. Returns the number of messages."""
    deleted = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_DELETE_SCHEDULED)
            if not cursor.rowcount:
                return deleted
            deleted += cursor.rowcount


# --- Expunging events, and the copies of their content in batches, at a tenant's request before retention ends.
#
# Called by `manage.py expunge` and `erasure.py`. Unsent messages stay, because they are still to be sent. The stored
# answers of Idempotency-Keys stay until they are 24 hours old, so that no message is sent twice.

# An ended item still has its answer, and its body if it may be retried. An unknown outcome stays. The statement handles
# one batch at a time, by primary keys.
_EXPUNGE_ANSWERS = f"""
UPDATE messaging_batchitem i SET wamid = NULL, message_ref = NULL, body = '',
    response = CASE WHEN position('"outcome_unknown"'::bytea IN i.response) > 0 THEN %(unknown)s::bytea END
FROM events e
WHERE i.batch_id = %(batch_id)s AND {of_tenant("e")} AND e.id = i.event_id
  AND starts_with(e.dedupe_key, %(expunged)s)
  AND (i.wamid IS NOT NULL OR i.response IS NOT NULL OR i.message_ref IS NOT NULL OR i.body <> '')
"""  # noqa: S608 - only a condition is formatted in

# A skipped item has no event, so only its reference can name the customer.
_EXPUNGE_REFERENCES = """
UPDATE messaging_batchitem SET message_ref = NULL
WHERE batch_id = %(batch_id)s AND status = 'skipped' AND event_id IS NULL AND message_ref IS NOT NULL
  AND (%(end)s::uuid IS NULL OR batch_id < %(end)s)
  AND (%(digits)s::text IS NULL OR position(%(digits)s IN regexp_replace(message_ref, '[^0-9]', '', 'g')) > 0)
  AND (%(user_id)s::text IS NULL OR position(%(user_id)s IN message_ref) > 0)
"""

_EXPUNGE_SCHEDULED_ANSWERS = """
UPDATE messaging_scheduledmessage s SET wamid = NULL, response = NULL
FROM events e
WHERE s.tenant_id = %s AND e.id = s.event_id AND e.tenant_id = s.tenant_id AND starts_with(e.dedupe_key, %s)
  AND (s.wamid IS NOT NULL OR s.response IS NOT NULL)
"""


NAMELESS = Q(wa_id=None, user_id=None)
"""The rows without a customer. For a message that Meta rejected or did not answer, only the body names the customer."""


class _Sent(Struct):
    class Data(Struct):
        request: Raw = Raw(b"{}")

    data: Data
    display_phone_number: str | None


_decode_sent = msgspec.json.Decoder(_Sent).decode


def expunge(
    *, tenant_id: UUID, wa_id: str | None = None, user_id: str | None = None, before: datetime | None = None
) -> int:
    """Delete bodies of a tenant's events: those of one customer, those older than a time, or all. Returns the number of
    events.

    The batch items of these events keep only status and times.
    """
    return sum(expunge_in_steps(tenant_id=tenant_id, wa_id=wa_id, user_id=user_id, before=before))


def expunge_in_steps(
    *, tenant_id: UUID, wa_id: str | None = None, user_id: str | None = None, before: datetime | None = None
) -> Iterator[int]:
    """Like `expunge`, but yields a number of events after each step."""
    rows = events.remaining(tenant_id)
    if before is not None:
        rows = rows.filter(id__lt=ids.first_at(before))
    named = rows
    if wa_id is not None:
        named = named.filter(wa_id=wa_id)
    if user_id is not None:
        named = named.filter(user_id=user_id)
    yield events.expunge(named)
    if wa_id is not None or user_id is not None:
        nameless = rows.filter(NAMELESS, type="message.outbound")
        for some in events.in_batches(nameless):
            yield events.expunge_events(_sent_to(some, wa_id=wa_id, user_id=user_id))
    skipped = {
        "end": ids.first_at(before) if before is not None else None,
        # Callers also write a number without its country code.
        "digits": wa_id.removeprefix(country_code(wa_id)) if wa_id is not None else None,
        "user_id": user_id,
    }
    yield from _expunge_answers(tenant_id, skipped)


def _sent_to(some: Sequence[Event], *, wa_id: str | None, user_id: str | None) -> list[Event]:
    """The events of the rejected messages to the customer. Only the bodies of these events name the recipient."""
    customers = customers_in_bodies([event.id for event in some], tenant_id=some[0].tenant_id)
    wanted = {name for name in (wa_id, user_id) if name is not None}
    return [event for event in some if wanted <= customers[event.id]]


def customers_in_bodies(event_ids: Iterable[UUID], *, tenant_id: UUID) -> dict[UUID, set[str]]:
    """The possible ids of the customers to whom the messages of outbound events are addressed. Empty for an event whose
    body is gone.
    """
    found = {}
    for event_id, body in envelope.load(event_ids, tenant_id=tenant_id).items():
        sent = _decode_sent(body.body()) if body is not None else None
        code = country_code(sent.display_phone_number or "") if sent is not None else ""
        found[event_id] = customers_of(bytes(sent.data.request), country_code=code) if sent else set()
    return found


def delete_opt_outs(tenant_id: UUID, **customer: str) -> int:
    """Delete the opt-outs of a tenant's customer, by `wa_id` or `user_id`, or those of all. Returns their number."""
    return OptOut.objects.filter(tenant_id=tenant_id, **customer).delete()[0]


def _expunge_answers(tenant_id: UUID, skipped: Mapping[str, Any]) -> Iterator[int]:
    for batch_id in Batch.objects.for_tenant(tenant_id).order_by("id").values_list("id", flat=True):
        with connection.cursor() as cursor:
            values: dict[str, Any] = {"batch_id": batch_id, "tenant_id": tenant_id, "expunged": EXPUNGED}
            values["unknown"] = outcome_unknown({})
            cursor.execute(_EXPUNGE_ANSWERS, values)
            cursor.execute(_EXPUNGE_REFERENCES, {"batch_id": batch_id, **skipped})
        yield 0
    with connection.cursor() as cursor:
        cursor.execute(_EXPUNGE_SCHEDULED_ANSWERS, [tenant_id, EXPUNGED])
