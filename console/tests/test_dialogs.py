"""Dialogs in Chromium with only the keyboard: where the focus goes, what Escape does, and the findings of axe."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gateway import ids
from gateway.request_log.models import ApiRequest
from tenants.models import ApiKey, Tenant, User
from tests.accessibility import PHONE, Chromium, complaints_here, session_of, window
from tests.e2e.keyboard import Keyboard
from webhooks.models import Event
from webhooks.tests.delivering import publish_one

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_dialogs_keep_and_return_the_focus(tenant: Tenant, live_server: Any, in_chromium: Chromium) -> None:
    owner = User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
    session = session_of(owner)
    ApiRequest.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        environment="live",
        method="POST",
        route="/v1/messages",
        status=400,
        error_code="131030",
        key_prefix="wb_live_abcdefgh",
        own_ms=3.2,
        upstream_ms=8,
    )
    publish_one(tenant)
    event = Event.objects.get()

    def journey(browser: Browser) -> list[str]:
        with window(browser, live_server.url, session) as page:
            return [
                *a_new_key_is_shown_once(page),
                *an_error_opens_its_drawer(page),
                *a_body_is_chosen(page, f"/console/events/{event.public_id}"),
                *what_was_typed_survives_a_log_in(page),
            ]

    found = in_chromium(journey)
    assert not found, "\n".join(found)
    assert ApiKey.objects.count() == 1


def complaints_at_both_widths(page: Page, name: str) -> list[str]:
    found = complaints_here(page, name)
    page.set_viewport_size({"width": 1280, "height": 740})
    found += complaints_here(page, f"{name} in a wide window")
    page.set_viewport_size({"width": PHONE, "height": 740})
    return found


def a_new_key_is_shown_once(page: Page) -> list[str]:
    page.goto("/console/api-keys")
    Keyboard(page).fill(page.locator("input[name=name]"), "web shop")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Your new key")).to_be_visible()
    # Until the page's script has run, the focus can leave the dialog.
    expect(page.get_by_role("dialog").get_by_role("heading")).to_be_focused()
    found = complaints_at_both_widths(page, "the dialog of a new key")
    for _ in range(10):
        page.keyboard.press("Tab")
        assert page.evaluate("it = document.activeElement, it === document.body || !!it.closest('dialog')")
    page.keyboard.press("Escape")
    expect(page.get_by_text("It cannot be shown again.")).to_be_visible()
    found += complaints_at_both_widths(page, "the warning in the dialog of a new key")
    page.keyboard.press("Escape")
    expect(page.locator("#new-key")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "Rotate web shop"
    page.reload()
    expect(page.get_by_text("web shop").first).to_be_visible()
    expect(page.get_by_text("sent already")).to_have_count(0)
    return found


def an_error_opens_its_drawer(page: Page) -> list[str]:
    page.goto("/console/requests")
    Keyboard(page).press(page.locator("td :is(a, button)", has_text="131030"))
    expect(page.get_by_role("dialog", name="Error 131030")).to_contain_text("Add the recipient to the list")
    found = complaints_at_both_widths(page, "the drawer of an error")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "131030"
    return found


def a_body_is_chosen(page: Page, path: str) -> list[str]:
    page.goto(path)
    Keyboard(page).reach(page.locator("[name=body]:checked"))
    expect(page.locator(".body-of.data")).to_be_visible()
    expect(page.locator(".body-of.raw")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".body-of.raw")).to_be_visible()
    expect(page.locator(".body-of.data")).to_be_hidden()
    return complaints_at_both_widths(page, "the raw body of an event")


def what_was_typed_survives_a_log_in(page: Page) -> list[str]:
    page.goto("/console/team")
    page.fill("#id_email", "guest@traders.example")
    page.context.clear_cookies(name="sessionid")
    page.keyboard.press("Enter")
    page.fill("#id_login", "asha@traders.example")
    page.fill("#id_password", "a long enough password")
    page.keyboard.press("Enter")
    expect(page.locator("#id_email")).to_have_value("guest@traders.example")
    page.reload()
    expect(page.locator("#id_email")).to_have_value("")
    return []
