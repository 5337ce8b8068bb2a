"""Accounting: the documents of a month as rows, in the shape of GSTR-1 (B2B, B2C, exports, credit notes), in rupees."""

from collections.abc import Iterator

from billing.models import CreditNote, Invoice
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date
from billing.pricing.plan import GST_PERCENT

COLUMNS = (
    "Section",
    "Document",
    "Number",
    "Date",
    "Corrects",
    "GSTIN of recipient",
    "Recipient",
    "Place of supply",
    "Reverse charge",
    "Rate",
    "Taxable value",
    "IGST",
    "CGST",
    "SGST/UTGST",
    "Total",
)


def rows(period: Period) -> Iterator[list[str]]:
    """The invoices and then the credit notes that were issued in a month of Indian time, by number."""
    issued = {"issued_at__gte": period.start, "issued_at__lt": period.end}
    for invoice in Invoice.objects.filter(**issued).order_by("number"):
        yield _row(invoice, "Invoice", invoice.number, invoice, invoice.subtotal_paise, invoice.taxes)
    for note in CreditNote.objects.filter(**issued).select_related("invoice").order_by("number"):
        yield _row(note.invoice, "Credit note", note.number, note, note.taxable_paise, note.taxes)


def _row(
    invoice: Invoice,
    kind: str,
    number: str,
    document: Invoice | CreditNote,
    taxable_paise: int,
    taxes: gst.Taxes,
) -> list[str]:
    return [
        _section(invoice, credit=kind == "Credit note"),
        kind,
        number,
        f"{ist_date(document.issued_at):%d-%m-%Y}",
        invoice.number if kind == "Credit note" else "",
        invoice.buyer["gstin"] or "",
        _text(invoice.buyer["name"]),
        invoice.place_of_supply,
        "N",
        str(GST_PERCENT if taxes.total_paise else 0),
        _rupees(taxable_paise),
        _rupees(taxes.igst_paise),
        _rupees(taxes.cgst_paise),
        _rupees(taxes.sgst_paise),
        _rupees(taxable_paise + taxes.total_paise),
    ]


def _section(invoice: Invoice, *, credit: bool) -> str:
    if invoice.supply_type == "export":
        return "CDNUR" if credit else "EXP"
    if invoice.buyer["gstin"]:
        return "CDNR" if credit else "B2B"
    return "B2CS"


def _rupees(paise: int) -> str:
    return f"{paise // 100}.{paise % 100:02d}"


def _text(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name[:1] in {"=", "+", "-", "@", "\t", "\r"} else name
