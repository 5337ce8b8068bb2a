"""Waiting batches: the reason is an unconnected or released number, or a tenant that is not served.

`note` writes the reason and the time since when the batch waits on every open batch that no runner holds. It runs
before each claim of batches, so the reason is at most a few seconds old. A batch that waited for PATIENCE, or whose
number was released, is claimed once more to end it: its unsent items are skipped (decision "Messages").
"""

from datetime import timedelta

from django.db import connection

from tenants.standing.served import SERVED

PATIENCE = timedelta(hours=24)
"""A wait longer than this ends the batch."""

_NOTE = f"""
UPDATE messaging_batch b
SET waiting_for = w.reason,
    waiting_since = CASE WHEN w.reason IS NOT NULL THEN COALESCE(b.waiting_since, now()) END
FROM (
    SELECT c.id, r.reason
    FROM messaging_batch c
        JOIN tenants_tenant t ON t.id = c.tenant_id
        LEFT JOIN numbers_phonenumber n
            ON n.phone_number_id = c.phone_number_id AND n.tenant_id = c.tenant_id AND n.environment = c.environment,
        LATERAL (SELECT CASE WHEN NOT {SERVED.format(row="c")} THEN 'tenant_suspended'
                             WHEN n.id IS NULL THEN 'number_released'
                             WHEN n.connection_state <> 'connected' THEN 'number_not_connected' END) AS r (reason)
    WHERE c.completed_at IS NULL AND (c.lease_until IS NULL OR c.lease_until < now())
      AND c.waiting_for IS DISTINCT FROM r.reason
    ORDER BY c.id
    FOR NO KEY UPDATE OF c SKIP LOCKED
) AS w
WHERE b.id = w.id
"""  # noqa: S608 - only a condition is formatted in


def note() -> None:
    """Write why each open batch waits that no runner holds. Batches that another process is changing are left out."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE)
