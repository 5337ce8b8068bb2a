"""Accounting: documents of a month in the shape of GSTR-1, revenue by month, and what is unpaid by its age."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Count, F, Q, QuerySet, Sum
from django.db.models.functions import TruncMonth

from billing.models import CreditNote, Invoice, PaymentAttempt
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date
from billing.pricing.plan import GST_PERCENT
from gateway.csv_cells import as_text
from tenants.lifecycle import IST

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


_AGES = (
    ("Not due yet", None, 0),
    ("1 to 30 days late", 0, 30),
    ("31 to 60 days late", 30, 60),
    ("61 to 90 days late", 60, 90),
    ("More than 90 days late", 90, None),
)


def months(newest: Period, count: int) -> list[Month]:
    """The figures of this month and those before it, newest first."""
    periods = [newest]
    while len(periods) < count:
        periods.append(periods[-1].previous)
    begin, end = periods[-1].start, newest.end
    invoices = _by_month(
        Invoice.objects.all(),
        "issued_at",
        begin,
        end,
        count=Count("id"),
        taxable=Sum("subtotal_paise"),
        total=Sum("total_paise"),
    )
    credited = _by_month(CreditNote.objects.all(), "issued_at", begin, end, total=Sum("total_paise"))
    collected = _by_month(
        PaymentAttempt.objects.filter(captured_paise__gt=0),
        "completed_at",
        begin,
        end,
        total=Sum(F("captured_paise") - F("refunded_paise")),
    )
    return [
        Month(
            period=str(period),
            invoices=invoices[period]["count"],
            taxable_paise=invoices[period]["taxable"],
            invoiced_paise=invoices[period]["total"],
            credited_paise=credited[period]["total"],
            collected_paise=collected[period]["total"],
        )
        for period in periods
    ]


def _by_month(
    rows: QuerySet[Any], column: str, begin: datetime, end: datetime, **sums: Aggregate
) -> Mapping[Period, Mapping[str, int]]:
    """Sums of the rows whose `column` lies in the range, by month of Indian time; 0 in months that have none."""
    found: defaultdict[Period, Mapping[str, int]] = defaultdict(lambda: dict.fromkeys(sums, 0))
    within = rows.filter(**{f"{column}__gte": begin, f"{column}__lt": end})
    for row in within.values(month=TruncMonth(column, tzinfo=IST)).annotate(**sums).order_by():
        found[Period.of(row["month"])] = row
    return found


def unpaid_by_age(at: datetime) -> list[Age]:
    """What is still due, by how long it is late."""
    late = {title: _late(at, more_than, at_most) for title, more_than, at_most in _AGES}
    left = F("total_paise") - F("amount_paid_paise") - F("credited_paise")
    sums = Invoice.objects.unpaid().aggregate(
        **{f"{place}_count": Count("id", filter=those) for place, those in enumerate(late.values())},
        **{f"{place}_due": Sum(left, filter=those, default=0) for place, those in enumerate(late.values())},
    )
    return [Age(title, sums[f"{place}_count"], sums[f"{place}_due"]) for place, title in enumerate(late)]


def _late(at: datetime, more_than: int | None, at_most: int | None) -> Q:
    """Invoices that are late by more than the first number of days, and by at most the second."""
    those = Q()
    if more_than is not None:
        those &= Q(due_at__lt=at - timedelta(days=more_than))
    if at_most is not None:
        those &= Q(due_at__gte=at - timedelta(days=at_most))
    return those
