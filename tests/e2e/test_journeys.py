"""The console's three roles with a browser and the running service: tenant, developer, staff.

They use only the keyboard: Tab, Enter, Space and letters. The journeys lead from the sign-up to a delivered message and
to a delivery that staff retry, without manual API calls or shared passwords.
"""

import re
import secrets
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, FileChooser, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.e2e.conftest import Stack, until
from tests.e2e.keyboard import Keyboard
from tests.e2e.people import PASSWORD, Visitor, action, new_business, sign_up_fields

pytestmark = pytest.mark.e2e

CUSTOMER = "+91 98123 45678"
"""The console's example customer, who has not written before the first journey."""
PLAYED = "919812345670"
TEMPLATE = "order_ready"


class Business(NamedTuple):
    """A tenant that signed up in a browser without a mouse, and a staff member."""

    email: str
    company: str
    person: Visitor
    hands: Keyboard
    staff: Visitor
    actions: int
    """The number of actions from the sign-up to the log-in."""
    seconds: float


@pytest.fixture(scope="module")
def business(browser: Browser, stack: Stack) -> Iterator[Business]:
    """Sign up, read the mail on the outbox page and log in, by keyboard only."""
    email, company = new_business()
    person, staff = (Visitor(browser, stack.ready["base_url"]) for _ in range(2))
    hands, page, began = Keyboard(person.page), person.page, time.monotonic()
    page.goto("/sign-up")
    for label, typed in sign_up_fields(email, company).items():
        hands.fill(page.get_by_label(label), typed)
    hands.button("Sign up")
    expect(page).to_have_url(re.compile("/sign-up/sent(#main)?$"))
    page.goto("/outbox")
    hands.actions += 1
    hands.press(page.get_by_role("link", name=re.compile("onfirm")).first)
    hands.press(page.locator(".mail a").first)
    hands.button("Confirm this address")
    hands.link("Log in and try it")
    expect(page.get_by_label("Email")).to_have_value(email)
    hands.field("Password", PASSWORD)
    hands.button("Log in")
    expect(page.get_by_text("Our team is checking your request")).to_be_visible()
    yield Business(email, company, person, hands, staff, hands.actions, time.monotonic() - began)
    for visitor in (person, staff):
        visitor.context.close()
        assert visitor.complaints == []


@pytest.fixture(scope="module")
def approved(business: Business, stack: Stack) -> Business:
    """Find the tenant by its mail address as staff, and approve it."""
    let_in(business.staff, stack, business.email, business.company)
    return business


def let_in(staff: Visitor, stack: Stack, email: str, company: str) -> None:
    page, hands = staff.page, Keyboard(staff.page)
    page.goto("/admin/")
    hands.field("Email", stack.ready["staff_email"])
    hands.field("Password", stack.ready["staff_password"])
    hands.button("Log in")
    expect(page).to_have_url(f"{stack.ready['base_url']}/admin/")
    search_as_staff(hands, email)
    hands.link(company)
    press_and_confirm(hands, "Approve")
    expect(page.get_by_text(f"{company} is approved.")).to_be_visible()


def search_as_staff(hands: Keyboard, text: str) -> None:
    hands.page.goto("/admin/find/")
    hands.fill(hands.page.get_by_role("searchbox").last, text)
    hands.page.keyboard.press("Enter")


def press_and_confirm(hands: Keyboard, name: str) -> None:
    """Press a button at the top of a staff page, and the button of the same name in its dialog."""
    hands.press(action(hands.page, name))
    hands.press(hands.page.locator("#dialog").get_by_role("button", name=name))


def switch_to_test(hands: Keyboard) -> None:
    hands.button("Test")
    expect(hands.page.get_by_role("button", name="Test", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )


def send(hands: Keyboard, text: str, to: str = CUSTOMER) -> None:
    """Send a text with the form."""
    hands.link("Send a test")
    hands.field("To", to)
    hands.field("Text", text)
    hands.button("Send")
    expect(hands.page.get_by_text("Meta accepted it")).to_be_visible()


def is_delivered(page: Page) -> None:
    expect(page.locator("#message-events").get_by_text("Delivered")).to_be_visible(timeout=20_000)


def test_from_sign_up_to_a_delivered_message_in_25_actions_and_5_minutes(business: Business) -> None:
    hands, page = business.hands, business.person.page
    page.goto("/console")
    before, began = hands.actions, time.monotonic()
    switch_to_test(hands)
    hands.link("Send a test")
    hands.press(page.get_by_role("button", name="write “Hello”"))
    send(hands, "Hello from the journey")
    is_delivered(page)
    assert business.actions + hands.actions - before <= 25
    assert business.seconds + time.monotonic() - began < 300
    answer = page.locator("details", has_text="The original answer").locator("code").text_content() or ""
    found = re.search(r"wamid\.[\w=+/-]+", answer)
    assert found is not None, answer
    page.keyboard.press("Control+k")
    page.keyboard.type(found[0])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Message to")).to_be_visible()
    expect(page.get_by_text(re.compile(r"It was (delivered|read)\."))).to_be_visible()


def test_a_business_plays_its_customer(business: Business) -> None:
    """A customer writes on the test phone, and the business reads the event and replies."""
    page = business.person.page
    page.goto(f"/console/phone?customer={PLAYED}")
    page.get_by_label("Message", exact=True).fill("Is it in stock?")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("log").get_by_text("Is it in stock?")).to_be_visible()
    page.get_by_role("button", name="Answer as the business").click()
    page.get_by_label("To", exact=True).fill(PLAYED)
    page.get_by_label("Text", exact=True).fill("It is.\n#react 👍")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Meta accepted it")).to_be_visible()
    page.goto(f"/console/phone?customer={PLAYED}")
    # The conversation updates itself.
    expect(page.locator(".reaction")).to_have_text("👍")
    page.goto("/console/events")
    expect(page.get_by_role("cell", name="message.inbound").first).to_be_visible()


def test_a_message_that_failed_says_why_and_is_repaired_with_a_template(approved: Business) -> None:
    hands, page = approved.hands, approved.person.page
    page.goto("/console")
    switch_to_test(hands)
    send(hands, "Your order is ready", to="+91 98123 40047")
    expect(page.locator("#message-events").get_by_text("Failed", exact=True)).to_be_visible(timeout=20_000)
    make_template(hands)
    hands.link("Messages")
    hands.press(page.get_by_role("row").filter(has_text="Failed").first.get_by_role("link").first)
    expect(page.get_by_text("only a template can be sent")).to_be_visible()
    hands.link("Send a template")
    hands.field("To", CUSTOMER)
    hands.field("Template", TEMPLATE)
    hands.field("Body {{1}}", "Asha")
    hands.button("Send")
    is_delivered(page)
    from_a_file(hands)


def make_template(hands: Keyboard) -> None:
    """Submit a template, and wait for its approval."""
    hands.link("Templates")
    hands.link("New template")
    for label, typed in {
        "Name": TEMPLATE,
        "Language": "en",
        "Body": "Hello {{1}}, your order is ready.",
        "Examples for the body's variables": "Asha",
    }.items():
        hands.field(label, typed)
    expect(hands.page.locator("#preview").get_by_text("Hello Asha, your order is ready.")).to_be_visible()
    hands.button("Submit for review")
    expect(hands.page.get_by_text("In review").first).to_be_visible()
    expect(hands.page.get_by_text("Approved").first).to_be_visible(timeout=20_000)


def from_a_file(hands: Keyboard) -> None:
    """Send a batch from a CSV file: upload, template, columns, preview, start and end."""
    page = hands.page
    hands.link("Batches")
    hands.link("New batch from a CSV file")

    def chooser() -> FileChooser | None:
        """The file dialog. None if the key was pressed before the page was ready."""
        try:
            with page.expect_file_chooser(timeout=2_000) as opened:
                hands.press(page.get_by_label("CSV file"))
        except PlaywrightTimeout:
            return None
        return opened.value

    rows = b"phone,name\n+91 98123 45678,Asha\n+91 98123 45679,Bina\n"
    until(chooser, "the dialog for a file").set_files(
        {"name": "diwali.csv", "mimeType": "text/csv", "buffer": rows}
    )
    hands.button("Upload")
    hands.field("Template", TEMPLATE)
    hands.button("Choose the columns")
    hands.button("Show the messages")
    expect(page.get_by_text("Hello Bina, your order is ready.")).to_be_visible()
    hands.button("Send 2 messages")
    expect(page.get_by_text("2 of 2 done: 2 accepted, 0 failed")).to_be_visible(timeout=20_000)


def test_a_person_without_a_server_answers_a_customer_on_a_live_number_in_40_actions_and_8_minutes(
    approved: Business, stack: Stack
) -> None:
    hands, page = approved.hands, approved.person.page
    before, began = hands.actions, time.monotonic()
    page.goto("/console")
    if page.get_by_role("button", name="Test", exact=True).get_attribute("aria-pressed") == "true":
        hands.button("Live")
    hands.button("I have none")
    hands.link("Open conversations")
    hands.button("Turn conversations on")
    number = connects(hands)
    written = {"phone_number_id": number, "from": "919812300077", "name": "Asha", "text": "Open?"}
    stack.simulator("POST", "/sim/inbound", written)
    page.goto("/console/conversations")
    hands.actions += 1
    hands.press(page.get_by_role("link").filter(has_text="Asha").first)
    hands.field("Message", "Until eight.")
    hands.button("Send")
    expect(page.locator("[aria-label*=Conversation]").get_by_text("Until eight.").first).to_be_visible()
    assert approved.actions + hands.actions - before <= 40
    assert approved.seconds + time.monotonic() - began < 480


def connects(hands: Keyboard) -> str:
    """Connect a live number in Meta's dialog, which the simulator plays. Returns the number's id."""
    page = hands.page
    hands.link("Numbers")
    hands.button("Connect a number")
    begin = page.get_by_role("button", name="Connect my number", exact=True)
    expect(begin).to_be_enabled()
    with page.expect_popup() as opened:
        hands.press(begin)
    dialog = Keyboard(opened.value)
    dialog.button("Finish")
    hands.actions += dialog.actions
    expect(page.get_by_text("The account is connected.")).to_be_visible(timeout=20_000)
    link = page.get_by_role("row").filter(has_text="Connected").first.get_by_role("link").first
    return str(link.get_attribute("href")).rpartition("/")[2]


def test_a_developer_receives_events_and_staff_send_one_again(approved: Business, stack: Stack) -> None:
    hands, page = approved.hands, approved.person.page
    page.goto("/console")
    switch_to_test(hands)
    hands.link("API keys")
    hands.field("Name", "web shop")
    hands.button("Create key")
    key = page.locator("#new-key").inner_text()
    hands.button("I have saved it")
    delivery_id = receives(hands, f"{stack.ready['simulator_url']}/inbox/{secrets.token_hex(4)}")
    repaired(approved, delivery_id)
    send_with(stack, key)


def receives(hands: Keyboard, inbox: str) -> str:
    """Create an endpoint, send a message, and open a delivery. Returns the delivery's id."""
    page = hands.page
    hands.link("Webhooks")
    hands.field("URL", inbox)
    hands.tick(page.get_by_label("Every event"))
    hands.button("Create and ping it")
    expect(page.get_by_text("The ping passed")).to_be_visible()
    assert page.locator("#new-secret").inner_text().startswith("whsec_")
    hands.button("I have saved it")
    hands.press(page.locator("article", has_text="Send an example event").get_by_role("button", name="Send"))
    expect(page.get_by_text(re.compile(r"HTTP 2\d\d, (< )?\d+ ms"))).to_be_visible()
    send(hands, "An order for the developer")
    hands.link("Webhooks")
    hands.link("Deliveries")
    delivered = page.get_by_role("row").filter(has_text="message.outbound").filter(has_text="Delivered")
    expect(delivered.first).to_be_visible(timeout=20_000)
    hands.press(delivered.first.get_by_role("link").first)
    expect(page.get_by_text("HTTP 200").first).to_be_visible()
    return page.locator("code", has_text=re.compile("^dlv_")).first.inner_text()


def repaired(business: Business, delivery_id: str) -> None:
    """As staff, find the delivery, read the receiver's response, retry the delivery, and verify the endpoint."""
    page, hands = business.staff.page, Keyboard(business.staff.page)
    search_as_staff(hands, delivery_id)
    expect(page.get_by_text("/inbox/").first).to_be_visible()
    expect(page.get_by_text(business.company).first).to_be_visible()
    press_and_confirm(hands, "Send again")
    expect(page.get_by_text("The new delivery is delivered.")).to_be_visible()
    hands.press(page.get_by_role("link").filter(has_text="/inbox/").first)
    press_and_confirm(hands, "Verify")
    expect(page.get_by_text("It answered in")).to_be_visible()
    owner = business.person.page
    owner.goto("/console/settings/audit")
    expect(owner.get_by_text("Our team").first).to_be_visible()


def send_with(stack: Stack, key: str) -> None:
    """With the key, connect a number of the simulator, send a message from the number, and release it.

    The other journeys send from the newest number, to a customer who has written to the sandbox's number.
    """
    assert re.fullmatch(r"wb_test_[A-Za-z0-9]{40}", key)
    account = stack.simulator("POST", "/sim/accounts", {"numbers": 1})
    number = account["phone_numbers"][0]["id"]
    body = {"waba_id": account["waba_id"], "access_token": account["access_token"]}
    connected = stack.api("POST", "/v1/numbers/connect", body, key=key)
    assert connected.ok, connected.text
    registered = stack.api("POST", f"/v1/numbers/{number}/register", {"pin": "123456"}, key=key)
    assert registered.ok, registered.text
    until(
        lambda: stack.api("GET", f"/v1/numbers/{number}", key=key).json()["connection_state"] == "connected",
        "the connection",
    )
    text = {"from": number, "to": "+919812345009", "type": "text", "text": {"body": "Hello"}}
    sent = stack.api("POST", "/v1/messages", text, key=key)
    assert sent.status_code == 200, sent.text
    released = stack.api("DELETE", f"/v1/numbers/{number}", key=key)
    assert released.ok, released.text
