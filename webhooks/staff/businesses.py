"""The busiest businesses on the staff admin's first page: messages and deliveries of each in the last day."""

from django.db import OperationalError, connection, transaction

from gateway.clock import now
from tenants.models import Tenant
from tenants.staff.dashboard import Row, Table, register_table
from tenants.staff.dialogs import change_url

HOURS = 24
SHOWN = 10
# By the index of the hour; the figures are sums by the hour, so the rows are few.
_BUSIEST = """
SELECT t.id, t.name,
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'received' AND f.direction = 'inbound'), 0) AS received,
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'sent' AND f.direction = 'outbound'), 0) AS sent,
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'delivered' AND f.direction = 'outbound'), 0),
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'failed' AND f.direction = 'outbound'), 0),
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'delivered' AND f.direction = 'webhook'), 0) AS webhooks,
    coalesce(sum(f.count) FILTER (WHERE f.measure = 'failed' AND f.direction = 'webhook'), 0)
FROM figures f JOIN tenants_tenant t ON t.id = f.tenant_id
WHERE f.hour >= %(first)s AND f.environment = 'live' AND f.measure = ANY(%(measures)s)
GROUP BY t.id
ORDER BY coalesce(sum(f.count) FILTER (WHERE f.direction <> 'webhook'), 0) DESC, t.id
LIMIT %(shown)s
"""
MEASURES = ["received", "sent", "delivered", "failed"]
COLUMNS = ("Received", "Sent", "Delivered", "Failed", "Webhooks delivered", "Webhooks dead")


@register_table
def busiest() -> Table | None:
    """The businesses with the most messages of the live environment. None while the table is too busy."""
    first = int(now().timestamp()) // 3600 - HOURS + 1
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '3s'")
            cursor.execute(_BUSIEST, {"first": first, "measures": MEASURES, "shown": SHOWN})
            found = cursor.fetchall()
    except OperationalError:
        return None
    rows = [
        Row(name, change_url(Tenant, key), tuple(f"{count:,}" for count in counts))
        for key, name, *counts in found
    ]
    return Table("Busiest businesses", f"Live environment, the last {HOURS} hours.", COLUMNS, rows)
