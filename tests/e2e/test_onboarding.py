"""A browser without scripts: sign up, confirm, log in and out, reset the password, add a second factor."""

import pytest
from playwright.sync_api import Browser, expect

from tests.accessibility import ACCOUNT_MENU
from tests.e2e.conftest import Stack
from tests.e2e.people import PASSWORD, Visitor, fill_sign_up, last_link, new_business

pytestmark = pytest.mark.e2e


def test_an_account_is_opened_and_kept_without_scripts_on_a_phone(browser: Browser, stack: Stack) -> None:
    visitor = Visitor(browser, stack.ready["base_url"], scripts=False)
    page = visitor.page
    email, company = new_business()

    # Every wrong field is announced.
    page.goto("/sign-up")
    page.get_by_role("button", name="Sign up").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("[aria-invalid=true]")).to_have_count(10)
    untied = page.evaluate(
        """() => [...document.querySelectorAll("[aria-invalid=true]")].filter(node =>
            !(node.getAttribute("aria-describedby") ?? "").split(" ").every(id => document.getElementById(id)))
            .map(node => node.outerHTML)"""
    )
    assert untied == []
    visitor.fits_a_phone("the errors of the sign-up")

    # The sign-up.
    fill_sign_up(page, email, company)
    page.get_by_label("State or union territory").press("Enter")
    page.get_by_label("Business email").press("Enter")
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    confirmation = last_link(stack, email)
    page.goto(confirmation)
    visitor.fits_a_phone("the confirmation")
    page.get_by_role("button", name="Confirm this address").press("Enter")
    expect(page.get_by_role("heading", name="your address is confirmed")).to_be_visible()
    visitor.fits_a_phone("the confirmed address")
    page.goto(confirmation)
    expect(page.get_by_role("heading", name="This link does not work")).to_be_visible()
    visitor.fits_a_phone("a link that was used")
    visitor.log_in(email, PASSWORD)
    expect(page.get_by_text("Waiting for approval")).to_be_visible()
    page.locator(ACCOUNT_MENU).press("Enter")
    page.get_by_role("button", name="Log out").press("Enter")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()

    # The reset of the password.
    page.goto("/password/reset")
    page.get_by_label("Email").fill(email)
    page.get_by_role("button", name="Send the link").press("Enter")
    visitor.fits_a_phone("the sent link")
    page.goto(last_link(stack, email))
    visitor.fits_a_phone("the new password")
    new_password = "an entirely new passphrase"
    for label in ("New password", "New password, again"):
        page.get_by_label(label, exact=True).fill(new_password)
    page.get_by_role("button", name="Set the password").press("Enter")
    expect(page.get_by_role("heading", name="Your new password is set")).to_be_visible()
    visitor.log_in(email, new_password)

    # The second factor.
    page.locator(ACCOUNT_MENU).press("Enter")
    page.get_by_role("link", name="Security").press("Enter")
    page.get_by_role("link", name="Add an authenticator app").press("Enter")
    page.get_by_label("Password").fill(new_password)
    page.get_by_role("button", name="Confirm").press("Enter")
    expect(page.get_by_alt_text("QR code of the secret below")).to_be_visible()
    visitor.fits_a_phone("the second factor")
    page.goto("/nothing-here")
    visitor.fits_a_phone("an unknown page")
    visitor.context.close()
    assert visitor.complaints == []
