"""The ledger: double entry of every act that moves money or debt, in the transaction of the act.

Only this module writes an invoice's paid amount: `amount_paid_paise` and the status are derived from the postings of
the invoice's receivable. The amount that a tenant pays or is credited beyond its invoices is its balance. The balance
pays the oldest due invoice, or is refunded. The lock order is tenant (`account`), invoice, attempt.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef, Q, Sum

from billing import usage
from billing.models import (
    ClosedMonth,
    CreditNote,
    Invoice,
    InvoiceSeries,
    LedgerEntry,
    LedgerPosting,
    PaymentAttempt,
    Refund,
)
from billing.pricing import gst
from billing.pricing.money import SMALLEST_PAISE
from billing.pricing.periods import Period, financial_year
from gateway.api.errors import Conflict
from tenants import audit
from tenants.models import Tenant

Account, Act = LedgerPosting.Account, LedgerEntry.Act
_STATUS = Invoice.Status
Amounts = Mapping[str, int] | Mapping[LedgerPosting.Account, int]
"""Paise by account."""

_BOOKED_AS = {
    PaymentAttempt.Kind.AUTOPAY: (Account.CLEARING, Act.PAYMENT, Act.REFUND),
    PaymentAttempt.Kind.LINK: (Account.CLEARING, Act.PAYMENT, Act.REFUND),
    PaymentAttempt.Kind.MANUAL: (Account.BANK, Act.TRANSFER, Act.RETURN),
    PaymentAttempt.Kind.TDS: (Account.TDS, Act.TDS, Act.TDS),
}
"""For each kind of attempt: the account that first receives its money, and the acts that collect and return the money.
"""
_CAME = Q(amount_paise__gt=0)


@contextmanager
def account(tenant_id: UUID) -> Iterator[None]:
    """A transaction that locks a tenant's ledger."""
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
        yield


def locked(invoice_id: UUID) -> Invoice:
    """Lock an invoice, within `account`."""
    return Invoice.objects.select_for_update(of=("self",)).get(pk=invoice_id)


@contextmanager
def locked_attempt(attempt_id: UUID) -> Iterator[tuple[Invoice, PaymentAttempt]]:
    """An attempt and its invoice in a transaction, locked after their tenant's ledger."""
    invoice = Invoice.objects.only("tenant_id").get(attempts=attempt_id)
    with account(invoice.tenant_id):
        invoice = locked(invoice.pk)
        yield invoice, PaymentAttempt.objects.select_for_update(of=("self",)).get(pk=attempt_id)


def post(
    act: str,
    key: str,
    at: datetime,
    amounts: Amounts,
    *,
    invoice: Invoice | None = None,
    tenant_id: UUID | None = None,
    text: str = "",
) -> bool:
    """Post an act once. Returns False when it was posted before. Raises ValueError when the sum is not zero. In
    `amounts`, debits are positive, credits negative, and the sum is zero.

    With an invoice, the entry belongs to the invoice's tenant.
    """
    if sum(amounts.values()):
        raise ValueError(f"{key}: debits and credits differ")
    tenant_id = invoice.tenant_id if invoice else tenant_id
    entry = LedgerEntry(tenant_id=tenant_id, act=act, key=key, text=text[:500], at=at)
    LedgerEntry.objects.bulk_create([entry], ignore_conflicts=True)
    if not LedgerEntry.objects.filter(pk=entry.pk).exists():
        return False
    LedgerPosting.objects.bulk_create(
        LedgerPosting(
            entry=entry,
            account=name,
            amount_paise=amount,
            invoice=invoice if name in {Account.RECEIVABLE, Account.WRITE_OFF} else None,
        )
        for name, amount in amounts.items()
        if amount
    )
    return True


def open_paise(invoice: Invoice, name: str = Account.RECEIVABLE) -> int:
    """The sum of an account's postings for an invoice: by default the unpaid amount."""
    own = LedgerPosting.objects.filter(account=name, invoice=invoice)
    return int(own.aggregate(total=Sum("amount_paise"))["total"] or 0)


def written_off_paise(invoice: Invoice) -> int:
    """The part of an invoice's paid amount that was written off, so nobody paid it."""
    return open_paise(invoice, Account.WRITE_OFF)


def balance_paise(tenant_id: UUID) -> int:
    """The amount that the tenant has paid or been credited beyond its invoices."""
    own = LedgerPosting.objects.filter(account=Account.BALANCE, entry__tenant_id=tenant_id)
    return -int(own.aggregate(total=Sum("amount_paise"))["total"] or 0)


def available_paise(tenant_id: UUID) -> int:
    """The balance less the refunds in flight."""
    promised = Refund.objects.filter(attempt__invoice__tenant_id=tenant_id, status__in=Refund.IN_FLIGHT)
    return balance_paise(tenant_id) - int(promised.aggregate(total=Sum("amount_paise"))["total"] or 0)


def book_invoice(invoice: Invoice) -> None:
    """Post an issued invoice."""
    tax = invoice.cgst_paise + invoice.sgst_paise + invoice.igst_paise
    amounts = {
        Account.RECEIVABLE: invoice.total_paise,
        Account.GST: -tax,
        Account.SALES: tax - invoice.total_paise,
    }
    key = f"invoice {invoice.number}"
    post(Act.INVOICE, key, invoice.issued_at, amounts, invoice=invoice, text=invoice.number)


def book_credit(note: CreditNote, invoice: Invoice) -> None:
    """Post a credit note. The note lowers the amount due. An excess becomes the tenant's balance."""
    amounts = {Account.SALES: note.taxable_paise, Account.GST: note.tax_paise}
    _lower(invoice, Act.CREDIT, f"credit {note.number}", note.issued_at, amounts, note.number)


def _lower(invoice: Invoice, act: str, key: str, at: datetime, debits: Amounts, text: str) -> None:
    """Subtract the debits from the amount due, then from the amount written off. The tenant's balance gets the rest."""
    amount = sum(debits.values())
    applied = min(amount, max(0, open_paise(invoice)))
    recovered = min(amount - applied, max(0, open_paise(invoice, Account.WRITE_OFF)))
    amounts: dict[str, int] = dict(debits.items())
    amounts |= {Account.RECEIVABLE: -applied, Account.WRITE_OFF: -recovered}
    amounts[Account.BALANCE] = applied + recovered - amount
    post(act, key, at, amounts, invoice=invoice, text=text)


def _give_back(
    invoice: Invoice, name: str, amount_paise: int, act: str, key: str, at: datetime, text: str
) -> None:
    """Post money that went back to the tenant from the ledger account `name`.

    The money is taken from the tenant's balance first. The rest is due again on the invoice, or on the invoice that
    replaced it. If the rest exceeds that invoice's paid amount, the excess is due again on the tenant's other paid
    invoices, the newest first.
    """
    while newer := Invoice.objects.select_for_update(of=("self",)).filter(replaces=invoice).first():
        invoice = newer
    paid = min(amount_paise, max(0, balance_paise(invoice.tenant_id)))
    left, shares = amount_paise - paid, {invoice: 0}
    others = (
        Invoice.objects.for_tenant(invoice.tenant_id).exclude(pk=invoice.pk).order_by("-issued_at", "-id")
    )
    for target in (invoice, *others.select_for_update(of=("self",))) if left else ():
        room = target.total_paise - target.credited_paise - open_paise(target)
        shares[target] = max(0, min(left, room))
        left -= shares[target]
        if left == 0:
            break
    shares[invoice] += left
    for target, due in shares.items():
        amounts = {name: -due, Account.RECEIVABLE: due}
        if target is invoice:
            amounts |= {name: -due - paid, Account.BALANCE: paid}
        named = key if target is invoice else f"{key} {target.number}"
        if (due or target is invoice) and post(act, named, at, amounts, invoice=target, text=text):
            settle(target, at)


def write_off(invoice: Invoice, amount_paise: int, at: datetime, text: str) -> None:
    """Write off the amount due of an invoice."""
    _move(Act.WRITE_OFF, Account.WRITE_OFF, invoice, amount_paise, at, text)


def _move(act: str, name: str, invoice: Invoice, amount_paise: int, at: datetime, text: str) -> None:
    """Post an amount from an account to the receivable of an invoice. The key contains the count of the invoice's
    postings, so an invoice can have several such entries.
    """
    count = LedgerPosting.objects.filter(invoice=invoice).count()
    amounts = {name: amount_paise, Account.RECEIVABLE: -amount_paise}
    post(act, f"{act} {invoice.number} {count}", at, amounts, invoice=invoice, text=text)


def set_off(tenant_id: UUID, at: datetime) -> None:
    """Pay unpaid invoices from the balance, the oldest first. Skips invoices with a payment in flight."""
    in_flight = PaymentAttempt.objects.filter(invoice=OuterRef("pk"), status__in=PaymentAttempt.IN_FLIGHT)
    left = available_paise(tenant_id)
    due = (
        Invoice.objects.for_tenant(tenant_id).unpaid().filter(~Exists(in_flight)).order_by("issued_at", "id")
    )
    for invoice in due.select_for_update(of=("self",)) if left > 0 else ():
        amount = min(left, open_paise(invoice))
        if amount <= 0:
            continue
        left -= amount
        _move(Act.SET_OFF, Account.BALANCE, invoice, amount, at, invoice.number)
        settle(invoice, at)


def settle(invoice: Invoice, at: datetime) -> None:
    """Derive a locked invoice's amounts and status from its postings. Less than a rupee is written off."""
    left = open_paise(invoice)
    if 0 < left < SMALLEST_PAISE:
        write_off(invoice, left, at, "Less than a rupee")
        left = 0
    invoice.amount_paid_paise = invoice.total_paise - invoice.credited_paise - left
    _restate(invoice, left, at)
    invoice.save(
        update_fields=[
            "amount_paid_paise",
            "credited_paise",
            "status",
            "paid_at",
            "overdue_since",
            "reopened_at",
            "reminders_sent",
        ]
    )


def _restate(invoice: Invoice, left: int, at: datetime) -> None:
    if left == 0:
        if invoice.status in Invoice.UNPAID:
            invoice.status = _STATUS.PAID if invoice.amount_paid_paise else _STATUS.VOID
            invoice.paid_at = at if invoice.amount_paid_paise else None
    elif invoice.status in {_STATUS.PAID, _STATUS.VOID}:
        invoice.status, invoice.paid_at, invoice.reopened_at = _STATUS.OPEN, None, at
        invoice.overdue_since, invoice.reminders_sent = None, 0
    elif invoice.status == _STATUS.PROCESSING and not _debit_in_flight(invoice):
        invoice.status = _STATUS.FAILED if invoice.overdue_since else _STATUS.OPEN


def _debit_in_flight(invoice: Invoice) -> bool:
    return PaymentAttempt.objects.filter(
        invoice=invoice, kind=PaymentAttempt.Kind.AUTOPAY, status__in=PaymentAttempt.IN_FLIGHT
    ).exists()


def book_attempt(attempt: PaymentAttempt, invoice: Invoice, at: datetime) -> None:
    """Post the amounts that an attempt collected and refunded since its last posting. Both amounts only grow."""
    name, received, returned = _BOOKED_AS[PaymentAttempt.Kind(attempt.kind)]
    known = LedgerPosting.objects.filter(account=name, entry__key__startswith=f"{attempt.receipt} ")
    sums = known.aggregate(
        came=Sum("amount_paise", filter=_CAME, default=0),
        went=Sum("amount_paise", filter=~_CAME, default=0),
    )
    text = attempt.provider_payment_id or invoice.number
    if more := attempt.captured_paise - sums["came"]:
        key = f"{attempt.receipt} captured {attempt.captured_paise}"
        _lower(invoice, received, key, at, {name: more}, text)
    if more := attempt.refunded_paise + sums["went"]:
        key = f"{attempt.receipt} refunded {attempt.refunded_paise}"
        _give_back(invoice, name, more, returned, key, at, text)
    if attempt.kind == PaymentAttempt.Kind.TDS and attempt.provider_payment_id:
        amounts = {Account.TDS_CREDIT: attempt.kept_paise, Account.TDS: -attempt.kept_paise}
        post(Act.CERTIFICATE, f"certificate {attempt.receipt}", at, amounts, invoice=invoice, text=text)


NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def closed_until() -> datetime:
    """The end of the last closed month."""
    last: datetime | None = ClosedMonth.objects.aggregate(last=Max("ends_at"))["last"]
    return last or NEVER


def close_month(period: Period, *, at: datetime, actor_user_id: int | None = None) -> None:
    """Close a month and all earlier months. Raises Conflict for a month that is not over or is closed already, and
    while a tenant's usage of one of these months is not counted.
    """
    with transaction.atomic():
        # The lock waits for documents and postings under way. Later documents and postings find the month closed.
        tables = f"{InvoiceSeries._meta.db_table}, {LedgerEntry._meta.db_table}"
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
        if period.end > at:
            raise Conflict("This month is not over.")
        if period.end <= closed_until():
            raise Conflict("This month is already closed.")
        if any(due <= period and usage.uncounted(due).exists() for due in usage.due_periods(at)):
            raise Conflict("The usage of this month is not counted yet: the next billing run does.")
        ClosedMonth.objects.create(
            period=str(period), ends_at=period.end, closed_at=at, closed_by=actor_user_id
        )
        audit.record(
            action="billing.close",
            target_type="month",
            target_id=str(period),
            actor_user_id=actor_user_id,
        )


# --- Numbers of documents, without gaps (CGST rule 46(b)). The row of a series stays locked until the document commits.


def take_number(
    *, model: type[Invoice] | type[CreditNote], prefix: str, at: datetime
) -> tuple[str, str, datetime]:
    """The next number of a series, its financial year, and the time of issue. The time is never before the issue of the
    previous number, and never in a closed month.

    Call it inside the transaction that writes the document. If that transaction fails, the next document gets the
    number.
    """
    at = max(at, closed_until())
    year = financial_year(at)
    InvoiceSeries.objects.bulk_create(
        [InvoiceSeries(prefix=prefix, financial_year=year)], ignore_conflicts=True
    )
    series = InvoiceSeries.objects.select_for_update().get(prefix=prefix, financial_year=year)
    if (open_since := closed_until()) > at:  # the month was closed meanwhile
        return take_number(model=model, prefix=prefix, at=open_since)
    serial = series.next_serial
    series.next_serial = serial + 1
    series.save(update_fields=["next_serial"])
    before = model._default_manager.filter(number=gst.document_number(prefix, year, max(1, serial - 1)))
    latest = before.values_list("issued_at", flat=True).first()
    return gst.document_number(prefix, year, serial), year, max(at, latest or at)
