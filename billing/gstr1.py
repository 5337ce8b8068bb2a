"""GSTR-1 of a month as the JSON that the portal's offline tool takes: tables 4 to 6, 9B, 12 and 13.

Amounts are rupees there. An invoice whose registration was cancelled, with its credit note, is in no table but 13.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.conf import settings

from billing.einvoices.documents import in_rupees, supply_type
from billing.models import CreditNote, Invoice
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date

Json = dict[str, Any]
Issued = Invoice | CreditNote

LARGE_PAISE = 10_000_000
"""An invoice to a consumer of another State above one lakh rupees is listed by itself (table 5, since August 2024)."""
_B2B_TYPES = {"B2B": "R", "SEZWP": "SEWP", "SEZWOP": "SEWOP"}
_INVOICES, _CREDIT_NOTES = 1, 5
"""Natures of documents in table 13."""


def of(period: Period) -> Json:
    """The return of a month of Indian time; tables without rows are left out, as the portal wants."""
    issued = {"issued_at__gte": period.start, "issued_at__lt": period.end}
    invoices = list(Invoice.objects.filter(**issued).prefetch_related("lines").order_by("number"))
    notes = CreditNote.objects.filter(**issued).select_related("invoice").prefetch_related("invoice__lines")
    all_notes = list(notes.order_by("number"))
    valid = [invoice for invoice in invoices if invoice.irn_cancelled_at is None]
    valid_notes = [
        note for note in all_notes if not note.is_commercial and note.invoice.irn_cancelled_at is None
    ]
    sections: defaultdict[str, list[Issued]] = defaultdict(list)
    documents: list[Issued] = [*valid, *valid_notes]
    for document in documents:
        sections[_section(document)].append(document)
    tables = {
        "b2b": _by(sections["b2b"], "ctin", "inv"),
        "b2cl": _by(sections["b2cl"], "pos", "inv"),
        "b2cs": _consumers(sections["b2cs"]),
        "cdnr": _by(sections["cdnr"], "ctin", "nt"),
        "cdnur": [{"typ": _unregistered_type(note), **_entry(note)} for note in sections["cdnur"]],
        "exp": _by(sections["exp"], "exp_typ", "inv"),
        "hsn": _by_service(documents),
        "doc_issue": _issued(invoices, all_notes),
    }
    head = {"gstin": settings.BILLING_SELLER_GSTIN, "fp": f"{period.month:02d}{period.year}"}
    return {**head, **{name: table for name, table in tables.items() if table}}


def _invoice_of(document: Issued) -> Invoice:
    return document if isinstance(document, Invoice) else document.invoice


def _section(document: Issued) -> str:
    """The table of a document; a credit note of a small consumer's invoice lowers table 7."""
    invoice, credit = _invoice_of(document), isinstance(document, CreditNote)
    if invoice.supply_type == "export":
        return "cdnur" if credit else "exp"
    if invoice.buyer["gstin"]:
        return "cdnr" if credit else "b2b"
    if invoice.supply_type == "inter_state" and invoice.total_paise > LARGE_PAISE:
        return "cdnur" if credit else "b2cl"
    return "b2cs"


def _unregistered_type(note: Issued) -> str:
    invoice = _invoice_of(note)
    return supply_type(invoice) if invoice.supply_type == "export" else "B2CL"


def _by(documents: Iterable[Issued], key: str, rows: str) -> list[Json]:
    """Documents below each recipient, State or type of export."""
    groups: defaultdict[str, list[Json]] = defaultdict(list)
    for document in documents:
        invoice = _invoice_of(document)
        paid = "WPAY" if invoice.igst_paise else "WOPAY"
        name = {"ctin": invoice.buyer["gstin"], "pos": _place(invoice), "exp_typ": paid}[key]
        groups[name].append(_entry(document))
    return [{key: name, rows: found} for name, found in groups.items()]


def _entry(document: Issued) -> Json:
    """A document as the tables list it, with what its table wants of it."""
    invoice, section = _invoice_of(document), _section(document)
    numbers = (document.number, f"{ist_date(document.issued_at):%d-%m-%Y}")
    names = ("inum", "idt") if isinstance(document, Invoice) else ("nt_num", "nt_dt")
    amounts = _amounts(document)
    entry: Json = {**dict(zip(names, numbers, strict=True)), "val": in_rupees(document.total_paise)}
    if isinstance(document, CreditNote):
        entry["ntty"] = "C"
    if section in {"b2b", "cdnr"}:
        entry |= {"rchrg": "N", "inv_typ": _B2B_TYPES[supply_type(invoice)]}
    if section in {"b2b", "cdnr"} or (section == "cdnur" and invoice.supply_type != "export"):
        entry["pos"] = _place(invoice)
    item = {name: in_rupees(paise) for name, paise in amounts.items() if paise or name == "txval"}
    item |= {"rt": _rate(document), "csamt": 0}
    if invoice.supply_type == "export" and section == "exp":
        return {**entry, "itms": [{"iamt": 0, **item}]}
    return {**entry, "itms": [{"num": 1, "itm_det": item}]}


def _consumers(documents: Iterable[Issued]) -> list[Json]:
    """Table 7: sums by place and rate, less what was credited."""
    sums: defaultdict[tuple[str, str, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for document in documents:
        invoice = _invoice_of(document)
        kind = "INTRA" if invoice.supply_type == "intra_state" else "INTER"
        _add(sums[kind, _place(invoice), _rate(document)], document)
    return [
        {"sply_ty": kind, "pos": place, "typ": "OE", "rt": rate, "csamt": 0}
        | {name: in_rupees(found[name]) for name in _columns(kind)}
        for (kind, place, rate), found in sums.items()
    ]


def _columns(kind: str) -> tuple[str, ...]:
    return ("txval", "camt", "samt") if kind == "INTRA" else ("txval", "iamt")


def _by_service(documents: Iterable[Issued]) -> Json:
    """Table 12: sums by service code and rate, those to registered buyers apart, less what was credited."""
    sums: defaultdict[tuple[str, str, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for document in documents:
        invoice = _invoice_of(document)
        table = "hsn_b2b" if invoice.buyer["gstin"] else "hsn_b2c"
        _add(sums[table, invoice.lines.all()[0].sac, _rate(document)], document)
    tables: Json = {}
    for (table, sac, rate), found in sums.items():
        rows = tables.setdefault(table, [])
        row = {"num": len(rows) + 1, "hsn_sc": sac, "desc": "", "uqc": "NA", "qty": 0, "rt": rate, "csamt": 0}
        rows.append(row | {name: in_rupees(found[name]) for name in ("txval", "iamt", "camt", "samt")})
    return tables


def _add(sums: defaultdict[str, int], document: Issued) -> None:
    sign = 1 if isinstance(document, Invoice) else -1
    for name, paise in _amounts(document).items():
        sums[name] += sign * paise


def _issued(invoices: list[Invoice], notes: list[CreditNote]) -> Json:
    """Table 13: the first and last number of each series, how many, and how many of them were cancelled."""
    found = []
    for nature, documents in ((_INVOICES, invoices), (_CREDIT_NOTES, notes)):
        if documents:
            cancelled = sum(_invoice_of(one).irn_cancelled_at is not None for one in documents)
            series = {"num": 1, "from": documents[0].number, "to": documents[-1].number}
            counts = {"totnum": len(documents), "cancel": cancelled, "net_issue": len(documents) - cancelled}
            found.append({"doc_num": nature, "docs": [series | counts]})
    return {"doc_det": found} if found else {}


def _amounts(document: Issued) -> dict[str, int]:
    taxable = document.subtotal_paise if isinstance(document, Invoice) else document.taxable_paise
    taxes: gst.Taxes = document.taxes
    return {
        "txval": taxable,
        "iamt": taxes.igst_paise,
        "camt": taxes.cgst_paise,
        "samt": taxes.sgst_paise,
    }


def _place(invoice: Invoice) -> str:
    return invoice.place_of_supply.partition("-")[0]


def _rate(document: Issued) -> int:
    """The rate charged: none on what is zero-rated under an undertaking."""
    taxes = document.taxes
    return taxes.percent if taxes.total_paise else 0
