"""Data for an accountant: a month's GST return and postings, revenue by month, and unpaid invoices by age."""

import csv
from datetime import timedelta
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import accounting, buyers, gstr1, usage
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import BillingProfile, Invoice, PaymentAttempt
from billing.payments import bank_transfers, payment_links
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_ledger import transfer
from billing.tests.test_payments import CHARGE, answer, deliver
from gateway.clock import now
from tenants.models import Tenant
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


def notes_of(month: Period) -> list[tuple[str, float]]:
    """Date and value of the credit notes in a month's return. For consumers, the sum of invoices less credit notes."""
    found = gstr1.of(month)
    return [(note["nt_dt"], note["val"]) for row in found.get("cdnr", []) for note in row["nt"]]


def test_a_document_has_the_date_and_month_of_indian_time(payer: Tenant) -> None:
    """Between midnight and half past five in India, it is still the previous day in UTC."""
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    for minutes in (-1, 1):
        at = ist(2027, 1, 1) + timedelta(minutes=minutes)
        credit_notes.issue(invoice_id=only_invoice(payer).id, total_paise=1_180, reason="x", at=at)
    assert notes_of(Period(2026, 12)) == [("31-12-2026", 11.8)]
    assert notes_of(Period(2027, 1)) == [("01-01-2027", 11.8)]
    [b2b] = gstr1.of(Period(2026, 12))["b2b"]
    assert [row["idt"] for row in b2b["inv"]] == ["01-12-2026"]


def test_revenue_counts_as_unbilled_until_its_invoice(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    run(ist(2027, 1, 1, 0, 15))
    january, december, november, october = accounting.months(Period(2027, 1), 4)
    assert [month.unbilled_paise for month in (october, november, december)] == [0, 50_000, 50_000]
    assert january.unbilled_paise == 0


def test_what_is_unbilled_at_a_months_end_is_split_by_month_of_service(
    payer: Tenant, settings: Settings
) -> None:
    settings.BILLING_FIRST_PERIOD = "2026-11"
    connected(payer, "1", (ist(2026, 11, 3), None))
    connected(payer, "2", (ist(2026, 12, 3), None))
    run(ist(2027, 1, 1, 0, 15))
    december, november = accounting.months(Period(2026, 12), 2)
    assert december.unbilled == {"2026-11": 50_000, "2026-12": 75_000}
    assert november.unbilled == {"2026-11": 50_000}


def test_each_business_with_something_open_is_listed(payer: Tenant, other_tenant: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.filter(tenant=payer).update(tds_percent=10)
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    late = invoice.due_at + timedelta(seconds=1)
    [owes] = accounting.debtors(late)
    assert (owes.name, owes.due_paise, owes.late_paise, owes.uncertified_paise) == (
        payer.name,
        54_000,
        54_000,
        5_000,
    )
    assert owes.oldest_due_at == invoice.due_at
    assert accounting.debtors(invoice.due_at)[0].late_paise == 0
    bank_transfers.record(invoice_id=invoice.id, amount_paise=54_100, reference="U1", at=late)
    [left] = accounting.debtors(late)
    assert (left.due_paise, left.late_paise, left.oldest_due_at, left.balance_paise) == (0, 0, None, 100)
    bank_transfers.record_tds(invoice_id=invoice.id, amount_paise=5_000, certificate="C1", at=late)
    assert accounting.debtors(late)[0].uncertified_paise == 0


def test_the_statement_lists_money_that_came_after_a_write_off(invoice: Invoice) -> None:
    bank_transfers.write_off(invoice_id=invoice.id, reason="Closed", at=CHARGE)
    transfer(invoice, 70_000)
    lines = [
        (line.act, line.amount_paise, line.owed_paise) for line in accounting.statement(invoice.tenant_id)
    ]
    assert lines == [
        ("Invoice issued", 59_000, 59_000),
        ("Written off", -59_000, 0),
        ("Written off", 59_000, 59_000),
        ("Bank transfer received", -70_000, -11_000),
    ]


def test_an_invoice_that_a_refund_reopened_is_late_after_its_new_term(
    invoice: Invoice, payer: Tenant
) -> None:
    again = invoice.due_at + timedelta(days=37)
    reopened = again - timedelta(days=7, hours=10)
    Invoice.objects.update(reopened_at=reopened)
    for at, late_paise in ((again, 0), (again + timedelta(days=1), 59_000)):
        [owes] = accounting.debtors(at)
        assert (owes.oldest_due_at, owes.late_paise) == (again, late_paise)
        ages = {age.title: age.due_paise for age in accounting.unpaid_by_age(at) if age.invoices}
        assert ages == {"1 to 30 days late" if late_paise else "Not due yet": 59_000}


def test_who_owes_most_is_listed_first_with_the_oldest_due_date(payer: Tenant, other_tenant: Tenant) -> None:
    Tenant.objects.filter(pk=other_tenant.pk).update(billing_status="active", created_at=ist(2026, 10, 1))
    for tenant, name in ((payer, "1"), (other_tenant, "1"), (other_tenant, "2")):
        connected(tenant, name, (ist(2026, 11, 3), None))
    for at in (FIRST_OF_DECEMBER, ist(2027, 1, 1, 0, 15)):
        assert (usage.take_snapshots(at), issuing.issue_due(at)) == (2, 2)
    oldest = Invoice.objects.order_by("due_at")[0].due_at
    found = accounting.debtors(ist(2027, 1, 2))
    assert [(one.name, one.due_paise, one.late_paise, one.oldest_due_at) for one in found] == [
        (other_tenant.name, 177_000, 88_500, oldest),
        (payer.name, 118_000, 59_000, oldest),
    ]


def test_refunds_are_shown_beside_collected_amounts(
    browser: Client, provider: RunningSimulator, invoice: Invoice
) -> None:
    link = payment_links.pay_now(invoice=invoice, at=now())
    assert link.payment_url is not None
    answer(link.payment_url, "approve")
    sent = deliver(provider, now())
    page = reverse("admin:billing_invoice_accounting")
    assert "590.00" in browser.get(page).content.decode()
    payment = PaymentAttempt.objects.get(captured_paise=59_000)
    provider.control("POST", "refund", {"payment_id": payment.provider_payment_id, "amount": 12_345})
    deliver(provider, now(), since=sent)
    shown = browser.get(page).content.decode()
    assert "590.00" in shown
    assert "123.45" in shown
    [month] = accounting.months(Period.of(now()), 1)
    assert (month.collected_paise, month.refunded_paise) == (59_000, 12_345)


def test_a_transfer_that_was_returned_counts_as_refunded_and_credits_with_their_tax(invoice: Invoice) -> None:
    paid = bank_transfers.record(
        invoice_id=invoice.id, amount_paise=60_000, reference="U1", at=FIRST_OF_DECEMBER
    )
    bank_transfers.give_back(attempt_id=paid.id, amount_paise=1_000, reference="U2", at=FIRST_OF_DECEMBER)
    credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="x", at=FIRST_OF_DECEMBER)
    [month] = accounting.months(Period(2026, 12), 1)
    figures = (month.taxable_paise, month.invoiced_paise, month.credited_paise)
    assert figures == (50_000, 59_000, 11_800)
    assert (month.collected_paise, month.refunded_paise) == (60_000, 1_000)


def test_a_replaced_invoice_was_billed_when_it_was_first_issued(invoice: Invoice) -> None:
    issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=ist(2027, 2, 3))
    months = accounting.months(Period(2027, 2), 4)
    assert [(month.period, month.unbilled_paise, month.invoices) for month in months] == [
        ("2027-02", 0, 1),
        ("2027-01", 0, 0),
        ("2026-12", 0, 1),
        ("2026-11", 50_000, 0),
    ]


def test_no_cell_of_a_file_is_a_formula(invoice: Invoice) -> None:
    Tenant.objects.filter(pk=invoice.tenant_id).update(name="=1+1")
    bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference="=A1", at=FIRST_OF_DECEMBER)
    rows = list(csv.DictReader(StringIO(accounting.ledger_csv(Period(2026, 12)))))
    assert {row["Contact Name"] for row in rows} == {"'=1+1"}
    lines = list(accounting.statement_rows(invoice.tenant_id))
    assert lines == [
        ["Date", "What", "Document", "Amount", "Owed"],
        ["01-12-2026", "Invoice issued", invoice.number, "590.00", "590.00"],
        ["01-12-2026", "Bank transfer received", "'=A1", "-1.00", "589.00"],
    ]


def test_every_posting_is_exported_and_the_accounts_sum_to_zero(invoice: Invoice) -> None:
    at = FIRST_OF_DECEMBER + timedelta(days=1)
    bank_transfers.record(invoice_id=invoice.id, amount_paise=60_000, reference="UTR1", at=at)
    out = StringIO()
    call_command("billing_export", "2026-12", "--ledger", stdout=out)
    rows = list(csv.DictReader(StringIO(out.getvalue())))
    assert sum(Decimal(row["Debit"] or 0) - Decimal(row["Credit"] or 0) for row in rows) == 0
    sides = {"Dr": 1, "Cr": -1}
    assert sum(sides[row["Ledger Amount Dr/Cr"]] * Decimal(row["Ledger Amount"]) for row in rows) == 0
    first, second = ([row for row in rows if row["Journal Number Suffix"] == number] for number in "12")
    assert {row["Reference Number"] for row in first} == {f"invoice {invoice.number}"}
    assert {(row["Account"], row["Debit"], row["Credit"]) for row in second} == {
        ("Bank", "600.00", ""),
        ("Receivable", "", "590.00"),
        ("Customer balance", "", "10.00"),
    }
    [bank] = [row for row in second if row["Account"] == "Bank"]
    assert bank == {
        "Journal Date": "2026-12-02",
        "Reference Number": bank["Reference Number"],
        "Journal Number Prefix": "2026-12-",
        "Journal Number Suffix": "2",
        "Notes": "Bank transfer received: UTR1",
        "Journal Type": "both",
        "Currency": "INR",
        "Account": "Bank",
        "Description": "",
        "Contact Name": invoice.tenant.name,
        "Debit": "600.00",
        "Credit": "",
        "Voucher Type Name": "Journal",
        "Ledger Amount": "600.00",
        "Ledger Amount Dr/Cr": "Dr",
    }
    assert accounting.trial_balance(at) == {
        "balance": -1_000,
        "bank": 60_000,
        "gst": -9_000,
        "receivable": 0,
        "sales": -50_000,
    }


@pytest.mark.parametrize(
    ("days", "title", "next_title"),
    [
        (0, "Not due yet", "1 to 30 days late"),
        (30, "1 to 30 days late", "31 to 60 days late"),
        (60, "31 to 60 days late", "61 to 90 days late"),
        (90, "61 to 90 days late", "More than 90 days late"),
    ],
)
def test_an_unpaid_invoice_has_one_age_also_at_its_edges(
    invoice: Invoice, days: int, title: str, next_title: str
) -> None:
    edge = invoice.due_at + timedelta(days=days)
    for at, wanted in ((edge, title), (edge + timedelta(microseconds=1), next_title)):
        counted = [age for age in accounting.unpaid_by_age(at) if age.invoices]
        assert [(age.title, age.invoices, age.due_paise) for age in counted] == [(wanted, 1, 59_000)]
