"""Accounting, from the ledger: postings, revenue by month, what is due by age and business, statements of account."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, F, Min, Q, Sum
from django.db.models.functions import TruncMonth

from billing.ledger_models import LedgerEntry, LedgerPosting
from billing.models import BillingSnapshot
from billing.pricing.money import plain
from billing.pricing.periods import Period, ist_date
from gateway.csv_cells import as_text
from tenants.lifecycle import IST

Account, Act = LedgerPosting.Account, LedgerEntry.Act


@dataclass(frozen=True, slots=True)
class Month:
    """A month of Indian time in paise: what was invoiced and credited in it, with and without tax, and collected."""

    period: str
    invoices: int
    taxable_paise: int
    invoiced_paise: int
    credited_paise: int
    collected_paise: int
    given_back_paise: int
    unbilled_paise: int
    """Without tax: what was supplied until its end and invoiced after it."""


@dataclass(frozen=True, slots=True)
class Age:
    """Unpaid invoices of an age: how many, and what is still due."""

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
"""Each with the most days that it is late."""


_MONEY = (Account.CLEARING, Account.BANK)
_FIGURES: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    # figure: of which acts, on which accounts, with which sign
    "taxable_paise": ((Act.INVOICE,), (Account.SALES,), -1),
    "invoiced_paise": ((Act.INVOICE,), (Account.RECEIVABLE,), 1),
    "credited_paise": ((Act.CREDIT,), (Account.SALES, Account.GST), 1),
    "collected_paise": ((Act.PAYMENT, Act.TRANSFER), _MONEY, 1),
    "given_back_paise": ((Act.REFUND, Act.RETURN), _MONEY, -1),
}


def months(newest: Period, count: int) -> list[Month]:
    """The figures of this month and those before it, newest first, by the ledger: a closed month stays as it was."""
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
            unbilled_paise=unbilled[period],
            **{
                name: sign * sum(sums[period, act, account] for act in acts for account in accounts)
                for name, (acts, accounts, sign) in _FIGURES.items()
            },
        )
        for period in periods
    ]


def _unbilled(periods: list[Period]) -> dict[Period, int]:
    """Return supplies without an invoice at the end of each month, newest first."""
    issued = TruncMonth(Min("invoices__issued_at", filter=Q(invoices__replaces=None)), tzinfo=IST)
    late = BillingSnapshot.objects.annotate(issued=issued).filter(
        Q(issued=None) | Q(issued__gt=periods[-1].start)
    )
    found = late.values_list("period", "issued", "subtotal_paise")
    rows = [(Period.parse(service), issued and Period.of(issued), paise) for service, issued, paise in found]
    return {
        period: sum(paise for service, at, paise in rows if service <= period and (at is None or at > period))
        for period in periods
    }


@dataclass(frozen=True, slots=True)
class Debtor:
    """A business that owes something, or has a balance or a missing certificate; in paise."""

    tenant_id: UUID
    name: str
    due_paise: int
    late_paise: int
    oldest_due_at: datetime | None
    uncertified_paise: int
    balance_paise: int


def debtors(at: datetime) -> list[Debtor]:
    """Every business with something open, who owes most first."""
    name = F("entry__tenant__name")
    watched = LedgerPosting.objects.filter(account__in=(Account.RECEIVABLE, Account.TDS, Account.BALANCE))
    sums = watched.values("account", "entry__tenant_id", "invoice_id", "invoice__due_at", name=name)
    found: dict[UUID, Debtor] = {}
    for row in sums.annotate(total=Sum("amount_paise")).exclude(total=0).order_by("invoice__due_at"):
        tenant_id, account, paise = row["entry__tenant_id"], row["account"], row["total"]
        known = found.setdefault(tenant_id, Debtor(tenant_id, row["name"], 0, 0, None, 0, 0))
        found[tenant_id] = {
            Account.RECEIVABLE: replace(
                known,
                due_paise=known.due_paise + paise,
                late_paise=known.late_paise
                + (paise if row["invoice__due_at"] and row["invoice__due_at"] < at else 0),
                oldest_due_at=known.oldest_due_at or row["invoice__due_at"],
            ),
            Account.TDS: replace(known, uncertified_paise=paise),
            Account.BALANCE: replace(known, balance_paise=-paise),
        }[Account(account)]
    return sorted(found.values(), key=lambda debtor: -debtor.due_paise)


def unpaid_by_age(at: datetime) -> list[Age]:
    """What is due, by how long it is late at a moment."""
    own = LedgerPosting.objects.filter(account=Account.RECEIVABLE)
    due = (
        own.values_list("invoice_id", "invoice__due_at").annotate(left=Sum("amount_paise")).filter(left__gt=0)
    )
    ages = {title: Age(title, 0, 0) for title, _ in _AGES}
    for _invoice, due_at, left in due.order_by():
        late = at - due_at
        title = next(title for title, at_most in _AGES if at_most is None or late <= timedelta(at_most))
        ages[title] = Age(title, ages[title].invoices + 1, ages[title].due_paise + left)
    return list(ages.values())


LEDGER_COLUMNS = ("Date", "Entry", "Act", "Account", "Debit", "Credit", "Business", "Invoice", "Text")


def ledger_rows(period: Period) -> Iterator[list[str]]:
    """Every posting of a month, oldest first: a voucher for each entry, as accounting programs import them."""
    postings = LedgerPosting.objects.filter(entry__at__gte=period.start, entry__at__lt=period.end)
    for row in (
        postings.select_related("entry__tenant", "invoice").order_by("entry__at", "entry_id", "id").iterator()
    ):
        yield [
            f"{ist_date(row.entry.at):%d-%m-%Y}",
            as_text(row.entry.key),
            row.entry.get_act_display(),
            row.get_account_display(),
            plain(max(0, row.amount_paise)),
            plain(max(0, -row.amount_paise)),
            as_text(row.entry.tenant.name) if row.entry.tenant else "",
            row.invoice.number if row.invoice else "",
            as_text(row.entry.text),
        ]


@dataclass(frozen=True, slots=True)
class StatementLine:
    """An act as a business sees it: what it was charged (positive) or relieved of, and what it owes after that."""

    at: datetime
    act: str
    text: str
    amount_paise: int
    owed_paise: int


def statement(tenant_id: UUID) -> list[StatementLine]:
    """The account of a business, oldest first: what it owes is positive, what it has too much negative."""
    own = LedgerPosting.objects.filter(
        entry__tenant_id=tenant_id, account__in=(Account.RECEIVABLE, Account.BALANCE)
    )
    entries = own.values_list("entry_id", "entry__at", "entry__act", "entry__text").annotate(
        Sum("amount_paise")
    )
    lines, owed = [], 0
    for _entry_id, at, act, text, paise in entries.order_by("entry__at", "entry_id"):
        owed += paise
        if paise:
            shown = "" if act == Act.WRITE_OFF else text
            lines.append(StatementLine(at, str(Act(act).label), shown, paise, owed))
    return lines


def statement_rows(tenant_id: UUID) -> Iterator[list[str]]:
    """The statement as CSV, its heading first."""
    yield ["Date", "What", "Document", "Amount", "Owed"]
    for line in statement(tenant_id):
        amounts = (plain(line.amount_paise), plain(line.owed_paise))
        yield [f"{ist_date(line.at):%d-%m-%Y}", line.act, as_text(line.text), *amounts]


def trial_balance(at: datetime) -> dict[str, int]:
    """Return the balance of each account at a moment: debits positive. They add up to zero."""
    found = LedgerPosting.objects.filter(entry__at__lte=at).values_list("account")
    return dict(found.annotate(Sum("amount_paise")).order_by("account"))
