"""Staff can open, fill in, correct and submit the dialogs with the keyboard alone."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings

from billing.models import BankTransfer, Invoice
from console.tests.test_authorisation import world as world
from gateway.clock import now
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant, User
from tests import accessibility
from tests.accessibility import Chromium, session_of, window
from tests.api_contract.authorisation import ROWS, World
from tests.e2e.keyboard import Keyboard
from tests.e2e.people import action
from tests.one_of_each import OneOfEach, one_of_each
from webhooks.models import Delivery, Endpoint, EventPayload

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

SIDES = """(() => {
    const box = document.querySelector("dialog").getBoundingClientRect();
    return [box.left, document.documentElement.clientWidth - box.right];
})()"""
"""Returns the pixels to the left and to the right of the dialog."""
SEND_AT_ONCE = """new MutationObserver((_, observer) => {
    const form = document.querySelector("dialog #dialog form");
    if (form) { observer.disconnect(); form.requestSubmit(); }
}).observe(document.body, {childList: true, subtree: true})"""
INVOICE = "GET /v1/billing/invoices/{invoice_id}"


@pytest.fixture
def rows(tenant: Tenant, settings: Settings) -> OneOfEach:
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = "http://127.0.0.1:9"
    made = one_of_each(tenant)
    Endpoint.objects.update(url="http://127.0.0.1:9/", status="active", verified_at=now())
    EventPayload.objects.create(
        expires_on=made.event.payload_expires_on, id=made.event.id, tenant_id=tenant.id, body=b"{}"
    )
    return made


@pytest.fixture
def waiting(tenant: Tenant) -> list[Tenant]:
    """Two businesses that wait for approval."""
    return [
        Tenant.objects.create(name=name, status="pending_approval", contact_email=f"{name}@example.in")
        for name in ("Chitra", "Deepak")
    ]


def open_dialog(page: Page, name: str) -> None:
    """Open a dialog with Tab and Enter."""
    Keyboard(page).press(action(page, name))
    expect(page.locator("dialog[open] h2")).to_be_visible()
    left, right = page.evaluate(SIDES)
    assert abs(left - right) <= 1, "the dialog must be in the middle of the window"


def press(page: Page, name: str) -> None:
    """Tab to a button of the open dialog, and press it."""
    Keyboard(page).press(page.locator("dialog").get_by_role("button", name=name, exact=True))


def test_staff_decide_and_correct_by_the_keyboard(
    staff: User, waiting: list[Tenant], world: World, rows: OneOfEach, live_server: Any, in_chromium: Chromium
) -> None:
    ROWS[INVOICE].ids(world)  # type: ignore[misc]
    invoice = Invoice.objects.get()
    session = session_of(staff)

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, width=1280) as page:
            rejects(page, waiting[0])
            approves(page, waiting[1])
            records_a_transfer(page, invoice)
            sends_again(page, rows.delivery)
            releases(page, rows.number)

    in_chromium(journey)
    assert [Tenant.objects.get(pk=tenant.pk).status for tenant in waiting] == ["rejected", "active"]
    assert set(BankTransfer.objects.values_list("reference", flat=True)) == {"UTR 77", "UTR 78"}
    assert Delivery.objects.filter(replay_of=rows.delivery.pk).exists()
    assert not PhoneNumber.objects.filter(pk=rows.number.pk).exists()


def test_a_dialog_without_the_pages_script_is_a_whole_page(
    staff: User, waiting: list[Tenant], live_server: Any, in_chromium: Chromium
) -> None:
    """The link of the dialog is opened in a new tab, and the browser itself submits the form."""
    session, path = session_of(staff), f"/admin/tenants/tenant/{waiting[0].pk}/change/"

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, width=1280) as page:
            page.goto(path)
            page.goto(str(page.get_by_role("link", name="Reject").get_attribute("href")))
            assert accessibility.complaints_here(page, "the dialog in a tab of its own") == []
            page.get_by_role("button", name="Cancel").click()
            page.wait_for_url(f"**{path}")
            page.goto(str(page.get_by_role("link", name="Reject").get_attribute("href")))
            page.evaluate("document.querySelector('#dialog form').submit()")
            expect(page.get_by_text("Give a reason: the business reads it.")).to_be_visible()
            assert accessibility.complaints_here(page, "the refused dialog as a page") == []

    in_chromium(journey)


def test_a_dialog_sent_as_soon_as_it_is_there_stays_on_its_page(
    staff: User, waiting: list[Tenant], live_server: Any, in_chromium: Chromium
) -> None:
    """The form is submitted as soon as the script has inserted it, which is the earliest moment for a key press."""
    session, path = session_of(staff), f"/admin/tenants/tenant/{waiting[0].pk}/change/"

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, width=1280) as page:
            page.goto(path)
            page.evaluate(SEND_AT_ONCE)
            page.get_by_role("link", name="Reject").click()
            expect(page.get_by_text("Give a reason: the business reads it.")).to_be_visible()
            assert page.url.endswith(path), page.url

    in_chromium(journey)


def rejects(page: Page, tenant: Tenant) -> None:
    """Reject a tenant. Without a reason, the dialog stays open. Esc closes it and focuses the dialog's link.

    The page's first link skips the side bar, but not the page's buttons.
    """
    page.goto(f"/admin/tenants/tenant/{tenant.pk}/change/")
    page.keyboard.press("Tab")
    content = page.locator(page.evaluate("document.activeElement.getAttribute('href')"))
    expect(content.get_by_role("link", name="Reject")).to_be_visible()
    open_dialog(page, "Reject")
    expect(page.get_by_label("Usual reasons")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page.get_by_role("link", name="Reject")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Usual reasons")).to_be_focused()
    press(page, "Reject")
    problem = page.get_by_text("Give a reason: the business reads it.")
    expect(problem).to_be_visible()
    expect(page.get_by_label("Reason (mailed")).to_be_focused()
    assert page.get_by_label("Reason (mailed").get_attribute("aria-describedby") == problem.get_attribute(
        "id"
    )
    assert accessibility.complaints_here(page, "the refused dialog") == []
    page.keyboard.type("The shop is closed.")
    press(page, "Reject")
    expect(page.get_by_text("Chitra is rejected.")).to_be_visible()


def approves(page: Page, tenant: Tenant) -> None:
    """Approve a tenant. In a dialog without fields, the focus begins on the button that cancels."""
    expect(page.get_by_text(tenant.contact_email or "").first).to_be_visible()
    open_dialog(page, "Approve")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    press(page, "Approve")
    expect(page.get_by_text("Deepak is approved.")).to_be_visible()


def records_a_transfer(page: Page, invoice: Invoice) -> None:
    """Record two transfers. When a reference is used again, its field gets the focus, and the typed values stay."""
    page.goto(f"/admin/billing/invoice/{invoice.pk}/change/")
    for amount, shown in (
        ("1.00", "A bank transfer of ₹1.00 is recorded."),
        ("589.00", "was recorded before"),
    ):
        open_dialog(page, "Record transfer")
        page.keyboard.type(amount)
        page.keyboard.press("Tab")
        page.keyboard.type("UTR 77")
        press(page, "Record")
        expect(page.get_by_text(shown)).to_be_visible()
    expect(page.get_by_label("The bank's reference")).to_be_focused()
    expect(page.get_by_label("The bank's reference")).to_have_value("UTR 77")
    expect(page.get_by_label("Amount in rupees")).to_have_value("589.00")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("UTR 78")
    press(page, "Record")
    expect(page.get_by_text("A bank transfer of ₹589.00 is recorded.")).to_be_visible()


def sends_again(page: Page, delivery: Delivery) -> None:
    page.goto(f"/admin/webhooks/delivery/{delivery.pk}/change/")
    open_dialog(page, "Send again")
    press(page, "Send again")
    expect(page.get_by_text("The new delivery is")).to_be_visible()


def releases(page: Page, number: PhoneNumber) -> None:
    page.goto(f"/admin/numbers/phonenumber/{number.pk}/change/")
    open_dialog(page, "Release")
    press(page, "Release")
    expect(page.get_by_text(f"Number {number.phone_number_id} is released.")).to_be_visible()


def test_a_dialog_says_when_the_server_fails_and_leads_to_the_log_in_when_the_session_ended(
    staff: User, waiting: list[Tenant], live_server: Any, in_chromium: Chromium
) -> None:
    session = session_of(staff)

    def journey(browser: Browser) -> None:
        with window(browser, live_server.url, session, width=1280) as page:
            page.goto(f"/admin/tenants/tenant/{waiting[0].pk}/change/")
            open_dialog(page, "Reject")
            page.get_by_label("Reason (mailed").fill("The shop is closed.")
            page.route("**/reject/", lambda route: route.fulfill(status=500, body="broken"))
            press(page, "Reject")
            expect(page.get_by_text("The server gave an unexpected answer.")).to_be_visible()
            expect(page.get_by_label("Reason (mailed")).to_have_value("The shop is closed.")
            page.unroute("**/reject/")
            page.context.clear_cookies(name="sessionid")
            press(page, "Reject")
            expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
            assert f"/admin/tenants/tenant/{waiting[0].pk}/change/" in page.url.replace("%2F", "/")

    in_chromium(journey)
