"""Fixtures: billing is on, the simulator is the payment provider, and a test sets the date."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.models import Sum
from django.test import Client
from pytest_django import Settings

from billing import buyers, ledger, mails, usage
from billing.invoices import documents, issuing
from billing.models import BillingProfile, Invoice, LedgerPosting
from billing.pricing.periods import Period
from gateway.clock import IST
from phone_numbers.models import BusinessAccount, NumberStateInterval, PhoneNumber
from tenants.models import Tenant, User
from tests.browsers import logged_in
from tests.simulated import RunningSimulator

PROFILE: dict[str, Any] = {
    "legal_name": "Asha Traders Private Limited",
    "address": "12 Residency Road",
    "city": "Bengaluru",
    "pin": "560025",
    "state_code": "29",
    "tax_id": "29AAACI1681G1ZL",
    "phone": "+919845012345",
}
SECOND_OF_NOVEMBER = datetime(2026, 11, 2, tzinfo=UTC)


def ist(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    """A moment in Indian time."""
    return datetime(year, month, day, hour, minute, tzinfo=IST).astimezone(UTC)


@pytest.fixture(autouse=True)
def _billing_is_on(settings: Settings) -> None:
    settings.BILLING_ENABLED = True


TYPESET = documents.render_pdf


@pytest.fixture(autouse=True)
def _untypeset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make PDFs of the plain fields. Making real PDFs would take most of a test's time."""
    monkeypatch.setattr(documents, "render_pdf", lambda fields: b"%PDF-" + repr(fields).encode())


@pytest.fixture
def _typeset(_untypeset: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make real PDFs."""
    monkeypatch.setattr(documents, "render_pdf", TYPESET)


def assert_balanced() -> None:
    """Check that every entry sums to zero, and that each invoice agrees with its postings."""
    entries = LedgerPosting.objects.values("entry").annotate(total=Sum("amount_paise"))
    assert {row["total"] for row in entries} <= {0}
    for row in Invoice.objects.all():
        assert row.amount_due_paise == ledger.open_paise(row)


@pytest.fixture(autouse=True)
def _books_after_a_race(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that the ledger balances after a test with concurrent transactions."""
    marker = request.node.get_closest_marker("django_db")
    races = marker is not None and marker.kwargs.get("transaction")
    if races:
        request.getfixturevalue("transactional_db")
    yield
    if races:
        assert_balanced()


@pytest.fixture
def provider(simulator: RunningSimulator, settings: Settings) -> RunningSimulator:
    """The simulator as payment provider. It stores webhooks instead of posting them. The test moves its clock."""
    settings.RAZORPAY_BASE_URL = f"{simulator.url}/v1"
    simulator.control("POST", "payments/reset")
    simulator.control("POST", "clock/advance", {"hours": 0})
    simulator.control("PUT", "payments", {"webhook_url": None})
    return simulator


@pytest.fixture
def payer(tenant: Tenant) -> Tenant:
    """`tenant` after the end of its trial, with an email address for bills."""
    tenant.billing_status = Tenant.BillingStatus.ACTIVE
    tenant.billing_email = "bills@shop.example"
    tenant.trial_ends_at = ist(2026, 11, 1)
    tenant.created_at = ist(2026, 10, 1)
    tenant.save()
    return tenant


@pytest.fixture
def browser(staff: User) -> Client:
    """A browser with a staff member logged in."""
    return logged_in(staff)


def connected(tenant: Tenant, name: str, *spans: tuple[datetime, datetime | None]) -> PhoneNumber:
    """A live number of a tenant that was connected in these intervals. Sets the tenant's State if it is empty."""
    buyers.profile_of(tenant)
    BillingProfile.objects.filter(tenant=tenant, state_code="").update(state_code="29")
    account, _ = BusinessAccount.objects.get_or_create(
        waba_id=f"2{tenant.pk.int % 10**14}",
        defaults={"tenant": tenant, "environment": "live", "access_token": "EAAx"},
    )
    number = PhoneNumber.objects.create(
        tenant=tenant,
        account=account,
        environment="live",
        phone_number_id=f"{tenant.pk.int % 10**10}{name}",
        display_phone_number=f"+91 98000 {name}",
    )
    for from_at, to_at in spans:
        NumberStateInterval.objects.create(
            number=number, tenant=tenant, connection_state="connected", from_at=from_at, to_at=to_at
        )
    return number


def only_invoice(tenant: Tenant) -> Invoice:
    """The one invoice of a tenant."""
    return Invoice.objects.get(tenant=tenant)


NOVEMBER = Period(2026, 11)
FIRST_OF_DECEMBER = ist(2026, 12, 1, 0, 15)


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    """The mailed invoice of `payer` for one number in November, of ₹590.00. A whole billing run would take longer."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    usage.take_snapshots(FIRST_OF_DECEMBER)
    issuing.issue_due(FIRST_OF_DECEMBER)
    mails.send_invoices(FIRST_OF_DECEMBER)
    return only_invoice(payer)
