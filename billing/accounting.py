"""Accounting from the ledger: postings, revenue by month, receivables by age and tenant, statements of account."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import StringIO
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from django.db.models import Count, F, Min, Q, Sum
from django.db.models.functions import TruncMonth

from billing.models import BillingSnapshot, LedgerEntry, LedgerPosting, end_of_term
from billing.pricing.money import CURRENCY, plain
from billing.pricing.periods import Period, ist_date
from gateway.clock import IST
from gateway.csv_cells import as_text

Account, Act = LedgerPosting.Account, LedgerEntry.Act


@dataclass(frozen=True, slots=True)
class Month:
    """The figures of a month of Indian time. Amounts are in paise. `taxable_paise` is without tax."""

    period: str
    invoices: int
    taxable_paise: int
    invoiced_paise: int
    credited_paise: int
    collected_paise: int
    refunded_paise: int
    unbilled: dict[str, int]
    """Services supplied by the end of the month and invoiced later. Amounts without tax, by month of service."""

    @property
    def unbilled_paise(self) -> int:
        return sum(self.unbilled.values())


@dataclass(frozen=True, slots=True)
class Age:
    """The unpaid invoices of one age group: their count, and the amount due."""

    title: str
    invoices: int
    due_paise: int


_AGES: tuple[tuple[str, int | None], ...] = (
    ("Not due yet", 0),
    ("1 to 30 days late", 30),
    ("31 to 60 days late", 60),
    ("61 to 90 days late", 90),
    ("More than 90 days late", None),
)
"""The age groups: the title of each, and the highest number of days late."""
_PAY_BY = end_of_term("invoice__")


_MONEY = (Account.CLEARING, Account.BANK)
_FIGURES: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    # Each figure is the sum of the postings of these acts to these accounts, multiplied by the sign.
    "taxable_paise": ((Act.INVOICE,), (Account.SALES,), -1),
    "invoiced_paise": ((Act.INVOICE,), (Account.RECEIVABLE,), 1),
    "credited_paise": ((Act.CREDIT,), (Account.SALES, Account.GST), 1),
    "collected_paise": ((Act.PAYMENT, Act.TRANSFER), _MONEY, 1),
    "refunded_paise": ((Act.REFUND, Act.RETURN), _MONEY, -1),
}


def months(newest: Period, count: int) -> list[Month]:
    """The figures of `count` months from the ledger, `newest` first. The figures of a closed month never change."""
    periods = [newest]
    while len(periods) < count:
        periods.append(periods[-1].previous)
    within = LedgerPosting.objects.filter(entry__at__gte=periods[-1].start, entry__at__lt=newest.end)
    sums: defaultdict[tuple[Period, str, str], int] = defaultdict(int)
    found = within.values("entry__act", "account", month=TruncMonth("entry__at", tzinfo=IST))
    for row in found.annotate(total=Sum("amount_paise")).order_by():
        sums[Period.of(row["month"]), row["entry__act"], row["account"]] = row["total"]
    issued = LedgerEntry.objects.filter(
        act=Act.INVOICE, at__gte=periods[-1].start, at__lt=newest.end
    ).values_list(TruncMonth("at", tzinfo=IST))
    counts = {Period.of(month): number for month, number in issued.annotate(Count("id")).order_by()}
    unbilled = _unbilled(periods)
    return [
        Month(
            period=str(period),
            invoices=counts.get(period, 0),
            unbilled=unbilled[period],
            **{
                name: sign * sum(sums[period, act, account] for act in acts for account in accounts)
                for name, (acts, accounts, sign) in _FIGURES.items()
            },
        )
        for period in periods
    ]


def _unbilled(periods: list[Period]) -> dict[Period, dict[str, int]]:
    """As of the end of each period (newest first): the price of services not yet invoiced, by month of service."""
    issued = TruncMonth(Min("invoices__issued_at", filter=Q(invoices__replaces=None)), tzinfo=IST)
    late = BillingSnapshot.objects.annotate(issued=issued).filter(
        Q(issued=None) | Q(issued__gt=periods[-1].start), subtotal_paise__gt=0
    )
    sums = {period: defaultdict[str, int](int) for period in periods}
    for service, at, paise in late.order_by("period").values_list("period", "issued", "subtotal_paise"):
        for period in periods:
            if Period.parse(service) <= period and (at is None or Period.of(at) > period):
                sums[period][service] += paise
    return {period: dict(found) for period, found in sums.items()}


@dataclass(slots=True)
class Debtor:
    """A tenant with an amount due, a balance or a missing TDS certificate. Amounts in paise."""

    tenant_id: UUID
    name: str
    due_paise: int = 0
    late_paise: int = 0
    oldest_due_at: datetime | None = None
    """The earliest end of a term to pay."""
    uncertified_paise: int = 0
    balance_paise: int = 0


def debtors(at: datetime) -> list[Debtor]:
    """Every tenant with an amount due, a balance or a missing TDS certificate, the highest amount due first."""
    name = F("entry__tenant__name")
    watched = LedgerPosting.objects.filter(account__in=(Account.RECEIVABLE, Account.TDS, Account.BALANCE))
    sums = watched.values_list("account", "entry__tenant_id", name, "invoice_id", _PAY_BY)
    found: dict[UUID, Debtor] = {}
    rows = sums.annotate(total=Sum("amount_paise")).exclude(total=0).order_by(_PAY_BY)
    for account, tenant_id, named, _invoice, pay_by, paise in rows:
        one = found.setdefault(tenant_id, Debtor(tenant_id, named))
        if account == Account.RECEIVABLE:
            one.due_paise += paise
            one.late_paise += paise if pay_by < at else 0
            one.oldest_due_at = one.oldest_due_at or pay_by
        elif account == Account.TDS:
            one.uncertified_paise = paise
        else:
            one.balance_paise = -paise
    return sorted(found.values(), key=lambda debtor: -debtor.due_paise)


def unpaid_by_age(at: datetime) -> list[Age]:
    """The amounts due at a moment, grouped by days late."""
    own = LedgerPosting.objects.filter(account=Account.RECEIVABLE)
    due = own.values_list("invoice_id", _PAY_BY).annotate(left=Sum("amount_paise")).filter(left__gt=0)
    ages = {title: Age(title, 0, 0) for title, _ in _AGES}
    for _invoice, pay_by, left in due.order_by():
        late = at - pay_by
        title = next(title for title, at_most in _AGES if at_most is None or late <= timedelta(at_most))
        ages[title] = Age(title, ages[title].invoices + 1, ages[title].due_paise + left)
    return list(ages.values())


_ZOHO = (
    "Journal Date,Reference Number,Journal Number Prefix,Journal Number Suffix,Notes,Journal Type,Currency,Account,"
    "Description,Contact Name,Debit,Credit"
)
_TALLY = "Voucher Type Name,Ledger Amount,Ledger Amount Dr/Cr"
LEDGER_COLUMNS = f"{_ZOHO},{_TALLY}".split(",")
"""The columns of Zoho Books' journal import, followed by the further columns of TallyPrime's voucher import."""


def ledger_csv(period: Period) -> str:
    """All postings of a month as CSV, oldest first. Each ledger entry is a journal, numbered within the month."""
    written = StringIO()
    csv.writer(written).writerows([LEDGER_COLUMNS, *_ledger_rows(period)])
    return written.getvalue()


def _ledger_rows(period: Period) -> Iterator[list[str]]:
    postings = LedgerPosting.objects.filter(entry__at__gte=period.start, entry__at__lt=period.end)
    found = postings.select_related("entry__tenant", "invoice").order_by("entry__at", "entry_id", "id")
    for number, (_, rows) in enumerate(groupby(found.iterator(), key=attrgetter("entry_id")), start=1):
        for row in rows:
            entry, amount, debited = row.entry, plain(abs(row.amount_paise)), row.amount_paise > 0
            yield [
                f"{ist_date(entry.at):%Y-%m-%d}",
                as_text(entry.key),
                f"{period}-",
                str(number),
                as_text(f"{entry.get_act_display()}: {entry.text}"),
                "both",
                CURRENCY,
                row.get_account_display(),
                row.invoice.number if row.invoice else "",
                as_text(entry.tenant.name) if entry.tenant else "",
                amount if debited else "",
                "" if debited else amount,
                "Journal",
                amount,
                "Dr" if debited else "Cr",
            ]


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One act on a statement of account: the amount charged (positive) or credited (negative), and the amount due after
    the act.
    """

    at: datetime
    act: str
    text: str
    amount_paise: int
    owed_paise: int


def statement(tenant_id: UUID) -> list[StatementLine]:
    """A tenant's statement of account, oldest first. An amount due is positive, a surplus is negative."""
    own = LedgerPosting.objects.filter(
        entry__tenant_id=tenant_id, account__in=(Account.RECEIVABLE, Account.BALANCE, Account.WRITE_OFF)
    )
    written_off = Q(account=Account.WRITE_OFF)
    entries = own.values_list("entry_id", "entry__at", "entry__act", "entry__text").annotate(
        paise=Sum("amount_paise", filter=~written_off, default=0),
        back=Sum("amount_paise", filter=written_off, default=0),
    )
    lines, owed = [], 0
    for _entry_id, at, act, text, paise, back in entries.order_by("entry__at", "entry_id"):
        # A payment or credit of a written-off amount makes it due again, and then lowers it.
        reversed_paise = 0 if act == Act.WRITE_OFF else -back
        for one, amount in ((Act.WRITE_OFF, reversed_paise), (Act(act), paise - reversed_paise)):
            if amount:
                owed += amount
                shown = "" if one == Act.WRITE_OFF else text
                lines.append(StatementLine(at, str(one.label), shown, amount, owed))
    return lines


def statement_rows(tenant_id: UUID) -> Iterator[list[str]]:
    """The rows of the statement for a CSV file, headings first."""
    yield ["Date", "What", "Document", "Amount", "Owed"]
    for line in statement(tenant_id):
        amounts = (plain(line.amount_paise), plain(line.owed_paise))
        yield [f"{ist_date(line.at):%d-%m-%Y}", line.act, as_text(line.text), *amounts]


def trial_balance(at: datetime) -> dict[str, int]:
    """The balance of each account at a moment, debits positive. The balances add up to zero."""
    found = LedgerPosting.objects.filter(entry__at__lte=at).values_list("account")
    return dict(found.annotate(Sum("amount_paise")).order_by("account"))
