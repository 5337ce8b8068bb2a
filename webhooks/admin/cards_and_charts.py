"""The first page of the staff admin: tables of the busiest and the failing tenants, and cards and charts of
deliveries and events.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.urls import reverse

from gateway import ids
from gateway.clock import now
from tenants.models import Tenant
from tenants.staff.dashboard import Card, Row, Table, register_cards, register_charts, register_table
from tenants.staff.dialogs import change_url

# --- Tables of the staff admin's first page: tenants by their messages and deliveries of the last day.

HOURS = 24
SHOWN = 10
# Reads few rows, because each count has one row per hour, found by the index on the hour.
_COUNTED = """
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
{}
LIMIT %(shown)s
"""
_BUSIEST = _COUNTED.format(
    "ORDER BY coalesce(sum(f.count) FILTER (WHERE f.direction <> 'webhook'), 0) DESC, t.id"
)
_FAILED = "coalesce(sum(f.count) FILTER (WHERE f.measure = 'failed'), 0)"
_FAILING = _COUNTED.format(f"HAVING {_FAILED} > 0 ORDER BY {_FAILED} DESC, t.id")
MEASURES = ["received", "sent", "delivered", "failed"]
COLUMNS = ("Received", "Sent", "Delivered", "Failed", "Webhooks delivered", "Webhooks dead")


@register_table
def busiest() -> Table | None:
    """The tenants with the most messages in the live environment. None when the table cannot be read in time."""
    return _counts("Busiest businesses", _BUSIEST)


@register_table
def failing() -> Table | None:
    """The tenants with the most failures in the live environment. None when the table cannot be read in time."""
    return _counts("Businesses with the most failures", _FAILING)


def _counts(title: str, statement: str) -> Table | None:
    first = int(now().timestamp()) // 3600 - HOURS + 1
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '3s'")
            cursor.execute(statement, {"first": first, "measures": MEASURES, "shown": SHOWN})
            found = cursor.fetchall()
    except OperationalError:
        return None
    rows = [
        Row(name, change_url(Tenant, key), tuple(f"{count:,}" for count in counts))
        for key, name, *counts in found
    ]
    return Table(title, f"Live environment, the last {HOURS} hours.", COLUMNS, rows)


# --- Cards and charts of deliveries and events on the first page of the staff admin.
#
# The charts read one day of two large tables, with a time limit of three seconds.

# The first 48 bits of a UUIDv7 are milliseconds since 1970. Divided by 3,600,000 they give the hour.
_HOUR = "(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 3600000)"
_EVENTS = f"""
SELECT {_HOUR}, type = 'message.inbound', count(*) FROM events
WHERE id >= %s AND type IN ('message.inbound', 'message.outbound') GROUP BY 1, 2
"""  # noqa: S608 - no value is formatted in
_DELIVERIES = f"""
SELECT {_HOUR}, status IN ('failed', 'dead'), count(*) FROM webhook_deliveries WHERE id >= %s GROUP BY 1, 2
"""  # noqa: S608 - no value is formatted in


@register_cards
def _cards(report: dict[str, Any]) -> list[Card]:
    # The list's period is that of the creation. A retry schedule may last 7 days, and its delays are spread.
    deliveries = f"{reverse('admin:webhooks_delivery_changelist')}?period=30"
    due = report["oldest_due_retry_at"]
    return [
        Card(
            "Dead deliveries", report["dead_24h"], "last 24 hours", f"{deliveries}&status__exact=dead", True
        ),
        Card(
            "Open circuits",
            report["endpoints_circuit_open"],
            "endpoints that fail",
            reverse("admin:webhooks_endpoint_changelist"),
            True,
        ),
        Card(
            "Retries due",
            report["retries_due"],
            f"oldest since {due}" if due else "none late",
            f"{deliveries}&status__exact=failed",
            False,
        ),
    ]


@register_charts
def _charts() -> dict[str, str] | None:
    return _plots(now())


def _plots(moment: datetime) -> dict[str, str] | None:
    """Chart data by hour, as JSON for the chart component. None when the tables cannot be read in time."""
    first_hour = int(moment.timestamp()) // 3600 - HOURS + 1
    since = ids.first_at(datetime.fromtimestamp(first_hour * 3600, moment.tzinfo))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '3s'")
            cursor.execute(_EVENTS, [since])
            messages = cursor.fetchall()
            cursor.execute(_DELIVERIES, [since])
            deliveries = cursor.fetchall()
    except OperationalError:
        return None
    hours = range(first_hour, first_hour + HOURS)
    labels = [f"{moment - timedelta(hours=HOURS - 1 - number):%H}:00" for number in range(HOURS)]

    def chart(rows: list[tuple[int, bool, int]], names: dict[bool, tuple[str, str]]) -> str:
        counts = {(hour, kind): count for hour, kind, count in rows}
        sets = [
            {
                "label": name,
                "backgroundColor": colour,
                "data": [counts.get((hour, kind), 0) for hour in hours],
            }
            for kind, (name, colour) in names.items()
        ]
        return json.dumps({"labels": labels, "datasets": sets})

    green, blue, red = "#1d9a6c", "#3b82f6", "#dc2626"
    return {
        "messages": chart(messages, {True: ("In", blue), False: ("Out", green)}),
        "deliveries": chart([row for row in deliveries if not row[1]], {False: ("Deliveries", green)}),
        "failures": chart([row for row in deliveries if row[1]], {True: ("Failed or dead", red)}),
    }
