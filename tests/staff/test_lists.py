"""Every list of the staff admin: each field that it searches finds its row, and each filter shows the rows it names."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.db.models import Model
from django.test import RequestFactory
from pytest_django import Settings

from console.tests.test_authorisation import world as world
from tenants.models import User
from tenants.staff.read_only_admin import HistoryAdmin, PeriodFilter
from tests.api_contract.authorisation import World
from tests.browsers import staff_pages
from tests.staff.test_accessibility import a_row_of_every_table
from webhooks.admin.events import TypeOfDelivery

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _rows(world: World, settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    a_row_of_every_table(world)


def lists() -> Iterator[tuple[Any, Model]]:
    """Each list with its newest row."""
    for model, page in staff_pages().items():
        row = model._default_manager.order_by("-pk").first()
        assert row is not None, model
        yield page, row


def changelist(page: Any, staff: User, **query: str) -> Any:
    request = RequestFactory().get("/", query)
    request.user = staff
    return page.get_changelist_instance(request)


def value_of(row: Any, field: str) -> Any:
    for name in field.split("__"):
        row = getattr(row, name, None)
    return row


def test_each_search_field_finds_its_row_and_nothing_else_does(staff: User) -> None:
    wrong, searched = [], 0
    for page, row in lists():
        # Histories are searched by the ids that `messaging/tests` and `webhooks/tests` name.
        fields = () if isinstance(page, HistoryAdmin) else page.search_fields
        for field in fields:
            if value := value_of(row, field.lstrip("=")):
                searched += 1
                if row not in changelist(page, staff, q=str(value)).queryset:
                    wrong.append(f"{page} {field}")
        if fields and changelist(page, staff, q="nobody has this").queryset.exists():
            wrong.append(f"{page} finds anything")
    assert wrong == []
    assert searched > 40


def test_each_choice_of_a_filter_shows_the_rows_with_its_value(staff: User) -> None:
    wrong, chosen = [], 0
    for page, _ in lists():
        every = changelist(page, staff)
        for spec in every.filter_specs:
            if isinstance(spec, PeriodFilter):
                continue
            for choice in list(spec.choices(every))[1:]:
                [(name, value)] = parse_qsl(choice["query_string"].lstrip("?"))
                column = "event_type" if isinstance(spec, TypeOfDelivery) else name.partition("__")[0]
                expected = {row.pk for row in every.queryset if has(row, column, value, name)}
                found = {row.pk for row in changelist(page, staff, **{name: value}).queryset}
                chosen += bool(expected)
                if found != expected:
                    wrong.append(f"{page} {name}={value}")
    assert wrong == []
    assert chosen > 30


def has(row: Any, column: str, value: str, name: str) -> bool:
    held = getattr(row, column)
    if name.endswith("__isnull"):
        return held is None
    return str(int(held)) == value if isinstance(held, bool) else held == value
