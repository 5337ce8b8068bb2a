"""The staff admin of billing: every page opens, and credit notes by permitted staff are audited."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries, Settings

from billing import accounting, buyers, ledger
from billing.admin import cards
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import (
    BillingProfile,
    CreditNote,
    Invoice,
    PaymentAttempt,
    PlanVersion,
    Refund,
    SettledItem,
    StaffAct,
)
from billing.payments import bank_transfers
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_einvoices import answer as einvoice
from gateway.clock import now
from tenants import audit
from tenants.models import AuditEntry, OutboundMail, Tenant, User
from tenants.staff.roles import FINANCE, SUPPORT
from tests.browsers import logged_in

pytestmark = pytest.mark.django_db

SUBMITTED = {"_form_submitted": "on"}


def test_staff_find_an_invoice_by_its_number_and_on_its_tenants_page(
    browser: Client, invoice: Invoice, other_tenant: Tenant
) -> None:
    page = f"/admin/billing/invoice/{invoice.pk}/change/"
    assert browser.get("/admin/find/", {"q": invoice.number.lower()})["Location"] == page
    for tenant, is_shown in ((invoice.tenant, True), (other_tenant, False)):
        shown = browser.get(f"/admin/tenants/tenant/{tenant.pk}/change/").content.decode()
        assert (page in shown) is (f"{invoice.number}, ₹590.00 (Open)" in shown) is is_shown


def test_an_audit_entry_leads_to_the_row_of_billing_that_it_names(browser: Client, invoice: Invoice) -> None:
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="Outage", at=ist(2026, 12, 2))
    version = PlanVersion.objects.create(
        starts="2027-01",
        first_number_paise=60_000,
        additional_number_paise=60_000,
        gst_percent=18,
        created_at=now(),
    )
    act = StaffAct.objects.create(
        tenant=invoice.tenant,
        act="credit",
        target_id=invoice.pk,
        values={},
        amount_paise=1,
        status="done",
        asked_at=FIRST_OF_DECEMBER,
    )
    for target_type, target_id, row in (
        ("invoice", invoice.public_id, invoice),
        ("credit_note", note.public_id, note),
        ("plan_version", version.pk, version),
        ("staff_act", act.pk, act),
    ):
        audit.record(action="billing.credit", target_type=target_type, target_id=target_id)
        page = f"/admin/billing/{type(row)._meta.model_name}/{row.pk}/change/"
        entries = browser.get("/admin/tenants/auditentry/").content.decode()
        assert f'href="{page}">{target_id}</a>' in entries
        assert browser.get(page).status_code == 200


def credit_url(invoice: Invoice) -> str:
    return reverse("admin:billing_invoice_credit", args=[invoice.pk])


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
    browser.post(url, {**SUBMITTED, "amount": "90.00", "reference": "UTR2"})
    assert only_invoice(invoice.tenant).status == "open"
    browser.post(url, {**SUBMITTED, "amount": "510.00", "reference": "UTR3"})
    paid = only_invoice(invoice.tenant)
    assert ledger.balance_paise(invoice.tenant_id) == 1_000, "what is too much is the customer's"
    assert (paid.status, paid.amount_paid_paise, paid.amount_due_paise) == ("paid", 59_000, 0)
    assert [attempt.kind for attempt in paid.attempts.all()] == ["manual", "manual"]
    assert AuditEntry.objects.filter(action="billing.payment").count() == 2


def test_the_sez_switch_makes_the_next_invoice_inter_state(browser: Client, payer: Tenant) -> None:
    url = reverse("admin:billing_billingprofile_switch_sez", args=[payer.pk])
    buyers.change(tenant_id=payer.id, changes={"state_code": "27"})
    evidence = {**SUBMITTED, "is_sez": "yes", "evidence": "Letter of approval, drive/sez/1"}
    for refused in (evidence, SUBMITTED | {"is_sez": "yes"}):  # without a GSTIN, without evidence
        browser.post(url, refused)
        assert not BillingProfile.objects.get().is_sez
        changes = {"tax_id": "27AAPFU0939F1ZV", "address": "1 Hill Road", "city": "Pune"}
        buyers.change(tenant_id=payer.id, changes=changes)
    for _ in range(2):  # the second time after the answer was lost
        browser.post(url, evidence)
        assert BillingProfile.objects.get().is_sez
    assert AuditEntry.objects.filter(action="billing.profile").latest("id").details["evidence"]
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert only_invoice(payer).igst_paise == 9_000
    browser.post(url, evidence | {"is_sez": "no"})
    assert not BillingProfile.objects.get().is_sez


@pytest.mark.parametrize(
    ("tax_id", "stays"), [("29aaaci1681g1zl", True), ("29AAPFU0939F1ZR", False), ("AAACI1681G", False)]
)
def test_a_zone_is_of_the_gstin_that_staff_saw(
    payer: Tenant, settings: Settings, tax_id: str, stays: bool
) -> None:
    settings.BILLING_LUT_NUMBERS = {"2627": "AD270326000001X"}
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    buyers.change(tenant_id=payer.id, changes={"is_sez": True}, evidence="Letter of approval")
    buyers.change(tenant_id=payer.id, changes={"tax_id": tax_id})
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert only_invoice(payer).total_paise == (50_000 if stays else 59_000)


def test_a_zone_that_is_set_with_its_gstin_stays(payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    changes = {"tax_id": "29AAPFU0939F1ZR", "is_sez": True}
    assert buyers.change(tenant_id=payer.id, changes=changes, evidence="Letter of approval").is_sez


def test_staff_set_the_country_on_evidence(browser: Client, payer: Tenant) -> None:
    buyers.profile_of(payer)
    url = reverse("admin:billing_billingprofile_set_country", args=[payer.pk])
    browser.post(url, {**SUBMITTED, "country": "DE"})
    assert BillingProfile.objects.get().country == "IN"
    browser.post(url, {**SUBMITTED, "country": "DE", "evidence": "Register of Ulm"})
    assert BillingProfile.objects.get().country == "DE"


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


def test_an_invoices_parties_are_shown_in_words(browser: Client, invoice: Invoice) -> None:
    page = browser.get(reverse("admin:billing_invoice_change", args=[invoice.pk])).content.decode()
    assert "GSTIN 27AAPFU0939F1ZV" in page
    assert "state_code" not in page


def test_the_page_of_an_invoice_holds_all_of_it(browser: Client, invoice: Invoice) -> None:
    bank_transfers.record(invoice_id=invoice.id, amount_paise=20_000, reference="U1", at=FIRST_OF_DECEMBER)
    credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="Outage", at=FIRST_OF_DECEMBER)
    bank_transfers.record(invoice_id=invoice.id, amount_paise=27_200, reference="U2", at=FIRST_OF_DECEMBER)
    credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="Goodwill", at=FIRST_OF_DECEMBER)
    page = browser.get(reverse("admin:billing_invoice_change", args=[invoice.pk])).content.decode()
    for text in (
        "First number: 1 × ₹500.00 = ₹500.00, GST 18 %",
        "Bank transfer: ₹200.00, Captured, kept ₹200.00",
        "WGCN/2627/000001 of ₹118.00: Outage",
        "1 Dec 2026 Credit note issued: Receivable -₹118.00",
        "1 Dec 2026 Credit note issued: GST payable ₹18.00",
        "1 Dec 2026 Credit note issued: Customer balance -₹11.80",
        reverse("admin:billing_invoice_pdf", args=[invoice.pk]),
    ):
        assert text in page, text
    paper = browser.get(reverse("admin:billing_invoice_pdf", args=[invoice.pk]))
    assert paper.content.startswith(b"%PDF")


def test_an_invoice_is_sent_again_unless_it_is_not_registered(
    browser: Client, invoice: Invoice, settings: Settings
) -> None:
    mails = OutboundMail.objects.filter(subject__startswith=f"Invoice {invoice.number}")
    before = mails.count()
    url = reverse("admin:billing_invoice_send_again", args=[invoice.pk])
    assert browser.post(url, SUBMITTED).status_code == 302
    assert mails.count() == before + 1
    assert AuditEntry.objects.filter(action="billing.sent_again").count() == 1
    settings.BILLING_EINVOICES = True
    BillingProfile.objects.update(tax_id="29AAACI1681G1ZL", tax_id_type="gstin", address="1 Road", city="X")
    new = issuing.replace(invoice_id=invoice.id, reason="GSTIN", at=FIRST_OF_DECEMBER)
    url = reverse("admin:billing_invoice_send_again", args=[new.pk])
    assert "before its registration" in browser.post(url, SUBMITTED).content.decode()


def test_einvoices_go_out_and_come_back_by_their_page(browser: Client, staff: User, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    number = only_invoice(payer).number
    page = reverse("admin:billing_invoice_einvoices")
    assert number in browser.get(page).content.decode()
    assert json.loads(browser.get(f"{page}?as=file").content)[0]["DocDtls"]["No"] == number
    for content in (b"", b"{", json.dumps([{}, einvoice(number)]).encode()):
        sent = browser.post(page, {"answers": ContentFile(content, "answers.json")}, follow=True)
        shown = sent.content.decode()
        assert "cannot be read" in shown or "not an answer of the portal" in shown
    assert "Documents registered: 1." in shown
    assert AuditEntry.objects.get(action="billing.einvoice").actor_user_id == staff.pk
    assert "Every document that needs registration is registered." in shown
    cancel = reverse("admin:billing_invoice_cancel", args=[only_invoice(payer).pk])
    Invoice.objects.update(ack_at=now() - timedelta(hours=25))
    refused = browser.post(cancel, {**SUBMITTED, "reason": "Wrong"}).content.decode()
    assert "of the last 24 hours" in refused
    Invoice.objects.update(ack_at=now())
    assert browser.post(cancel, {**SUBMITTED, "reason": "Wrong"}).status_code == 302
    assert only_invoice(payer).irn_cancelled_at is not None


@pytest.mark.parametrize(
    ("act", "values", "sentence"),
    [
        ("payment", {"amount": "90", "reference": "U1"}, "A bank transfer of ₹90.00 is recorded."),
        ("tds", {"amount": "50"}, "₹50.00 of tax deducted at source is recorded."),
        ("credit", {"amount": "118", "reason": "x"}, "Credit note {note} is issued."),
        ("replace", {"reason": "x"}, "Invoice {newest} replaces it."),
        ("cancel", {"reason": "x"}, "Credit note {note} cancels the whole invoice."),
        ("write_off", {"reason": "x"}, "₹590.00 is written off."),
        ("send_again", {}, "The mail is on its way."),
    ],
)
def test_each_act_says_what_it_did(
    browser: Client, invoice: Invoice, act: str, values: dict[str, str], sentence: str
) -> None:
    Invoice.objects.update(irn="1" * 64, ack_no="1", ack_at=now())
    url = reverse(f"admin:billing_invoice_{act}", args=[invoice.pk])
    request = browser.post(url, {**SUBMITTED, **values}).wsgi_request
    note, newest = CreditNote.objects.first(), Invoice.objects.latest("id").number
    wanted = sentence.format(note=note.number if note else "", newest=newest)
    assert [str(message) for message in get_messages(request)] == [wanted]


ABROAD = {"country": "DE", "state_code": "", "pin": "", "tax_id": ""}


@pytest.mark.parametrize(
    ("profile", "tenant_values", "counted"),
    [
        ({}, {}, 0),
        *(({name: ""}, {}, 1) for name in ("legal_name", "address", "city", "state_code", "pin", "tax_id")),
        ({"phone": ""}, {}, 0),
        (ABROAD, {}, 0),
        ({**ABROAD, "city": ""}, {}, 1),
        ({"pin": ""}, {"billing_status": "trialing"}, 1),
        ({"pin": ""}, {"billing_status": "past_due"}, 1),
        ({"pin": ""}, {"billing_status": "exempt"}, 0),
        ({"pin": ""}, {"sandbox": True}, 0),
        ({"pin": ""}, {"status": "suspended"}, 0),
    ],
)
def test_staff_see_whose_next_invoice_lacks_buyer_data(
    payer: Tenant, profile: dict[str, str], tenant_values: dict[str, Any], counted: int
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    BillingProfile.objects.update(**profile)
    Tenant.objects.filter(pk=payer.pk).update(**tenant_values)
    assert cards.incomplete_profiles() == counted


def test_staff_see_at_once_what_is_overdue_and_what_waits(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    for status in StaffAct.Status.values:
        StaffAct.objects.create(
            tenant=invoice.tenant,
            act="credit",
            target_id=invoice.pk,
            values={},
            amount_paise=1,
            status=status,
            asked_at=FIRST_OF_DECEMBER,
        )

    def shown(title: str, at: datetime) -> tuple[int, bool]:
        monkeypatch.setattr(cards, "now", lambda: at)
        [card] = [card for card in cards._cards({}) if card.title == title]
        return card.value, card.worry

    moment, soon = timedelta(microseconds=1), ist(2026, 12, 22)
    assert shown("Waiting for a second person", soon)[0] == 1
    assert [shown("Invoices overdue", invoice.due_at + late)[0] for late in (timedelta(), moment)] == [0, 1]
    assert [shown("Buyer data missing", at) for at in (soon - moment, soon)] == [(1, False), (1, True)]
    Invoice.objects.update(status="paid")
    assert shown("Invoices overdue", invoice.due_at + moment)[0] == 0
    settings.BILLING_ENABLED = False
    assert cards._cards({}) == []


def test_finance_handles_money_and_decides_nothing_else(invoice: Invoice) -> None:
    person = User.objects.create_user("money@gateway.example", "a long enough password", is_staff=True)
    person.groups.add(Group.objects.get(name=FINANCE))
    browser = logged_in(person)
    for name in ("credit", "replace", "payment", "tds", "write_off", "cancel", "send_again"):
        url = reverse(f"admin:billing_invoice_{name}", args=[invoice.pk])
        assert browser.get(url).status_code == 200, name
    for name in ("tenants_tenant_suspend", "billing_billingprofile_switch_sez"):
        assert browser.get(reverse(f"admin:{name}", args=[invoice.tenant_id])).status_code == 403, name
    assert browser.get(reverse("admin:billing_planversion_add")).status_code == 403
    watcher = User.objects.create_user("look@gateway.example", "a long enough password", is_staff=True)
    watcher.groups.add(Group.objects.get(name=SUPPORT))
    page = reverse("admin:billing_invoice_einvoices")
    assert logged_in(watcher).get(page).status_code == 200
    assert logged_in(watcher).post(page).status_code == 403


def test_what_was_settled_is_beside_its_invoice(browser: Client, invoice: Invoice) -> None:
    attempt = bank_transfers.record(
        invoice_id=invoice.id, amount_paise=100, reference="U1", at=FIRST_OF_DECEMBER
    )
    PaymentAttempt.objects.filter(pk=attempt.pk).update(kind="link", provider_payment_id="pay_1")
    Refund.objects.create(
        attempt=attempt,
        amount_paise=50,
        status="processed",
        receipt="rfd_1",
        provider_refund_id="rfnd_1",
        created_at=FIRST_OF_DECEMBER,
        next_check_at=FIRST_OF_DECEMBER,
    )
    bank_transfers.record(invoice_id=invoice.id, amount_paise=100, reference="U9", at=FIRST_OF_DECEMBER)
    for entity, net in (("pay_1", 97), ("pay_unknown", 50), ("rfnd_1", -50), ("U9", 50)):
        SettledItem.objects.create(
            entity_id=entity,
            settlement_id="setl_1",
            utr="UTR7",
            type="payment",
            amount_paise=100,
            fee_paise=3,
            tax_paise=1,
            net_paise=net,
            settled_at=FIRST_OF_DECEMBER,
        )
    page = browser.get(reverse("admin:billing_settleditem_changelist")).content.decode()
    assert page.count(invoice.number) == 2, "of the payment and of its refund"
    assert "₹0.97" in page
