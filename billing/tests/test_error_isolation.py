"""Isolation: an invalid tenant, invoice or notice, or a failed step, does not stop the rest. Killed runs do no harm."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection

from billing import billing_run, error_isolation, usage
from billing.billing_run import run
from billing.error_isolation import UNANSWERED_AT_MOST, SomeFailed, each
from billing.models import BillingProfile, BillingSnapshot, Invoice, Mandate, PaymentAttempt, ProviderEvent
from billing.payments import attempts, mandates, provider_notices
from billing.payments.provider import ProviderUnreachable
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist
from billing.tests.test_payments import CHARGE, deliver, post, set_up_mandate
from tenants.models import Tenant
from tests.simulated import RunningSimulator
from tests.threads import outcomes

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(payer: Tenant) -> list[Tenant]:
    """Three tenants with one number each. The second one's tax id is invalid in the database."""
    values = {
        "status": "active",
        "billing_status": "active",
        "trial_ends_at": ist(2026, 11, 1),
        "created_at": ist(2026, 10, 1),
    }
    others = [
        Tenant.objects.create(name=name, billing_email=f"{name}@shop.example", **values)
        for name in ("b", "c")
    ]
    made = [payer, *others]
    for tenant in made:
        BillingProfile.objects.update_or_create(
            tenant=tenant, defaults={**PROFILE, "tax_id_type": "gstin", "legal_name": tenant.name}
        )
        connected(tenant, "1", (ist(2026, 11, 3), None))
    return made


def test_a_tenant_whose_invoice_cannot_be_made_stops_no_other(three: list[Tenant]) -> None:
    BillingProfile.objects.filter(pk=three[1].pk).update(tax_id="broken")
    report = run(FIRST_OF_DECEMBER)
    assert (report["snapshots"], report["invoices"], report["failed"]) == (3, 2, 1)
    BillingProfile.objects.filter(pk=three[1].pk).update(tax_id=PROFILE["tax_id"])
    report = run(FIRST_OF_DECEMBER)
    assert (report["invoices"], report["failed"]) == (1, 0)
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [
        f"WG/2627/{serial:06d}" for serial in (1, 2, 3)
    ], "the failed one left no gap"


def test_a_tenant_whose_usage_cannot_be_counted_stops_no_other(
    three: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = usage.active_numbers

    def poisoned(*, tenant_id: Any, start: datetime, end: datetime) -> Any:
        if tenant_id == three[0].id:
            raise ValueError("poisoned")
        return real(tenant_id=tenant_id, start=start, end=end)

    monkeypatch.setattr(usage, "active_numbers", poisoned)
    report = run(FIRST_OF_DECEMBER)
    assert (report["snapshots"], report["invoices"], report["failed"]) == (2, 2, 1)


def test_a_notice_that_cannot_be_applied_stops_no_other_and_no_debit(
    provider: RunningSimulator, three: list[Tenant]
) -> None:
    for tenant in three:
        set_up_mandate(provider, tenant)
    run(FIRST_OF_DECEMBER)
    for name, body in (("razorpay", b"\x00{"), ("gone", b"{}")):
        ProviderEvent.objects.create(
            provider=name, event_id="poison", type="payment.captured", body=body, received_at=CHARGE
        )
    report = run(CHARGE)
    assert (report["debits"], report["failed"]) == (3, 1)
    provider.control("POST", "clock/advance", {"hours": 26})
    with pytest.raises(SomeFailed):
        deliver(provider, ist(2026, 12, 2, 11))
    assert set(Invoice.objects.values_list("status", flat=True)) == {"paid"}
    assert ProviderEvent.objects.filter(processed_at__isnull=True).count() == 2
    run(ist(2027, 2, 1, 11))
    assert not ProviderEvent.objects.filter(processed_at__isnull=True).exists(), "given up after a week"


REFUSALS = {
    "a value that a constraint refuses": "23514",
    "a lock that is not free": "55P03",
}


def refuse(attempt: PaymentAttempt, sqlstate: str) -> None:
    """Let Postgres reject every change of one payment attempt."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'poisoned' USING ERRCODE = '{sqlstate}'; END $$;"
            "CREATE TRIGGER poison BEFORE UPDATE ON billing_paymentattempt "
            f"FOR EACH ROW WHEN (OLD.id = '{attempt.id}') EXECUTE FUNCTION poison()"
        )


def allow() -> None:
    """Undo `refuse`."""
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION IF EXISTS poison() CASCADE")


@pytest.fixture
def _no_poison() -> Iterator[None]:
    yield
    allow()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_no_poison")
@pytest.mark.parametrize("trouble", [*REFUSALS, "an order that the provider does not know"])
def test_notices_of_one_tenant_that_cannot_be_applied_stop_no_other(
    provider: RunningSimulator, three: list[Tenant], trouble: str
) -> None:
    """One run applies the notices of all tenants. The notices about one tenant's payment always fail."""
    for tenant in three:
        set_up_mandate(provider, tenant)
    run(FIRST_OF_DECEMBER)
    run(CHARGE)
    poisoned = PaymentAttempt.objects.get(invoice__tenant=three[1])
    order = poisoned.provider_order_id
    if trouble in REFUSALS:
        refuse(poisoned, REFUSALS[trouble])
        ends: Any = pytest.raises(SomeFailed)
    else:
        PaymentAttempt.objects.filter(pk=poisoned.pk).update(provider_order_id="order_unknown")
        ends = nullcontext()
    provider.control("POST", "clock/advance", {"hours": 26})
    paid_on = ist(2026, 12, 2, 11)
    for hook in provider.control("GET", "payments")["webhooks"]:
        assert post(hook).status_code == 200
    ProviderEvent.objects.update(received_at=paid_on)
    with ends:
        provider_notices.apply_waiting(paid_on)
    paid = {invoice.tenant_id: invoice.status for invoice in Invoice.objects.all()}
    assert paid == {three[0].id: "paid", three[1].id: "processing", three[2].id: "paid"}
    waiting = ProviderEvent.objects.filter(processed_at__isnull=True)
    assert waiting.exists()
    allow()
    PaymentAttempt.objects.filter(pk=poisoned.pk).update(provider_order_id=order)
    provider_notices.apply_waiting(paid_on)
    assert set(Invoice.objects.values_list("status", flat=True)) == {"paid"}, (
        "the next run applies what waited"
    )
    assert not waiting.exists()


def test_a_mandate_that_cannot_be_debited_stops_no_other(
    provider: RunningSimulator, three: list[Tenant]
) -> None:
    for tenant in three:
        set_up_mandate(provider, tenant)
    run(FIRST_OF_DECEMBER)
    Mandate.objects.filter(tenant=three[0]).update(provider_customer_id=None)
    report = run(CHARGE)
    assert report["failed"] == 1
    assert PaymentAttempt.objects.filter(status="processing").count() == 2


@pytest.mark.parametrize("step", list(billing_run.STEPS))
def test_a_step_that_fails_stops_no_other(
    step: str, three: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: datetime) -> int:
        raise RuntimeError("poisoned")

    called: list[str] = []

    def noted(name: str) -> Callable[[datetime], int]:
        def act(_: datetime) -> int:
            called.append(name)
            return 1

        return act

    for name in billing_run.STEPS:
        monkeypatch.setitem(billing_run.STEPS, name, noted(name))
    monkeypatch.setitem(billing_run.STEPS, step, fails)
    report = run(FIRST_OF_DECEMBER)
    assert called == [name for name in billing_run.STEPS if name != step]
    assert (report[step], report["failed"]) == (0, 1)


def test_a_silent_provider_is_not_asked_about_every_row() -> None:
    asked = []

    def silent(item: int) -> None:
        asked.append(item)
        raise ProviderUnreachable

    assert each(range(100), silent, step="x") == 0
    assert len(asked) == UNANSWERED_AT_MOST


def test_answers_in_between_let_the_step_go_on() -> None:
    def act(number: int) -> bool:
        if number % 2:
            raise ProviderUnreachable
        return True

    assert each(range(4 * UNANSWERED_AT_MOST), act, step="x") == 2 * UNANSWERED_AT_MOST


def test_errors_of_another_kind_in_between_let_the_step_go_on() -> None:
    asked = []

    def act(number: int) -> None:
        asked.append(number)
        raise ProviderUnreachable if number % 2 else ValueError

    with pytest.raises(SomeFailed):
        each(range(4 * UNANSWERED_AT_MOST), act, step="x")
    assert len(asked) == 4 * UNANSWERED_AT_MOST


def test_pending_mandates_come_after_the_debits_and_end_after_a_minute(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mandate.objects.bulk_create(
        Mandate(tenant=payer, method="upi", max_amount_paise=100, provider_order_id=f"order_{number}")
        for number in range(9)
    )
    steps = list(billing_run.STEPS)
    assert steps.index("debits") < steps.index("mandates")
    seconds, asked = count(step=25), []
    monkeypatch.setattr(error_isolation, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(mandates, "sync", lambda mandate_id, _: asked.append(mandate_id))
    assert mandates.reconcile(FIRST_OF_DECEMBER) == len(asked) == 2


def test_a_database_that_is_away_ends_the_step() -> None:
    def away(_: int) -> None:
        raise OperationalError

    with pytest.raises(OperationalError):
        each(range(3), away, step="x")


@pytest.mark.django_db(transaction=True)
def test_two_whole_runs_at_once_do_everything_once(provider: RunningSimulator, three: list[Tenant]) -> None:
    for tenant in three:
        set_up_mandate(provider, tenant)
    assert [report["failed"] for report in outcomes(*[lambda: run(CHARGE)] * 3)] == [0, 0, 0]
    assert [model.objects.count() for model in (BillingSnapshot, Invoice, PaymentAttempt)] == [3, 3, 3]
    debits = [row for row in provider.control("GET", "payments")["payments"] if row["amount"] == 59_000]
    assert len(debits) == 3


RUNS = """
import os, signal, sys, time
from datetime import datetime

import django

django.setup()
from django.conf import settings

settings.DATABASES["default"]["NAME"], at, *moments = sys.argv[1:]
settings.BILLING_ENABLED, settings.BILLING_FIRST_PERIOD = True, "2026-05"
from billing.billing_run import run

for moment in [*moments, None]:
    if not (child := os.fork()):
        print(run(datetime.fromisoformat(at)), flush=True)
        os._exit(0)
    if moment is not None:
        time.sleep(float(moment))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""Starts a billing run for each number of seconds and kills it after this time. The last run is not killed."""


@pytest.mark.django_db(transaction=True)
def test_runs_that_are_killed_leave_nothing_half_done(provider: RunningSimulator, payer: Tenant) -> None:
    """Kill a run at many moments. Later runs finish the month, and nothing exists twice."""
    BillingProfile.objects.create(tenant=payer, **PROFILE, tax_id_type="gstin")
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ist(2026, 5, 1), created_at=ist(2026, 4, 1))
    connected(payer, "1", (ist(2026, 5, 3), None))
    set_up_mandate(provider, payer)
    # A kill at any step must be harmless, so the exact moments do not matter.
    moments = ("0", "0.02", "0.05", "0.1", "0.2")
    done = subprocess.run(
        [sys.executable, "-c", RUNS, connection.settings_dict["NAME"], CHARGE.isoformat(), *moments],
        env={**os.environ, "RAZORPAY_BASE_URL": django_settings.RAZORPAY_BASE_URL},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert "'failed': 0" in done.stdout.splitlines()[-1]
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [
        f"WG/2627/{serial:06d}" for serial in range(1, 8)
    ]
    assert BillingSnapshot.objects.count() == 7
    assert PaymentAttempt.objects.count() == 1
    attempts.reconcile(CHARGE)
    debits = [row for row in provider.control("GET", "payments")["payments"] if row["amount"] == 59_000]
    assert len(debits) <= 1
