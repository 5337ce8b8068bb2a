"""The limit of the pages that one person may request."""

from typing import Any

import pytest
import redis
from django.test import Client

from gateway.api import limits
from gateway.valkey import token_bucket
from tenants.models import Tenant
from tests.browsers import browser_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make the limit of a person three pages, which hardly ever come back. The time of a page does not count."""
    monkeypatch.setattr(limits, "PAGES_AT_ONCE", 3)
    monkeypatch.setattr(limits, "PAGES_PER_SECOND", 0.01)
    monkeypatch.setattr(limits, "PAGE_CPU_SECONDS", 1_000.0)
    return 3


def test_beyond_the_limit_of_a_person_pages_are_429_and_those_of_others_open(
    browser: Client, tenant: Tenant, few: int, django_assert_num_queries: Any
) -> None:
    colleague = browser_of(tenant, "developer")
    assert [browser.get("/console/live").status_code for _ in range(few + 1)] == [*[200] * few, 429]
    refused = browser.get("/console/messages")
    assert refused.status_code == 429
    assert 1 <= int(refused["Retry-After"]) <= 100
    assert "more pages than the console allows" in refused.content.decode()
    with django_assert_num_queries(2):
        # A refusal reads only the session and the user.
        browser.get("/console/messages")
    assert colleague.get("/console/messages").status_code == 200


def test_a_form_beyond_the_limit_changes_nothing(browser: Client, tenant: Tenant, few: int) -> None:
    for _ in range(few):
        browser.get("/console/live")
    form = {"name": "Another name", "email": "a@traders.example"}
    assert browser.post("/console/preferences", {"environment": "test"}).status_code == 429
    assert browser.post("/console/settings", form).status_code == 429
    assert "environment" not in browser.session
    assert Tenant.objects.get(pk=tenant.pk).name == tenant.name


def test_a_page_that_computes_for_long_counts_as_many(
    browser: Client, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_CPU_SECONDS", 1e-6)
    assert [browser.get("/console/live").status_code for _ in range(2)] == [200, 429]


def test_the_time_of_a_page_makes_a_person_wait_for_a_minute_at_most(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_CPU_SECONDS", 1e-9)
    answers = [browser.get("/console/live") for _ in range(2)]
    while len(answers) < 20 and answers[-1].status_code == 200:
        answers.append(browser.get("/console/live"))
    answer = answers[-1]
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= 60


def test_the_pages_of_ordinary_work_are_within_the_limit(browser: Client) -> None:
    """Someone who opens a conversation with fifty pictures, at a tenth of the limit."""
    assert limits.PAGES_AT_ONCE >= 10 * 50
    assert {browser.get("/console/live").status_code for _ in range(50)} == {200}


def test_without_valkey_every_page_opens(browser: Client, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise redis.exceptions.ConnectionError

    monkeypatch.setattr(token_bucket, "take", fails)
    monkeypatch.setattr(token_bucket, "reserve", fails)
    monkeypatch.setattr(limits, "PAGE_CPU_SECONDS", 1e-6)
    assert {browser.get("/console/live").status_code for _ in range(few + 2)} == {200}
