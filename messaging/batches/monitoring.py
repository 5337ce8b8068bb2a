"""Metrics of batches: those that could run and wait."""

from django.db import connection

from gateway.monitoring import metrics
from tenants.tenant_status import SERVED

# A batch whose number has another batch running waits for its turn, and one that has just come for its worker.
_WAITING = f"""
SELECT count(*), coalesce(extract(epoch FROM now() - min(coalesce(b.lease_until, b.created_at))), 0)
FROM messaging_batch b JOIN tenants_tenant t ON t.id = b.tenant_id
WHERE b.completed_at IS NULL AND {SERVED.format(row="b")}
  AND coalesce(b.lease_until, b.created_at) < now() - interval '1 minute'
  AND NOT EXISTS (
      SELECT FROM messaging_batch o WHERE o.phone_number_id = b.phone_number_id AND o.lease_until > now())
"""  # noqa: S608 - only a condition is formatted in


def waiting() -> tuple[int, float]:
    """Batches that could run and have no worker for over a minute, and since how many seconds the first of them."""
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
