"""Metrics of batches that could be sent but have no runner."""

from django.db import connection

from gateway.monitoring import metrics
from tenants.tenant_status import SERVED

# Does not count batches that wait for their time, for their number or for another batch of it. Does not count batches
# that could run for less than a minute, because a runner may not have had time to claim them.
_WAITING = f"""
SELECT count(*), coalesce(extract(epoch FROM now() - min(r.since)), 0)
FROM messaging_batch b
    JOIN tenants_tenant t ON t.id = b.tenant_id,
    LATERAL (SELECT greatest(coalesce(b.lease_until, b.created_at), b.send_at)) AS r (since)
WHERE b.completed_at IS NULL AND {SERVED.format(row="b")}
  AND b.waiting_for IS DISTINCT FROM 'number_not_connected' AND r.since < now() - interval '1 minute'
  AND NOT EXISTS (
      SELECT FROM messaging_batch o WHERE o.phone_number_id = b.phone_number_id AND o.lease_until > now())
"""  # noqa: S608 - only a condition is formatted in


def waiting() -> tuple[int, float]:
    """How many batches have waited for a runner for over a minute, and how long the oldest has waited, in
    seconds.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WAITING)
        count, seconds = cursor.fetchone()
    return count, float(seconds)


metrics.gauge(
    "gateway_batches_waiting",
    "Batches of active tenants that could run and have had no worker for over a minute.",
    lambda: waiting()[0],
)
metrics.gauge(
    "gateway_batches_oldest_waiting_age_seconds",
    "Since when the first of the batches that could run has had no worker.",
    lambda: waiting()[1],
)
