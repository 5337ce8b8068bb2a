"""Printed documents, corrections and kinds of buyers: PDF, annex, credit notes, replaced invoices, zones, exports."""

import json
import re
import zlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from billing import buyers, checks, einvoices, gstr1, ledger, usage
from billing.billing_run import run
from billing.invoices import credit_notes, documents, issuing
from billing.models import BillingMail, BillingProfile, CreditNote, Invoice, LedgerEntry
from billing.payments import bank_transfers, payment_links
from billing.plan import Terms, charge_for
from billing.pricing import gst
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, assert_balanced, connected, ist, only_invoice
from billing.tests.test_payments import CHARGE, deliver, set_up_mandate
from gateway.api.errors import Conflict
from gateway.clock import now
from phone_numbers.models import PhoneNumber
from tenants.models import AuditEntry, MailAttachment, OutboundMail, Tenant
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator
from tests.threads import at_once

pytestmark = pytest.mark.django_db


def invoice_of(payer: Tenant, **profile: Any) -> Invoice:
    """The November invoice for one number with this profile."""
    connected(payer, "1", (ist(2026, 11, 3, 10), ist(2026, 11, 10)), (ist(2026, 11, 20), None))
    BillingProfile.objects.filter(tenant=payer).update(**{**PROFILE, "tax_id_type": "gstin", **profile})
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


def pages(content: bytes) -> int:
    """The number of pages of a PDF."""
    plain = content + b"".join(_inflated(content))
    return len(re.findall(rb"/Type\s*/Page\b", plain))


def _inflated(content: bytes) -> list[bytes]:
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            found.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return found


def is_pdf_a(content: bytes) -> bool:
    return (
        b"<pdfaid:part>2</pdfaid:part>" in content
        and b"<pdfaid:conformance>B</pdfaid:conformance>" in content
    )


@pytest.mark.usefixtures("_typeset")
def test_the_pdf_is_one_archivable_page_and_goes_with_the_mail(api: Api, payer: Tenant) -> None:
    invoice = invoice_of(payer)
    path = f"/v1/billing/invoices/{invoice.public_id}"
    answered = api.get(path, Accept="application/pdf")
    assert answered["Content-Type"] == "application/pdf"
    assert "WG-2627-000001.pdf" in answered["Content-Disposition"]
    assert is_pdf_a(answered.content)
    assert pages(answered.content) == 1
    assert b"NotoSans" in answered.content + b"".join(_inflated(answered.content))
    attached = MailAttachment.objects.get()
    assert (attached.name, bytes(attached.content)) == ("WG-2627-000001.pdf", answered.content)
    assert attached.mail == OutboundMail.objects.get(to="bills@shop.example")
    run(FIRST_OF_DECEMBER + timedelta(hours=1))
    assert BillingMail.objects.count() == MailAttachment.objects.count() == 1


@pytest.mark.usefixtures("_typeset")
def test_fifty_numbers_continue_on_more_pages(payer: Tenant) -> None:
    for name in range(60):
        connected(payer, f"{name:03d}", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert 2 <= pages(documents.render_pdf(documents.of_invoice(only_invoice(payer)))) <= 3


@pytest.mark.usefixtures("_typeset")
def test_any_name_can_be_printed_and_every_script_has_its_font(payer: Tenant) -> None:
    fields = documents.of_invoice(invoice_of(payer))
    for name, font in {
        "आशा ट्रेडर्स": "NotoSansDevanagari",
        "தமிழ் நிறுவனம்": "NotoSansTamil",
        "中文 😀 \u0007 Ltd": "NotoSansCJK",
        "#panic() $x$ \\ <b> @a *b* `c`": "NotoSans",
        "x" * 200: "NotoSans",
        'a"b\\u0022': "NotoSans",
        "株式会社": "NotoSansCJK",
        "شركة": "NotoSansArabic",
        "Ελλάς Привет": "NotoSans",
        "בע״מ": "NotoSansHebrew",
        "บริษัท": "NotoSansThai",
    }.items():
        made = documents.render_pdf({**fields, "buyer": [name]})
        assert is_pdf_a(made), name
        assert font.encode() in made + b"".join(_inflated(made)), name


@pytest.mark.usefixtures("_typeset")
def test_what_no_font_has_is_named_by_its_code_point(payer: Tenant) -> None:
    fields = documents.of_invoice(invoice_of(payer))
    unknown, named = (
        {**fields, "buyer": [name]} for name in ("Tibet བོ\u0007 株", "Tibet U+0F56U+0F7CU+0007 株")
    )
    assert documents.render_pdf(unknown) == documents.render_pdf(named)


@pytest.mark.parametrize("contact", ["", "accounts@seller.example"])
def test_an_invoice_says_who_sells(payer: Tenant, settings: Settings, contact: str) -> None:
    settings.BILLING_SELLER_CONTACT = contact
    name, address, *_ = shown = documents.of_invoice(invoice_of(payer))["seller"]
    assert (name, address) == (settings.BILLING_SELLER_NAME, settings.BILLING_SELLER_ADDRESS)
    assert any(line.startswith(f"GSTIN {settings.BILLING_SELLER_GSTIN}") for line in shown)
    assert (shown[-1] == contact) is bool(contact)


@pytest.mark.usefixtures("_typeset")
def test_the_sellers_logo_is_on_page_and_paper(
    payer: Tenant, settings: Settings, tmp_path: Path, api: Api
) -> None:
    plain = documents.render_pdf(documents.of_invoice(invoice_of(payer)))
    logo = tmp_path / "logo.svg"
    logo.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><rect width="9" height="9"/></svg>'
    )
    settings.BILLING_LOGO_FILE = str(logo)
    assert checks.check_values() == []
    shown = api.get(f"/v1/billing/invoices/{only_invoice(payer).public_id}", Accept="text/html")
    assert b'src="data:image/svg+xml;base64,' in shown.content
    assert "img-src data:;" in shown["Content-Security-Policy"]
    with_logo = documents.render_pdf(documents.of_invoice(only_invoice(payer)))
    assert is_pdf_a(with_logo)
    assert len(with_logo) > len(plain)
    for wrong in ("no picture", "<svg>"):
        logo.write_text(wrong)
        assert [problem.id for problem in checks.check_values()] == ["billing.E006"]
    settings.BILLING_LOGO_FILE = str(tmp_path / "gone.svg")
    assert [problem.id for problem in checks.check_values()] == ["billing.E006"]


def test_a_buyer_abroad_has_the_tax_number_of_its_country(api: Api, payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    buyers.change(tenant_id=payer.id, changes={"country": "DE"}, evidence="Register, file 7")
    bad = api.patch("/v1/billing/profile", {"tax_id": "DE 1\u202e23"})
    assert_error(bad, 400, "invalid_request")
    changed = api.patch("/v1/billing/profile", {"tax_id": " DE  136695976 "}).json()
    assert (changed["tax_id"], changed["tax_id_type"]) == ("DE 136695976", "foreign")
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    buyer = invoice.buyer
    assert (buyer["foreign_tax_id"], buyer["gstin"], buyer["pan"]) == ("DE 136695976", None, None)
    assert "Tax number DE 136695976" in documents.of_invoice(invoice)["buyer"]
    assert einvoices.of_invoice(invoice)["BuyerDtls"]["Gstin"] == "URP"


def test_a_gstin_that_was_kept_is_not_on_an_export(payer: Tenant) -> None:
    buyer = invoice_of(payer, country="US").buyer
    assert (buyer["gstin"], buyer["pan"], buyer["foreign_tax_id"]) == (None, None, None)


def test_a_number_without_a_display_name_is_printed_with_its_id(payer: Tenant) -> None:
    number = connected(payer, "1", (ist(2026, 11, 3), None))
    PhoneNumber.objects.update(display_phone_number="")
    usage.take_snapshots(FIRST_OF_DECEMBER)
    issuing.issue_due(FIRST_OF_DECEMBER)
    printed = documents.of_invoice(only_invoice(payer))["annex"]
    assert [row["number"] for row in printed] == [number.phone_number_id]


def test_the_numbers_billed_are_on_it_with_their_intervals(api: Api, payer: Tenant) -> None:
    invoice = invoice_of(payer)
    shown = api.get(f"/v1/billing/invoices/{invoice.public_id}", Accept="application/json").json()["numbers"]
    assert [number["intervals"] for number in shown] == [
        [
            {"from": "2026-11-03T04:30:00.000Z", "to": "2026-11-09T18:30:00.000Z"},
            {"from": "2026-11-19T18:30:00.000Z", "to": "2026-11-30T18:30:00.000Z"},
        ]
    ]
    page = api.get(f"/v1/billing/invoices/{invoice.public_id}").content.decode()
    assert "3 Nov 2026 10:00 to 10 Nov 2026 00:00; 20 Nov 2026 00:00 to 1 Dec 2026 00:00" in page


class TestState:
    def test_it_is_issued_once_the_state_is_known(self, payer: Tenant) -> None:
        connected(payer, "1", (ist(2026, 11, 3), None))
        BillingProfile.objects.update(state_code="", tax_id="", tax_id_type="")
        run(FIRST_OF_DECEMBER)
        buyers.change(tenant_id=payer.id, changes={"state_code": "33"})
        run(ist(2026, 12, 3))
        assert only_invoice(payer).place_of_supply == "33-Tamil Nadu"

    def test_a_registered_buyers_invoice_waits_for_its_address(self, payer: Tenant) -> None:
        connected(payer, "1", (ist(2026, 11, 3), None))
        BillingProfile.objects.update(tax_id=PROFILE["tax_id"], tax_id_type="gstin")
        run(FIRST_OF_DECEMBER)
        assert not Invoice.objects.exists()
        buyers.change(tenant_id=payer.id, changes={"address": "12 Residency Road", "city": "Bengaluru"})
        run(ist(2026, 12, 3))
        assert only_invoice(payer).buyer["address"] == "12 Residency Road, Bengaluru"

    def test_a_registered_invoice_waits_for_the_pin(self, payer: Tenant, settings: Settings) -> None:
        profile = BillingProfile(tenant=payer, **{**PROFILE, "tax_id_type": "gstin", "pin": ""})
        assert not buyers.holds_back(profile)
        settings.BILLING_EINVOICES = True
        assert buyers.holds_back(profile)

    @pytest.mark.parametrize(
        ("profile", "waits"),
        [
            ({}, False),
            ({"address": ""}, True),
            ({"city": ""}, True),
            ({"state_code": "", "pin": "", "phone": "", "legal_name": ""}, False),
            ({"tax_id": "AAACI1681G", "tax_id_type": "pan", "state_code": ""}, True),
            ({"tax_id": "AAACI1681G", "tax_id_type": "pan", "address": "", "city": ""}, False),
            ({"tax_id": "", "tax_id_type": "", "state_code": "", "address": "", "country": "DE"}, False),
        ],
    )
    def test_which_missing_details_hold_an_invoice_back(
        self, payer: Tenant, profile: dict[str, str], waits: bool
    ) -> None:
        connected(payer, "1", (ist(2026, 11, 3), None))
        BillingProfile.objects.filter(tenant=payer).update(**{**PROFILE, "tax_id_type": "gstin", **profile})
        usage.take_snapshots(FIRST_OF_DECEMBER)
        assert issuing.issue_due(FIRST_OF_DECEMBER) == (not waits)
        if profile.get("legal_name") == "":
            buyer = only_invoice(payer).buyer
            assert (buyer["name"], buyer["state"], buyer["state_code"]) == (payer.name, "Karnataka", "29")


class TestKindsOfBuyers:
    def test_a_special_zone_carries_its_endorsement(self, payer: Tenant) -> None:
        invoice = invoice_of(payer, is_sez=True)
        assert (invoice.igst_paise, invoice.total_paise) == (9_000, 59_000)
        assert invoice.endorsement.startswith(
            "Supply to SEZ unit or SEZ developer for authorised operations on pay"
        )

    def test_under_an_undertaking_there_is_no_tax(self, payer: Tenant, settings: Settings) -> None:
        settings.BILLING_LUT_NUMBERS = {"2627": "AD270326000001X"}
        invoice = invoice_of(payer, is_sez=True)
        assert (invoice.taxes.total_paise, invoice.total_paise) == (0, 50_000)
        assert (
            "letter of undertaking AD270326000001X without payment of integrated tax" in invoice.endorsement
        )
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=10_000, reason="Part", at=FIRST_OF_DECEMBER
        )
        assert (note.taxable_paise, note.tax_paise, note.is_commercial) == (10_000, 0, False)
        late = credit_notes.issue(
            invoice_id=invoice.id, total_paise=10_000, reason="Part", at=ist(2027, 12, 1)
        )
        assert late.is_commercial, "it is in no return either"

    def test_an_undertaking_is_of_the_financial_year(self, payer: Tenant, settings: Settings) -> None:
        settings.BILLING_LUT_NUMBERS = {"2627": "AD2627", "2728": "AD2728"}
        connected(payer, "1", (ist(2026, 11, 3), None))
        BillingProfile.objects.filter(tenant=payer).update(**PROFILE, country="SG")
        for month in (3, 4):
            at = ist(2027, month, 1, 0, 15)
            assert (usage.take_snapshots(at), issuing.issue_due(at)) == (1, 1)
        of_march, of_april = Invoice.objects.order_by("id")
        assert "undertaking AD2627 without" in of_march.endorsement
        assert "undertaking AD2728 without" in of_april.endorsement
        assert documents.of_invoice(of_april)["endorsement"] == of_april.endorsement

    def test_a_union_territory_without_legislature(self, payer: Tenant, settings: Settings) -> None:
        settings.BILLING_SELLER_GSTIN = "04AAPFU0939F1Z3"
        invoice = invoice_of(payer, tax_id="", tax_id_type="", state_code="04")
        assert [(row.type, row.amount_paise) for row in invoice.taxes.rows()] == [
            ("CGST", 4_500),
            ("UTGST", 4_500),
        ]

    def test_a_buyer_abroad_is_an_export_and_pays_by_link(
        self, api: Api, payer: Tenant, provider: RunningSimulator
    ) -> None:
        changes = {
            "country": "DE",
            "legal_name": "Muster GmbH",
            "address": "Weg 1",
            "city": "Ulm",
            "phone": "+4973112345",
        }
        refused = assert_error(api.patch("/v1/billing/profile", changes), 400, "invalid_request")
        assert list(refused["details"]["fields"]) == ["country"]
        buyers.change(tenant_id=payer.id, changes={"country": "DE"}, evidence="Register of Ulm")
        shown = api.patch("/v1/billing/profile", changes).json()
        assert (shown["country"], shown["complete"]) == ("DE", True)
        assert_error(api.post("/v1/billing/mandate", {"method": "card"}), 400, "invalid_request")
        connected(payer, "1", (ist(2026, 11, 3), None))
        run(FIRST_OF_DECEMBER)
        invoice = only_invoice(payer)
        assert (invoice.place_of_supply, invoice.supply_type) == ("96-Other Country", "export")
        assert invoice.endorsement == "Supply meant for export on payment of integrated tax"
        assert payment_links.pay_now(invoice=invoice, at=CHARGE).payment_url
        for unknown in ("Germany", "XX", "IN"):
            assert_error(api.patch("/v1/billing/profile", {"country": unknown}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("profile", "printed"),
    [
        (
            {},
            [
                "Asha Traders Private Limited",
                "12 Residency Road, Bengaluru 560025",
                "Karnataka (29)",
                "GSTIN 29AAACI1681G1ZL",
            ],
        ),
        (
            {"legal_name": "", "pin": ""},
            ["Asha Traders", "12 Residency Road, Bengaluru", "Karnataka (29)", "GSTIN 29AAACI1681G1ZL"],
        ),
        (
            {"tax_id": "AAACI1681G", "tax_id_type": "pan", "city": ""},
            [
                "Asha Traders Private Limited",
                "12 Residency Road, 560025",
                "Karnataka (29)",
                "PAN AAACI1681G (not registered)",
            ],
        ),
        (
            {"tax_id": "", "tax_id_type": "", "address": "", "city": "", "pin": ""},
            ["Asha Traders Private Limited", "Karnataka (29)", "Not registered"],
        ),
        (
            {"tax_id": "DE 1", "tax_id_type": "foreign", "country": "DE"},
            [
                "Asha Traders Private Limited",
                "12 Residency Road, Bengaluru 560025",
                "Germany",
                "Tax number DE 1",
            ],
        ),
        (
            {"country": "DE"},
            ["Asha Traders Private Limited", "12 Residency Road, Bengaluru 560025", "Germany"],
        ),
    ],
)
def test_a_buyer_is_printed_as_it_is_registered(
    payer: Tenant, profile: dict[str, str], printed: list[str]
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.filter(tenant=payer).update(**{**PROFILE, "tax_id_type": "gstin", **profile})
    usage.take_snapshots(FIRST_OF_DECEMBER)
    issuing.issue_due(FIRST_OF_DECEMBER)
    assert documents.of_invoice(only_invoice(payer))["buyer"] == printed


@pytest.mark.parametrize(
    ("bank", "upi", "ways"),
    [
        ("", "", None),
        ("Bank 1", "", ["To be paid", "Bank transfer", "Reference"]),
        ("", "seller@bank", ["To be paid", "UPI", "Reference"]),
    ],
)
def test_an_invoice_names_the_ways_to_pay_that_its_seller_has(
    payer: Tenant, settings: Settings, bank: str, upi: str, ways: list[str] | None
) -> None:
    settings.BILLING_BANK_ACCOUNT, settings.BILLING_UPI_ID = bank, upi
    connected(payer, "1", (ist(2026, 11, 3), None))
    usage.take_snapshots(FIRST_OF_DECEMBER)
    issuing.issue_due(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    shown = documents.of_invoice(invoice)["payment"]
    assert (shown and [name for name, _ in shown["rows"]]) == ways
    assert bool(shown and shown["qr"]) == bool(upi)
    invoice.amount_paid_paise = 59_000 - 99
    assert documents.of_invoice(invoice)["payment"] is None, "less than a rupee is not asked for"


def test_an_invoice_shows_what_was_paid_deducted_and_credited_but_not_as_issued(invoice: Invoice) -> None:
    assert documents.of_invoice(invoice)["settled"] == []
    bank_transfers.record_tds(invoice_id=invoice.id, amount_paise=5_000, certificate="", at=CHARGE)
    bank_transfers.record(invoice_id=invoice.id, amount_paise=20_000, reference="U1", at=CHARGE)
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="Outage", at=CHARGE)
    invoice.refresh_from_db()
    shown, issued = documents.of_invoice(invoice), documents.of_invoice(invoice, as_issued=True)
    assert shown["settled"] == [
        ("Paid", "₹200.00"),
        ("Tax deducted at source", "₹40.00"),
        ("Credited", "₹118.00"),
        ("Due", "₹232.00"),
    ]
    assert shown["notes"] == [f"Credit note {note.number} of ₹118.00: Outage"]
    assert (issued["settled"], issued["notes"], issued["badge"]) == ([], [], "")


@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        ("open", "To be paid", "Overdue since 8 Dec 2026"),
        ("failed", "Payment failed", "Overdue since 8 Dec 2026"),
        ("processing", "Payment under way", "Payment under way"),
        ("void", "Cancelled", "Cancelled"),
        ("paid", "Paid on 3 Dec 2026", "Paid on 3 Dec 2026"),
    ],
)
def test_an_invoice_says_how_it_stands(invoice: Invoice, status: str, before: str, after: str) -> None:
    invoice.status, invoice.paid_at = status, ist(2026, 12, 3)
    moments = (invoice.due_at - timedelta(microseconds=1), invoice.due_at)
    assert [documents.payment_state(invoice, at).text for at in moments] == [before, after]


class TestCreditNotes:
    @pytest.mark.usefixtures("_typeset")
    def test_it_is_printed_mailed_and_the_tenants_own(self, api: Api, other_api: Api, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=9_000, reason="Outage", at=FIRST_OF_DECEMBER
        )
        run(FIRST_OF_DECEMBER + timedelta(minutes=10))
        answered = api.get(f"/v1/billing/credit-notes/{note.public_id}")
        assert is_pdf_a(answered.content)
        assert pages(answered.content) == 1
        assert MailAttachment.objects.filter(name="WGCN-2627-000001.pdf").count() == 1
        assert_error(other_api.get(f"/v1/billing/credit-notes/{note.public_id}"), 404, "not_found")
        assert_error(api.get("/v1/billing/credit-notes/crn_x"), 404, "not_found")
        shown = documents.of_credit_note(note)
        assert dict(shown["facts"])["Corrects invoice"] == "WG/2627/000001"
        assert [line["cells"] for line in shown["lines"]] == [["998315", "₹76.27"]]

    def test_notes_of_all_of_an_invoice_have_all_of_its_tax(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        for paise in (3, 3, 3, invoice.total_paise - 9):
            credit_notes.issue(invoice_id=invoice.id, total_paise=paise, reason="x", at=FIRST_OF_DECEMBER)
        credited = CreditNote.objects.aggregate(taxable=Sum("taxable_paise"), tax=Sum("tax_paise"))
        assert credited == {"taxable": invoice.subtotal_paise, "tax": invoice.taxes.total_paise}

    def test_within_a_state_both_halves_of_the_credited_tax_are_equal(self, payer: Tenant) -> None:
        invoice = invoice_of(payer, tax_id="27AAPFU0939F1ZV", state_code="27")
        note = credit_notes.issue(invoice_id=invoice.id, total_paise=1_001, reason="x", at=FIRST_OF_DECEMBER)
        taxes = note.taxes
        assert (note.tax_paise, taxes.cgst_paise, taxes.sgst_paise, taxes.igst_paise) == (152, 76, 76, 0)

    def test_what_was_credited_in_full_is_not_replaced(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        credit_notes.issue(invoice_id=invoice.id, total_paise=59_000, reason="All", at=FIRST_OF_DECEMBER)
        with pytest.raises(Conflict, match="already replaced or credited"):
            issuing.replace(invoice_id=invoice.id, reason="Wrong", at=ist(2026, 12, 3))
        assert (Invoice.objects.count(), CreditNote.objects.count()) == (1, 1)

    def test_a_registration_is_cancelled_only_while_nothing_is_credited(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        Invoice.objects.update(irn="1" * 64, ack_no="1", ack_at=FIRST_OF_DECEMBER)
        credit_notes.issue(invoice_id=invoice.id, total_paise=100, reason="Part", at=FIRST_OF_DECEMBER)
        with pytest.raises(Conflict, match="with nothing credited"):
            credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=FIRST_OF_DECEMBER)
        assert only_invoice(payer).irn_cancelled_at is None

    def test_a_part_is_one_line_also_when_it_credits_the_rest(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        for paise in (11_800, 47_200):
            note = credit_notes.issue(
                invoice_id=invoice.id, total_paise=paise, reason="x", at=FIRST_OF_DECEMBER
            )
            [line] = note.lines.all()
            assert (line.description, line.sac) == ("Part of the monthly price", "998315")
            assert line.amount_paise == note.taxable_paise == paise * 100 // 118

    def test_a_full_credit_has_the_invoices_lines(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=59_000, reason="All", at=FIRST_OF_DECEMBER
        )
        assert [line.description for line in note.lines.all()] == ["First number"]


@given(
    st.integers(1, 400),
    st.booleans(),
    st.lists(st.integers(1, 10_000_000), max_size=8),
)
def test_credits_of_any_size_add_up_with_equal_halves(numbers: int, intra: bool, wanted: list[int]) -> None:
    charge = charge_for(numbers, Terms())
    taxable, tax = charge.subtotal_paise, charge.tax_paise
    for total in [*wanted, None]:
        left = taxable + tax
        amount = left if total is None else min(total, left)
        if amount == 0:
            break
        credited = gst.credited_tax(
            total_paise=amount, taxable_left=taxable, taxes_left=tax, intra_state=intra, percent=18
        )
        assert 0 <= credited <= tax
        assert 0 <= amount - credited <= taxable
        assert credited % (2 if intra else 1) == 0
        taxable, tax = taxable - (amount - credited), tax - credited
    assert (taxable, tax) == (0, 0)


def test_a_credit_note_after_the_time_of_the_law_carries_no_tax(payer: Tenant) -> None:
    """CGST Act section 34(2): a credit note lowers tax until 30 November after the invoice's financial year."""
    invoice = invoice_of(payer)
    in_time, late = ist(2027, 11, 30, 23, 59), ist(2027, 12, 1)
    notes = [
        credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="Outage", at=at)
        for at in (in_time, late)
    ]
    assert [(note.taxable_paise, note.tax_paise) for note in notes] == [(10_000, 1_800), (11_800, 0)]
    assert "section 34(2)" in documents.of_credit_note(notes[1])["notes"][0]
    assert [note.is_commercial for note in notes] == [False, True]
    november, december = (gstr1.of(Period(2027, month)) for month in (11, 12))
    assert november["hsn"]["hsn_b2b"][0]["txval"] == -100
    assert december.keys() == {"gstin", "fp", "version", "hash", "doc_issue"}, (
        "in no table but that of documents"
    )


@pytest.mark.parametrize(
    ("issued", "last"), [(ist(2027, 3, 1), ist(2027, 12, 1)), (ist(2027, 4, 1), ist(2028, 12, 1))]
)
def test_the_time_of_the_law_is_counted_from_the_financial_year(
    payer: Tenant, issued: datetime, last: datetime
) -> None:
    """An invoice of March is in the year that ends with March, one of 1 April in the next year."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    at = issued + timedelta(minutes=15)
    assert (usage.take_snapshots(at), issuing.issue_due(at)) == (1, 1)
    invoice = only_invoice(payer)
    notes = [
        credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="x" * 500, at=at)
        for at in (last - timedelta(microseconds=1), last)
    ]
    assert [note.tax_paise for note in notes] == [180, 0]
    assert [note.is_commercial for note in CreditNote.objects.order_by("id")] == [False, True]


class TestReplacing:
    def test_an_unpaid_invoice_is_replaced(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        buyers.change(tenant_id=payer.id, changes={"legal_name": "Asha Global", "tax_id": "27AAPFU0939F1ZV"})
        new = issuing.replace(
            invoice_id=invoice.id, reason="Wrong buyer", at=ist(2026, 12, 3), actor_user_id=7
        )
        invoice.refresh_from_db()
        assert (invoice.status, invoice.amount_due_paise, CreditNote.objects.get().total_paise) == (
            "void",
            0,
            59_000,
        )
        assert (new.number, new.period, new.replaces_id) == ("WG/2627/000002", "2026-11", invoice.id)
        assert (new.buyer["name"], new.supply_type, new.amount_due_paise) == (
            "Asha Global",
            "intra_state",
            59_000,
        )
        assert ("Replaces", f"{invoice.number} of 1 Dec 2026") in documents.of_invoice(new)["facts"]
        assert AuditEntry.objects.get(action="billing.replace").actor_user_id == 7
        with pytest.raises(Conflict):
            issuing.replace(invoice_id=invoice.id, reason="Again", at=ist(2026, 12, 3))
        run(ist(2026, 12, 3, 10))
        assert Invoice.objects.count() == 2

    def test_what_was_paid_counts_for_the_new_one_and_a_refund_is_missing_there(
        self, provider: RunningSimulator, payer: Tenant
    ) -> None:
        invoice = invoice_of(payer)
        set_up_mandate(provider, payer)
        run(CHARGE)
        provider.control("POST", "clock/advance", {"hours": 26})
        seen = deliver(provider, ist(2026, 12, 2, 11))
        new = issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=ist(2026, 12, 3))
        invoice.refresh_from_db()
        assert (new.status, new.amount_paid_paise, invoice.status) == ("paid", 59_000, "void")
        attempt = invoice.attempts.get()
        provider.control("POST", "refund", {"payment_id": attempt.provider_payment_id, "amount": 9_000})
        deliver(provider, ist(2026, 12, 5), since=seen)
        new.refresh_from_db()
        invoice.refresh_from_db()
        assert (new.status, new.amount_due_paise) == ("open", 9_000)
        assert (invoice.status, invoice.amount_paid_paise, invoice.amount_due_paise) == ("void", 0, 0)
        assert ledger.balance_paise(payer.id) == 0

    @pytest.mark.parametrize(
        ("at", "old_without_tax", "new_without_tax", "is_refused"),
        [
            (ist(2027, 11, 30, 23, 59), False, False, False),
            (ist(2027, 12, 1), False, False, True),
            (ist(2027, 12, 1), True, False, False),
            (ist(2027, 12, 1), False, True, False),
        ],
        ids=["in time", "late", "late, nothing to lower", "late, nothing is added"],
    )
    def test_no_replacement_makes_the_seller_owe_the_tax_of_a_month_twice(
        self,
        payer: Tenant,
        settings: Settings,
        at: datetime,
        old_without_tax: bool,
        new_without_tax: bool,
        is_refused: bool,
    ) -> None:
        settings.BILLING_LUT_NUMBERS = {"2627": "AD2627", "2728": "AD2728"}
        invoice = invoice_of(payer, is_sez=old_without_tax)
        BillingProfile.objects.update(is_sez=new_without_tax)
        if is_refused:
            with pytest.raises(Conflict, match="GST again"):
                issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=at)
            assert (Invoice.objects.count(), CreditNote.objects.count()) == (1, 0)
            invoice.refresh_from_db()
            assert (invoice.status, invoice.amount_due_paise) == ("open", 59_000)
        else:
            new = issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=at)
            owed = invoice.taxes.total_paise - CreditNote.objects.get().tax_paise + new.taxes.total_paise
            assert owed == 9_000
        assert_balanced()

    @pytest.mark.django_db(transaction=True)
    def test_a_double_click_replaces_once(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        bank_transfers.record(invoice_id=invoice.id, amount_paise=59_000, reference="U1", at=CHARGE)
        errors = at_once(
            *[lambda: issuing.replace(invoice_id=invoice.id, reason="Wrong", at=ist(2026, 12, 3))] * 3
        )
        assert [type(error) for error in errors] == [Conflict, Conflict]
        assert (Invoice.objects.count(), CreditNote.objects.count()) == (2, 1)
        assert LedgerEntry.objects.filter(act="set_off").count() == 1

    def test_a_goodwill_credit_beyond_the_new_invoice_pays_all_of_it(
        self, payer: Tenant, settings: Settings
    ) -> None:
        settings.BILLING_LUT_NUMBERS = {"2627": "AD2627"}
        invoice = invoice_of(payer)
        credit_notes.issue(invoice_id=invoice.id, total_paise=58_000, reason="Goodwill", at=CHARGE)
        BillingProfile.objects.update(is_sez=True)
        new = issuing.replace(invoice_id=invoice.id, reason="Zone", at=ist(2026, 12, 3))
        assert (new.total_paise, new.credited_paise, new.status) == (50_000, 50_000, "void")

    def test_a_goodwill_credit_survives_a_replacement(self, payer: Tenant) -> None:
        invoice = invoice_of(payer)
        bank_transfers.record(invoice_id=invoice.id, amount_paise=59_000, reference="U1", at=CHARGE)
        credit_notes.issue(invoice_id=invoice.id, total_paise=29_501, reason="Goodwill", at=CHARGE)
        assert ledger.balance_paise(payer.id) == 29_501
        new = issuing.replace(invoice_id=invoice.id, reason="Wrong name", at=ist(2026, 12, 3))
        assert (new.status, new.credited_paise, new.amount_due_paise) == ("paid", 29_501, 0)
        assert ledger.balance_paise(payer.id) == 29_501, "it is the customer's still"
        assert sum(note.tax_paise for note in new.credit_notes.all()) == 4_500


@pytest.mark.usefixtures("within_half_an_hour")
def test_the_preview_is_the_next_invoice_to_the_paisa(api: Api, payer: Tenant, settings: Settings) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    period = Period.of(now())
    for name in ("1", "2", "3"):
        connected(payer, name, (period.start, None))
    shown = api.get("/v1/billing").json()["next_charge"]
    settings.BILLING_FIRST_PERIOD = str(period)
    run(period.end + timedelta(minutes=15))
    issued = api.get(
        f"/v1/billing/invoices/{only_invoice(payer).public_id}", Accept="application/json"
    ).json()
    assert shown["period"] == issued["period"]
    assert shown["taxes"] == issued["taxes"]
    assert (shown["subtotal_paise"], shown["total_paise"]) == (
        issued["subtotal_paise"],
        issued["total_paise"],
    )
    wanted = [{key: line[key] for key in shown["lines"][0]} for line in issued["lines"]]
    assert shown["lines"] == wanted
    assert json.dumps(shown["invoice_on"]) == json.dumps(str((period.end + timedelta(hours=6)).date()))
