"""Waiting deliveries of an endpoint that works again: their retries are due at once, regardless of the schedule."""

from uuid import UUID

from django.db import connection

MOST_HURRIED = 5_000
"""Most deliveries that one call of `hurry` makes due, those with the earliest retries first. The limit bounds its
statement, which runs within a request. The other deliveries keep their times.
"""

# Claimed deliveries stay with their worker. Locked rows are skipped, so this waits for no lock.
_HURRY = """
UPDATE webhook_deliveries SET next_attempt_at = now()
WHERE tenant_id = %(tenant_id)s AND id = ANY(ARRAY(
    SELECT id FROM webhook_deliveries
    WHERE tenant_id = %(tenant_id)s AND endpoint_id = %(endpoint_id)s
      AND status IN ('pending', 'failed') AND next_attempt_at > now() AND leased_until IS NULL
    ORDER BY next_attempt_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))
"""


def hurry(tenant_id: UUID, endpoint_id: UUID) -> None:
    """Make an endpoint's waiting deliveries due, inside the caller's transaction. The endpoint's caps and rate limit
    still apply.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HURRY, {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "most": MOST_HURRIED})
