"""Money: refunds, one debit per mandate, wrong keys, bank transfers, pay links and a second provider."""

import threading
import time
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import ledger
from billing.billing_run import run
from billing.invoices import credit_notes
from billing.models import (
    BankTransfer,
    Invoice,
    Mandate,
    PayLink,
    PaymentAttempt,
    ProviderEvent,
    ProviderTrouble,
    Refund,
)
from billing.payments import (
    attempts,
    bank_transfers,
    debits,
    mandates,
    payment_links,
    provider,
    provider_notices,
    refunds,
)
from billing.payments.provider import Payment
from billing.payments.razorpay import _ABOUT_THE_ACCOUNT, _REFUND_STATUS, Razorpay
from billing.tests.conftest import connected, ist, only_invoice
from billing.tests.test_payments import CHARGE, deliver, post, set_up_mandate
from gateway.api.errors import Conflict, InvalidRequest
from gateway.monitoring import admin_health
from tenants.models import AuditEntry, OutboundMail, Tenant
from tests.fixtures import a_lock_is_waited_for, assert_error
from tests.simulated import RunningSimulator
from tests.threads import at_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def paid(provider: RunningSimulator, payer: Tenant, invoice: Invoice) -> PaymentAttempt:
    """The attempt of a debit that paid the invoice."""
    set_up_mandate(provider, payer)
    debits.charge_due(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    return PaymentAttempt.objects.get()


@pytest.fixture
def paid_twice(provider: RunningSimulator, paid: PaymentAttempt) -> PaymentAttempt:
    """The attempt that paid an invoice. The invoice was then credited in full, so the payment is a surplus."""
    credit_notes.issue(invoice_id=paid.invoice_id, total_paise=59_000, reason="Outage", at=ist(2026, 12, 3))
    return paid


def late_attempt(invoice: Invoice, receipt: str, **values: Any) -> PaymentAttempt:
    """An attempt of ₹590.00 by link, which failed and may still collect its money."""
    failed = {"kind": "link", "status": "failed", "amount_paise": 59_000, "created_at": CHARGE}
    return PaymentAttempt.objects.create(
        invoice=invoice, receipt=receipt, next_check_at=CHARGE, **{**failed, **values}
    )


class TestRefunds:
    def test_a_refund_on_the_dashboard_makes_the_invoice_due_again(
        self, provider: RunningSimulator, payer: Tenant, paid: PaymentAttempt
    ) -> None:
        seen = len(provider.control("GET", "payments")["webhooks"])
        provider.control("POST", "refund", {"payment_id": paid.provider_payment_id})
        deliver(provider, ist(2026, 12, 20), since=seen)
        invoice = only_invoice(payer)
        assert (invoice.status, invoice.amount_paid_paise, invoice.amount_due_paise) == ("open", 0, 59_000)
        assert (invoice.paid_at, invoice.reopened_at) == (None, ist(2026, 12, 20))
        page = Client().get(reverse("pay", args=[invoice.pay_link.token])).content.decode()
        assert "is to be paid by 27 Dec 2026" in page
        run(ist(2026, 12, 21, 10))
        payer.refresh_from_db()
        assert payer.billing_status == "active", "there is time to pay again"
        run(ist(2026, 12, 28, 10))
        payer.refresh_from_db()
        assert (payer.billing_status, payer.past_due_since) == (
            "past_due",
            ist(2026, 12, 28) - timedelta(seconds=1),
        )
        run(ist(2027, 1, 2, 10))
        assert paid.invoice.attempts.count() == 1, "money that a person gave back is not debited again"

    def test_what_exceeds_its_invoice_is_due_again_on_the_newest_paid_one(
        self, provider: RunningSimulator, paid_twice: PaymentAttempt
    ) -> None:
        run(ist(2027, 1, 1, 0, 15))
        run(ist(2027, 2, 1, 0, 15))
        newest = Invoice.objects.latest("id")
        bank_transfers.record(
            invoice_id=newest.id, amount_paise=59_000, reference="U7", at=ist(2027, 2, 2), actor_user_id=7
        )
        assert [row.amount_due_paise for row in Invoice.objects.order_by("id")] == [0, 0, 0]
        seen = len(provider.control("GET", "payments")["webhooks"])
        provider.control("POST", "refund", {"payment_id": paid_twice.provider_payment_id})
        deliver(provider, ist(2027, 2, 5), since=seen)
        assert [row.amount_due_paise for row in Invoice.objects.order_by("id")] == [0, 0, 59_000]

    def test_a_lost_notice_of_a_refund_is_found_by_asking(
        self, provider: RunningSimulator, payer: Tenant, paid: PaymentAttempt
    ) -> None:
        provider.control("POST", "refund", {"payment_id": paid.provider_payment_id})
        run(ist(2026, 12, 10, 11))
        assert only_invoice(payer).amount_due_paise == 59_000

    def test_staff_pay_the_surplus_back_audited(
        self, provider: RunningSimulator, payer: Tenant, paid_twice: PaymentAttempt
    ) -> None:
        with pytest.raises(InvalidRequest):
            refunds.pay_back(attempt_id=paid_twice.id, amount_paise=59_001, at=ist(2026, 12, 4))
        first = refunds.pay_back(
            attempt_id=paid_twice.id, amount_paise=50_000, at=ist(2026, 12, 4), actor_user_id=7
        )
        assert first.status == "processed"
        with pytest.raises(InvalidRequest):
            refunds.pay_back(attempt_id=paid_twice.id, amount_paise=9_001, at=ist(2026, 12, 4))
        refunds.pay_back(attempt_id=paid_twice.id, amount_paise=9_000, at=ist(2026, 12, 4))
        invoice = only_invoice(payer)
        assert (ledger.balance_paise(payer.id), invoice.amount_paid_paise, invoice.status) == (0, 0, "paid")
        assert AuditEntry.objects.filter(action="billing.refund").count() == 2
        assert [row["amount"] for row in provider.control("GET", "payments")["refunds"]] == [50_000, 9_000]

    def test_a_lost_answer_is_found_by_its_receipt_and_nothing_is_paid_back_twice(
        self, provider: RunningSimulator, payer: Tenant, paid_twice: PaymentAttempt
    ) -> None:
        provider.control("POST", "scenario", {"scenario": "timeout_after_accept", "email": "*"})
        refund = refunds.pay_back(attempt_id=paid_twice.id, amount_paise=40_000, at=ist(2026, 12, 4))
        assert refund.status == "unknown"
        with pytest.raises(Conflict, match="in flight"):
            refunds.pay_back(attempt_id=paid_twice.id, amount_paise=10_000, at=ist(2026, 12, 4))
        provider.control("POST", "scenario", {"scenario": "ok"})
        run(ist(2026, 12, 4, 12))
        refund.refresh_from_db()
        assert refund.status == "processed"
        assert len(provider.control("GET", "payments")["refunds"]) == 1
        assert ledger.balance_paise(payer.id) == 19_000

    def test_after_a_refund_the_rest_of_the_balance_pays_the_invoice_that_waited(
        self, provider: RunningSimulator, paid_twice: PaymentAttempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as slow:
            slow.setitem(_REFUND_STATUS, "processed", "processing")
            refund = refunds.pay_back(attempt_id=paid_twice.id, amount_paise=20_000, at=ist(2026, 12, 31, 20))
            run(ist(2027, 1, 1, 0, 15))
            assert Invoice.objects.latest("id").amount_due_paise == 59_000 - 39_000
        run(ist(2027, 1, 1, 2))
        refund.refresh_from_db()
        assert refund.status == "processed"
        assert Invoice.objects.latest("id").amount_due_paise == 59_000 - 39_000

    def test_a_refund_that_the_bank_rejects_after_days_returns_to_the_balance(
        self,
        provider: RunningSimulator,
        payer: Tenant,
        paid_twice: PaymentAttempt,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(_REFUND_STATUS, "processed", "processing")
        refund = refunds.pay_back(attempt_id=paid_twice.id, amount_paise=20_000, at=ist(2026, 12, 4))
        assert (ledger.balance_paise(payer.id), ledger.available_paise(payer.id)) == (59_000, 39_000)
        monkeypatch.setitem(_REFUND_STATUS, "processed", "failed")
        run(ist(2026, 12, 6))
        refund.refresh_from_db()
        assert (refund.status, refund.attempt.refunded_paise) == ("failed", 0)
        assert ledger.available_paise(payer.id) == ledger.balance_paise(payer.id) == 59_000

    def test_a_refund_that_was_not_requested_is_requested_by_the_next_run(
        self, provider: RunningSimulator, paid_twice: PaymentAttempt, settings: Settings
    ) -> None:
        settings.RAZORPAY_BASE_URL, url = "http://127.0.0.1:9/v1", settings.RAZORPAY_BASE_URL
        refund = refunds.pay_back(attempt_id=paid_twice.id, amount_paise=59_000, at=ist(2026, 12, 4))
        assert refund.status == "created"
        settings.RAZORPAY_BASE_URL = url
        run(ist(2026, 12, 4, 12))
        refund.refresh_from_db()
        assert refund.status == "processed"

    @pytest.mark.django_db(transaction=True)
    def test_two_refunds_at_once_pay_back_once(
        self, provider: RunningSimulator, payer: Tenant, paid_twice: PaymentAttempt
    ) -> None:
        def pay_back() -> object:
            return refunds.pay_back(attempt_id=paid_twice.id, amount_paise=40_000, at=ist(2026, 12, 4))

        errors = at_once(pay_back, pay_back, pay_back)
        assert [type(error) in {Conflict, InvalidRequest} for error in errors] == [True, True]
        assert [row["amount"] for row in provider.control("GET", "payments")["refunds"]] == [40_000]


class TestSettlement:
    @pytest.mark.django_db(transaction=True)
    def test_two_results_at_once_count_once(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        set_up_mandate(provider, payer)
        run(CHARGE)
        attempt = PaymentAttempt.objects.get()
        captured = [Payment(id="pay_1", status="captured", amount_paise=59_000)]

        def apply() -> None:
            attempts.apply_payments(attempt_id=attempt.id, payments=captured, at=CHARGE)

        assert at_once(*[apply] * 6) == []
        assert only_invoice(payer).amount_paid_paise == 59_000

    def test_a_second_payment_of_an_attempt_adds_only_what_is_new(
        self, provider: RunningSimulator, payer: Tenant, paid: PaymentAttempt
    ) -> None:
        both = [
            Payment(id=str(paid.provider_payment_id), status="captured", amount_paise=59_000),
            Payment(id="pay_2", status="captured", amount_paise=59_000),
        ]
        for _ in range(2):
            attempts.apply_payments(attempt_id=paid.id, payments=both, at=ist(2026, 12, 4))
        invoice = only_invoice(payer)
        assert (invoice.amount_paid_paise, ledger.balance_paise(payer.id)) == (59_000, 59_000)

    def test_a_repeated_failure_keeps_the_first_day_of_dunning(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        set_up_mandate(provider, payer)
        run(CHARGE)
        attempt = PaymentAttempt.objects.get()
        for day in (3, 5):
            attempts.fail(attempt_id=attempt.id, error=None, at=ist(2026, 12, day))
        attempt.refresh_from_db()
        assert attempt.completed_at == only_invoice(payer).overdue_since == ist(2026, 12, 3)


class TestOneDebitPerMandate:
    @pytest.fixture
    def four(self, provider: RunningSimulator, payer: Tenant, settings: Settings) -> list[Invoice]:
        """Four unpaid invoices of a tenant, issued before its mandate."""
        settings.BILLING_FIRST_PERIOD = "2026-08"
        Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ist(2026, 8, 1), created_at=ist(2026, 8, 1))
        connected(payer, "1", (ist(2026, 8, 3), None))
        run(ist(2026, 12, 1, 0, 15))
        set_up_mandate(provider, payer)
        return list(Invoice.objects.order_by("id"))

    def test_the_oldest_first_and_the_next_when_it_ended(
        self, provider: RunningSimulator, payer: Tenant, four: list[Invoice]
    ) -> None:
        assert len(four) == 4
        for number, invoice in enumerate(four, start=1):
            at = CHARGE + timedelta(days=2 * number)
            run(at)
            run(at + timedelta(minutes=10))
            assert [attempt.invoice_id for attempt in PaymentAttempt.objects.order_by("id")] == [
                earlier.id for earlier in four[:number]
            ]
            announced = [
                hook
                for hook in provider.control("GET", "payments")["webhooks"]
                if hook["event"] == "order.notification.delivered"
            ]
            assert len(announced) == number, "the bank announces each debit"
            provider.control("POST", "clock/advance", {"hours": 26})
            run(at + timedelta(hours=31))
            invoice.refresh_from_db()
            assert invoice.status == "paid"

    @pytest.mark.django_db(transaction=True)
    def test_two_runs_at_once_begin_one_debit(
        self, provider: RunningSimulator, payer: Tenant, four: list[Invoice]
    ) -> None:
        mandate = Mandate.objects.get()
        works = [lambda invoice=invoice: debits._begin_debit(invoice.id, mandate, CHARGE) for invoice in four]
        assert at_once(*works) == []
        assert PaymentAttempt.objects.count() == 1


class TestOperatorsTrouble:
    def test_wrong_keys_never_become_the_customers_trouble(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice, settings: Settings
    ) -> None:
        set_up_mandate(provider, payer)
        right, settings.RAZORPAY_KEY_SECRET = settings.RAZORPAY_KEY_SECRET, "wrong"
        for hour in range(0, 24, 3):
            run(CHARGE + timedelta(hours=hour))
        payer.refresh_from_db()
        attempt = PaymentAttempt.objects.get()
        assert (payer.billing_status, attempt.error, attempt.scheduled_for) == ("active", None, None)
        assert not OutboundMail.objects.filter(subject__contains="is not paid").exists()
        assert admin_health.report()["billing"]["provider_refuses_since"] is not None
        assert ProviderTrouble.objects.get().status == 401
        settings.RAZORPAY_KEY_SECRET = right
        run(CHARGE + timedelta(hours=26))
        provider.control("POST", "clock/advance", {"hours": 26})
        run(CHARGE + timedelta(hours=60))
        assert only_invoice(payer).status == "paid"
        assert PaymentAttempt.objects.count() == 1
        assert admin_health.report()["billing"]["provider_refuses_since"] is None

    def test_wrong_keys_for_weeks_make_no_business_with_autopay_late(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice, settings: Settings
    ) -> None:
        set_up_mandate(provider, payer)
        right, settings.RAZORPAY_KEY_SECRET = settings.RAZORPAY_KEY_SECRET, "wrong"
        for at in (CHARGE, ist(2027, 1, 1, 0, 15), ist(2027, 1, 9, 12)):
            run(at)
        payer.refresh_from_db()
        assert Invoice.objects.unpaid().count() == 2
        assert payer.billing_status == "active"
        assert not OutboundMail.objects.filter(subject__contains="is not paid").exists()
        settings.RAZORPAY_KEY_SECRET = right
        for day in (10, 12, 14):
            provider.control("POST", "clock/advance", {"hours": 48})
            run(ist(2027, 1, day, 12))
        assert not Invoice.objects.unpaid().exists()

    def test_keys_that_fail_between_order_and_debit(
        self,
        provider: RunningSimulator,
        payer: Tenant,
        invoice: Invoice,
        settings: Settings,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        set_up_mandate(provider, payer)
        real = Razorpay.debit

        def refused(self: Razorpay, **values: Any) -> str:
            right, settings.RAZORPAY_KEY_SECRET = settings.RAZORPAY_KEY_SECRET, "wrong"
            try:
                return real(self, **values)
            finally:
                settings.RAZORPAY_KEY_SECRET = right

        monkeypatch.setattr(Razorpay, "debit", refused)
        run(CHARGE)
        monkeypatch.setattr(Razorpay, "debit", real)
        run(CHARGE + timedelta(hours=2))
        assert PaymentAttempt.objects.get().status == "processing"
        assert (
            len([row for row in provider.control("GET", "payments")["payments"] if row["amount"] == 59_000])
            == 1
        )

    def test_a_refund_waits_while_keys_are_wrong(
        self, provider: RunningSimulator, paid_twice: PaymentAttempt, settings: Settings
    ) -> None:
        right, settings.RAZORPAY_KEY_SECRET = settings.RAZORPAY_KEY_SECRET, "wrong"
        refund = refunds.pay_back(attempt_id=paid_twice.id, amount_paise=59_000, at=ist(2026, 12, 4))
        assert refund.status == "created"
        settings.RAZORPAY_KEY_SECRET = right
        run(ist(2026, 12, 4, 12))
        refund.refresh_from_db()
        assert refund.status == "processed"

    @pytest.mark.parametrize(
        ("text", "ours"),
        [
            ("Recurring payments are not enabled on your account", True),
            ("The api key provided is invalid", True),
            ("The merchant is not live", True),
            ("The token is not confirmed.", False),
            ("The amount exceeds the mandate's limit.", False),
            ("The id provided does not exist", False),
        ],
    )
    def test_which_refusals_are_about_the_account(self, text: str, ours: bool) -> None:
        assert bool(_ABOUT_THE_ACCOUNT.search(text)) == ours

    def test_a_mandate_waits_while_keys_are_wrong(
        self, provider: RunningSimulator, payer: Tenant, settings: Settings
    ) -> None:
        old = set_up_mandate(provider, payer)
        Mandate.objects.filter(pk=old.pk).update(status="cancelled", cancel_at_provider=True)
        right, settings.RAZORPAY_KEY_SECRET = settings.RAZORPAY_KEY_SECRET, "wrong"
        mandates.cancel_replaced()
        old.refresh_from_db()
        assert old.cancel_at_provider, "the provider still has to be notified"
        settings.RAZORPAY_KEY_SECRET = right
        mandates.cancel_replaced()
        old.refresh_from_db()
        assert not old.cancel_at_provider


class TestBankTransfers:
    def test_a_reference_is_recorded_once_per_tenant(self, payer: Tenant, invoice: Invoice) -> None:
        bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference=" utr1 ", at=CHARGE)
        for again in ("UTR1", "utr1"):
            with pytest.raises(InvalidRequest):
                bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference=again, at=CHARGE)
        assert only_invoice(payer).amount_paid_paise == 100
        assert BankTransfer.objects.get().reference == "UTR1"

    def test_an_amount_that_must_be_a_typo_is_refused(self, payer: Tenant, invoice: Invoice) -> None:
        def record(paise: int, reference: str) -> PaymentAttempt:
            return bank_transfers.record(
                invoice_id=invoice.id, amount_paise=paise, reference=reference, at=CHARGE
            )

        for paise in (0, 10**12 + 1):
            with pytest.raises(InvalidRequest):
                record(paise, "u1")
        taken = [record(1, " u  1a"), record(10**12, "u2")]
        assert [attempt.bank_transfer.reference for attempt in taken] == ["U 1A", "U2"]

    def test_one_from_before_the_table_has_its_row_since(self, payer: Tenant, invoice: Invoice) -> None:
        bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference="UTR1", at=CHARGE)
        BankTransfer.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute(import_module("billing.migrations.0013_first_release").REFERENCES)
        with pytest.raises(InvalidRequest):
            bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference="UTR1", at=CHARGE)

    @pytest.mark.django_db(transaction=True)
    def test_a_double_click_records_once(self, payer: Tenant, invoice: Invoice, settings: Settings) -> None:
        def record() -> object:
            return bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference="UTR1", at=CHARGE)

        assert len(at_once(record, record, record)) == 2
        assert only_invoice(payer).amount_paid_paise == 100

    @pytest.mark.django_db(transaction=True)
    def test_the_same_reference_on_two_invoices_at_once(self, payer: Tenant, settings: Settings) -> None:
        settings.BILLING_FIRST_PERIOD = "2026-10"
        Tenant.objects.update(trial_ends_at=ist(2026, 10, 1), created_at=ist(2026, 9, 1))
        connected(payer, "1", (ist(2026, 10, 3), None))
        run(ist(2026, 12, 1, 0, 15))
        works = [
            lambda invoice=invoice: bank_transfers.record(
                invoice_id=invoice.id, amount_paise=100, reference="UTR1", at=CHARGE
            )
            for invoice in Invoice.objects.all()
        ]
        assert [type(error) for error in at_once(*works)] == [InvalidRequest]
        assert PaymentAttempt.objects.filter(kind="manual").count() == 1


class TestPayLinks:
    def test_a_mailed_link_outlives_every_key(self, invoice: Invoice, settings: Settings) -> None:
        mailed = PayLink.url_of(invoice).rpartition("/pay/")[2]
        assert mailed in OutboundMail.objects.get(subject__startswith="Invoice").text
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key " * 5, []
        assert Client().get(f"/pay/{mailed}").status_code == 200
        assert Client().get(f"/pay/{mailed}x").status_code == 404


class Second(Razorpay):
    """A second payment provider: Razorpay's client under another name."""

    name = "second"


class TestSecondProvider:
    @pytest.fixture(autouse=True)
    def _second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(provider.PROVIDERS, "second", "billing.tests.test_money.Second")

    def test_a_switch_strands_nothing(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice, settings: Settings
    ) -> None:
        mandate = set_up_mandate(provider, payer)
        settings.PAYMENT_PROVIDER = "second"
        run(CHARGE)
        assert PaymentAttempt.objects.get().provider == mandate.provider == "razorpay"
        provider.control("POST", "clock/advance", {"hours": 26})
        deliver(provider, ist(2026, 12, 2, 11))
        assert only_invoice(payer).status == "paid"
        newer = set_up_mandate(provider, payer, max_amount_paise=100_000)
        run(ist(2027, 1, 1, 0, 15))
        link = payment_links.pay_now(invoice=Invoice.objects.latest("id"), at=ist(2027, 1, 1, 1))
        assert link.provider == "second"
        mandate.refresh_from_db()
        assert (newer.provider, newer.status, mandate.status) == ("second", "active", "cancelled")
        assert mandate.cancel_at_provider is False

    def test_each_provider_has_its_own_route_and_notices(
        self, provider: RunningSimulator, payer: Tenant, settings: Settings
    ) -> None:
        settings.PAYMENT_PROVIDER = "second"
        set_up_mandate(provider, payer)
        hook = provider.control("GET", "payments")["webhooks"][0]
        assert post(hook, "/internal/second/webhook").status_code == 200
        assert post(hook).status_code == 200
        assert sorted(ProviderEvent.objects.values_list("provider", flat=True)) == ["razorpay", "second"]
        assert_error(post(hook, "/internal/third/webhook"), 404, "not_found")
        provider_notices.apply_waiting(CHARGE)
        assert not ProviderEvent.objects.filter(processed_at__isnull=True).exists()


def test_refunds_are_shown_and_started_in_the_admin(
    browser: Client, provider: RunningSimulator, paid_twice: PaymentAttempt
) -> None:
    url = f"/admin/billing/paymentattempt/{paid_twice.pk}/change/"
    assert browser.get(url).status_code == 200
    browser.post(
        reverse("admin:billing_paymentattempt_refund", args=[paid_twice.pk]),
        {"_form_submitted": "on", "amount": "590.00"},
    )
    assert Refund.objects.get().status == "processed"
    assert "590" in browser.get("/admin/billing/refund/").content.decode()


@pytest.mark.django_db(transaction=True)
def test_two_payments_of_an_invoice_captured_at_once_both_count(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second payment waits for the first's row lock. Without the lock, it would overwrite the first's amount."""
    made = [late_attempt(invoice, name) for name in ("a", "b")]
    inside, go_on = threading.Event(), threading.Event()
    settle = ledger.settle

    def held(row: Invoice, at: datetime) -> None:
        if threading.current_thread().name == "first":
            inside.set()
            assert go_on.wait(20)
        settle(row, at)

    monkeypatch.setattr(ledger, "settle", held)

    def capture(attempt: PaymentAttempt) -> None:
        try:
            payment = Payment(id=f"pay_{attempt.receipt}", status="captured", amount_paise=59_000)
            attempts.apply_payments(attempt_id=attempt.id, payments=[payment], at=CHARGE)
        finally:
            connection.close()

    first = threading.Thread(target=capture, args=(made[0],), name="first")
    second = threading.Thread(target=capture, args=(made[1],), name="second")
    first.start()
    assert inside.wait(20)
    second.start()
    deadline = time.monotonic() + 20
    while second.is_alive() and not a_lock_is_waited_for() and time.monotonic() < deadline:
        second.join(0.02)
    go_on.set()
    for thread in (first, second):
        thread.join(20)
    invoice.refresh_from_db()
    assert invoice.amount_paid_paise == 59_000
    assert ledger.balance_paise(invoice.tenant_id) == 59_000
