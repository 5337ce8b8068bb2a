"""Deliveries and events for staff: cards of the first page, busiest tenants, search."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.text import Truncator

from gateway import ids
from gateway.clock import now
from tenants.models import ApiKey, Tenant
from tenants.staff.dashboard import Card, Row, Table, register_cards, register_charts, register_table
from tenants.staff.dialogs import change_url
from tenants.staff.lookup import Hit, Line, register_finder, register_lines, uuid_of
from webhooks.figures import reading
from webhooks.models import Delivery, Endpoint, Event

# --- The busiest tenants on the first page of the staff admin: messages and deliveries of the last day.

HOURS = 24
SHOWN = 10
# By the index of the hour. There is one sum for each hour, so the rows are few.
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
    """The tenants with the most messages in the live environment. None while the table is too busy."""
    return _counts("Busiest businesses", _BUSIEST)


@register_table
def failing() -> Table | None:
    """The tenants with the most failures in the live environment. None while the table is too busy."""
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

# The first 48 bits of a UUIDv7 are milliseconds since 1970; dividing them yields the hour.
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
    """Chart data by hour, as JSON for the chart component. None when the tables are too busy."""
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


# --- Endpoints, events and deliveries in the staff search, and their lines on a tenant's page.

DAYS = 30


@register_finder("webhooks.view_event")
def _events(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.EVENT, ids.typed(text))
    for event in Event.objects.filter(pk=key) if key else ():
        yield Hit("Event", event.public_id, event.type, change_url(Event, event.pk))


@register_finder("webhooks.view_delivery")
def _deliveries(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.DELIVERY, ids.typed(text))
    for delivery in Delivery.objects.filter(pk=key) if key else ():
        note = f"{delivery.event_type}, {delivery.get_status_display().lower()}"
        yield Hit("Delivery", delivery.public_id, note, change_url(Delivery, delivery.pk))


@register_finder("webhooks.view_endpoint")
def _endpoints(text: str) -> Iterator[Hit]:
    named = Q(url__icontains=text) | Q(uid=text)
    if key := uuid_of(text):
        named |= Q(pk=key)
    for endpoint in Endpoint.objects.filter(named).select_related("tenant").order_by("-id")[:10]:
        note = f"{endpoint.tenant.name}, {endpoint.environment}, {endpoint.status}"
        yield Hit("Endpoint", endpoint.url, note, change_url(Endpoint, endpoint.pk))


@register_lines("webhooks.view_endpoint")
def _endpoint_lines(tenant: Tenant) -> Iterator[Line]:
    for endpoint in Endpoint.objects.for_tenant(tenant.id).order_by("-id")[:20]:
        failing = ", fails" if endpoint.failing_since else ""
        url = Truncator(endpoint.url).chars(80)
        text = f"{url} ({endpoint.environment}, {endpoint.status}{failing})"
        yield Line("Endpoint", text, change_url(Endpoint, endpoint.pk))


@register_lines("webhooks.view_delivery")
def _history_lines(tenant: Tenant) -> Iterator[Line]:
    for title, name in (("Deliveries", "delivery"), ("Events", "event")):
        yield Line(title, "newest first", f"{reverse(f'admin:webhooks_{name}_changelist')}?q={tenant.id}")
    yield from _figures(tenant)


def _figures(tenant: Tenant) -> Iterator[Line]:
    """Counts of messages and deliveries in the last days."""
    end = now()
    for environment in ApiKey.Environment.values:
        found = reading.read(
            tenant_id=tenant.id,
            environment=environment,
            begin=end - timedelta(days=DAYS - 1),
            end=end,
            interval="day",
            groups=(),
            equal={},
        )
        messages = {
            name: sum(day.counts.get(name, 0) for day in found.messages)
            for name in ("sent", "delivered", "failed", "received")
        }
        hooked = {
            name: sum(day.counts.get(name, 0) for day in found.webhooks) for name in ("delivered", "failed")
        }
        if any(messages.values()) or any(hooked.values()):
            text = (
                f"{messages['sent']:,} sent, {messages['delivered']:,} delivered, {messages['failed']:,} failed, "
                f"{messages['received']:,} received; webhooks {hooked['delivered']:,} delivered, "
                f"{hooked['failed']:,} dead"
            )
            yield Line(f"Last {DAYS} days, {environment}", text)
