"""The hosted connect page in a real browser, with the simulator's embedded sign-up."""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect

from gateway.clock import now
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import ConnectSession, PhoneNumber
from tenants.models import Tenant
from tests.accessibility import Chromium
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

RETURN_PATH = "/errors/131047"
"""The page that the browser returns to. Any page works."""


@pytest.fixture
def link(tenant: Tenant, simulator: RunningSimulator, live_server: Any, settings: Any) -> str:
    """The hosted link of a new session of a sandbox tenant."""
    settings.APP_URL = live_server.url
    settings.SANDBOX_SIGNUP_SDK_URL = f"{simulator.url}/sdk.js"
    session = sessions.create(
        tenant_id=tenant.id, environment="test", return_url=f"{live_server.url}{RETURN_PATH}"
    )
    return sessions.url_of(session)


@pytest.fixture
def drive(link: str, in_chromium: Chromium) -> Callable[[Callable[[Page], None]], list[str]]:
    """A function that opens the link on a small phone, runs a test's steps, and returns the browser's errors."""

    def run(play: Callable[[Page], None]) -> list[str]:
        complaints: list[str] = []

        def journey(browser: Browser) -> None:
            page = browser.new_page(viewport={"width": 360, "height": 740})
            page.set_default_timeout(30_000)
            page.on("console", lambda said: _note(said, complaints))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(link)
            assert fits(page)
            play(page)

        in_chromium(journey)
        return complaints

    return run


def _note(said: ConsoleMessage, complaints: list[str]) -> None:
    """Record the browser's errors, except the missing icon of the page that it returns to."""
    if said.type == "error" and not said.location["url"].endswith("/favicon.ico"):
        complaints.append(said.text)


def fits(page: Page) -> bool:
    """Whether the page is not wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def came_back(page: Page) -> dict[str, list[str]]:
    page.wait_for_url(f"**{RETURN_PATH}?*")
    return parse_qs(urlsplit(page.url).query)


def leave(dialog: Page, button: str) -> None:
    """Press a button that closes the dialog's window. The window can be gone before the driver reports the click."""
    # Before the page's script has run, the button does nothing.
    dialog.wait_for_load_state()
    with contextlib.suppress(Error):
        dialog.get_by_role("button", name=button).click()
    if not dialog.is_closed():
        dialog.wait_for_event("close")


def test_a_customer_connects_a_number(drive: Callable[..., list[str]], simulator: RunningSimulator) -> None:
    account = simulator.account(name="Bazaar")

    def play(page: Page) -> None:
        with page.expect_popup() as opened:
            page.get_by_role("button", name="Connect my number").click()
        dialog = opened.value
        assert fits(page)
        dialog.get_by_label("Business account").select_option(account.waba_id)
        dialog.get_by_label("Phone number").select_option(account.phone_number_id)
        leave(dialog, "Finish")
        back = came_back(page)
        assert back["status"] == ["connected"]
        assert list(back) == ["session_id", "status"]
        page.go_back()
        assert came_back(page)["status"] == ["connected"]

    assert drive(play) == []
    session = ConnectSession.objects.get()
    assert (session.status, session.phone_number_ids) == ("connected", [account.phone_number_id])
    assert PhoneNumber.objects.get().registered


def test_a_cancelled_dialog_can_be_tried_again_or_left(
    drive: Callable[..., list[str]], simulator: RunningSimulator
) -> None:
    def play(page: Page) -> None:
        with page.expect_popup() as opened:
            page.get_by_role("button", name="Connect my number").click()
        leave(opened.value, "Cancel")
        page.get_by_text("Nothing was connected").wait_for()
        page.get_by_role("button", name="Try again").wait_for()
        assert fits(page)
        page.get_by_role("button", name="Go back without connecting").click()
        assert came_back(page)["status"] == ["failed"]

    assert drive(play) == []
    assert (ConnectSession.objects.get().error or {})["code"] == "cancelled"


def test_an_error_reported_in_the_dialog_goes_back_failed(
    drive: Callable[..., list[str]], simulator: RunningSimulator
) -> None:
    def play(page: Page) -> None:
        with page.expect_popup() as opened:
            page.get_by_role("button", name="Connect my number").click()
        leave(opened.value, "Report error")
        assert came_back(page)["status"] == ["failed"]

    assert drive(play) == []
    assert "verified name" in (ConnectSession.objects.get().error or {})["message"]


def test_an_expired_link_says_so(drive: Callable[..., list[str]]) -> None:
    ConnectSession.objects.update(expires_at=now() - timedelta(seconds=1))

    def play(page: Page) -> None:
        page.get_by_role("heading", name="This link has expired").wait_for()
        page.get_by_role("button", name="Go back").click()
        assert came_back(page)["status"] == ["failed"]

    complaints = drive(play)
    assert [text for text in complaints if "410" not in text] == []


def test_a_sign_up_that_is_not_loaded_can_be_tried_again(drive: Callable[..., list[str]]) -> None:
    def play(page: Page) -> None:
        sdk = "**/sdk.js*"
        page.route(sdk, lambda route: route.abort())
        page.reload()
        page.get_by_text("could not be loaded").wait_for()
        page.unroute(sdk)
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("button", name="Connect my number")).to_be_enabled(timeout=30_000)

    assert all("ERR_FAILED" in complaint for complaint in drive(play))
