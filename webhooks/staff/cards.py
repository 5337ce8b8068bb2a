"""The cards and charts of deliveries and events on the staff admin's first page.

The charts read one day of two big tables; they are given up after three seconds.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.urls import reverse

from gateway import ids
from gateway.clock import now
from tenants.staff.dashboard import Card, register_cards, register_charts

HOURS = 24
# The hour since 1970 is in a UUIDv7's first 48 bits of milliseconds.
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
    deliveries = reverse("admin:webhooks_delivery_changelist")
    due = report["oldest_due_retry_at"]
    return [
        Card(
            "Dead deliveries", report["dead_24h"], "last 24 hours", f"{deliveries}?status__exact=dead", True
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
            f"{deliveries}?status__exact=failed",
            False,
        ),
    ]


@register_charts
def _charts() -> dict[str, str] | None:
    return _plots(now())


def _plots(moment: datetime) -> dict[str, str] | None:
    """Chart data by the hour, as the JSON that the chart component takes; None when the tables are too busy."""
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
