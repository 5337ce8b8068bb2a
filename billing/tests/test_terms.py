"""Terms by date: a new price, rate or due date affects later months, never earlier snapshots and invoices."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import buyers, einvoices, plan
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import BillingProfile, Invoice, IssuedPdf, PlanVersion
from billing.plan import Terms, charge_for
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, NOVEMBER, PROFILE, connected, ist, only_invoice
from gateway.api.errors import InvalidRequest
from tenants.models import AuditEntry, MailAttachment, Tenant, User
from tests.fixtures import Api

pytestmark = pytest.mark.django_db

DEARER: dict[str, Any] = {
    "starts": "2026-12",
    "first_number_paise": 60_000,
    "additional_number_paise": 30_000,
    "gst_percent": 28,
    "due_days": 15,
    "reason": "Prices of 2027",
}


def add(**values: Any) -> PlanVersion:
    return plan.add_version(PlanVersion(**{**DEARER, **values}), at=ist(2026, 11, 20))


@pytest.fixture
def two(payer: Tenant) -> Tenant:
    """A tenant that always has two numbers."""
    for name in "12":
        connected(payer, name, (ist(2026, 10, 3), None))
    BillingProfile.objects.filter(tenant=payer).update(**PROFILE, tax_id_type="gstin")
    return payer


def test_a_month_costs_what_its_terms_say_and_what_was_issued_stays(two: Tenant, api: Api) -> None:
    add()
    run(FIRST_OF_DECEMBER)
    november = only_invoice(two)
    assert (november.due_at - november.issued_at).days == 7
    run(ist(2027, 1, 1, 0, 15))
    november, december = Invoice.objects.order_by("id")
    assert (november.total_paise, december.total_paise) == (88_500, 115_200)
    assert (december.due_at - december.issued_at).days == 15
    shown = api.get(f"/v1/billing/invoices/{december.public_id}", Accept="application/json").json()
    version = str(PlanVersion.objects.get().pk)
    assert [(row["unit_paise"], row["gst_percent"], row["plan_version"]) for row in shown["lines"]] == [
        (60_000, 28, version),
        (30_000, 28, version),
    ]
    assert [(row["type"], row["percent"]) for row in shown["taxes"]] == [("IGST", 28)]
    page = api.get(f"/v1/billing/invoices/{november.public_id}").content.decode()
    assert "IGST at 18%" in page
    assert einvoices.of_invoice(november)["ItemList"][0]["GstRt"] == 18
    note = credit_notes.issue(invoice_id=november.pk, total_paise=11_800, reason="Outage", at=ist(2027, 1, 2))
    assert (note.taxable_paise, note.tax_paise) == (10_000, 1_800)
    replaced = issuing.replace(invoice_id=december.pk, reason="Wrong name", at=ist(2027, 1, 3))
    assert replaced.total_paise == 115_200


def test_a_snapshot_that_waited_is_issued_by_the_terms_of_its_month(two: Tenant) -> None:
    BillingProfile.objects.update(state_code="", tax_id="", tax_id_type="")
    run(FIRST_OF_DECEMBER)
    assert not Invoice.objects.exists()
    PlanVersion.objects.bulk_create(
        [PlanVersion(**{**DEARER, "starts": "2026-11"}, created_at=ist(2026, 12, 2))]
    )
    buyers.change(tenant_id=two.id, changes={"state_code": "33"})
    run(ist(2026, 12, 3))
    assert only_invoice(two).total_paise == 88_500


def test_a_tenants_own_terms_have_everybodys_rate_and_end(two: Tenant, other_tenant: Tenant) -> None:
    own = add(
        tenant=two,
        first_number_paise=40_000,
        included_numbers=5,
        gst_percent=None,
        ends="2026-12",
        due_days=30,
    )
    add()
    december, january = Period(2026, 12), Period(2027, 1)
    assert plan.terms_for(two.id, december) == Terms(40_000, 30_000, 5, 28, 30, str(own.pk))
    assert plan.terms_for(other_tenant.id, december).first_number_paise == 60_000
    assert plan.terms_for(two.id, january).first_number_paise == 60_000
    assert plan.terms_for(two.id, NOVEMBER) == Terms()
    charge = charge_for(6, plan.terms_for(two.id, december))
    assert [(line.description, line.amount_paise) for line in charge.lines] == [
        ("First 5 numbers", 40_000),
        ("Further numbers", 30_000),
    ]


def test_of_two_starts_the_later_one_counts_also_if_it_was_set_first(two: Tenant) -> None:
    add(starts="2027-01", first_number_paise=70_000)
    add()
    months = [plan.terms_for(two.id, Period(*month)) for month in ((2026, 12), (2027, 1))]
    assert [terms.first_number_paise for terms in months] == [60_000, 70_000]


def test_without_general_terms_ones_own_have_the_first_rate(two: Tenant) -> None:
    add(tenant=two, gst_percent=None, starts="2026-11", ends="2026-11")
    terms = [plan.terms_for(two.id, period) for period in (NOVEMBER.previous, NOVEMBER, NOVEMBER.next)]
    assert [(one.gst_percent, one.first_number_paise) for one in terms] == [
        (18, 50_000),
        (18, 60_000),
        (18, 50_000),
    ]


def test_of_two_versions_of_a_month_the_later_one_counts(two: Tenant) -> None:
    add()
    add(first_number_paise=70_000)
    assert plan.terms_for(two.id, Period(2026, 12)).first_number_paise == 70_000


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"starts": "2026-10"}, "starts"),
        ({"ends": "2026-11"}, "ends"),
        ({"gst_percent": None}, "gst_percent"),
        ({"gst_percent": 17}, "gst_percent"),
    ],
)
def test_wrong_terms_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        add(**values)
    assert list((refused.value.details or {})["fields"]) == [field]
    assert not PlanVersion.objects.exists()


@pytest.mark.parametrize(
    "statement", ["UPDATE billing_planversion SET due_days = 1", "DELETE FROM billing_planversion"]
)
def test_terms_are_never_changed(statement: str) -> None:
    add()
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_staff_set_terms_with_a_reason(browser: Client, staff: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.admin.profiles_and_prices.now", lambda: ist(2026, 11, 20))
    url = reverse("admin:billing_planversion_add")
    assert b"Each further number" in browser.get(url).content
    body = {**DEARER, "first_number_paise": "600.50", "additional_number_paise": "300", "included_numbers": 1}
    refused = browser.post(url, {**body, "starts": "2026-10"})
    assert b"Select a valid choice" in refused.content
    refused = browser.post(url, {**body, "gst_percent": ""})
    assert b"Terms of all tenants need a GST rate." in refused.content
    browser.post(url, body)
    made = PlanVersion.objects.get()
    assert (made.first_number_paise, made.created_by, made.tenant) == (60_050, staff.pk, None)
    assert AuditEntry.objects.get(action="billing.terms").details["reason"] == "Prices of 2027"


def test_the_issued_pdf_is_kept(two: Tenant, api: Api, settings: Settings) -> None:
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(two)
    path = f"/v1/billing/invoices/{invoice.public_id}"
    issued = api.get(path, Accept="application/pdf").content
    assert issued == bytes(MailAttachment.objects.get().content)
    credit_notes.issue(invoice_id=invoice.pk, total_paise=100, reason="Part", at=FIRST_OF_DECEMBER)
    settings.BILLING_SERVICE = "Something else"
    assert api.get(path, Accept="application/pdf").content == issued
    Invoice.objects.filter(pk=invoice.pk).update(irn="a" * 64, ack_no="1", ack_at=FIRST_OF_DECEMBER)
    registered = api.get(path, Accept="application/pdf").content
    assert registered != issued, "with its IRN it is another document"
    assert api.get(path, Accept="application/pdf").content == registered
    assert IssuedPdf.objects.count() == 2
