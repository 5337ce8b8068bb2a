"""When deliveries to archives are due: at the end of the hour (`webhooks/events/publish.py`), or once they fill an
object.
"""

from operator import itemgetter

from django.db import connection

from gateway.database.distribution import of_tenant, together
from webhooks.models import Endpoint
from webhooks.open_deliveries import MOST_HURRIED

FULL_OBJECT = 1_000
"""The maximum number of events in an object. An archive with this many waiting deliveries gets an object before the
hour ends.
"""
OBJECT_SECONDS = 0.5
"""How long an object waits for more claimed events."""

_WAITS = "d.status = 'pending' AND d.attempts = 0 AND d.leased_until IS NULL AND d.next_attempt_at > now()"
_OF_ENDPOINT = f"{of_tenant('d')} AND d.endpoint_id = e.id"
_HURRY = f"""
WITH full_one AS (
    SELECT e.id FROM unnest(%(endpoints)s) AS e (id)
    WHERE %(rows)s <= (
        SELECT count(*) FROM (
            SELECT 1 FROM webhook_deliveries d WHERE {_OF_ENDPOINT} AND {_WAITS} LIMIT %(rows)s
        ) AS waiting
    )
), early AS (
    SELECT d.id FROM full_one e CROSS JOIN LATERAL (
        SELECT d.id FROM webhook_deliveries d WHERE {_OF_ENDPOINT} AND {_WAITS}
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) d
)
UPDATE webhook_deliveries d SET next_attempt_at = now() FROM early
WHERE {of_tenant("d")} AND d.id = early.id
"""  # noqa: S608 - only conditions are formatted in


def hurry() -> int:
    """Make an archive's deliveries due if there are enough of them to fill an object. Returns the number
    of deliveries.
    """
    archives = Endpoint.objects.filter(kind=Endpoint.Kind.S3, status=Endpoint.Status.ACTIVE).order_by()
    hurried = 0
    with connection.cursor() as cursor:
        for tenant_id, rows in together(archives.values_list("tenant_id", "id"), itemgetter(0)):
            endpoints = [endpoint_id for _, endpoint_id in rows]
            cursor.execute(
                _HURRY,
                {
                    "tenant_id": tenant_id,
                    "endpoints": endpoints,
                    "rows": FULL_OBJECT,
                    "most": MOST_HURRIED,
                },
            )
            hurried += cursor.rowcount
    return hurried
