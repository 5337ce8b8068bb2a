"""Usage of a platform's tenants: events by kind and deliveries of a day or a month, counted from the tables."""

from collections.abc import Sequence
from typing import Any

from messaging.ledger.counting import Counting, TimeSpan
from tenants.models import Tenant

COLUMNS = ("sent", "received", "statuses", "events", "deliveries", "delivered")

# One index range for each tenant and kind: no tenant's events are read for another's line.
_USAGE = """
SELECT t.id, sent.n, received.n, statuses.n, everything.n, delivery.n, delivery.delivered
FROM tenants_tenant t
CROSS JOIN LATERAL (SELECT CASE WHEN t.sandbox THEN 'test' ELSE 'live' END AS environment) world
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e WHERE e.tenant_id = t.id AND e.environment = world.environment
      AND e.type = 'message.outbound' AND e.wamid IS NOT NULL AND e.id >= %(first)s AND e.id < %(end)s
) sent
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e WHERE e.tenant_id = t.id AND e.environment = world.environment
      AND e.type = 'message.inbound' AND e.id >= %(first)s AND e.id < %(end)s
) received
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e WHERE e.tenant_id = t.id AND e.environment = world.environment
      AND e.type = 'message.status' AND e.id >= %(first)s AND e.id < %(end)s
) statuses
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e WHERE e.tenant_id = t.id AND e.environment = world.environment
      AND e.id >= %(first)s AND e.id < %(end)s
) everything
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE d.status = 'delivered') AS delivered
    FROM webhook_deliveries d WHERE d.tenant_id = t.id AND d.environment = world.environment
      AND d.id >= %(first)s AND d.id < %(end)s
) delivery
WHERE t.id = ANY(%(tenants)s)
"""


def count(counting: Counting, *, tenants: Sequence[Tenant], span: TimeSpan) -> list[dict[str, Any]]:
    """A line for each tenant, in their order. A sandbox tenant lives in the test world, every other counts its live."""
    found = {
        tenant_id: figures
        for tenant_id, *figures in counting.rows(
            _USAGE, {"tenants": [tenant.id for tenant in tenants], **span.ids}
        )
    }
    return [
        {
            "tenant_id": tenant.id,
            "name": tenant.name,
            "external_ref": tenant.external_ref,
            **dict(zip(COLUMNS, found[tenant.id], strict=True)),
        }
        for tenant in tenants
    ]
