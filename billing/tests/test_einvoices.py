"""E-invoices: the documents in the portal's schema, its answers, and mails that wait for them."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from billing import einvoices, mails, plan
from billing.billing_run import run
from billing.einvoices import UnreadableAnswer, parsed, record
from billing.invoices import credit_notes, documents
from billing.models import BillingMail, CreditNote, PlanVersion
from billing.tests.conftest import FIRST_OF_DECEMBER, connected, ist
from billing.tests.test_documents import invoice_of
from tenants.models import AuditEntry, OutboundMail, Tenant

pytestmark = pytest.mark.django_db

IRN = "a5c12dca80e743321740b001fd70953e8738d109865d28ba4013750f2046f229"


def answer(number: str, irn: str = IRN, **more: Any) -> dict[str, Any]:
    """The portal's answer for a document."""
    data = json.dumps({"DocNo": number, "Irn": irn})
    claims = base64.urlsafe_b64encode(json.dumps({"data": data, "iss": "NIC"}).encode()).decode().rstrip("=")
    return {
        "Irn": irn,
        "AckNo": 112010036563310,
        "AckDt": "2026-12-01 10:51:00",
        "SignedQRCode": f"eyJhbGciOiJSUzI1NiJ9.{claims}.c2ln",
        "Status": "ACT",
        **more,
    }


def test_the_documents_have_the_portals_schema_and_add_up(payer: Tenant) -> None:
    invoice = invoice_of(payer)
    later = ist(2026, 12, 5)
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=10_001, reason="part", at=later)
    record(parsed(answer(invoice.number)))
    [credit] = list(einvoices.unregistered())
    assert credit["DocDtls"] == {"Typ": "CRN", "No": note.number, "Dt": "05/12/2026"}
    assert credit["RefDtls"]["PrecDocDtls"] == [{"InvNo": invoice.number, "InvDt": "01/12/2026"}]
    for document, total in ((credit, 100.01), (einvoices.of_invoice(invoice), 590.0)):
        values, items = document["ValDtls"], document["ItemList"]
        assert values["TotInvVal"] == total
        for name in ("Igst", "Cgst", "Sgst"):
            assert round(sum(item[f"{name}Amt"] for item in items), 2) == values[f"{name}Val"]
        assert round(sum(item["TotItemVal"] for item in items), 2) == total
        assert document["TranDtls"]["SupTyp"] == "B2B"
        assert document["BuyerDtls"]["Pin"] == 560025
        assert document["BuyerDtls"]["Loc"] == "Bengaluru"
        assert (document["SellerDtls"]["Stcd"], document["BuyerDtls"]["Pos"]) == ("27", "29")


@pytest.mark.parametrize(
    ("profile", "lut", "kind"),
    [
        ({"is_sez": True}, "", "SEZWP"),
        ({"is_sez": True}, "AD27", "SEZWOP"),
        ({"country": "SG", "tax_id": "", "tax_id_type": "", "state_code": ""}, "AD27", "EXPWOP"),
        ({"tax_id": "AAACI1681G", "tax_id_type": "pan"}, "", None),
    ],
)
def test_zones_exports_and_consumers(
    payer: Tenant, settings: Settings, profile: dict[str, Any], lut: str, kind: str | None
) -> None:
    settings.BILLING_LUT_NUMBERS = {"2627": lut}
    invoice = invoice_of(payer, **profile)
    assert invoice.snapshot.total_paise == invoice.total_paise
    assert [found["TranDtls"]["SupTyp"] for found in einvoices.unregistered()] == ([kind] if kind else [])


def test_each_line_has_its_share_of_the_tax_and_the_last_one_the_rest(payer: Tenant) -> None:
    prices = {"first_number_paise": 33_333, "additional_number_paise": 10_001}
    terms = PlanVersion(tenant=payer, gst_percent=None, starts="2026-11", reason="x", **prices)
    plan.add_version(terms, at=ist(2026, 10, 20))
    for name in ("2", "3"):
        connected(payer, name, (ist(2026, 11, 3), None))
    items = einvoices.of_invoice(invoice_of(payer))["ItemList"]
    names = ("SlNo", "PrdDesc", "Qty", "UnitPrice", "TotAmt", "IgstAmt", "TotItemVal")
    assert [tuple(item[name] for name in names) for item in items] == [
        ("1", "First number", 1, 333.33, 333.33, 59.99, 393.32),
        ("2", "Further numbers", 2, 100.01, 200.02, 36.01, 236.03),
    ]


@pytest.mark.parametrize(
    ("profile", "buyer"),
    [
        ({}, ("29AAACI1681G1ZL", "29", "Bengaluru", 560025, "29")),
        (
            {"city": "x" * 60, "pin": "", "address": "1 Road 560001"},
            ("29AAACI1681G1ZL", "29", "x" * 50, 560001, "29"),
        ),
        ({"country": "SG", "pin": ""}, ("URP", "96", "Bengaluru", 999999, "96")),
        (
            {"country": "SG", "tax_id": "", "tax_id_type": "", "city": "", "address": "", "pin": ""},
            ("URP", "96", "SG", 999999, "96"),
        ),
    ],
)
def test_the_buyer_has_the_portals_codes(
    payer: Tenant, profile: dict[str, str], buyer: tuple[object, ...]
) -> None:
    details = einvoices.of_invoice(invoice_of(payer, legal_name="n" * 120, **profile))["BuyerDtls"]
    assert tuple(details[name] for name in ("Gstin", "Pos", "Loc", "Pin", "Stcd")) == buyer
    assert details["LglNm"] == "n" * 100
    address = profile.get("address", "12 Residency Road")
    assert details["Addr1"].startswith(address or details["LglNm"]), "the portal requires an address"


@pytest.mark.parametrize(("lut", "rate", "tax"), [("", 18, 90.0), ("AD27", 0, 0.0)])
def test_an_export_without_tax_has_the_rate_zero(
    payer: Tenant, settings: Settings, lut: str, rate: int, tax: float
) -> None:
    settings.BILLING_LUT_NUMBERS = {"2627": lut}
    [item] = einvoices.of_invoice(invoice_of(payer, country="SG"))["ItemList"]
    assert (item["GstRt"], item["IgstAmt"], item["TotItemVal"]) == (rate, tax, 500 + tax)


def test_what_is_in_no_return_is_not_registered(payer: Tenant) -> None:
    invoice = invoice_of(payer)
    record(parsed(answer(invoice.number)))
    late = ist(2027, 12, 1)
    credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="Too late for the tax", at=late)
    assert list(einvoices.unregistered()) == []


def test_a_note_that_cancels_a_registration_is_not_registered(payer: Tenant) -> None:
    invoice = invoice_of(payer)
    record(parsed(answer(invoice.number)))
    credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=ist(2026, 12, 1, 10, 51))
    assert list(einvoices.unregistered()) == []


@pytest.mark.usefixtures("_typeset")
def test_an_answer_is_written_once_and_shown(payer: Tenant) -> None:
    invoice = invoice_of(payer)
    assert record(parsed(answer(invoice.number))) is True
    assert record(parsed(answer(invoice.number))) is False
    invoice.refresh_from_db()
    assert (invoice.irn, invoice.ack_no) == (IRN, "112010036563310")
    shown = documents.of_invoice(invoice)
    assert ("IRN", IRN) in shown["facts"]
    assert shown["qr"].startswith("<svg")
    assert shown["qr"] in documents.html(invoice)
    assert documents.pdf(invoice).startswith(b"%PDF-1"), "it is typeset with its IRN"
    assert AuditEntry.objects.filter(action="billing.einvoice").count() == 1
    with pytest.raises(UnreadableAnswer, match="another IRN"):
        record(parsed(answer(invoice.number, irn="b" * 64)))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"Irn": IRN},
        answer("WG/2627/000001", SignedQRCode="x"),
        answer("WG/2627/000001", SignedQRCode=None),
        answer("WG/2627/000001", AckDt="today"),
        {**answer("WG/2627/000001"), "Irn": "b" * 64},
        answer("WG/2627/999999"),
        answer("WG/2627/000001", irn="a" * 63),
    ],
)
def test_a_wrong_answer_is_named_and_changes_nothing(payer: Tenant, wrong: dict[str, Any]) -> None:
    invoice = invoice_of(payer)
    written, [_problem] = einvoices.record_file(json.dumps([wrong]).encode())
    invoice.refresh_from_db()
    assert (written, invoice.irn) == (0, None)


def test_mails_wait_for_the_registration(payer: Tenant, settings: Settings) -> None:
    settings.BILLING_EINVOICES = True
    invoice = invoice_of(payer)
    run(FIRST_OF_DECEMBER + timedelta(hours=1))
    assert not BillingMail.objects.filter(kind="invoice").exists()
    record(parsed(answer(invoice.number)))
    run(FIRST_OF_DECEMBER + timedelta(days=5))
    assert BillingMail.objects.filter(kind="invoice", key=invoice.number).count() == 1


def test_a_credit_note_that_lowers_no_tax_is_mailed_without_a_registration(
    payer: Tenant, settings: Settings
) -> None:
    settings.BILLING_EINVOICES = True
    invoice, sent = invoice_of(payer), []
    for at in (ist(2027, 11, 30), ist(2027, 12, 1)):
        credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="x", at=at)
        sent.append(mails.send_credit_notes(at))
    assert sent == [0, 1]


def test_the_credit_note_of_a_cancelled_registration_is_mailed(payer: Tenant, settings: Settings) -> None:
    """The note itself is never registered."""
    settings.BILLING_EINVOICES = True
    invoice = invoice_of(payer)
    record(parsed(answer(invoice.number)))
    at = ist(2026, 12, 1, 12)
    note = credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=at)
    assert mails.send_credit_notes(at) == 1
    assert f"Credit note {note.number}" in OutboundMail.objects.latest("id").subject


def test_nobody_is_reminded_of_an_invoice_that_was_never_mailed(payer: Tenant, settings: Settings) -> None:
    settings.BILLING_EINVOICES = True
    invoice = invoice_of(payer)
    reminders = OutboundMail.objects.filter(subject__contains="is not paid")
    run(invoice.due_at + timedelta(hours=1))
    assert not reminders.exists()
    record(parsed(answer(invoice.number)))
    run(invoice.due_at + timedelta(hours=2))
    assert reminders.count() == 1


def test_what_was_mailed_before_the_duty_to_register_waits_for_nothing(
    payer: Tenant, settings: Settings
) -> None:
    invoice = invoice_of(payer)
    settings.BILLING_EINVOICES = True
    run(invoice.due_at + timedelta(hours=1))
    assert OutboundMail.objects.filter(subject__contains="is not paid").count() == 1
    at = ist(2026, 12, 10)
    credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="x", at=at)
    assert mails.send_credit_notes(at) == 1


def test_a_credit_notes_registration_is_all_that_may_change(payer: Tenant) -> None:
    invoice = invoice_of(payer)
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=1_180, reason="x", at=FIRST_OF_DECEMBER)
    own = "b" * 64
    for registered, irn in ((invoice.number, IRN), (note.number, own)):
        # The portal rejects a credit note whose invoice is not registered.
        assert [document["DocDtls"]["No"] for document in einvoices.unregistered()] == [registered]
        assert record(parsed(answer(registered, irn=irn))) is True
    stored = CreditNote.objects.get()
    shown = documents.of_credit_note(stored)
    assert {("IRN", own), ("Acknowledgement", "112010036563310 of 1 Dec 2026")} <= set(shown["facts"])
    assert shown["qr"] == documents.qr_code(answer(note.number, irn=own)["SignedQRCode"])
    assert (stored.irn, stored.ack_no, stored.ack_at) == (own, "112010036563310", ist(2026, 12, 1, 10, 51))
    entries = AuditEntry.objects.filter(action="billing.einvoice", tenant_id=payer.id).order_by("id")
    assert [(entry.target_type, entry.target_id) for entry in entries] == [
        ("invoice", invoice.public_id),
        ("credit_note", note.public_id),
    ]
    for statement in (
        "UPDATE billing_creditnote SET reason = 'y'",
        "UPDATE billing_creditnote SET total_paise = 1, taxable_paise = 1, tax_paise = 0",
        "DELETE FROM billing_creditnote",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
