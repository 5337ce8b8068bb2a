"""Parts of a page that refresh themselves, in Chromium: a lost stream, and the count of waiting deliveries."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Browser, Page, Route, expect

from gateway.database.bounded_walk import LAST_ID
from tenants.models import Tenant, User
from tests.accessibility import Chromium, session_of, window
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


WIDE = 1280
"""A width in pixels at which the filters of a list are not folded."""


@pytest.fixture
def session(tenant: Tenant) -> str:
    return session_of(User.objects.create_user("asha@traders.example", tenant=tenant))


def test_a_list_says_that_it_cannot_be_refreshed_until_it_can(
    session: str, live_server: Any, in_chromium: Chromium
) -> None:
    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, WIDE) as page:
            page.clock.install()
            _is_stale_while(page, lambda route: route.fulfill(status=503))
            _is_stale_while(page, lambda route: route.abort(), status="read")

    in_chromium(journey)


def _is_stale_while(page: Page, fails: Any, status: str | None = None) -> None:
    """Check the notice of a list, whose filter was set after the page was opened if `status` is given."""
    stale = page.locator("#stale")
    with page.expect_response("**/console/live?*"):
        page.goto("/console/messages")
    if status is not None:
        page.get_by_label("Status", exact=True).select_option(status)
        page.clock.run_for(1_000)
        expect(page).to_have_url(re.compile(f"status={status}"))
    expect(stale).to_be_hidden()
    page.route("**/console/**", fails)
    expect(stale).to_be_visible(timeout=20_000)
    page.unroute("**/console/**")
    page.clock.run_for(20_000)
    expect(stale).to_be_hidden(timeout=20_000)


def test_the_newest_rows_that_a_filter_of_older_rows_shows_are_followed(
    session: str, tenant: Tenant, live_server: Any, in_chromium: Chromium
) -> None:
    def happens() -> None:
        publish_one(tenant)
        connection.close()

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, WIDE) as page, ThreadPoolExecutor(1) as database:
            page.goto(f"/console/events?before={LAST_ID}")
            with page.expect_response("**/console/live?*"):
                page.get_by_label("Event", exact=True).select_option("message.inbound")
            database.submit(happens).result()
            expect(page.locator("#newest tbody tr")).to_have_count(1)

    in_chromium(journey)


def test_the_count_of_what_waits_goes_down_by_itself_and_the_focus_stays(
    session: str, tenant: Tenant, live_server: Any, in_chromium: Chromium
) -> None:
    endpoint = Endpoint.objects.create(
        tenant=tenant, environment="live", url="https://shop.example/hook", status="active", event_types=["*"]
    )
    publish_one(tenant)
    assert Delivery.objects.get().status == "pending"

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session) as page, ThreadPoolExecutor(1) as database:
            page.clock.install()
            page.goto(f"/console/webhooks/{endpoint.id}")
            waiting = page.locator("article", has=page.get_by_role("heading", name="Waiting")).locator("p")
            expect(waiting.first).to_have_text("1")
            page.locator("#verify").focus()
            database.submit(_deliver).result()
            page.clock.run_for(6_000)
            expect(waiting.first).to_have_text("0")
            assert page.evaluate("document.activeElement.id") == "verify"

    in_chromium(journey)


def test_what_happens_before_the_page_listens_or_while_it_is_hidden_is_shown(
    session: str, tenant: Tenant, live_server: Any, in_chromium: Chromium
) -> None:
    def happens(key: str) -> None:
        publish_one(tenant, key)
        connection.close()

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session) as page, ThreadPoolExecutor(1) as database:
            rows, held = page.locator("#newest tbody tr"), list[Route]()
            page.route("**/console/live?*", lambda route: held.append(route))
            with page.expect_request("**/console/live?*"):
                page.goto("/console/events")
            expect(rows).to_have_count(0)
            database.submit(happens, "k1").result()
            held[0].continue_()
            expect(rows).to_have_count(1)

            page.unroute("**/console/live?*")
            _show(page, is_hidden=True)
            database.submit(happens, "k2").result()
            _show(page, is_hidden=False)
            expect(rows).to_have_count(2)

    in_chromium(journey)


def _show(page: Page, *, is_hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def _deliver() -> None:
    Delivery.objects.update(status=Delivery.Status.DELIVERED, next_attempt_at=None)
    connection.close()


def test_a_filter_acts_at_once_and_leaves_no_copy_of_the_page(
    session: str, live_server: Any, in_chromium: Chromium
) -> None:
    """By default, htmx stores a copy of the previous page in the session storage."""

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, WIDE) as page:
            page.goto("/console/deliveries")
            page.get_by_label("Status", exact=True).focus()
            page.get_by_label("Status", exact=True).select_option("delivered")
            expect(page).to_have_url(re.compile(r"/console/deliveries\?status=delivered$"))
            expect(page.get_by_label("Status", exact=True)).to_be_focused()
            assert page.evaluate("sessionStorage.getItem('htmx-history-cache')") is None
            page.get_by_role("link", name="Without Status: Delivered").click()
            expect(page).to_have_url(re.compile("/console/deliveries$"))

    in_chromium(journey)
