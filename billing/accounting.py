"""Accounting: documents of a month in the shape of GSTR-1, revenue by month, and what is unpaid by its age."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, F, Sum

from billing.models import CreditNote, Invoice, PaymentAttempt
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date
from billing.pricing.plan import GST_PERCENT
from gateway.csv_cells import as_text

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
        as_text(invoice.buyer["name"]),
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


@dataclass(frozen=True, slots=True)
class Month:
    """A month of Indian time in paise: what was invoiced and credited in it, with and without tax, and collected."""

    period: str
    invoices: int
    taxable_paise: int
    invoiced_paise: int
    credited_paise: int
    collected_paise: int
    """Less what was given back of it since."""


@dataclass(frozen=True, slots=True)
class Age:
    """Unpaid invoices of an age: how many, and what is still due."""

    title: str
    invoices: int
    due_paise: int


_AGES = (("Not due yet", None, 0), ("1 to 30 days late", 0, 30), ("31 to 60", 30, 60), ("61 to 90", 60, 90))


def months(newest: Period, count: int) -> list[Month]:
    """The figures of this month and those before it, newest first."""
    found = []
    period = newest
    for _ in range(count):
        issued = {"issued_at__gte": period.start, "issued_at__lt": period.end}
        invoices = Invoice.objects.filter(**issued).aggregate(
            count=Count("id"), taxable=Sum("subtotal_paise"), total=Sum("total_paise")
        )
        credited = CreditNote.objects.filter(**issued).aggregate(total=Sum("total_paise"))["total"]
        collected = PaymentAttempt.objects.filter(
            completed_at__gte=period.start, completed_at__lt=period.end, captured_paise__gt=0
        ).aggregate(total=Sum(F("captured_paise") - F("refunded_paise")))["total"]
        found.append(
            Month(
                str(period),
                invoices["count"],
                invoices["taxable"] or 0,
                invoices["total"] or 0,
                credited or 0,
                collected or 0,
            )
        )
        period = period.previous
    return found


def unpaid_by_age(at: datetime) -> list[Age]:
    """What is still due, by how long it is late."""
    found = [_age(title, at, more_than, at_most) for title, more_than, at_most in _AGES]
    return [*found, _age("More than 90", at, 90, None)]


def _age(title: str, at: datetime, more_than: int | None, at_most: int | None) -> Age:
    unpaid = Invoice.objects.unpaid()
    if more_than is not None:
        unpaid = unpaid.filter(due_at__lt=at - timedelta(days=more_than))
    if at_most is not None:
        unpaid = unpaid.filter(due_at__gte=at - timedelta(days=at_most))
    left = F("total_paise") - F("amount_paid_paise") - F("credited_paise")
    sums = unpaid.aggregate(count=Count("id"), due=Sum(left))
    return Age(title, sums["count"], sums["due"] or 0)
