"""Users with a browser, who fill in forms, read mails and press buttons."""

import re
import secrets
from typing import Any

from playwright.sync_api import Browser, Locator, Page

from tests.accessibility import PHONE
from tests.e2e.conftest import Stack, until

PASSWORD = "correct horse battery staple"


class Visitor:
    """A user with a browser. Scripts can be off. `complaints` records the errors of the browser."""

    def __init__(self, browser: Browser, base_url: str, *, scripts: bool = True) -> None:
        self.context = browser.new_context(
            base_url=base_url, java_script_enabled=scripts, reduced_motion="reduce"
        )
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.complaints.append(message.text)

    def fits_a_phone(self, name: str) -> None:
        """Check that the page fits a phone's screen. Leaves the window as wide as a phone."""
        self.page.wait_for_load_state()
        self.page.set_viewport_size({"width": PHONE, "height": 800})
        overflow = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{name} is {overflow} px wider than a phone"

    def log_in(self, email: str, password: str) -> None:
        self.page.goto("/login")
        self.page.get_by_label("Email").fill(email)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Log in", exact=True).click()


def last_link(stack: Stack, email: str) -> str:
    """The link in the last mail to an address, as staff see it."""

    def mailed() -> Any:
        answer = stack.api("GET", f"/v1/admin/mail/last?email={email}", key=stack.staff_token)
        return answer.json()["links"] if answer.ok else None

    return str(until(mailed, "the mail")[0])


def sign_up_fields(email: str, company: str) -> dict[str, str]:
    """The values for the sign-up form, by the labels of the fields."""
    return {
        "Business email": email,
        "Password": PASSWORD,
        "Phone": "98000 00001",
        "Company name": company,
        "Website": "www.other-example.in",
        "GSTIN or PAN": "29AAACI1681G1ZL",
        "Address": "44 Electronics City",
        "City": "Bengaluru",
        "PIN code": "560100",
        "State or union territory": "Karnataka",
    }


def fill_sign_up(page: Page, email: str, company: str) -> None:
    page.goto("/sign-up")
    fields = sign_up_fields(email, company)
    page.get_by_label("State or union territory").select_option(label=fields.pop("State or union territory"))
    for label, text in fields.items():
        page.get_by_label(label).fill(text)


def new_business() -> tuple[str, str]:
    unique = secrets.token_hex(4)
    return f"owner@company-{unique}.in", f"Company {unique} Limited"


def action(page: Page, name: str) -> Locator:
    """A button at the top of a staff page. It opens a dialog."""
    return page.locator("a:visible, button:visible").filter(has_text=re.compile(rf"{name}\s*$")).first
