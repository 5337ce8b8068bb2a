"""Every list of the console with every filter of its form, page by page while rows are added.

`tests/api_contract/test_lists.py` creates the rows and tests the lists of the API in the same way.
"""

import itertools
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from console import lists
from tenants.models import Tenant, User
from tests.api_contract.authorisation import World
from tests.api_contract.test_lists import LISTS, NEW, OWN, Rows, world

__all__ = ["world"]

pytestmark = pytest.mark.django_db

PAGES = {
    "console_events": "GET /v1/events",
    "console_deliveries": "GET /v1/webhook-deliveries",
    "console_messages": "GET /v1/messages",
    "console_requests": "GET /v1/requests",
    "console_batches": "GET /v1/messages/batch",
}
"""The pages with keyset pagination, each with the API's list of the same rows."""
API_NAMES = {
    "endpoint": "endpoint_id",
    "batch": "batch_id",
    "referral": "referral_source_id",
    "status_class": "status",
}
"""The API's names for form fields that have another name in the API."""
API_VALUES = {"status_class": {"4": "409", "2": "2xx"}}
DAYS = {"since", "until"}
_ROW = re.compile(r'<td class="at"><a href="[^"?]*/([^/"?]+)[^"]*">')
_OLDER = re.compile(r'<a href="([^"]*before=[^"]*)">Older</a>')


def shown(browser: Client, path: str, rows: Rows, filters: dict[str, str]) -> list[str]:
    """The rows of all pages. After each of the first two pages, a new row is added."""
    found: list[str] = []
    answer: Any = browser.get(path, filters)
    for number in itertools.count():
        html = answer.content.decode()
        assert answer.status_code == 200
        page = _ROW.findall(html)
        assert len(page) <= lists.ROWS_PER_PAGE
        found += page
        if (older := _OLDER.search(_refreshed(html))) is None:
            return found
        if number < NEW:
            rows.add()
        answer = browser.get(path + unescape(older[1]))
    return found


def _refreshed(html: str) -> str:
    """The part of a page that shows new rows by itself. The whole page if no part does."""
    _, _, rest = html.partition('<div id="newest"')
    depth = 1
    for tag in re.finditer(r"<(/?)div\b", rest):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return rest[: tag.start()]
    return html


@pytest.mark.parametrize("name", PAGES)
def test_pages_have_each_row_of_the_filters_once_and_none_of_a_neighbour(
    name: str, world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ROWS_PER_PAGE", 3)
    rows = Rows(LISTS[PAGES[name]], world)
    other = Tenant.objects.create(name="Bina Stores", status="active")
    for _ in range(OWN):
        rows.add()
        rows.add(replace(world, tenant=other))
        rows.add(replace(world, environment="test"))
    browser, path = Client(), reverse(name)
    browser.force_login(User.objects.create_user("owner@traders.example", tenant=world.tenant))
    form = browser.get(path).context.get("form")
    fields = set(form.fields) - DAYS if form is not None else set()
    asked: list[tuple[dict[str, str], dict[str, str]]] = [({}, {})]
    for field in fields:
        filter_ = API_NAMES.get(field, field)
        values = API_VALUES.get(field) or {value: value for value in LISTS[PAGES[name]].filters[filter_]}
        asked += [({field: typed}, {filter_: value}) for typed, value in values.items()]
    for typed, filters in asked:
        known, expected = set(rows.own), rows.expected(**filters)
        found = shown(browser, path, rows, typed)
        assert expected
        assert len(found) == len(set(found)), typed
        assert not rows.foreign & set(found), typed
        assert [each for each in found if each in known] == expected, typed
