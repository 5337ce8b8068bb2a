"""The staff admin of billing: every page opens, credit notes are issued by those who may, with an audit entry."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from billing import profiles
from billing.billing_run import run
from billing.models import BillingProfile, CreditNote, Invoice, ProviderEvent
from billing.payments import charging
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
    charging.pay_now(invoice=invoice, at=FIRST_OF_DECEMBER)
    ProviderEvent.objects.create(provider="razorpay", event_id="1", type="x", body=b"{}")
    models = [model for model in admin.site._registry if model._meta.app_label == "billing"]
    assert len(models) == 8
    for model in models:
        name = f"admin:billing_{model._meta.model_name}"
        assert browser.get(reverse(f"{name}_changelist") + "?q=x").status_code == 200
        assert browser.get(reverse(f"{name}_changelist")).status_code == 200
        for row in model._default_manager.all():
            assert browser.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200


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
