"""E-invoices: invoices and credit notes in the schema of the invoice registration portal (INV-01, 1.1), and the
portal's answers: IRN, acknowledgement, signed QR code.

Staff upload `file_for_portal` to the portal. The admin's page "E-invoices" passes the portal's file with the answers to
`record_file`. The schema has amounts in rupees: https://einv-apisandbox.nic.in/version1.00/generate-irn.html.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.models import CreditNote, Invoice
from billing.pricing import gst
from billing.pricing.periods import ist_date
from gateway.clock import IST
from tenants import audit

Document = dict[str, Any]
CANCELLABLE_FOR = timedelta(hours=24)
"""How long after a registration the portal can cancel the registration (CGST rule 48, schema INV-01)."""
FOREIGN_PIN, FOREIGN_STATE = 999999, "96"
_PIN = re.compile(r"\b([1-9]\d{5})\b")


def must_be_registered(invoice: Invoice) -> bool:
    """Whether the invoice must be registered at the portal. Invoices to registered buyers, to special zones and abroad
    must be. Invoices to consumers need no registration.
    """
    return bool(invoice.buyer["gstin"]) or invoice.supply_type == "export"


def is_cancellable(invoice: Invoice, at: datetime) -> bool:
    """Whether the invoice is registered and the portal can still cancel the registration."""
    return invoice.ack_at is not None and at <= invoice.ack_at + CANCELLABLE_FOR


def of_invoice(invoice: Invoice) -> Document:
    """An invoice in the portal's schema."""
    lines = [
        (line.description, line.sac, line.quantity, line.unit_paise, line.amount_paise)
        for line in invoice.lines.all()
    ]
    return {
        **_head(invoice),
        "DocDtls": {"Typ": "INV", "No": invoice.number, "Dt": _date(invoice)},
        "ItemList": list(_items(lines, invoice.taxes)),
        "ValDtls": _values(
            invoice.subtotal_paise, invoice.taxes, invoice.total_paise, invoice.round_off_paise
        ),
    }


def of_credit_note(note: CreditNote) -> Document:
    """A credit note in the portal's schema, with the invoice that it corrects."""
    lines = [
        (line.description, line.sac, 1, line.amount_paise, line.amount_paise) for line in note.lines.all()
    ]
    return {
        **_head(note.invoice),
        "DocDtls": {"Typ": "CRN", "No": note.number, "Dt": _date(note)},
        "ItemList": list(_items(lines, note.taxes)),
        "ValDtls": _values(note.taxable_paise, note.taxes, note.total_paise, 0),
        "RefDtls": {"PrecDocDtls": [{"InvNo": note.invoice.number, "InvDt": _date(note.invoice)}]},
    }


def _head(invoice: Invoice) -> Document:
    seller, buyer = invoice.seller, invoice.buyer
    foreign = invoice.supply_type == "export"
    return {
        "Version": "1.1",
        "TranDtls": {"TaxSch": "GST", "SupTyp": supply_type(invoice), "RegRev": "N", "IgstOnIntra": "N"},
        "SellerDtls": {
            "Gstin": seller["gstin"],
            "LglNm": seller["name"][:100],
            "Addr1": seller["address"][:100],
            "Loc": seller.get("city") or settings.BILLING_SELLER_CITY,
            "Pin": int(seller.get("pin") or settings.BILLING_SELLER_PIN),
            "Stcd": seller["state_code"],
        },
        "BuyerDtls": {
            "Gstin": buyer["gstin"] or "URP",
            "LglNm": buyer["name"][:100],
            "Pos": invoice.place_of_supply.partition("-")[0],
            "Addr1": (buyer["address"] or buyer["name"])[:100],
            "Loc": (buyer.get("city") or buyer["state"] or buyer["country"])[:50],
            "Pin": FOREIGN_PIN if foreign else _pin(buyer),
            "Stcd": FOREIGN_STATE if foreign else buyer["state_code"],
        },
    }


def supply_type(invoice: Invoice) -> str:
    """The portal's code: business, special economic zone or export. The codes for zones and exports also say whether
    tax is paid.
    """
    paid = "WP" if invoice.igst_paise else "WOP"
    if invoice.supply_type == "export":
        return f"EXP{paid}"
    return f"SEZ{paid}" if invoice.endorsement else "B2B"


def _pin(buyer: dict[str, Any]) -> int | None:
    """The PIN code of a buyer or seller, from its own field, else from the address. None if neither has a PIN code."""
    found = _PIN.search(buyer.get("pin") or buyer["address"] or "")
    return int(found[1]) if found else None


def _items(lines: list[tuple[str, str, int, int, int]], taxes: gst.Taxes) -> Iterator[Document]:
    """The lines with their share of each tax. The last line takes the rounding difference, so the sums agree."""
    total = sum(amount for *_, amount in lines)
    left = {"IgstAmt": taxes.igst_paise, "CgstAmt": taxes.cgst_paise, "SgstAmt": taxes.sgst_paise}
    whole = dict(left)
    for place, (description, sac, quantity, unit, amount) in enumerate(lines, start=1):
        last = place == len(lines)
        share = {name: left[name] if last else whole[name] * amount // total for name in whole}
        for name, paise in share.items():
            left[name] -= paise
        yield {
            "SlNo": str(place),
            "PrdDesc": description,
            "IsServc": "Y",
            "HsnCd": sac,
            "Qty": quantity,
            "Unit": "OTH",
            "UnitPrice": in_rupees(unit),
            "TotAmt": in_rupees(amount),
            "AssAmt": in_rupees(amount),
            "GstRt": taxes.percent if taxes.total_paise else 0,
            **{name: in_rupees(paise) for name, paise in share.items()},
            "TotItemVal": in_rupees(amount + sum(share.values())),
        }


def _values(taxable: int, taxes: gst.Taxes, total: int, round_off: int) -> Document:
    return {
        "AssVal": in_rupees(taxable),
        "IgstVal": in_rupees(taxes.igst_paise),
        "CgstVal": in_rupees(taxes.cgst_paise),
        "SgstVal": in_rupees(taxes.sgst_paise),
        "RndOffAmt": in_rupees(round_off),
        "TotInvVal": in_rupees(total),
    }


def in_rupees(paise: int) -> float:
    """Paise as a JSON number of rupees with two decimals, as the schema needs. Exact at these amounts."""
    return round(paise / 100, 2)


def _date(document: Invoice | CreditNote) -> str:
    return f"{ist_date(document.issued_at):%d/%m/%Y}"


@dataclass(frozen=True, slots=True)
class EInvoiceRegistration:
    """The portal's answer for one document."""

    number: str
    irn: str
    ack_no: str
    ack_at: datetime
    signed_qr: str


class UnreadableAnswer(ValueError):
    """An answer of the portal lacks a member, or its QR code belongs to another document."""


def file_for_portal() -> bytes:
    """The documents in the portal's format for bulk upload."""
    return orjson.dumps(list(unregistered()), option=orjson.OPT_INDENT_2)


def record_file(content: bytes, *, actor_user_id: int | None = None) -> tuple[int, list[str]]:
    """Store the portal's answers with their documents. Returns how many were stored, and the errors of the other
    answers.

    Raises UnreadableAnswer for a file that is not JSON.
    """
    try:
        answers = json.loads(content)
    except ValueError as error:
        raise UnreadableAnswer(f"The file cannot be read: {error}") from None
    written, problems = 0, []
    for answer in answers if isinstance(answers, list) else [answers]:
        try:
            written += record(parsed(answer), actor_user_id=actor_user_id)
        except UnreadableAnswer as error:
            problems.append(str(error))
    return written, problems


def unregistered() -> Iterator[Document]:
    """Documents that must be registered and are not registered yet, oldest first: invoices, then credit notes."""
    for invoice in waiting_invoices().order_by("number"):
        yield of_invoice(invoice)
    notes = CreditNote.objects.filter(
        irn__isnull=True, invoice__irn__isnull=False, invoice__irn_cancelled_at__isnull=True
    )
    notes = notes.exclude(reason__endswith=CreditNote.WITHOUT_TAX)
    for note in notes.select_related("invoice").order_by("number"):
        yield of_credit_note(note)


def waiting_invoices() -> QuerySet[Invoice]:
    """Invoices that must be registered and are not registered yet."""
    taken = Q(supply_type="export") | ~Q(buyer__gstin=None)
    return Invoice.objects.filter(taken, irn__isnull=True)


def parsed(answer: Mapping[str, Any]) -> EInvoiceRegistration:
    """Parse one answer of the portal: `Irn`, `AckNo`, `AckDt` (Indian time) and `SignedQRCode`. The QR code names the
    document. The portal's signature is not checked, because staff upload the file. Raises UnreadableAnswer.
    """
    try:
        content = answer["SignedQRCode"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        data = json.loads(claims["data"])
        number, named = str(data["DocNo"]), str(data["Irn"])
        irn, moment = str(answer["Irn"]), str(answer["AckDt"])
        found = EInvoiceRegistration(
            number=number,
            irn=irn,
            ack_no=str(answer["AckNo"]),
            ack_at=datetime.fromisoformat(moment).replace(tzinfo=IST),
            signed_qr=answer["SignedQRCode"],
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableAnswer(
            f"This is not an answer of the portal: {type(error).__name__} {error}"
        ) from None
    if named != irn or len(irn) != 64:
        raise UnreadableAnswer(f"The QR code of {number} has another IRN than its answer.")
    return found


def record(registration: EInvoiceRegistration, *, actor_user_id: int | None = None) -> bool:
    """Store a registration with its document, with an audit entry. False when the document already has this
    registration.

    Raises UnreadableAnswer for an unknown document, or a document with another IRN.
    """
    values = asdict(registration)
    with transaction.atomic():
        document = _locked(values.pop("number"))
        if document.irn == registration.irn:
            return False
        if document.irn is not None:
            raise UnreadableAnswer(f"{registration.number} is registered with another IRN.")
        type(document).objects.filter(pk=document.pk).update(**values)
        audit.record(
            action="billing.einvoice",
            target_type="invoice" if isinstance(document, Invoice) else "credit_note",
            target_id=document.public_id,
            tenant_id=document.tenant_id if isinstance(document, Invoice) else document.invoice.tenant_id,
            actor_user_id=actor_user_id,
            details={"irn": registration.irn, "ack_no": registration.ack_no},
        )
    return True


def _locked(number: str) -> Invoice | CreditNote:
    invoice = Invoice.objects.select_for_update(of=("self",)).filter(number=number).first()
    note = CreditNote.objects.select_for_update(of=("self",)).filter(number=number).first()
    if found := invoice or note:
        return found
    raise UnreadableAnswer(f"There is no document {number}.")
