"""In Chromium, axe finds no violation on any page of the staff admin, in light or dark. Each page fits a phone and
speaks in words.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser
from pytest_django import Settings

from billing.models import (
    Invoice,
    Mandate,
    PaymentAttempt,
    PlanVersion,
    ProviderEvent,
    Refund,
    SettledItem,
    StaffAct,
)
from console.tests.test_authorisation import world as world
from gateway import ids
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from messaging.models import KeptNotification
from tenants.models import EmailDomainRule, SignUp, Tenant, User
from tests.accessibility import Chromium, complaints, session_of, window
from tests.api_contract.authorisation import ROWS, World
from tests.browsers import staff_pages
from tests.one_of_each import one_of_each
from tests.staff.test_wording import codes_in_every_row, raw_words
from webhooks.models import Message

CREDIT_NOTE = "GET /v1/billing/credit-notes/{credit_note_id}"
WIDE = 1280
"""A width in pixels at which the navigation is beside the page."""
IS_IN_SCHEME = """
    document.documentElement.classList.contains("dark") === matchMedia("(prefers-color-scheme: dark)").matches
"""
BESIDE_THE_NAVIGATION = ("/admin/", "/admin/tenants/tenant/", "/admin/billing/invoice/accounting/")
OVERVIEWS = (
    "/admin/find/",
    "/admin/find/?q=traders",
    "/admin/find/?q=zzzz",
    "/admin/billing/invoice/accounting/",
    "/admin/billing/invoice/einvoices/",
)


@pytest.mark.e2e
@pytest.mark.django_db(transaction=True)
def test_staff_pages_are_accessible_fit_a_phone_and_speak_in_words(
    world: World, staff: User, live_server: Any, in_chromium: Chromium, settings: Settings
) -> None:
    settings.BILLING_ENABLED = True
    a_row_of_every_table(world)
    codes_in_every_row(world.tenant)
    paths = list(staff_paths(staff))

    def journey(browser: Browser) -> list[str]:
        found = []
        with window(browser, live_server.url, session_of_staff) as page:
            for path in paths:
                found += complaints(page, path, problems_of=raw_words)
                assert page.evaluate(IS_IN_SCHEME), "the theme must follow the colour scheme"
            assert page.locator("html.dark").count(), "the last check must be in dark"
        with window(browser, live_server.url, session_of_staff, width=WIDE) as page:
            for path in BESIDE_THE_NAVIGATION:
                found += complaints(page, path)
        return found

    session_of_staff = session_of(staff)
    found = in_chromium(journey)
    assert not found, "\n".join(found)


def a_row_of_every_table(world: World) -> None:
    """Create a row in every table of the staff admin, and a flagged tenant that waits for approval."""
    one_of_each(world.tenant)
    waiting = Tenant.objects.create(
        name="Chitra Foods",
        status="pending_approval",
        contact_email="chitra@foods.example",
        website="https://foods.example",
        tax_id="29AAACI1681G1ZL",
        tax_id_type="gstin",
        flags=[{"code": "duplicate_tax_id", "severity": "high", "detail": "Asha Traders has it"}],
    )
    SignUp.objects.create(tenant=waiting, email="chitra@foods.example", company=waiting.name, state_code="29")
    ROWS[CREDIT_NOTE].ids(world)  # type: ignore[misc]
    mandate = Mandate.objects.create(tenant=world.tenant, method="upi", max_amount_paise=1_500_000)
    attempt = PaymentAttempt.objects.create(
        invoice=Invoice.objects.get(),
        mandate=mandate,
        kind="autopay",
        status="captured",
        amount_paise=59_000,
        receipt="a",
        error={"code": "refused"},
        created_at=now(),
        next_check_at=now(),
    )
    Refund.objects.create(
        attempt=attempt, amount_paise=100, receipt="r", created_at=now(), next_check_at=now()
    )
    ProviderEvent.objects.create(provider="razorpay", event_id="1", type="payment.captured", body=b"{}")
    SettledItem.objects.create(
        entity_id="pay_1",
        settlement_id="setl_1",
        type="payment",
        amount_paise=59_000,
        fee_paise=1_180,
        tax_paise=180,
        net_paise=57_820,
        settled_at=now(),
    )
    StaffAct.objects.create(
        tenant=attempt.invoice.tenant,
        act="returned",
        target_id=attempt.pk,
        values={"amount_paise": 100, "reference": "U7"},
        amount_paise=100,
        status="waiting",
        asked_by=0,
        asked_at=now(),
    )
    PlanVersion.objects.create(
        starts="2027-01",
        first_number_paise=60_000,
        additional_number_paise=30_000,
        gst_percent=18,
        reason="Prices of 2027",
        created_at=now(),
    )
    call = ApiRequest(tenant_id=world.tenant.id, environment="live", method="POST", route="/v1/messages")
    call.id, call.status, call.own_ms, call.upstream_ms = ids.uuid7(), 200, 4.0, 120.0
    call.save(force_insert=True)
    KeptNotification.objects.create(reason="unroutable", waba_id="200", body_sha256="0" * 64, body=b"{}")
    EmailDomainRule.objects.create(domain="traders.example", verdict="allow")


def staff_paths(staff: User) -> Iterator[str]:
    """Yield the paths of the overviews, of an empty search, and of each table's list, newest row and form."""
    yield from ("/admin/", *OVERVIEWS)
    message = Message.objects.get()
    yield reverse("admin:staff_message", args=[message.tenant_id, message.environment, message.key])
    browser = Client()
    browser.force_login(staff)
    for model in staff_pages():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{name}_changelist")
        row = model._default_manager.order_by("-pk").first()
        assert row is not None, f"no row of {model.__name__}"
        yield reverse(f"{name}_change", args=[row.pk])
        if browser.get(reverse(f"{name}_add")).status_code == 200:
            yield reverse(f"{name}_add")
    yield reverse("admin:tenants_tenant_changelist") + "?q=zzzz"
