"""The first page of the staff admin: cards with figures that may need attention, and charts and tables of the last day.

Each app registers its own cards, charts and tables, in its module `staff.cards`. Cards use the figures of
`/v1/admin/health`. Charts and tables read many rows, so they are cached for a minute.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from django.core.cache import cache
from django.http import HttpRequest
from django.urls import reverse
from django.utils.timesince import timesince

from gateway.database import partitions
from gateway.monitoring import admin_health
from tenants.models import Tenant

KEPT_SECONDS = 60
CACHE_KEY = "staff-overview"
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


class Card(NamedTuple):
    """A figure with its title, a note, and the page that lists its rows. `worry` means that a value above zero needs
    attention.
    """

    title: str
    value: int
    note: str
    url: str
    worry: bool


class Row(NamedTuple):
    """A row of a table: its name, its link, and the text of each column."""

    name: str
    url: str
    values: tuple[str, ...]


class Table(NamedTuple):
    """A table of figures below the charts."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[Row]


Cards = Callable[[dict[str, Any]], list[Card]]
"""A function that returns cards from the health report."""
Charts = Callable[[], dict[str, str] | None]
"""A function that returns chart data by name, as JSON for the component. None while the database is too busy."""
Tables = Callable[[], Table | None]
"""A function that returns a table. None while the database is too busy."""

_cards: list[Cards] = []
_charts: list[Charts] = []
_tables: list[Tables] = []


def register_cards(cards: Cards) -> Cards:
    """Add an app's cards after the existing ones."""
    _cards.append(cards)
    return cards


def register_charts(charts: Charts) -> Charts:
    """Add an app's charts."""
    _charts.append(charts)
    return charts


def register_table(table: Tables) -> Tables:
    """Add an app's table."""
    _tables.append(table)
    return table


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's dashboard callback: the context of `templates/admin/index.html`. Staff without a role see no figures."""
    user: Any = request.user
    if not user.has_perm("tenants.view_tenant"):
        return {**context, "without_role": True}
    kept = cache.get(CACHE_KEY)
    if kept is None:
        kept = {
            "plots": _merged_charts(),
            "tables": [_as_json(table) for made in _tables if (table := made())],
        }
        cache.set(CACHE_KEY, kept, KEPT_SECONDS)
    report = admin_health.report()
    cards = [_queue(), *(card for made in _cards for card in made(report)), _stray_rows()]
    attention = [{**card._asdict(), "worry": card.worry and card.value > 0} for card in cards]
    return {**context, **kept, "attention": attention, "chart_options": CHART_OPTIONS}


def _as_json(table: Table) -> dict[str, Any]:
    return {**table._asdict(), "rows": [row._asdict() for row in table.rows]}


def _merged_charts() -> dict[str, str]:
    merged: dict[str, str] = {}
    for charts in _charts:
        merged |= charts() or {}
    return merged


def _queue() -> Card:
    queue = Tenant.objects.queue()
    oldest: Any = queue.first()
    return Card(
        "Waiting for approval",
        queue.count(),
        f"oldest {timesince(oldest.waiting_since, depth=1)}" if oldest else "nobody is waiting",
        reverse("admin:tenants_tenant_changelist") + "?status__exact=pending_approval",
        False,
    )


def _stray_rows() -> Card:
    stray = sum(partitions.rows_in_default().values())
    return Card(
        "Rows outside partitions", stray, "maintenance failed" if stray else "maintenance works", "", True
    )
