"""From the sign-up form to a sent message, in a browser: sign up, confirm, staff approve, log in, create a key."""

import re
import secrets
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.accessibility import ACCOUNT_MENU
from tests.e2e.conftest import Stack, until
from tests.e2e.people import PASSWORD, Visitor, fill_sign_up, last_link, new_business, press_action

pytestmark = pytest.mark.e2e


@pytest.fixture
def visitor(browser: Browser, stack: Stack) -> Iterator[Visitor]:
    someone = Visitor(browser, stack.ready["base_url"])
    yield someone
    someone.context.close()
    assert someone.complaints == []


@pytest.fixture
def reviewer(browser: Browser, stack: Stack) -> Iterator[Visitor]:
    someone = Visitor(browser, stack.ready["base_url"])
    yield someone
    someone.context.close()
    assert someone.complaints == []


def sign_up_and_confirm(visitor: Visitor, stack: Stack, email: str, company: str) -> None:
    page = visitor.page
    fill_sign_up(page, email, company)
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    page.goto(last_link(stack, email))
    page.get_by_role("button", name="Confirm this address").click()
    expect(page.get_by_role("heading", name="your address is confirmed")).to_be_visible()


def test_a_business_signs_up_is_approved_and_sends_a_message(
    visitor: Visitor, reviewer: Visitor, stack: Stack
) -> None:
    email, company = new_business()
    page = visitor.page

    worlds = len(stack.simulator("GET", "/sim/accounts")["data"])

    page.goto("/sign-up")
    visitor.picture("sign-up")
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("alert")).to_be_visible()
    visitor.picture("sign-up-errors")
    fill_sign_up(page, email, company)
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    visitor.picture("sign-up-sent")
    page.goto(last_link(stack, email))
    visitor.picture("confirm")
    page.get_by_role("button", name="Confirm this address").click()
    expect(page.get_by_role("heading", name="your address is confirmed")).to_be_visible()
    visitor.picture("confirmed")
    page.goto(last_link(stack, email))
    expect(page.get_by_role("heading", name="This link does not work")).to_be_visible()
    visitor.picture("link-error")

    page.goto("/login")
    visitor.picture("login")
    visitor.log_in(email, PASSWORD)
    expect(page.get_by_text("Waiting for approval")).to_be_visible()
    visitor.picture("home-pending")
    page.get_by_role("link", name="API keys").click()
    expect(page.get_by_role("button", name="Create key")).to_have_count(0)
    until(lambda: len(stack.simulator("GET", "/sim/accounts")["data"]) > worlds, "the sandbox")
    play_the_customer(visitor)

    approve(reviewer, stack, company)

    page.goto("/console")
    expect(page.get_by_role("heading", name="First steps")).to_be_visible()
    visitor.picture("home-active")
    page.get_by_role("link", name="API keys").first.click()
    visitor.picture("api-keys-empty")
    page.get_by_label("Name").fill("web shop")
    page.get_by_label("Environment").select_option("test")
    page.get_by_role("button", name="Create key").click()
    key = page.locator("#new-key").inner_text()
    assert re.fullmatch(r"wb_test_[A-Za-z0-9]{40}", key)
    visitor.picture("key-created")
    page.get_by_role("button", name="I have saved it").click()
    expect(page.get_by_text(key)).to_have_count(0)
    visitor.picture("api-keys")
    page.get_by_role("link", name="Rotate").click()
    visitor.picture("rotate-key")
    page.goto("/console/api-keys")
    page.get_by_role("link", name="Revoke").click()
    visitor.picture("revoke-key")

    send_with(stack, key)


def play_the_customer(visitor: Visitor) -> None:
    """While the tenant waits for approval, a customer writes, and the tenant reads the event and replies."""
    page = visitor.page
    page.goto("/console")
    page.get_by_role("link", name="your sandbox").click()
    visitor.picture("phone-empty")
    page.get_by_role("button", name="Write “Hello”").click()
    page.get_by_label("Message", exact=True).fill("Is it in stock?")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("log").get_by_text("Is it in stock?")).to_be_visible()
    page.get_by_role("button", name="Answer as the business").click()
    page.get_by_label("To", exact=True).fill("+91 98123 45678")
    page.get_by_label("Text", exact=True).fill("It is.\n#react 👍")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Meta accepted it")).to_be_visible()
    page.goto("/console/phone?customer=919812345678")
    # The conversation updates itself.
    expect(page.locator(".reaction")).to_have_text("👍", timeout=15_000)
    visitor.picture("phone")
    page.goto("/console/events")
    expect(page.get_by_role("cell", name="message.inbound").first).to_be_visible()
    page.get_by_role("button", name="Live", exact=True).click()


def approve(reviewer: Visitor, stack: Stack, company: str) -> None:
    """As staff, see the flag in the queue, open the dialog and approve the tenant."""
    page = reviewer.page
    page.goto("/admin/")
    reviewer.page.get_by_label("Email").fill(stack.ready["staff_email"])
    reviewer.page.get_by_label("Password", exact=True).fill(stack.ready["staff_password"])
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_text("Messages per hour")).to_be_visible()
    reviewer.picture("admin-overview")
    page.goto("/admin/tenants/tenant/?status__exact=pending_approval")
    expect(page.get_by_text("email domain differs from website").first).to_be_visible()
    reviewer.picture("admin-queue")
    page.get_by_role("link", name=company).click()
    expect(page.get_by_text("44 Electronics City")).to_be_visible()
    reviewer.picture("admin-tenant")
    press_action(page, "Reject")
    expect(page.get_by_text("Usual reasons")).to_be_visible()
    reviewer.picture("admin-reject-dialog")
    page.locator("#dialog").get_by_role("button", name="Cancel", exact=True).click()
    press_action(page, "Approve")
    page.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_text(f"{company} is approved.")).to_be_visible()
    reviewer.picture("admin-approved")


def send_with(stack: Stack, key: str) -> None:
    """Connect a number of the simulator with the new key, and send a message from the number."""
    account = stack.simulator("POST", "/sim/accounts", {"numbers": 1})
    number = account["phone_numbers"][0]["id"]
    connected = stack.api(
        "POST",
        "/v1/numbers/connect",
        {"waba_id": account["waba_id"], "access_token": account["access_token"]},
        key=key,
    )
    assert connected.ok, connected.text
    registered = stack.api("POST", f"/v1/numbers/{number}/register", {"pin": "123456"}, key=key)
    assert registered.ok, registered.text
    inbox = f"{stack.ready['simulator_url']}/inbox/{secrets.token_hex(4)}"
    endpoint = stack.api("POST", "/v1/webhooks", {"url": inbox}, key=key)
    assert endpoint.status_code == 201, endpoint.text
    until(
        lambda: stack.api("GET", f"/v1/numbers/{number}", key=key).json()["connection_state"] == "connected",
        "the connection",
    )
    sent = stack.api(
        "POST",
        "/v1/messages",
        {"from": number, "to": "+919812345009", "type": "text", "text": {"body": "Hello"}},
        key=key,
    )
    assert sent.status_code == 200, sent.text


def test_sign_up_works_without_scripts_and_by_keyboard(browser: Browser, stack: Stack) -> None:
    visitor = Visitor(browser, stack.ready["base_url"], scripts=False)
    email, company = new_business()
    page = visitor.page
    fill_sign_up(page, email, company)
    page.get_by_label("State or union territory").press("Enter")
    page.get_by_label("Business email").press("Enter")
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    page.goto(last_link(stack, email))
    page.get_by_role("button", name="Confirm this address").press("Enter")
    expect(page.get_by_role("heading", name="your address is confirmed")).to_be_visible()
    visitor.log_in(email, PASSWORD)
    expect(page.get_by_text("Waiting for approval")).to_be_visible()
    page.locator(ACCOUNT_MENU).press("Enter")
    page.get_by_role("button", name="Log out").press("Enter")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    visitor.context.close()


def test_every_control_has_a_name_and_errors_are_tied_to_their_fields(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/sign-up")
    page.get_by_role("button", name="Sign up").click()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input:not([type=hidden]), select, button, a")]
            .filter(node => !(node.labels?.length || node.textContent.trim() || node.ariaLabel))
            .map(node => node.outerHTML)"""
    )
    assert unnamed == []
    untied = page.evaluate(
        """() => [...document.querySelectorAll("[aria-invalid=true]")].filter(node =>
            !(node.getAttribute("aria-describedby") ?? "").split(" ").every(id => document.getElementById(id)))
            .map(node => node.outerHTML)"""
    )
    assert untied == []
    expect(page.locator("[aria-invalid=true]")).to_have_count(10)


def test_a_password_is_reset_and_a_second_factor_added(visitor: Visitor, stack: Stack) -> None:
    email, company = new_business()
    sign_up_and_confirm(visitor, stack, email, company)
    page = visitor.page
    page.goto("/password/reset")
    visitor.picture("password-reset")
    page.get_by_label("Email").fill(email)
    page.get_by_role("button", name="Send the link").click()
    visitor.picture("password-reset-sent")
    page.goto(last_link(stack, email))
    visitor.picture("password-reset-form")
    new_password = "an entirely new passphrase"
    for label in ("New password", "New password, again"):
        page.get_by_label(label, exact=True).fill(new_password)
    page.get_by_role("button", name="Set the password").click()
    expect(page.get_by_role("heading", name="Your new password is set")).to_be_visible()
    visitor.log_in(email, new_password)
    page.locator(ACCOUNT_MENU).click()
    page.get_by_role("link", name="Security").click()
    visitor.picture("security")
    page.get_by_role("link", name="Add an authenticator app").click()
    visitor.picture("reauthenticate")
    page.get_by_label("Password").fill(new_password)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_alt_text("QR code of the secret below")).to_be_visible()
    visitor.picture("second-factor")
    page.goto("/nothing-here")
    visitor.picture("not-found")
