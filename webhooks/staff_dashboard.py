"""The staff admin's first page: what needs attention, and the last day by the hour.

The figures of attention are those of `/v1/admin/health`. The plots read one day of two big tables, so they are kept
for a minute and given up after three seconds.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import OperationalError, connection, transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.timesince import timesince

from gateway import health, ids
from gateway.clock import now
from gateway.database import partitions
from tenants.models import Tenant

HOURS = 24
KEPT_SECONDS = 60
CACHE_KEY = "staff-dashboard"
CHART_OPTIONS = json.dumps(
    {
        "maintainAspectRatio": False,
        "animation": False,
        "scales": {
            "x": {
                "stacked": True,
                "grid": {"display": False},
                "ticks": {"maxRotation": 0, "maxTicksLimit": 6},
            },
            "y": {"stacked": True, "beginAtZero": True, "suggestedMax": 4, "ticks": {"precision": 0}},
        },
        "plugins": {"legend": {"display": True, "position": "bottom", "labels": {"boxWidth": 10}}},
    }
)

# The hour since 1970 is in a UUIDv7's first 48 bits of milliseconds.
_HOUR = "(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 3600000)"
_EVENTS = f"""
SELECT {_HOUR}, type = 'message.inbound', count(*) FROM events
WHERE id >= %s AND type IN ('message.inbound', 'message.outbound') GROUP BY 1, 2
"""  # noqa: S608 - no value is formatted in
_DELIVERIES = f"""
SELECT {_HOUR}, status IN ('failed', 'dead'), count(*) FROM webhook_deliveries WHERE id >= %s GROUP BY 1, 2
"""  # noqa: S608 - no value is formatted in


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's dashboard callback: the context of `templates/admin/index.html`."""
    plots = cache.get(CACHE_KEY)
    if plots is None:
        plots = _plots(now())
        cache.set(CACHE_KEY, plots, KEPT_SECONDS)
    return {**context, "attention": _attention(), "plots": plots, "chart_options": CHART_OPTIONS}


def _attention() -> list[dict[str, Any]]:
    """One card each: what, how many, where to look, and whether it is a worry."""
    report = health.report()
    queue = Tenant.objects.filter(status=Tenant.Status.PENDING_APPROVAL)
    oldest = queue.order_by("id").values_list("created_at", flat=True).first()
    tokens = report.get("tokens", {})
    stray = sum(partitions.rows_in_default().values())
    tenants = reverse("admin:tenants_tenant_changelist")
    deliveries = reverse("admin:webhooks_delivery_changelist")
    endpoints = reverse("admin:webhooks_endpoint_changelist")
    accounts = reverse("admin:numbers_businessaccount_changelist")
    due = report.get("oldest_due_retry_at")
    cards: list[tuple[str, int, str, str, bool]] = [
        (
            "Waiting for approval",
            queue.count(),
            f"oldest {timesince(oldest, depth=1)}" if oldest else "nobody waits",
            f"{tenants}?status__exact=pending_approval",
            False,
        ),
        (
            "Dead deliveries",
            report.get("dead_24h", 0),
            "last 24 hours",
            f"{deliveries}?status__exact=dead",
            True,
        ),
        ("Open circuits", report.get("endpoints_circuit_open", 0), "endpoints that fail", endpoints, True),
        (
            "Retries due",
            report.get("retries_due", 0),
            f"oldest since {due}" if due else "none late",
            f"{deliveries}?status__exact=failed",
            False,
        ),
        ("Tokens expiring", tokens.get("expiring", 0), "within 7 days", accounts, True),
        ("Tokens invalid", tokens.get("invalid", 0), "must be connected anew", accounts, True),
        (
            "Rows outside partitions",
            stray,
            "maintenance failed" if stray else "maintenance is well",
            "",
            True,
        ),
    ]
    return [
        {"title": title, "value": value, "note": note, "url": url, "worry": worry and value > 0}
        for title, value, note, url, worry in cards
    ]


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
