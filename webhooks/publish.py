"""Publishing: events, their bodies and their deliveries, written together, each event once.

Called by every flow that makes events, inside that flow's own transaction, so that an event exists exactly when
its cause does. What was published before (same tenant, same dedupe key) is passed over silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.db import connection, transaction

from gateway import ids
from webhooks import wake
from webhooks.bulk import bulk_cursor
from webhooks.event_types import ALL


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish: the envelope's members (section 6) without ids and times. `data` is JSON bytes.

    `id` is for a caller that keeps the event's id beside its own row; otherwise publishing makes one.
    """

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
    id: UUID | None = None


# One round trip: the key decides what is new, and everything else is written for that alone. Keys are inserted in
# their order, so two processes with overlapping notifications wait for each other instead of deadlocking; the
# second then sees the first one's keys. Primary-key inserts only, plus three small indexes: no scan anywhere.
# A delivery's id is a UUIDv7 of its event's millisecond: Postgres before 18 cannot make one itself.
_PUBLISH = """
WITH draft AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(events)s::json) AS (
            id uuid, type text, dedupe_key text, raw_path text, waba_id text, phone_number_id text,
            display_phone_number text, wamid text, wa_id text, user_id text
        ),
        unnest(%(data)s::bytea[])
    ) AS d (id, type, dedupe_key, raw_path, waba_id, phone_number_id, display_phone_number, wamid, wa_id, user_id,
            data)
), kept AS (
    SELECT %(created_on)s::date + retention_days + 1 AS expires_on
    FROM tenants_tenant WHERE id = %(tenant_id)s::uuid
), new_key AS (
    INSERT INTO event_keys (tenant_id, dedupe_key, created_at)
    SELECT %(tenant_id)s::uuid, dedupe_key, now() FROM draft ORDER BY dedupe_key
    ON CONFLICT DO NOTHING
    RETURNING dedupe_key
), fresh AS (
    SELECT draft.*, kept.expires_on FROM draft JOIN new_key USING (dedupe_key), kept
), new_event AS (
    INSERT INTO events (id, tenant_id, type, waba_id, phone_number_id, display_phone_number, wamid, wa_id,
                        user_id, dedupe_key, raw_path, raw_id, payload_expires_on)
    SELECT id, %(tenant_id)s::uuid, type, waba_id, phone_number_id, display_phone_number, wamid, wa_id, user_id,
           dedupe_key, raw_path, %(raw_id)s::uuid, expires_on
    FROM fresh
), new_payload AS (
    INSERT INTO event_payloads (expires_on, id, tenant_id, body)
    SELECT expires_on, id, %(tenant_id)s::uuid, data FROM fresh
    UNION ALL
    SELECT expires_on, %(raw_id)s::uuid, %(tenant_id)s::uuid, %(raw)s::bytea FROM kept
    WHERE %(raw_id)s::uuid IS NOT NULL AND EXISTS (SELECT FROM fresh)
), new_delivery AS (
    INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, event_type, status, attempts,
                                    next_attempt_at, attempt_log, is_replay)
    SELECT (substr(fresh.id::text, 1, 13) || '-7' || substr(gen_random_uuid()::text, 16))::uuid,
           %(tenant_id)s::uuid, e.id, fresh.id, fresh.type, 'pending', 0, now(), '[]', false
    FROM fresh, webhooks_endpoint e
    WHERE e.tenant_id = %(tenant_id)s::uuid AND e.status = 'active'
      AND e.event_types && ARRAY[%(all)s::text, fresh.type]::varchar[]
    RETURNING event_id
)
SELECT id, EXISTS (SELECT FROM new_delivery) FROM fresh
"""


def publish(
    *, tenant_id: UUID, events: Sequence[NewEvent], raw: bytes | None = None, alone: bool = False
) -> list[UUID]:
    """Write events of one tenant with a delivery to every active endpoint that wants them.

    `raw` is the notification that the events' `raw_path` points into. Returns the ids of the events that are new.
    Must run inside the transaction of the events' cause; deliveries are woken when it commits. `alone` says that the
    events are all there is to write: the one statement is a transaction of its own then.
    """
    if not (alone or connection.in_atomic_block):
        raise transaction.TransactionManagementError("publish() belongs inside the transaction of its cause")
    drafts = list({event.dedupe_key: event for event in reversed(events)}.values())[::-1]
    if not drafts:
        return []
    event_ids = [event.id or ids.uuid7() for event in drafts]
    raw_id = ids.uuid7() if raw is not None else None
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(
            _PUBLISH,
            {
                "tenant_id": tenant_id,
                "created_on": ids.created_at(raw_id or event_ids[0]).date(),
                "all": ALL,
                "raw_id": raw_id,
                "raw": raw,
                "events": orjson.dumps(
                    [_row(event_id, event) for event_id, event in zip(event_ids, drafts, strict=True)]
                ).decode(),
                "data": [event.data for event in drafts],
            },
        )
        fresh = cursor.fetchall()
    if any(has_delivery for _, has_delivery in fresh):
        wake.after_commit()
    return [event_id for event_id, _ in fresh]


def _row(event_id: UUID, event: NewEvent) -> dict[str, UUID | str | None]:
    return {
        "id": event_id,
        "type": event.type,
        "dedupe_key": event.dedupe_key,
        "raw_path": event.raw_path,
        "waba_id": event.waba_id,
        "phone_number_id": event.phone_number_id,
        "display_phone_number": event.display_phone_number,
        "wamid": event.wamid,
        "wa_id": event.wa_id,
        "user_id": event.user_id,
    }
