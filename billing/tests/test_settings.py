"""The checks of the billing settings, and the command that runs billing."""

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from billing import checks
from billing.billing_run import STEPS
from billing.models import Invoice
from billing.pricing.periods import Period
from billing.tests.conftest import connected, ist
from gateway.clock import now
from tenants.models import Tenant, User


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"BILLING_INVOICE_PREFIX": "TOOLONG"}, "billing.E001"),
        ({"BILLING_INVOICE_PREFIX": "A B"}, "billing.E001"),
        ({"BILLING_CREDIT_NOTE_PREFIX": "WG"}, "billing.E001"),
        ({"BILLING_SELLER_GSTIN": "27AAPFU0939F1ZX"}, "billing.E002"),
        ({"BILLING_SELLER_GSTIN": "AAACI1681G"}, "billing.E002"),
        ({"BILLING_FIRST_PERIOD": "2026-13"}, "billing.E003"),
        ({"PAYMENT_PROVIDER": "cash"}, "billing.E004"),
        ({"BILLING_SELLER_PIN": "56002"}, "billing.E005"),
        ({"BILLING_SELLER_PIN": "056002"}, "billing.E005"),
        ({"BILLING_SELLER_CITY": ""}, "billing.E005"),
    ],
)
def test_wrong_values_are_named(settings: Settings, values: dict[str, str], code: str) -> None:
    assert checks.check_values() == []
    for name, value in values.items():
        setattr(settings, name, value)
    assert [problem.id for problem in checks.check_values()] == [code]


def test_production_refuses_the_simulators_keys_and_the_example_seller(settings: Settings) -> None:
    settings.PRODUCTION = True
    found = {problem.id for problem in checks.check_production()}
    assert found == {"billing.E010", "billing.E011", "billing.E012", "billing.E013"}
    settings.BILLING_ENABLED = False
    assert checks.check_production() == []


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, []),
        ({"RAZORPAY_KEY_ID": "rzp_sim_1"}, ["billing.E010"]),
        ({"RAZORPAY_BASE_URL": "http://api.razorpay.com/v1"}, ["billing.E011"]),
        ({"BILLING_SELLER_GSTIN": "27AAPFU0939F1ZV"}, ["billing.E012"]),
        ({"BILLING_SELLER_NAME": "Example Messaging Private Limited"}, ["billing.E012"]),
        ({"BILLING_SELLER_ADDRESS": "1 Example Road, Mumbai 400001"}, ["billing.E012"]),
        ({"BILLING_FIRST_PERIOD": ""}, ["billing.E013"]),
        ({"BILLING_FIRST_PERIOD": "", "PRODUCTION": False}, []),
    ],
)
def test_each_development_default_is_named_in_production(
    settings: Settings, values: dict[str, Any], found: list[str]
) -> None:
    production = {
        "PRODUCTION": True,
        "RAZORPAY_KEY_ID": "rzp_live_1",
        "RAZORPAY_BASE_URL": "https://api.razorpay.com/v1",
        "BILLING_SELLER_NAME": "Asha Messaging",
        "BILLING_SELLER_ADDRESS": "2 Asha Road, Bengaluru 560001",
        "BILLING_SELLER_GSTIN": "29AAACI1681G1ZL",
        "BILLING_FIRST_PERIOD": "2026-12",
    }
    for name, value in (production | values).items():
        setattr(settings, name, value)
    assert [problem.id for problem in checks.check_production()] == found


@pytest.mark.django_db
def test_the_command_fails_when_a_step_failed_after_the_others(
    monkeypatch: pytest.MonkeyPatch, payer: Tenant
) -> None:
    Tenant.objects.update(billing_status="trialing", trial_ends_at=ist(2026, 11, 1))
    out = StringIO()

    def broken(_: datetime) -> int:
        raise RuntimeError

    monkeypatch.setitem(STEPS, "snapshots", broken)
    with pytest.raises(CommandError, match="Some steps failed"):
        call_command("billing_run", stdout=out)
    assert "trials_ended: 1\nsnapshots: 0\n" in out.getvalue()
    assert out.getvalue().endswith("early_warnings: 0\nfailed: 1\n")


@pytest.mark.django_db
def test_the_command_bills_as_of_a_day(payer: Tenant, settings: Settings) -> None:
    connected(payer, "1", (ist(2026, 9, 3), None))
    Tenant.objects.update(trial_ends_at=ist(2026, 9, 1), created_at=ist(2026, 9, 1))
    out = StringIO()
    for _ in range(2):
        call_command("billing_run", "--as-of", "2026-10-01", stdout=out)
    assert "invoices: 1\n" in out.getvalue()
    assert Invoice.objects.get().issued_at == ist(2026, 10, 1, 9, 30)
    with pytest.raises(CommandError, match="future"):
        call_command("billing_run", "--as-of", str((now() + timedelta(days=1)).date()))
    with pytest.raises(CommandError):
        call_command("billing_run", "--as-of", "soon")
    settings.BILLING_ENABLED = False
    with pytest.raises(CommandError):
        call_command("billing_run")


@pytest.mark.django_db
def test_a_business_made_today_can_be_backdated_and_billed_in_development(
    tenant: Tenant, settings: Settings
) -> None:
    Tenant.objects.update(
        billing_status="trialing", trial_ends_at=now() + timedelta(days=20), approved_at=now()
    )
    User.objects.create_user("owner@shop.example", "a long enough password", tenant=tenant)
    backdate = ("backdate_business", "Owner@Shop.example", str(Period.of(now()).previous))
    with pytest.raises(CommandError, match="connected"):
        call_command(*backdate)
    connected(tenant, "1", (now(), None))
    with pytest.raises(CommandError, match="must be over"):
        call_command("backdate_business", "owner@shop.example", str(Period.of(now())))
    settings.PRODUCTION = True
    with pytest.raises(CommandError, match="development"):
        call_command(*backdate)
    settings.PRODUCTION = False
    call_command(*backdate, stdout=StringIO())
    call_command("billing_run", stdout=StringIO())
    assert Invoice.objects.get(tenant=tenant).active_numbers == 1
    with pytest.raises(CommandError, match="already billed"):
        call_command(*backdate)
