"""Publishing: events, their bodies and their deliveries, written together, each event once.

Called by every flow that makes events, inside that flow's own transaction, so that an event exists exactly when
its cause does. What was published before (same tenant, same dedupe key) is passed over silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from gateway import ids
from webhooks import wake
from webhooks.event_types import ALL
from webhooks.models import expires_on


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish: the envelope's members (section 6) without ids and times. `data` is JSON bytes."""

    type: str
    dedupe_key: str
    data: bytes
    raw_path: str | None = None
    waba_id: str | None = None
    phone_number_id: str | None = None
    display_phone_number: str | None = None
    wamid: str | None = None
    wa_id: str | None = None
    user_id: str | None = None


_RECIPIENTS = """
SELECT t.retention_days, e.id, e.event_types
FROM tenants_tenant t LEFT JOIN webhooks_endpoint e ON e.tenant_id = t.id AND e.status = 'active'
WHERE t.id = %(tenant_id)s
"""

# One round trip: the key decides what is new, and everything else is written for that alone. Keys are inserted in
# their order, so two processes with overlapping notifications wait for each other instead of deadlocking; the
# second then sees the first one's keys. Primary-key inserts only, plus three small indexes: no scan anywhere.
_PUBLISH = """
WITH draft AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(types)s::text[], %(keys)s::text[], %(data)s::bytea[], %(raw_paths)s::text[],
        %(waba_ids)s::text[], %(phone_number_ids)s::text[], %(display_numbers)s::text[],
        %(wamids)s::text[], %(wa_ids)s::text[], %(user_ids)s::text[]
    ) AS d (id, type, dedupe_key, data, raw_path, waba_id, phone_number_id, display_phone_number,
            wamid, wa_id, user_id)
), new_key AS (
    INSERT INTO event_keys (tenant_id, dedupe_key, created_at)
    SELECT %(tenant_id)s, dedupe_key, now() FROM draft ORDER BY dedupe_key
    ON CONFLICT DO NOTHING
    RETURNING dedupe_key
), fresh AS (
    SELECT draft.* FROM draft JOIN new_key USING (dedupe_key)
), new_event AS (
    INSERT INTO events (id, tenant_id, type, waba_id, phone_number_id, display_phone_number, wamid, wa_id,
                        user_id, dedupe_key, raw_path, raw_id, payload_expires_on)
    SELECT id, %(tenant_id)s, type, waba_id, phone_number_id, display_phone_number, wamid, wa_id, user_id,
           dedupe_key, raw_path, %(raw_id)s, %(expires_on)s
    FROM fresh
), new_payload AS (
    INSERT INTO event_payloads (expires_on, id, tenant_id, body)
    SELECT %(expires_on)s, id, %(tenant_id)s, data FROM fresh
    UNION ALL
    SELECT %(expires_on)s, %(raw_id)s, %(tenant_id)s, %(raw)s
    WHERE %(raw_id)s IS NOT NULL AND EXISTS (SELECT FROM fresh)
), new_delivery AS (
    INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, event_type, status, attempts,
                                    next_attempt_at, attempt_log, is_replay)
    SELECT d.id, %(tenant_id)s, d.endpoint_id, fresh.id, fresh.type, 'pending', 0, now(), '[]', false
    FROM unnest(%(delivery_ids)s::uuid[], %(delivery_endpoints)s::uuid[], %(delivery_events)s::uuid[])
        AS d (id, endpoint_id, event_id)
    JOIN fresh ON fresh.id = d.event_id
)
SELECT id FROM fresh
"""


def publish(*, tenant_id: UUID, events: Sequence[NewEvent], raw: bytes | None = None) -> list[UUID]:
    """Write events of one tenant with a delivery to every active endpoint that wants them.

    `raw` is the notification that the events' `raw_path` points into. Returns the ids of the events that are new.
    Must run inside a transaction; deliveries are woken when it commits.
    """
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("publish() belongs inside the transaction of its cause")
    drafts = list({event.dedupe_key: event for event in reversed(events)}.values())[::-1]
    if not drafts:
        return []
    event_ids = [ids.uuid7() for _ in drafts]
    with connection.cursor() as cursor:
        cursor.execute(_RECIPIENTS, {"tenant_id": tenant_id})
        recipients = cursor.fetchall()
        deliveries = [
            (ids.uuid7(), endpoint_id, event_id)
            for event_id, event in zip(event_ids, drafts, strict=True)
            for _, endpoint_id, wanted in recipients
            if endpoint_id is not None and (ALL in wanted or event.type in wanted)
        ]
        cursor.execute(
            _PUBLISH,
            {
                "tenant_id": tenant_id,
                "expires_on": expires_on(ids.created_at(event_ids[0]), recipients[0][0]),
                "raw_id": ids.uuid7() if raw is not None else None,
                "raw": raw,
                "ids": event_ids,
                "types": [event.type for event in drafts],
                "keys": [event.dedupe_key for event in drafts],
                "data": [event.data for event in drafts],
                "raw_paths": [event.raw_path for event in drafts],
                "waba_ids": [event.waba_id for event in drafts],
                "phone_number_ids": [event.phone_number_id for event in drafts],
                "display_numbers": [event.display_phone_number for event in drafts],
                "wamids": [event.wamid for event in drafts],
                "wa_ids": [event.wa_id for event in drafts],
                "user_ids": [event.user_id for event in drafts],
                "delivery_ids": [delivery[0] for delivery in deliveries],
                "delivery_endpoints": [delivery[1] for delivery in deliveries],
                "delivery_events": [delivery[2] for delivery in deliveries],
            },
        )
        fresh = [event_id for (event_id,) in cursor.fetchall()]
    if fresh and deliveries:
        wake.after_commit()
    return fresh
