"""Documents as they are printed: an invoice (CGST rule 46) and a credit note (rule 53), as PDF and as HTML page.

Both forms show the same fields, with amounts and dates as text. Typst makes the PDF (PDF/A-2b, A4) with the fonts of a
package, never with the system's fonts. A PDF is made once and stored, so later changes of templates and settings never
change an issued document.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import segno
import typst
from django.conf import settings
from django.http import HttpResponse
from django.template.loader import render_to_string

from billing import buyers, ledger
from billing.models import CreditNote, Invoice, IssuedPdf
from billing.pricing import gst
from billing.pricing.money import CURRENCY, SMALLEST_PAISE, in_words, plain, rounded_share, rupees
from billing.pricing.periods import Period, indian_date, ist_date
from gateway.clock import IST, now

Document = dict[str, Any]
TEMPLATE = settings.BASE_DIR / "templates" / "billing" / "document.typ"
_NOT_IN_THE_FONTS = re.compile(r'the text `"(.+?)"` could not be displayed')
_ESCAPED = re.compile(r"\\u\{(\w+)\}")


# --- The PDF.


def pdf(document: Invoice | CreditNote) -> bytes:
    """The stored PDF of a document, made at the first call. A document that gets its IRN later gets a second PDF."""
    invoice = document if isinstance(document, Invoice) else document.invoice
    key = {"number": document.number, "irn": document.irn or ""}
    kept = IssuedPdf.objects.filter(**key).first()
    if kept is None:
        fields = (
            of_invoice(document, as_issued=True)
            if isinstance(document, Invoice)
            else of_credit_note(document)
        )
        made = IssuedPdf(tenant_id=invoice.tenant_id, content=render_pdf(fields), made_at=now(), **key)
        IssuedPdf.objects.bulk_create([made], ignore_conflicts=True)
        kept = IssuedPdf.objects.get(**key)
    return bytes(kept.content)


def render_pdf(document: Document) -> bytes:
    """Make the PDF. PDF/A forbids characters that no font has, so such characters are shown as code
    points: `U+0F40`.
    """
    try:
        return _compile(document)
    except typst.TypstError as error:
        named = "".join(_NOT_IN_THE_FONTS.findall(error.diagnostic))
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), named)
        codes = {
            ord(sign): f"U+{ord(sign):04X}" for sign in text if not sign.isascii() or not sign.isprintable()
        }
        if not codes:
            raise
        return render_pdf({name: _without(codes, value) for name, value in document.items()})


def _without(codes: Mapping[int, str], value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(codes)
    if isinstance(value, dict):
        return {name: _without(codes, part) for name, part in value.items()}
    return [_without(codes, part) for part in value] if isinstance(value, list | tuple) else value


def require_logo() -> None:
    """Raise OSError or ValueError when the configured logo cannot be used in documents."""
    if svg := logo():
        try:
            typst.compile(b'#image(bytes(sys.inputs.logo), format: "svg")', sys_inputs={"logo": svg})
        except typst.TypstError as error:
            raise ValueError(str(error)) from None


def pdf_response(document: Invoice | CreditNote) -> HttpResponse:
    """The stored PDF as a response that a browser shows."""
    answer = HttpResponse(pdf(document), content_type="application/pdf")
    answer["Content-Disposition"] = f'inline; filename="{file_name(document.number)}"'
    return answer


def file_name(number: str) -> str:
    """The file name of a document: `WG-2627-000123.pdf`."""
    return f"{number.replace('/', '-')}.pdf"


def _compile(document: Document) -> bytes:
    made: bytes = typst.compile(
        str(TEMPLATE),
        root=str(TEMPLATE.parent),
        format="pdf",
        pdf_standards="a-2b",
        font_paths=_fonts(),
        sys_inputs={"document": json.dumps(document)},
    )
    return made


@cache
def _fonts() -> typst.Fonts:
    wheels = [str(files("manimgx_fonts")), str(files("manimgx_fonts_cjk"))]
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=wheels)


# --- The HTML page of an invoice: one A4 page. The style sheet is inline, so a saved page prints the same.

STYLE = (settings.BASE_DIR / "templates" / "billing" / "invoice.css").read_text()
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def html(invoice: Invoice) -> str:
    """Render the page. A narrow screen shows a line as a list, so each cell contains the name of its column."""
    document = of_invoice(invoice)
    lines = [
        {**line, "named_cells": list(zip(document["columns"][1:], line["cells"], strict=True))}
        for line in document["lines"]
    ]
    image = base64.b64encode(document["logo"].encode()).decode() if document["logo"] else ""
    return render_to_string(
        "billing/invoice.html", {"style": STYLE, "document": {**document, "lines": lines, "logo": image}}
    )


def html_response(invoice: Invoice) -> HttpResponse:
    """The page as a response. Its content security policy lets the page load nothing."""
    answer = HttpResponse(html(invoice))
    answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return answer


# --- The printed fields.


def of_invoice(invoice: Invoice, *, as_issued: bool = False) -> Document:
    """The fields of a tax invoice. Its annex lists the billed numbers and when they were connected.

    `as_issued` excludes later facts: payments and credit notes.
    """
    facts = [
        ("Invoice date", _date(invoice.issued_at)),
        ("Due date", _date(invoice.due_at)),
        ("Billing month", _month(invoice)),
        ("Place of supply", invoice.place_of_supply),
        ("Reverse charge", "No"),
    ]
    if invoice.replaces is not None:
        facts.append(("Replaces", f"{invoice.replaces.number} of {_date(invoice.replaces.issued_at)}"))
    payment = payment_state(invoice, now())
    tds = invoice.tds_paise
    written_off = ledger.written_off_paise(invoice)
    settled = [
        ("Paid", invoice.amount_paid_paise - tds - written_off),
        *([("Tax deducted at source", tds)] if tds else []),
        *([("Written off", written_off)] if written_off else []),
        ("Credited", invoice.credited_paise),
        ("Due", invoice.amount_due_paise),
    ]
    return {
        **_of_both(invoice, invoice),
        "title": "Tax invoice",
        "status": payment.code,
        "badge": "" if as_issued else payment.text,
        "payment": _payment(invoice, as_issued=as_issued),
        "buyer_title": "Billed to",
        "facts": [*facts, *_registration(invoice)],
        "columns": ["Description", "SAC", "Numbers", "Price per month", "Amount"],
        "lines": [
            {
                "description": line.description,
                "detail": f"{invoice.seller['service']}, {_month(invoice)}",
                "cells": [line.sac, str(line.quantity), rupees(line.unit_paise), rupees(line.amount_paise)],
            }
            for line in invoice.lines.all()
        ],
        "sums": [
            ("Taxable value", rupees(invoice.subtotal_paise)),
            *_taxes(invoice.taxes),
            *([("Rounding", rupees(invoice.round_off_paise))] if invoice.round_off_paise else []),
        ],
        "total": rupees(invoice.total_paise),
        "settled": [(name, rupees(paise)) for name, paise in settled]
        if (invoice.amount_paid_paise or invoice.credited_paise) and not as_issued
        else [],
        "words": f"Amount in words: {invoice.total_in_words}",
        "notes": [
            f"Credit note {note.number} of {rupees(note.total_paise)}: {note.reason}"
            for note in (() if as_issued else invoice.credit_notes.all())
        ],
        "footer": "Message fees are paid to the messaging platform directly and are not part of this invoice.",
        "annex": [
            {
                "number": number["display_phone_number"] or number["phone_number_id"],
                "intervals": [
                    f"{_moment(span['from'])} to {_moment(span['to'])}" for span in number["intervals"]
                ],
            }
            for number in invoice.numbers
        ],
    }


def of_credit_note(note: CreditNote) -> Document:
    """The fields of a credit note, with the invoice that it corrects."""
    invoice = note.invoice
    return {
        **_of_both(note, invoice),
        "title": "Credit note",
        "status": "credit",
        "badge": "",
        "payment": None,
        "buyer_title": "Credited to",
        "facts": [
            ("Date", _date(note.issued_at)),
            ("Corrects invoice", invoice.number),
            ("Invoice date", _date(invoice.issued_at)),
            ("Billing month", _month(invoice)),
            ("Place of supply", invoice.place_of_supply),
            *_registration(note),
        ],
        "columns": ["Description", "SAC", "Amount"],
        "lines": [
            {
                "description": line.description,
                "detail": f"{invoice.seller['service']}, {_month(invoice)}",
                "cells": [line.sac, rupees(line.amount_paise)],
            }
            for line in note.lines.all()
        ],
        "sums": [("Taxable value", rupees(note.taxable_paise)), *_taxes(note.taxes)],
        "total": rupees(note.total_paise),
        "settled": [],
        "words": f"Amount in words: {in_words(note.total_paise)}",
        "notes": [f"Reason: {note.reason}"],
        "footer": "",
        "annex": [],
    }


def _of_both(document: Invoice | CreditNote, invoice: Invoice) -> Document:
    """The fields that an invoice and its credit note share."""
    day = ist_date(document.issued_at)
    return {
        **_seller(invoice),
        "number": document.number,
        "issued_on": (day.year, day.month, day.day),
        "endorsement": invoice.endorsement,
        "buyer": _buyer(invoice),
        "country": invoice.buyer.get("country", "IN"),
        "qr": qr_code(document.signed_qr),
    }


def _registration(document: Invoice | CreditNote) -> list[tuple[str, str]]:
    if document.irn is None:
        return []
    return [("IRN", document.irn), ("Acknowledgement", f"{document.ack_no} of {_date(document.ack_at)}")]


def _buyer(invoice: Invoice) -> list[str]:
    buyer = invoice.buyer
    lines = [buyer["address"]] if buyer["address"] else []
    if buyer["state"]:
        lines.append(f"{buyer['state']} ({buyer['state_code']})")
    if buyer.get("country", "IN") != "IN":
        lines.append(buyers.country_name(buyer["country"]))
        if buyer.get("foreign_tax_id"):
            lines.append(f"Tax number {buyer['foreign_tax_id']}")
    elif buyer["gstin"]:
        lines.append(f"GSTIN {buyer['gstin']}")
    elif buyer["pan"]:
        lines.append(f"PAN {buyer['pan']} (not registered)")
    else:
        lines.append("Not registered")
    return [buyer["name"], *lines]


def _taxes(taxes: gst.Taxes) -> list[tuple[str, str]]:
    return [(f"{row.type} at {row.percent}%", rupees(row.amount_paise)) for row in taxes.rows()]


def _month(invoice: Invoice) -> str:
    return f"{ist_date(Period.parse(invoice.period).start):%B %Y}"


def _date(moment: datetime | None) -> str:
    return indian_date(moment) if moment else ""


def _moment(moment: datetime) -> str:
    """A moment in Indian time."""
    return f"{moment.astimezone(IST):%-d %b %Y %H:%M}"


def qr_code(text: str | None) -> str | None:
    """A QR code as SVG. Nothing in the text becomes markup. None without a text."""
    return segno.make(text, error="m").svg_inline(scale=2, border=2, light="#fff") if text else None


def upi_qr(invoice: Invoice, paise: int) -> str | None:
    """A QR code with a UPI payment of an amount to the seller, with the invoice's number as the note. None for a seller
    without a UPI id.
    """
    if not invoice.seller.get("upi_id"):
        return None
    facts = {
        "pa": invoice.seller["upi_id"],
        "pn": invoice.seller["name"],
        "am": plain(paise),
        "cu": CURRENCY,
        "tn": invoice.number,
    }
    return qr_code(f"upi://pay?{urlencode(facts, safe='@/', quote_via=quote)}")


def _payment(invoice: Invoice, *, as_issued: bool) -> dict[str, Any] | None:
    """How to pay by bank transfer or UPI. The amount is the amount due, or with `as_issued` the total less the buyer's
    declared TDS. None when nothing is due, or the seller has neither account.
    """
    percent = invoice.buyer.get("tds_percent", 0) if invoice.supply_type != "export" else 0
    tds = rounded_share(invoice.subtotal_paise, percent, 100)
    due = invoice.total_paise - tds if as_issued else invoice.amount_due_paise
    ways = [
        ("Bank transfer", invoice.seller.get("bank_account")),
        ("UPI", invoice.seller.get("upi_id")),
        ("Reference", invoice.number),
    ]
    if due < SMALLEST_PAISE or not (ways[0][1] or ways[1][1]):
        return None
    return {
        "rows": [
            ("To be paid", rupees(due)),
            *([(f"Less TDS of {percent}%", rupees(tds))] if as_issued and tds else []),
            *((name, value) for name, value in ways if value),
        ],
        "qr": upi_qr(invoice, due),
    }


def _seller(invoice: Invoice) -> Document:
    seller = invoice.seller
    pan = f", PAN {seller['pan']}" if seller.get("pan") else ""
    lines = [
        seller["address"],
        f"{seller['state']} ({seller['state_code']})",
        f"GSTIN {seller['gstin']}{pan}",
    ]
    contact = [seller["contact"]] if seller.get("contact") else []
    return {"logo": logo(), "seller": [seller["name"], *lines, *contact]}


def logo() -> str | None:
    """The seller's logo as SVG. None without BILLING_LOGO_FILE. Raises OSError and UnicodeDecodeError for an unreadable
    file.
    """
    return Path(settings.BILLING_LOGO_FILE).read_text("utf-8") if settings.BILLING_LOGO_FILE else None


OVERDUE, WRITTEN_OFF = "overdue", "written_off"
_TEXTS = {
    Invoice.Status.OPEN: "To be paid",
    Invoice.Status.PROCESSING: "Payment under way",
    Invoice.Status.FAILED: "Payment failed",
    Invoice.Status.VOID: "Cancelled",
}


class PaymentState(NamedTuple):
    """The invoice's status, `overdue` or `written_off`, with its label."""

    code: str
    text: str


def payment_state(invoice: Invoice, at: datetime) -> PaymentState:
    """The state of an invoice at a moment. It shows a payment in progress even after the due date. An invoice is not
    paid if a rupee or more of it was written off.
    """
    status = Invoice.Status(invoice.status)
    if status is Invoice.Status.PAID and ledger.written_off_paise(invoice) >= SMALLEST_PAISE:
        return PaymentState(WRITTEN_OFF, "Nothing due")
    if status is Invoice.Status.PAID:
        return PaymentState(status, f"Paid on {indian_date(invoice.paid_at)}" if invoice.paid_at else "Paid")
    if status in {Invoice.Status.OPEN, Invoice.Status.FAILED} and invoice.pay_by <= at:
        return PaymentState(OVERDUE, f"Overdue since {indian_date(invoice.pay_by)}")
    return PaymentState(status, _TEXTS[status])
