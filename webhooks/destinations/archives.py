"""When deliveries to archives are due: at the end of the hour (`webhooks/events/publish.py`), or once they fill an
object.
"""

from django.db import connection

from webhooks.delivery_rows import MOST_HURRIED

FULL_OBJECT = 1_000
"""Waiting deliveries of one archive that are sent before the hour ends."""

_WAITS = "d.status = 'pending' AND d.attempts = 0 AND d.leased_until IS NULL AND d.next_attempt_at > now()"
_HURRY = f"""
WITH full_one AS (
    SELECT e.id FROM webhooks_endpoint e
    WHERE e.kind = 's3' AND e.status = 'active' AND %(rows)s <= (
        SELECT count(*) FROM (
            SELECT FROM webhook_deliveries d WHERE d.endpoint_id = e.id AND {_WAITS} LIMIT %(rows)s
        ) AS waiting
    )
), early AS (
    SELECT d.id FROM full_one CROSS JOIN LATERAL (
        SELECT d.id FROM webhook_deliveries d WHERE d.endpoint_id = full_one.id AND {_WAITS}
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) d
)
UPDATE webhook_deliveries d SET next_attempt_at = now() FROM early WHERE d.id = early.id
"""  # noqa: S608 - only a condition is formatted in


def hurry() -> int:
    """Make waiting deliveries due for archives that have enough for an object. Returns the number of deliveries."""
    with connection.cursor() as cursor:
        cursor.execute(_HURRY, {"rows": FULL_OBJECT, "most": MOST_HURRIED})
        rows: int = cursor.rowcount
    return rows
