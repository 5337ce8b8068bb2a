"""GSTR-1 of a month as JSON in the format of the portal's offline tool: tables 4 to 7, 9B, 12 and 13.

Members and codes are those of the tool's release 3.2.4; `tests/gstr1_schema.json` lists them with their source. Amounts
are in rupees. An invoice whose registration was cancelled, and its credit note, are only in table 13.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from django.conf import settings

from billing.einvoices import in_rupees, supply_type
from billing.models import CreditNote, Invoice
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date

Json = dict[str, Any]
Issued = Invoice | CreditNote
Row = tuple[str, str, int]
"""The key of a row in a summed table: two properties of a document, and the rate."""

VERSION = "GST3.2.4"
"""The release of the tool that defines this format. The portal rejects files of releases that it no longer supports."""
LARGE_PAISE = 10_000_000
"""An invoice above one lakh rupees to a consumer of another State is listed separately (table 5, since August 2024)."""
_B2B_TYPES = {"B2B": "R", "SEZWP": "SEWP", "SEZWOP": "SEWOP"}
_INVOICES, _CREDIT_NOTES = (1, "Invoices for outward supply"), (5, "Credit Note")
"""The natures of documents in table 13: the position in the tool's list, and the name."""
_SERVICES = {
    "997331": "Licensing services for the right to use computer software and databases",
    "998314": "Information technology design and development services",
    "998315": "Hosting and information technology infrastructure provisioning services",
    "998319": "Other information technology services nowhere else classified",
}
"""The official descriptions of these service codes. The portal itself has the descriptions of all other codes."""


def of(period: Period) -> Json:
    """The return for a month of Indian time. Tables without rows are left out, as the portal requires."""
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
        "cdnur": [_entry(note) for note in sections["cdnur"]],
        "exp": _by(sections["exp"], "exp_typ", "inv"),
        "doc_issue": _issued(invoices, all_notes),
        "hsn": _by_service(documents),
    }
    sellers = (one.seller["gstin"] for one in (*invoices, *(note.invoice for note in all_notes)))
    gstin, month = next(sellers, settings.BILLING_SELLER_GSTIN), f"{period.month:02d}{period.year}"
    head = {"gstin": gstin, "fp": month, "version": VERSION, "hash": "hash"}
    return {**head, **{name: table for name, table in tables.items() if table}}


def file_of(period: Period) -> bytes:
    """The return of a month as a file for the portal."""
    return orjson.dumps(of(period), option=orjson.OPT_INDENT_2)


def _invoice_of(document: Issued) -> Invoice:
    return document if isinstance(document, Invoice) else document.invoice


def _section(document: Issued) -> str:
    """The table that lists a document. A credit note for a small consumer invoice lowers the sums of table 7."""
    invoice, credit = _invoice_of(document), isinstance(document, CreditNote)
    if invoice.supply_type == "export":
        return "cdnur" if credit else "exp"
    if invoice.buyer["gstin"]:
        return "cdnr" if credit else "b2b"
    if invoice.supply_type == "inter_state" and invoice.total_paise > LARGE_PAISE:
        return "cdnur" if credit else "b2cl"
    return "b2cs"


def _by(documents: Iterable[Issued], key: str, rows: str) -> list[Json]:
    """Documents grouped by recipient, State or type of export."""
    groups: defaultdict[str, list[Json]] = defaultdict(list)
    for document in documents:
        invoice = _invoice_of(document)
        paid = "WPAY" if invoice.igst_paise else "WOPAY"
        name = {"ctin": invoice.buyer["gstin"], "pos": _place(invoice), "exp_typ": paid}[key]
        groups[name].append(_entry(document))
    return [{key: name, rows: found} for name, found in groups.items()]


def _entry(document: Issued) -> Json:
    """The entry of a document in its table."""
    invoice, section = _invoice_of(document), _section(document)
    numbers = (document.number, f"{ist_date(document.issued_at):%d-%m-%Y}")
    names = ("inum", "idt") if isinstance(document, Invoice) else ("nt_num", "nt_dt")
    entry: Json = {**dict(zip(names, numbers, strict=True)), "val": in_rupees(document.total_paise)}
    if isinstance(document, CreditNote):
        entry["ntty"] = "C"
    if section in {"b2b", "cdnr"}:
        entry |= {"rchrg": "N", "inv_typ": _B2B_TYPES[supply_type(invoice)]}
    if section in {"b2b", "cdnr"} or (section == "cdnur" and invoice.supply_type != "export"):
        entry["pos"] = _place(invoice)
    if section == "cdnur":
        entry["typ"] = supply_type(invoice) if invoice.supply_type == "export" else "B2CL"
    rate, amounts = document.taxes.percent, _amounts(document)
    item = {name: in_rupees(amounts[name]) for name in _columns(invoice.supply_type)} | {
        "rt": rate,
        "csamt": 0,
    }
    return {**entry, "itms": [item if section == "exp" else {"num": 100 * rate + 1, "itm_det": item}]}


def _consumers(documents: Iterable[Issued]) -> list[Json]:
    """Table 7: the sums of consumer invoices less credits, by place and rate."""

    def row(document: Issued) -> Row:
        invoice = _invoice_of(document)
        return invoice.supply_type, _place(invoice), document.taxes.percent

    kinds = {"intra_state": "INTRA", "inter_state": "INTER"}
    return [
        {"sply_ty": kinds[supply], "pos": place, "typ": "OE", "rt": rate, "csamt": 0}
        | {name: amounts[name] for name in _columns(supply)}
        for (supply, place, rate), amounts in _sums(documents, row).items()
    ]


def _columns(supply: str) -> tuple[str, ...]:
    return ("txval", "camt", "samt") if supply == "intra_state" else ("txval", "iamt")


def _by_service(documents: Iterable[Issued]) -> Json:
    """Table 12: sums less credits by service code and rate, separately for registered and other buyers."""

    def row(document: Issued) -> Row:
        invoice = _invoice_of(document)
        table = "hsn_b2b" if invoice.buyer["gstin"] else "hsn_b2c"
        return table, invoice.lines.all()[0].sac, document.taxes.percent

    tables: Json = {}
    for (table, sac, rate), amounts in _sums(documents, row).items():
        rows = tables.setdefault(table, [])
        said = {"desc": _SERVICES[sac]} if sac in _SERVICES else {}
        unit = {"uqc": "NA", "qty": 0, "rt": rate, "csamt": 0}
        rows.append({"num": len(rows) + 1, "hsn_sc": sac} | said | unit | amounts)
    return tables


def _sums(documents: Iterable[Issued], row: Callable[[Issued], Row]) -> dict[Row, dict[str, float]]:
    """The amounts of each row in rupees: invoiced less credited."""
    sums: defaultdict[Row, Counter[str]] = defaultdict(Counter)
    for document in documents:
        sign = 1 if isinstance(document, Invoice) else -1
        for name, paise in _amounts(document).items():
            sums[row(document)][name] += sign * paise
    return {key: {name: in_rupees(paise) for name, paise in found.items()} for key, found in sums.items()}


def _issued(invoices: list[Invoice], notes: list[CreditNote]) -> Json:
    """Table 13: the first and last number of each series, the count of its documents, and how many of them were
    cancelled.
    """
    found = []
    for (nature, label), documents in ((_INVOICES, invoices), (_CREDIT_NOTES, notes)):
        if documents:
            cancelled = sum(_invoice_of(one).irn_cancelled_at is not None for one in documents)
            series = {"num": 1, "from": documents[0].number, "to": documents[-1].number}
            counts = {"totnum": len(documents), "cancel": cancelled, "net_issue": len(documents) - cancelled}
            found.append({"doc_num": nature, "doc_typ": label, "docs": [series | counts]})
    return {"doc_det": found} if found else {}


def _amounts(document: Issued) -> dict[str, int]:
    taxable = document.subtotal_paise if isinstance(document, Invoice) else document.taxable_paise
    taxes: gst.Taxes = document.taxes
    amounts = {"iamt": taxes.igst_paise, "camt": taxes.cgst_paise, "samt": taxes.sgst_paise}
    return {"txval": taxable} | amounts


def _place(invoice: Invoice) -> str:
    return invoice.place_of_supply.partition("-")[0]
