"""The staff admin of billing: every page opens, credit notes are issued by those who may, with an audit entry."""

from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from billing import accounting
from billing.billing_run import run
from billing.buyers import profiles
from billing.invoices import credit_notes
from billing.models import BillingProfile, CreditNote, Invoice, ProviderEvent
from billing.payments import bank_transfers, payment_links
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, connected, ist, only_invoice
from billing.tests.test_payments import set_up_mandate
from tenants.models import AuditEntry, Tenant, User
from tenants.staff.roles import SUPPORT
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

SUBMITTED = {"_form_submitted": "on"}


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    profiles.profile_of(payer)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


def credit_url(invoice: Invoice) -> str:
    return reverse("admin:billing_invoice_credit", args=[invoice.pk])


def test_every_list_and_row_opens(browser: Client, provider: RunningSimulator, invoice: Invoice) -> None:
    set_up_mandate(provider, invoice.tenant)
    payment_links.pay_now(invoice=invoice, at=FIRST_OF_DECEMBER)
    ProviderEvent.objects.create(provider="razorpay", event_id="1", type="x", body=b"{}")
    models = [model for model in admin.site._registry if model._meta.app_label == "billing"]
    assert len(models) == 8
    for model in models:
        name = f"admin:billing_{model._meta.model_name}"
        assert browser.get(reverse(f"{name}_changelist") + "?q=x").status_code == 200
        assert browser.get(reverse(f"{name}_changelist")).status_code == 200
        for row in model._default_manager.all():
            page = browser.get(reverse(f"{name}_change", args=[row.pk]))
            assert page.status_code == 200
            assert b"(&#x27;" not in page.content, "a status is its text, not a pair"


def test_staff_issue_a_credit_note(browser: Client, invoice: Invoice, staff: User) -> None:
    browser.post(credit_url(invoice), {"_form_submitted": "on", "amount": "90.00", "reason": "Outage"})
    note = CreditNote.objects.get()
    assert (note.total_paise, note.issued_by, note.reason) == (9_000, staff.pk, "Outage")
    assert AuditEntry.objects.get(action="billing.credit").actor_user_id == staff.pk
    browser.post(credit_url(invoice), {"_form_submitted": "on", "amount": "500.01", "reason": "Too much"})
    browser.post(
        credit_url(invoice), {"_form_submitted": "on", "amount": "-1", "reason": "Less than nothing"}
    )
    assert CreditNote.objects.count() == 1


def test_staff_record_a_bank_transfer(browser: Client, invoice: Invoice) -> None:
    url = reverse("admin:billing_invoice_payment", args=[invoice.pk])
    browser.post(url, {**SUBMITTED, "amount": "590.01", "reference": "UTR1"})
    browser.post(url, {**SUBMITTED, "amount": "90.00", "reference": "UTR2"})
    assert only_invoice(invoice.tenant).status == "open"
    browser.post(url, {**SUBMITTED, "amount": "500.00", "reference": "UTR3"})
    paid = only_invoice(invoice.tenant)
    assert (paid.status, paid.amount_paid_paise, paid.amount_due_paise) == ("paid", 59_000, 0)
    assert [attempt.kind for attempt in paid.attempts.all()] == ["manual", "manual"]
    assert AuditEntry.objects.filter(action="billing.payment").count() == 2


def test_support_may_look_and_not_credit(invoice: Invoice) -> None:
    person = User.objects.create_user("support@service.example", "a long enough password", is_staff=True)
    person.groups.add(Group.objects.get(name=SUPPORT))
    browser = Client()
    browser.force_login(person)
    assert browser.get(reverse("admin:billing_invoice_changelist")).status_code == 200
    browser.post(credit_url(invoice), {"_form_submitted": "on", "amount": "90.00", "reason": "x"})
    assert not CreditNote.objects.exists()


def test_the_sez_switch_makes_the_next_invoice_inter_state(browser: Client, payer: Tenant) -> None:
    profiles.change(tenant_id=payer.id, changes={"state_code": "27"})
    browser.post(reverse("admin:billing_billingprofile_switch_sez", args=[payer.pk]), SUBMITTED)
    assert BillingProfile.objects.get().is_sez
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert only_invoice(payer).igst_paise == 9_000


def test_accounting_of_a_year_takes_a_few_statements(
    invoice: Invoice, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(3):
        year = accounting.months(Period(2027, 2), 12)
    assert [(month.period, month.invoices) for month in year[1:4]] == [
        ("2027-01", 0),
        ("2026-12", 1),
        ("2026-11", 0),
    ]
    with django_assert_num_queries(1):
        accounting.unpaid_by_age(FIRST_OF_DECEMBER)


def test_accounting_counts_by_months_of_indian_time(invoice: Invoice) -> None:
    midnight = ist(2027, 1, 1)
    for place, at in enumerate((midnight - timedelta(microseconds=1), midnight)):
        bank_transfers.record(
            invoice_id=invoice.id,
            amount_paise=100 * 2**place,
            reference=f"UTR{place}",
            at=at,
            actor_user_id=None,
        )
    assert [month.collected_paise for month in accounting.months(Period(2027, 1), 2)] == [200, 100]


def test_accounting_adds_up_by_month_and_by_age(browser: Client, invoice: Invoice) -> None:
    credit_notes.issue(invoice_id=invoice.id, total_paise=9_000, reason="Outage", at=FIRST_OF_DECEMBER)
    december = Period(2026, 12)
    [newest, before] = accounting.months(december, 2)
    assert (newest.invoices, newest.taxable_paise, newest.invoiced_paise, newest.credited_paise) == (
        1,
        50_000,
        59_000,
        9_000,
    )
    assert (before.period, before.invoices, before.collected_paise) == ("2026-11", 0, 0)
    bank_transfers.record(
        invoice_id=invoice.id, amount_paise=20_000, reference="UTR1", at=FIRST_OF_DECEMBER, actor_user_id=None
    )
    assert accounting.months(december, 1)[0].collected_paise == 20_000
    for late, title in (
        (-1, "Not due yet"),
        (1, "1 to 30 days late"),
        (31, "31 to 60 days late"),
        (91, "More than 90 days late"),
    ):
        ages = accounting.unpaid_by_age(invoice.due_at + timedelta(days=late))
        assert [(age.title, age.due_paise) for age in ages if age.invoices] == [(title, 30_000)]
    page = browser.get(reverse("admin:billing_invoice_accounting")).content.decode()
    assert "Unpaid: not due yet" in page
    table = browser.get(reverse("admin:billing_invoice_month", args=["2026-12"])).content.decode()
    assert invoice.number in table
    assert browser.get(reverse("admin:billing_invoice_month", args=["x"])).status_code == 404


def test_accounting_is_for_staff_who_may_see_invoices(invoice: Invoice) -> None:
    someone = Client()
    someone.force_login(
        User.objects.create_user("new@gateway.example", "a long enough password", is_staff=True)
    )
    for path in (
        reverse("admin:billing_invoice_accounting"),
        reverse("admin:billing_invoice_month", args=["2026-12"]),
    ):
        assert someone.get(path).status_code == 403
        assert Client().get(path).status_code == 302


def test_an_invoices_parties_are_shown_in_words(browser: Client, invoice: Invoice) -> None:
    page = browser.get(reverse("admin:billing_invoice_change", args=[invoice.pk])).content.decode()
    assert "GSTIN 27AAPFU0939F1ZV" in page
    assert "state_code" not in page
