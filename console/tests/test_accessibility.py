"""Every page in Chromium: axe finds no problem in light and dark mode, and each page fits a phone's screen and obeys
its content security policy.
"""

from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page
from pytest_django import Settings

from console.tests.pages import PAGES, registered_pages
from console.tests.test_authorisation import world as world
from tenants.models import User
from tenants.team import invitations
from tests.accessibility import Chromium, complaints, session_of, window
from tests.api_contract.authorisation import World
from tests.e2e.keyboard import Keyboard

STRANGERS = (
    "/",
    "/terms",
    "/privacy",
    "/login",
    "/sign-up",
    "/sign-up/sent",
    "/password/reset",
    "/outbox",
    "/components?text=",
)
OWN = ("/second-factor/", "/second-factor/webauthn/", "/password/change", "/reauthenticate")


@pytest.mark.e2e
@pytest.mark.django_db(transaction=True)
def test_pages_are_accessible_and_fit_a_phone(
    world: World, live_server: Any, in_chromium: Chromium, settings: Settings
) -> None:
    settings.APP_URL = live_server.url
    settings.BILLING_ENABLED = True
    owner = User.objects.create_user("asha@traders.example", "a long enough password", tenant=world.tenant)
    invited = invitations.invite(
        tenant_id=world.tenant.id, email="ravi@traders.example", role="billing", actor_user_id=owner.pk
    )
    strangers = [*STRANGERS, invitations.link_for(invited).removeprefix(live_server.url)]
    own = [*OWN, *_console_paths(world)]
    session = session_of(owner)

    def journey(browser: Browser) -> list[str]:
        found: list[str] = []
        with window(browser, live_server.url) as page:
            for path in strangers:
                found += complaints(page, path)
        with window(browser, live_server.url, session) as page:
            for path in own:
                found += complaints(page, path, or_no_page=True)
            invite_by_keyboard(page)
        return found

    found = in_chromium(journey)
    assert not found, "\n".join(found)


def _console_paths(world: World) -> list[str]:
    """The paths of the console's pages and downloads, each with an object."""
    names = [name for name, page in PAGES.items() if page.reads and name in registered_pages()]
    return [reverse(name, kwargs=PAGES[name].made(world)) for name in names]


def invite_by_keyboard(page: Page) -> None:
    """Invite somebody with only Tab, letters and Enter, from the top of the page."""
    page.goto("/console/team")
    hands = Keyboard(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", "the first stop leads to the content"
    for typed, stop in (("guest@traders.example", "id_email"), ("Billing", "id_role")):
        hands.fill(page.locator(f"#{stop}"), typed)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("is on its way to guest@traders.example").wait_for(timeout=10_000)
    role = page.locator("tr", has_text="guest@traders.example").locator(".badge").first.inner_text()
    assert role == "Billing"
