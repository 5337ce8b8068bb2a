"""The console's three persons at a browser, against the running service: customer, developer, staff.

Nobody types a call of the API, and nobody needs a password but their own: from the sign-up to a delivered message, to
a delivery that staff sent again.
"""

import re
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Stack
from tests.e2e.people import PASSWORD, Visitor, fill_sign_up, new_business, press_action

pytestmark = pytest.mark.e2e

CUSTOMER = "+91 98123 45678"


class Business(NamedTuple):
    """A business whose person signed up in a browser, and the staff member who let it in."""

    email: str
    company: str
    person: Visitor
    staff: Visitor


@pytest.fixture(scope="module")
def business(browser: Browser, stack: Stack) -> Iterator[Business]:
    """Sign-up, the mail from the outbox page, log-in; staff find the business by its mail address and approve it."""
    email, company = new_business()
    person, staff = (Visitor(browser, stack.ready["base_url"]) for _ in range(2))
    page = person.page
    fill_sign_up(page, email, company)
    page.get_by_role("button", name="Sign up").click()
    page.goto("/outbox")
    page.get_by_role("link", name=re.compile("onfirm")).first.click()
    page.locator(".mail a").first.click()
    page.get_by_role("button", name="Confirm this address").click()
    page.get_by_role("link", name="Log in").last.click()
    person.log_in(email, PASSWORD)
    expect(page.get_by_text("Your request is with our team")).to_be_visible()
    let_in(staff, stack, email, company)
    yield Business(email, company, person, staff)
    for visitor in (person, staff):
        visitor.context.close()
        assert visitor.complaints == []


def let_in(staff: Visitor, stack: Stack, email: str, company: str) -> None:
    page = staff.page
    page.goto("/admin/")
    page.get_by_label("Email").fill(stack.ready["staff_email"])
    page.get_by_label("Password", exact=True).fill(stack.ready["staff_password"])
    page.get_by_role("button", name="Log in", exact=True).click()
    search_as_staff(page, email)
    page.get_by_role("link", name=company).first.click()
    press_action(page, "Approve")
    page.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_text(f"{company} is approved.")).to_be_visible()


def search_as_staff(page: Page, text: str) -> None:
    page.goto("/admin/find/")
    page.get_by_role("searchbox").last.fill(text)
    page.keyboard.press("Enter")


def in_test_world(page: Page) -> None:
    page.goto("/console")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_role("button", name="Test", exact=True)).to_have_attribute("aria-pressed", "true")


def send(page: Page, text: str) -> str:
    """Send a message with the form; returns its id."""
    page.get_by_role("link", name="Send a test").first.click()
    page.get_by_label("To", exact=True).fill(CUSTOMER)
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("the platform accepted it")).to_be_visible()
    answer = page.locator("details", has_text="The answer, as it came").locator("code").text_content() or ""
    found = re.search(r"wamid\.[\w=+/-]+", answer)
    assert found is not None, answer
    return found[0]


def test_a_customer_sends_a_message_and_sees_it_delivered(business: Business) -> None:
    page = business.person.page
    in_test_world(page)
    wamid = send(page, "Hello from the journey")
    expect(page.locator("#message-events").get_by_text("Delivered")).to_be_visible(timeout=20_000)
    page.keyboard.press("Control+k")
    page.keyboard.type(wamid)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Message to")).to_be_visible()
    expect(page.get_by_text(re.compile(r"It was (delivered|read)\."))).to_be_visible()


def test_a_developer_receives_events_and_staff_send_one_again(business: Business, stack: Stack) -> None:
    page = business.person.page
    in_test_world(page)
    page.get_by_role("link", name="API keys").first.click()
    page.get_by_label("Name").fill("web shop")
    page.get_by_role("button", name="Create key").click()
    assert page.locator("#new-key").inner_text().startswith("wb_test_")
    page.get_by_role("link", name="I have saved it").click()
    delivery_id = receives(page, f"{stack.ready['simulator_url']}/inbox/{secrets.token_hex(4)}")
    repaired(business, delivery_id)


def receives(page: Page, inbox: str) -> str:
    """Create an endpoint, send a message, and open a delivery; returns the delivery's id."""
    page.get_by_role("link", name="Webhooks").first.click()
    page.get_by_label("URL", exact=True).fill(inbox)
    page.get_by_label("Every event").check()
    page.get_by_role("button", name="Create and ping it").click()
    expect(page.get_by_text("The ping passed")).to_be_visible()
    assert page.locator("#new-secret").inner_text().startswith("whsec_")
    page.get_by_role("link", name="I have saved it").click()
    page.locator("article", has_text="Send an example event").get_by_role("button", name="Send").click()
    expect(page.get_by_text(re.compile("HTTP 2.. in "))).to_be_visible()
    send(page, "An order for the developer")
    page.get_by_role("link", name="Deliveries").first.click()
    delivered = page.get_by_role("row").filter(has_text="message.outbound").filter(has_text="Delivered")
    expect(delivered.first).to_be_visible(timeout=20_000)
    delivered.first.get_by_role("link").first.click()
    expect(page.get_by_text("HTTP 200").first).to_be_visible()
    return page.locator("code", has_text=re.compile("^dlv_")).first.inner_text()


def repaired(business: Business, delivery_id: str) -> None:
    """Staff find the delivery, read what the receiver said, send it again, and verify the endpoint."""
    page = business.staff.page
    search_as_staff(page, delivery_id)
    expect(page.get_by_text("/inbox/").first).to_be_visible()
    expect(page.get_by_text(business.company).first).to_be_visible()
    press_action(page, "Send again")
    page.locator("#dialog").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("The new delivery is delivered.")).to_be_visible()
    page.get_by_role("link").filter(has_text="/inbox/").first.click()
    press_action(page, "Verify")
    page.locator("#dialog").get_by_role("button", name="Verify").click()
    expect(page.get_by_text("It answered in")).to_be_visible()
    owner = business.person.page
    owner.goto("/console/settings/audit")
    expect(owner.get_by_text("Our team").first).to_be_visible()
