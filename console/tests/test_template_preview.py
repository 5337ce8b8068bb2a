"""The preview of a template in Chromium: it shows the form's latest state, even if an earlier preview is slow."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from phone_numbers.models import BusinessAccount
from tenants.models import Tenant, User
from tests.accessibility import Chromium, session_of, window

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_a_change_while_a_preview_is_on_its_way_is_previewed_too(
    tenant: Tenant, live_server: Any, in_chromium: Chromium
) -> None:
    session = session_of(
        User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
    )
    BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="2001", name="Asha", access_token="EAA"
    )

    def journey(browser: Browser) -> list[str]:
        with window(browser, live_server.url, session, 1280) as page:
            fill_in_while_a_preview_is_held(page)
        return []

    assert in_chromium(journey) == []


def fill_in_while_a_preview_is_held(page: Page) -> None:
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/console/templates/new/preview", hold_the_first)
    page.goto("/console/templates/new")
    page.get_by_label("Name", exact=True).fill("order_ready")
    with page.expect_request("**/console/templates/new/preview"):
        page.get_by_label("Language").select_option("en")
        page.keyboard.press("Tab")
    page.get_by_label("Body", exact=True).fill("Your order is ready.")
    page.keyboard.press("Tab")
    held[0].continue_()
    expect(page.locator("#preview").get_by_text("Your order is ready.").first).to_be_visible()
