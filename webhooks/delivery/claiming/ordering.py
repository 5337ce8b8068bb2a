"""Ordered delivery: of each customer of an ordered endpoint one event is under way, the oldest that is open.

A delivery to an ordered endpoint carries `customer_key`. It may be claimed when its customer has no open delivery of an
older event and none that is under way. A retry therefore holds back its customer and nobody else.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from gateway.database.statements import Statements, uuids

SCANNED_ROWS = 2_000
"""Due deliveries of an endpoint that one claim looks through. What a retry holds back is put off until that retry, so
it is looked through once."""

# An event that was committed late may be older than one that another worker is just claiming: claims of one ordered
# endpoint follow one another, and each sees what the one before has leased.
_ALONE = """
SELECT id FROM unnest(%s::uuid[]) AS ready (id)
WHERE pg_try_advisory_xact_lock(hashtextextended('ordered:' || id::text, 0))
"""

_DUE = """
    SELECT id, endpoint_id, event_id, customer_key FROM webhook_deliveries
    WHERE endpoint_id = {endpoint} AND status IN ('pending', 'failed') AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT {limit}
"""

# By the partial index `delivery_in_order`.
_LOCK = f"""
SELECT d.id, d.endpoint_id, d.leased_until IS NOT NULL FROM webhook_deliveries d
WHERE d.status IN ('pending', 'failed') AND d.next_attempt_at <= now() AND d.id = ANY(ARRAY(
    SELECT head.id FROM unnest(%(endpoints)s::uuid[], %(rows)s::int[]) AS share (endpoint_id, rows)
    CROSS JOIN LATERAL (
        SELECT due.id FROM ({_DUE.format(endpoint="share.endpoint_id", limit="%(scanned)s")}) AS due
        WHERE due.customer_key IS NULL OR NOT EXISTS (
            SELECT FROM webhook_deliveries o
            WHERE o.endpoint_id = due.endpoint_id AND o.customer_key = due.customer_key
              AND o.status IN ('pending', 'failed') AND o.id <> due.id
              AND (o.leased_until > now() OR (o.event_id, o.id) < (due.event_id, due.id))
        )
        LIMIT share.rows
    ) AS head
))
FOR UPDATE OF d SKIP LOCKED
"""  # noqa: S608 - only parts of statements are formatted in

_PUT_OFF = f"""
UPDATE webhook_deliveries d SET next_attempt_at = held.until
FROM unnest(%(endpoints)s::uuid[]) AS ordered (endpoint_id)
CROSS JOIN LATERAL (
    SELECT due.id, first.next_attempt_at AS until
    FROM ({_DUE.format(endpoint="ordered.endpoint_id", limit="%(scanned)s")}) AS due
    CROSS JOIN LATERAL (
        SELECT o.next_attempt_at, o.leased_until FROM webhook_deliveries o
        WHERE o.endpoint_id = due.endpoint_id AND o.customer_key = due.customer_key
          AND o.status IN ('pending', 'failed') AND (o.event_id, o.id) < (due.event_id, due.id)
        ORDER BY o.event_id, o.id LIMIT 1
    ) AS first
    WHERE first.leased_until IS NULL AND first.next_attempt_at > now()
) AS held
WHERE d.id = held.id AND d.status IN ('pending', 'failed') AND d.next_attempt_at <= now()
"""  # noqa: S608 - only parts of statements are formatted in


def locking(shares: Mapping[UUID, int]) -> Statements[list[tuple[Any, ...]]]:
    """Lock the first due deliveries of ordered endpoints' shares: at most one of each customer."""
    if not shares:
        return []
    alone = [endpoint_id for (endpoint_id,) in (yield _ALONE, [uuids(shares)])]
    if not alone:
        return []
    values = {
        "endpoints": uuids(alone),
        "rows": [shares[endpoint_id] for endpoint_id in alone],
        "scanned": SCANNED_ROWS,
    }
    locked = yield _LOCK, values
    yield _PUT_OFF, values
    return locked
