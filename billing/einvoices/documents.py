"""E-invoice documents: invoices and credit notes in the schema of the invoice registration portal (INV-01, 1.1). Pure.

The schema: https://einv-apisandbox.nic.in/version1.00/generate-irn.html. Amounts are rupees there.
"""

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings

from billing.models import CreditNote, Invoice
from billing.pricing import gst
from billing.pricing.periods import ist_date

Document = dict[str, Any]
FOREIGN_PIN, FOREIGN_STATE = 999999, "96"
_PIN = re.compile(r"\b([1-9]\d{5})\b")


def must_be_registered(invoice: Invoice) -> bool:
    """Whether the portal takes it: supplies to registered buyers, to special zones and abroad; not to consumers."""
    return bool(invoice.buyer["gstin"]) or invoice.supply_type == "export"


def of_invoice(invoice: Invoice) -> Document:
    """An invoice for the portal."""
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
    """A credit note for the portal, with the invoice that it corrects."""
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
    """Business, special economic zone or export; the latter two with or without payment of tax."""
    paid = "WP" if invoice.igst_paise else "WOP"
    if invoice.supply_type == "export":
        return f"EXP{paid}"
    return f"SEZ{paid}" if invoice.endorsement else "B2B"


def _pin(buyer: dict[str, Any]) -> int | None:
    """The PIN code; of invoices that froze no separate one, the six digits of the address."""
    found = _PIN.search(buyer.get("pin") or buyer["address"] or "")
    return int(found[1]) if found else None


def _items(lines: list[tuple[str, str, int, int, int]], taxes: gst.Taxes) -> Iterator[Document]:
    """The lines with their share of each tax; the last line takes what rounding leaves, so the sums agree."""
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
    """Rupees as the schema's JSON number with two decimals; exact at these amounts."""
    return round(paise / 100, 2)


def _date(document: Invoice | CreditNote) -> str:
    return f"{ist_date(document.issued_at):%d/%m/%Y}"
