"""The ledger: every act is posted once and sums to zero, and a surplus pays the next invoice."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from billing import accounting, ledger
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import (
    Invoice,
    LedgerEntry,
    LedgerPosting,
    PaymentAttempt,
    Refund,
    SettledItem,
)
from billing.payments import attempts, bank_transfers, mandates, payment_links, refunds, settlements
from billing.payments.provider import Payment, ProviderRefused, Settled, Settlement
from billing.payments.razorpay import Razorpay
from billing.tests.conftest import FIRST_OF_DECEMBER, assert_balanced, connected, ist, only_invoice
from billing.tests.test_money import late_attempt
from billing.tests.test_payments import CHARGE, answer, deliver, set_up_mandate
from gateway.api.errors import Conflict, InvalidRequest
from tenants.models import AuditEntry, Tenant
from tests.simulated import RunningSimulator
from tests.threads import at_once

pytestmark = pytest.mark.django_db

JANUARY = ist(2027, 1, 1, 0, 15)


def accounts() -> dict[str, int]:
    """The balances of all accounts that are not zero."""
    return {name: paise for name, paise in accounting.trial_balance(ist(2040, 1, 1)).items() if paise}


def transfer(invoice: Invoice, paise: int, reference: str = "UTR1") -> PaymentAttempt:
    return bank_transfers.record(invoice_id=invoice.id, amount_paise=paise, reference=reference, at=CHARGE)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_ledgerposting SET amount_paise = 1",
        "DELETE FROM billing_ledgerposting",
        "UPDATE billing_ledgerentry SET text = 'x'",
        "DELETE FROM billing_ledgerentry",
    ],
)
def test_what_was_booked_stays(invoice: Invoice, statement: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.django_db(transaction=True)
def test_an_entry_that_does_not_sum_to_zero_cannot_be_committed(invoice: Invoice) -> None:
    with pytest.raises(ValueError, match="differ"):
        ledger.post("payment", "x", CHARGE, {"bank": 1}, tenant_id=None)
    entry = LedgerEntry.objects.get(act="invoice")
    with pytest.raises(DatabaseError, match="sum to zero"), transaction.atomic():
        LedgerPosting.objects.create(entry=entry, account="bank", amount_paise=1)


def test_too_much_is_the_customers_balance_and_pays_the_next_invoice(payer: Tenant, invoice: Invoice) -> None:
    transfer(invoice, 60_000)
    assert accounts() == {"bank": 60_000, "sales": -50_000, "gst": -9_000, "balance": -1_000}
    run(JANUARY)
    december = Invoice.objects.latest("id")
    assert (december.status, december.amount_paid_paise, december.amount_due_paise) == ("open", 1_000, 58_000)
    assert ledger.balance_paise(payer.id) == 0
    assert_balanced()


def test_a_balance_that_is_being_refunded_pays_nothing(payer: Tenant, invoice: Invoice) -> None:
    attempt = transfer(invoice, 60_000)
    Refund.objects.create(
        attempt=attempt, amount_paise=600, receipt="r", created_at=CHARGE, next_check_at=ist(2027, 3, 1)
    )
    run(JANUARY)
    assert Invoice.objects.latest("id").amount_due_paise == 58_600


def test_a_balance_pays_what_is_already_due(payer: Tenant, invoice: Invoice) -> None:
    run(JANUARY)
    first, second = Invoice.objects.order_by("id")
    transfer(second, 118_000)
    for row in (first, second):
        row.refresh_from_db()
        assert (row.status, row.amount_due_paise) == ("paid", 0)
    payer.refresh_from_db()
    assert payer.billing_status == "active"
    assert_balanced()


def test_a_transfer_is_paid_back_by_bank(payer: Tenant, invoice: Invoice) -> None:
    attempt = transfer(invoice, 59_000)
    back: dict[str, Any] = {"attempt_id": attempt.id, "reference": "UTR9", "at": CHARGE}
    with pytest.raises(InvalidRequest):
        bank_transfers.give_back(**back, amount_paise=1)
    credit_notes.issue(invoice_id=invoice.id, total_paise=59_000, reason="Outage", at=CHARGE)
    with pytest.raises(InvalidRequest):
        bank_transfers.give_back(**back, amount_paise=59_001)
    refund = Refund.objects.create(
        attempt=attempt, amount_paise=9_000, receipt="r", created_at=CHARGE, next_check_at=CHARGE
    )
    with pytest.raises(InvalidRequest):
        bank_transfers.give_back(**back, amount_paise=50_001)
    refund.delete()
    bank_transfers.give_back(**back, amount_paise=59_000, actor_user_id=7)
    assert accounts() == {}
    assert AuditEntry.objects.get(action="billing.refund").actor_user_id == 7
    with pytest.raises(InvalidRequest):
        bank_transfers.give_back(**back, amount_paise=1)


def test_less_than_a_rupee_is_written_off(payer: Tenant, invoice: Invoice) -> None:
    transfer(invoice, 58_960)
    assert only_invoice(payer).status == "paid"
    assert accounts()["write_off"] == 40
    transfer(invoice, 40, "UTR2")
    assert "write_off" not in accounts(), "it came after all"
    assert ledger.balance_paise(payer.id) == 0


def test_staff_write_off_what_nobody_pays(payer: Tenant, invoice: Invoice) -> None:
    run(ist(2026, 12, 30))
    assert bank_transfers.write_off(invoice_id=invoice.id, reason="Closed", at=CHARGE) == 59_000
    payer.refresh_from_db()
    assert (only_invoice(payer).amount_due_paise, payer.billing_status) == (0, "active")
    entry = AuditEntry.objects.get(action="billing.write_off")
    assert entry.details == {"amount_paise": 59_000, "reason": "Closed"}
    with pytest.raises(Conflict):
        bank_transfers.write_off(invoice_id=invoice.id, reason="Again", at=CHARGE)
    credit_notes.issue(invoice_id=invoice.id, total_paise=59_000, reason="Tax", at=CHARGE)
    assert accounts() == {}, "a credit note takes back what was written off, and nobody gains it"


def test_tax_deducted_after_a_full_payment_can_be_paid_back(payer: Tenant, invoice: Invoice) -> None:
    attempt = transfer(invoice, 59_000)
    bank_transfers.record_tds(invoice_id=invoice.id, amount_paise=5_000, certificate="", at=CHARGE)
    assert accounts()["tds"] == 5_000
    bank_transfers.give_back(attempt_id=attempt.id, amount_paise=5_000, reference="U9", at=CHARGE)
    assert accounts() == {"bank": 54_000, "tds": 5_000, "sales": -50_000, "gst": -9_000}


def test_what_the_provider_settled_is_booked_with_its_fees(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    seen = deliver(provider, ist(2026, 12, 2, 11))
    assert accounts()["clearing"] == 59_100
    assert accounts()["checks"] == -100, "the rupee that approved the mandate"
    settled = provider.control("POST", "settle")["settlement"]
    deliver(provider, ist(2026, 12, 3), since=seen)
    assert accounts()["bank"] == settled["amount"], "its notice is enough"
    for _ in range(2):
        settlements.reconcile(ist(2026, 12, 4))
    found = accounts()
    entry = LedgerEntry.objects.get(act="settlement")
    assert (entry.text, entry.tenant) == (f"{settled['id']} {settled['utr']}", None)
    assert (found["bank"], found["fees"], found["fee_gst"]) == (settled["amount"], 1_182, 212)
    assert "clearing" not in found
    assert SettledItem.objects.count() == 2
    assert_balanced()


@pytest.mark.parametrize("method", ["upi", "card"])
@pytest.mark.parametrize("has_ended", [False, True], ids=["in force", "ended"])
def test_a_check_payment_that_is_paid_back_later_leaves_the_ledger(
    provider: RunningSimulator, payer: Tenant, method: str, has_ended: bool
) -> None:
    mandate = set_up_mandate(provider, payer, method=method)
    assert accounts() == {"clearing": 100, "checks": -100}
    if has_ended:
        mandates.on_tenant_closing(tenant_id=payer.id)
    [payment] = provider.control("GET", "payments")["payments"]
    for refunded, left in ((40, 60), (60, 0)):
        provider.control("POST", "refund", {"payment_id": payment["id"], "amount": refunded})
        deliver(provider, CHARGE)
        assert accounts() == ({"clearing": left, "checks": -left} if left else {})
    assert set(LedgerEntry.objects.values_list("act", flat=True)) == {"check"}, (
        "no invoice's money is refunded"
    )
    provider.control("POST", "settle")
    settlements.reconcile(CHARGE)
    assert "clearing" not in accounts()
    mandate.refresh_from_db()
    assert mandate.status == ("cancelled" if has_ended else "active")
    assert_balanced()


def test_a_debit_that_is_under_way_ends_no_mandate(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown mandate at the provider counts as ended only after a failed debit."""
    mandate = set_up_mandate(provider, payer)
    run(CHARGE)
    attempt = PaymentAttempt.objects.get()
    assert attempt.status == "processing"

    def refused(*_: Any, **__: Any) -> None:
        raise ProviderRefused(provider_code="BAD_REQUEST_ERROR", reason=None, text="No such token")

    monkeypatch.setattr(Razorpay, "mandate", refused)
    attempts.refresh(attempt.id, CHARGE)
    mandate.refresh_from_db()
    assert mandate.status == "active"


def test_settlements_are_read_back_until_enough_are_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new settlement may be listed after newer, posted ones. So reading goes on after the first posted settlement."""
    at, read = ist(2026, 12, 4), []
    account = LedgerPosting.Account
    for place in (0, 2, 3):
        amounts = {account.BANK: 1, account.CLEARING: -1}
        ledger.post(LedgerEntry.Act.SETTLEMENT, f"settlement setl_{place}", at, amounts, text="")

    def listed(_: Razorpay) -> Iterator[Settlement]:
        for place in range(6):
            read.append(place)
            yield Settlement(f"setl_{place}", 1, "U1", at)

    def items(_: Razorpay, settlement: Settlement) -> list[Settled]:
        return [Settled(f"pay_{settlement.id}", settlement.id, "payment", 1, 0, 0, 1)]

    monkeypatch.setattr(settlements, "LOOKED_BACK", 2)
    monkeypatch.setattr(Razorpay, "settlements", listed)
    monkeypatch.setattr(Razorpay, "settled_of", items)
    settlements.reconcile(at)
    assert read == [0, 1, 2]
    assert [item.settlement_id for item in SettledItem.objects.all()] == ["setl_1"]


def test_a_settlement_waits_for_all_of_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    at, account = ist(2026, 12, 4), LedgerPosting.Account
    ledger.post(
        LedgerEntry.Act.CHECK, "collected", at, {account.CLEARING: 300, account.CHECKS: -300}, text=""
    )
    items = [Settled(f"pay_{number}", "setl_1", "payment", 150, 3, 1, 147) for number in range(3)]
    items.append(Settled("rfnd_1", "setl_1", "refund", -150, -3, -1, -147))
    newer = Settled("pay_9", "setl_2", "payment", 100, 0, 0, 100)
    both = [Settlement("setl_2", 100, "U2", at), Settlement("setl_1", 294, "U1", at)]
    monkeypatch.setattr(Razorpay, "settlements", lambda _: both)
    found = []
    for listed in (items[:1], items[:3], items, items):
        of = {"setl_1": listed, "setl_2": [newer]}
        monkeypatch.setattr(Razorpay, "settled_of", lambda _, settlement, of=of: of[settlement.id])
        settlements.reconcile(at)
        found.append((accounts().get("bank", 0), accounts().get("fees", 0)))
    assert found == [(100, 0), (100, 0), (394, 4), (394, 4)]


def test_an_upgrade_waits_for_invoices_of_before_the_ledger(invoice: Invoice) -> None:
    upgrade = import_module("billing.migrations.0013_first_release")
    upgrade.require_booked(apps, None)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        LedgerPosting.objects.all().delete()
        cursor.execute("SET session_replication_role = origin")
    with pytest.raises(RuntimeError, match="billing_run"):
        upgrade.require_booked(apps, None)


def test_the_former_version_finds_its_table_after_an_upgrade() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT from_invoice_id, to_invoice_id, amount_paise, at FROM billing_balancetransfer")
        assert cursor.fetchall() == []


@pytest.mark.django_db(transaction=True)
def test_races_leave_the_books_balanced(payer: Tenant, settings: Settings) -> None:
    """Payments, credits, transfers, replacements and refunds of two invoices run at the same time."""
    settings.BILLING_FIRST_PERIOD = "2026-10"
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ist(2026, 10, 1), created_at=ist(2026, 9, 1))
    connected(payer, "1", (ist(2026, 10, 3), None))
    run(FIRST_OF_DECEMBER)
    first, second = Invoice.objects.order_by("id")
    late = [late_attempt(invoice, name) for name, invoice in (("a", first), ("b", first), ("c", second))]

    def capture(attempt: PaymentAttempt, refunded: int) -> None:
        payment = Payment(f"pay_{attempt.receipt}", "captured", 59_000, refunded_paise=refunded)
        attempts.apply_payments(attempt_id=attempt.id, payments=[payment], at=CHARGE)

    works: list[Callable[[], object]] = [
        *(lambda attempt=attempt: capture(attempt, 0) for attempt in late),
        lambda: capture(late[0], 10_000),
        lambda: credit_notes.issue(invoice_id=first.id, total_paise=20_000, reason="x", at=CHARGE),
        lambda: transfer(second, 70_000),
        lambda: issuing.replace(invoice_id=second.id, reason="x", at=CHARGE),
        lambda: run(FIRST_OF_DECEMBER),
    ]
    errors = at_once(*works)
    assert {type(error) for error in errors} <= {Conflict, InvalidRequest}
    assert_balanced()
    kept = sum(attempt.kept_paise for attempt in PaymentAttempt.objects.all())
    found = accounts()
    assert found.get("clearing", 0) + found.get("bank", 0) == kept
    paid = sum(invoice.amount_paid_paise for invoice in Invoice.objects.all())
    assert paid - found.get("balance", 0) == kept


@pytest.mark.django_db(transaction=True)
def test_a_balance_is_paid_back_or_set_off_never_both(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    link = payment_links.pay_now(invoice=invoice, at=CHARGE)
    assert link.payment_url is not None
    answer(link.payment_url, "approve")
    deliver(provider, CHARGE)
    credit_notes.issue(invoice_id=invoice.id, total_paise=59_000, reason="Outage", at=CHARGE)
    refund = lambda: refunds.pay_back(attempt_id=link.id, amount_paise=59_000, at=CHARGE)  # noqa: E731
    errors = at_once(refund, lambda: run(JANUARY), lambda: run(JANUARY + timedelta(minutes=1)))
    assert {type(error) for error in errors} <= {InvalidRequest}
    paid_back = Refund.objects.filter(status="processed").exists()
    january = Invoice.objects.latest("id")
    assert january.amount_due_paise == (59_000 if paid_back else 0)
    assert ledger.balance_paise(payer.id) == 0
    assert_balanced()
