"""GSTR-1 in the format of the portal's offline tool: each kind of supply in its table, validated with a schema."""

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from billing import buyers, gstr1, plan, usage
from billing.billing_run import run
from billing.einvoices import parsed, record
from billing.invoices import credit_notes, issuing
from billing.models import BillingProfile, CreditNote, Invoice, PlanVersion
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, connected, ist
from billing.tests.test_einvoices import answer
from gateway.api.errors import Conflict
from tenants.models import Tenant

pytestmark = pytest.mark.django_db

DECEMBER = Period(2026, 12)

SCHEMA = json.loads((Path(__file__).parent / "gstr1_schema.json").read_text())
"""The format of the offline tool, with its source."""

BUYERS: dict[str, dict[str, Any]] = {
    "registered": {"tax_id": "29AAACI1681G1ZL", "tax_id_type": "gstin", "state_code": "29"},
    "neighbour": {"tax_id": "27AAACI1681G1ZP", "tax_id_type": "gstin", "state_code": "27"},
    "zone": {"tax_id": "29AAACI1681G1ZL", "tax_id_type": "gstin", "state_code": "29", "is_sez": True},
    "consumer": {"state_code": "29"},
    "consumer here": {"state_code": "27"},
    "large consumer": {"state_code": "33"},
    "abroad": {"country": "SG", "state_code": ""},
}


def of_december() -> dict[str, Any]:
    """The return of December, validated. Amounts have at most two decimals, in every table."""
    import jsonschema  # here, because the import would cost every test process 0.1 s

    found = gstr1.of(DECEMBER)
    jsonschema.validate(found, SCHEMA)
    assert not re.search(r"\d\.\d{3}", json.dumps(found))
    return found


LARGE = {"starts": "2026-11", "first_number_paise": 10_025_000, "additional_number_paise": 0, "reason": "x"}
"""Terms of one tenant, by which the price of one number is more than ₹1 lakh."""


def invoices() -> dict[str, Invoice]:
    """The November invoice of each kind of buyer."""
    for index, (name, profile) in enumerate(BUYERS.items()):
        tenant = Tenant.objects.create(
            name=name,
            status="active",
            billing_status="active",
            trial_ends_at=ist(2026, 11, 1),
            created_at=ist(2026, 10, 1),
        )
        if name == "large consumer":
            plan.add_version(PlanVersion(tenant=tenant, gst_percent=None, **LARGE), at=ist(2026, 10, 20))
        connected(tenant, str(index), (ist(2026, 11, 3), None))
        address = {"address": "1 Road", "city": "Town", "pin": "560025"}
        BillingProfile.objects.filter(tenant=tenant).update(**address, **profile)
    run(FIRST_OF_DECEMBER)
    return {invoice.tenant.name: invoice for invoice in Invoice.objects.select_related("tenant")}


@pytest.mark.parametrize("lut", ["", "AD27"])
def test_each_supply_is_in_its_table(settings: Settings, lut: str) -> None:
    settings.BILLING_LUT_NUMBERS = {"2627": lut}
    issued = invoices()
    found = of_december()
    types = {
        invoice["inum"]: (row["ctin"], invoice["inv_typ"], invoice["pos"])
        for row in found["b2b"]
        for invoice in row["inv"]
    }
    zone = "SEWOP" if lut else "SEWP"
    assert types == {
        issued["registered"].number: ("29AAACI1681G1ZL", "R", "29"),
        issued["neighbour"].number: ("27AAACI1681G1ZP", "R", "27"),
        issued["zone"].number: ("29AAACI1681G1ZL", zone, "29"),
    }
    [large] = found["b2cl"]
    assert (large["pos"], large["inv"][0]["inum"]) == ("33", issued["large consumer"].number)
    assert large["inv"][0]["itms"] == [
        {"num": 1801, "itm_det": {"txval": 100_250.0, "iamt": 18_045.0, "rt": 18, "csamt": 0}}
    ]
    assert found["b2cs"] == [
        {"sply_ty": "INTER", "pos": "29", "typ": "OE", "rt": 18, "csamt": 0, "txval": 500.0, "iamt": 90.0},
        {
            "sply_ty": "INTRA",
            "pos": "27",
            "typ": "OE",
            "rt": 18,
            "csamt": 0,
            "txval": 500.0,
            "camt": 45.0,
            "samt": 45.0,
        },
    ]
    assert found["exp"] == [
        {
            "exp_typ": "WOPAY" if lut else "WPAY",
            "inv": [
                {
                    "inum": issued["abroad"].number,
                    "idt": "01-12-2026",
                    "val": 500.0 if lut else 590.0,
                    "itms": [
                        {
                            "iamt": 0 if lut else 90.0,
                            "txval": 500.0,
                            "rt": 18,
                            "csamt": 0,
                        }
                    ],
                }
            ],
        }
    ]
    taxable = {name: sum(row["txval"] for row in table) for name, table in found["hsn"].items()}
    assert taxable == {"hsn_b2b": 1_500.0, "hsn_b2c": 101_750.0}
    assert found["hsn"]["hsn_b2b"][0]["desc"].startswith("Hosting and information technology")
    assert found["doc_issue"] == {
        "doc_det": [
            {
                "doc_num": 1,
                "doc_typ": "Invoices for outward supply",
                "docs": [
                    {
                        "num": 1,
                        "from": "WG/2627/000001",
                        "to": "WG/2627/000007",
                        "totnum": 7,
                        "cancel": 0,
                        "net_issue": 7,
                    }
                ],
            }
        ]
    }


@pytest.mark.parametrize(
    ("price", "state", "table"),
    [(8_474_576, "33", "b2cs"), (8_474_577, "33", "b2cl"), (8_474_577, "27", "b2cs")],
)
def test_above_one_lakh_a_consumer_of_another_state_is_listed(
    payer: Tenant, price: int, state: str, table: str
) -> None:
    """One lakh with tax is not above it: ₹84,745.76 and 18 %."""
    terms = PlanVersion(tenant=payer, gst_percent=None, **{**LARGE, "first_number_paise": price})
    plan.add_version(terms, at=ist(2026, 10, 20))
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.update(state_code=state)
    assert (usage.take_snapshots(FIRST_OF_DECEMBER), issuing.issue_due(FIRST_OF_DECEMBER)) == (1, 1)
    assert Invoice.objects.get().total_paise - 10_000_000 == price - 8_474_576
    assert {"b2b", "b2cl", "b2cs", "exp"} & of_december().keys() == {table}


def test_credit_notes_are_in_their_tables_and_lower_the_sums() -> None:
    issued = invoices()
    numbers = {}
    for name, invoice in issued.items():
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=11_800, reason="x", at=FIRST_OF_DECEMBER + timedelta(days=1)
        )
        numbers[name] = note.number
    found = of_december()
    registered = {note["nt_num"] for row in found["cdnr"] for note in row["nt"]}
    assert registered == {numbers[name] for name in ("registered", "neighbour", "zone")}
    others = {note["nt_num"]: (note["typ"], note.get("pos")) for note in found["cdnur"]}
    assert others == {numbers["large consumer"]: ("B2CL", "33"), numbers["abroad"]: ("EXPWP", None)}
    assert [row["txval"] for row in found["b2cs"]] == [400.0, 400.0]
    taxable = {name: sum(row["txval"] for row in table) for name, table in found["hsn"].items()}
    assert taxable == {"hsn_b2b": 1_200.0, "hsn_b2c": 101_350.0}
    assert [row["docs"][0]["totnum"] for row in found["doc_issue"]["doc_det"]] == [7, 7]


def test_the_return_adds_up_to_the_documents() -> None:
    invoices()
    found = of_december()
    items = [
        item
        for table, rows_of in (("b2b", "inv"), ("b2cl", "inv"))
        for row in found[table]
        for invoice in row[rows_of]
        for item in (one["itm_det"] for one in invoice["itms"])
    ]
    items += [one for row in found["exp"] for invoice in row["inv"] for one in invoice["itms"]]
    items += found["b2cs"]
    wanted = {"txval": "subtotal_paise", "iamt": "igst_paise", "camt": "cgst_paise", "samt": "sgst_paise"}
    for name, column in wanted.items():
        whole = sum(getattr(invoice, column) for invoice in Invoice.objects.all())
        assert round(100 * sum(item.get(name, 0) for item in items)) == whole, name
        of_services = [row for table in found["hsn"].values() for row in table]
        assert round(100 * sum(row[name] for row in of_services)) == whole, name


def test_a_cancelled_registration_is_in_no_table_but_that_of_documents(payer: Tenant) -> None:
    buyers.profile_of(payer)
    BillingProfile.objects.update(**BUYERS["registered"], address="1 Road", city="Town")
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    invoice = Invoice.objects.get()
    with pytest.raises(Conflict):
        credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=FIRST_OF_DECEMBER)
    record(parsed(answer(invoice.number)))
    invoice.refresh_from_db()
    assert invoice.ack_at is not None
    with pytest.raises(Conflict):
        credit_notes.cancel(
            invoice_id=invoice.id, reason="Wrong", at=invoice.ack_at + timedelta(hours=24, seconds=1)
        )
    credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=invoice.ack_at + timedelta(hours=24))
    note = CreditNote.objects.get()
    Invoice.objects.filter(pk=invoice.pk).update(irn_cancelled_at=note.issued_at)
    invoice.refresh_from_db()
    assert (invoice.status, invoice.amount_due_paise, note.total_paise) == ("void", 0, 59_000)
    found = of_december()
    assert found.keys() == {"gstin", "fp", "version", "hash", "doc_issue"}
    counts = [table["docs"][0] for table in found["doc_issue"]["doc_det"]]
    assert [
        (series["from"], series["totnum"], series["cancel"], series["net_issue"]) for series in counts
    ] == [(number, 1, 1, 0) for number in (invoice.number, note.number)]
    with pytest.raises(Conflict):
        credit_notes.cancel(invoice_id=invoice.id, reason="Wrong", at=invoice.ack_at)


def test_a_month_without_documents_has_its_heading_alone() -> None:
    head = {"gstin": "27AAPFU0939F1ZV", "fp": "122026", "version": "GST3.2.4", "hash": "hash"}
    assert of_december() == head


def test_the_return_of_a_month_is_its_sellers_for_ever(payer: Tenant, settings: Settings) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    before = of_december()
    settings.BILLING_SELLER_GSTIN = "04AAPFU0939F1Z3"
    assert of_december() == before


def test_the_command_writes_it(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    out = StringIO()
    call_command("billing_export", "2026-12", stdout=out)
    assert json.loads(out.getvalue()) == of_december()
    with pytest.raises(CommandError):
        call_command("billing_export", "december")
