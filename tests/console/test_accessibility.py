"""Every page that people see, in Chromium: axe finds nothing in light and dark, and nothing is wider than a phone."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, sync_playwright
from pytest_django import Settings

from tenants.models import User
from tenants.team import invitations
from tests.api_contract.authorisation import World
from tests.console.pages import PAGES, registered_pages
from tests.console.test_authorisation import world as world
from tests.pages import ROOT

AXE = ROOT / "tests" / "node" / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """async (rules) => (await axe.run(rules ? {runOnly: rules} : {})).violations.flatMap(
    (found) => found.nodes.slice(0, 3).map((node) => `${found.id}: ${node.target[0]} ${node.html.slice(0, 120)}`))"""
WIDTH = "document.documentElement.scrollWidth"
STRANGERS = ("/login", "/sign-up", "/sign-up/sent", "/password/reset", "/outbox")
OWN = ("/second-factor/", "/second-factor/webauthn/", "/password/change", "/reauthenticate")


@pytest.mark.e2e
@pytest.mark.django_db(transaction=True)
def test_pages_are_accessible_and_fit_a_phone(world: World, live_server: Any, settings: Settings) -> None:
    settings.APP_URL = live_server.url
    settings.BILLING_ENABLED = True
    owner = User.objects.create_user("asha@traders.example", "a long enough password", tenant=world.tenant)
    invited = invitations.invite(
        tenant_id=world.tenant.id, email="ravi@traders.example", role="billing", actor_user_id=owner.pk
    )
    strangers = [*STRANGERS, invitations.link_for(invited).removeprefix(live_server.url)]
    own = [*OWN, *_console_paths(world)]
    client = Client()
    client.force_login(owner)
    session = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    with ThreadPoolExecutor(1) as pool:  # the browser's driver runs an event loop in its thread
        found = pool.submit(_look, live_server.url, session, strangers, own).result()
    assert not found, "\n".join(found)


def _console_paths(world: World) -> list[str]:
    """The console's pages with an object each; files to download are no pages."""
    names = [name for name, page in PAGES.items() if page.reads and name in registered_pages()]
    pages = [reverse(name, kwargs=PAGES[name].made(world)) for name in names]
    client = Client()
    client.force_login(User.objects.create_user("looks@traders.example", tenant=world.tenant))
    return [path for path in pages if _is_page(client.get(path))]


def _is_page(answer: Any) -> bool:
    return answer.status_code == 200 and answer.content.lstrip().startswith(b"<!doctype html>")


def _look(url: str, session: str, strangers: list[str], own: list[str]) -> list[str]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    found: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for cookies, paths in (([], strangers), ([session], own)):
            context = browser.new_context(
                bypass_csp=True, reduced_motion="reduce", viewport={"width": 360, "height": 740}
            )
            context.add_cookies(
                [
                    {"name": django_settings.SESSION_COOKIE_NAME, "value": value, "url": url}
                    for value in cookies
                ]
            )
            page = context.new_page()
            for each in paths:
                found += _complaints(page, url, each)
            if cookies:
                found += _invite_by_keyboard(page, url)
            context.close()
        browser.close()
    return found


def _complaints(page: Page, url: str, path: str) -> list[str]:
    page.emulate_media(color_scheme="light")
    page.goto(url + path)
    page.evaluate(AXE.read_text())
    found = [f"{path} {problem}" for problem in page.evaluate(VIOLATIONS, None)]
    if (width := page.evaluate(WIDTH)) > 360:
        found.append(f"{path} is {width} px wide")
    page.emulate_media(color_scheme="dark")
    return found + [f"{path} dark {problem}" for problem in page.evaluate(VIOLATIONS, ["color-contrast"])]


def _invite_by_keyboard(page: Page, url: str) -> list[str]:
    """Invite somebody with Tab, letters and Enter alone, from the top of the page."""
    page.goto(f"{url}/console/team")
    page.keyboard.press("Tab")
    if page.evaluate("document.activeElement.className") != "skip":
        return ["the first stop of the keyboard is not the link to the content"]
    for typed, stop in (("guest@traders.example", "id_email"), ("Billing", "id_role")):
        for _ in range(60):
            if page.evaluate("document.activeElement.id") == stop:
                break
            page.keyboard.press("Tab")
        else:
            return [f"the keyboard does not reach {stop}"]
        page.keyboard.type(typed)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("is on its way to guest@traders.example").wait_for(timeout=10_000)
    role = page.locator("tr", has_text="guest@traders.example").locator(".badge").first.inner_text()
    return [] if role == "Billing" else [f"the keyboard chose the role {role}"]
