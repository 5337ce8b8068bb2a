"""An independent recount of a year from raw intervals and a log of actions.

It imports no code of the product. It computes prices, taxes, places of supply, months and rounding itself, with
Decimal.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

IST = timedelta(hours=5, minutes=30)
TERRITORIES = {"04", "26", "31", "35", "38", "97"}
Span = tuple[datetime, datetime | None]


def month_start(year: int, month: int) -> datetime:
    """Midnight in India on the first day of a month. Month 13 is January of the next year."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return datetime(year, month, 1, tzinfo=UTC) - IST


def half_up(amount: Decimal) -> int:
    return int(amount.quantize(Decimal(1), ROUND_HALF_UP))


@dataclass
class Buyer:
    """The facts about a tenant that decide its tax, valid from a moment on."""

    since: datetime
    state: str
    registered: bool
    zone: bool = False
    abroad: bool = False
    tds: int = 0


@dataclass
class Price:
    """The monthly price that applies from a month on. Months are counted from January 2027."""

    since: int
    first: int
    further: int
    rate: int
    included: int = 1


@dataclass
class Document:
    """An invoice or a credit note. For a credit note, `credits` is the number of the credited invoice."""

    business: str
    month: int
    issued: datetime
    taxable: int
    central: int = 0
    state: int = 0
    integrated: int = 0
    rate: int = 18
    place: str = ""
    table: str = ""
    tds: int = 0
    credits: "Document | None" = None

    @property
    def tax(self) -> int:
        return self.central + self.state + self.integrated

    @property
    def total(self) -> int:
        return self.taxable + self.tax


@dataclass
class Recount:
    """The log of actions, and the amounts that follow from it."""

    prices: list[Price]
    own_prices: dict[str, list[Price]]
    seller: list[tuple[datetime, str]]
    undertaking_since: datetime
    buyers: dict[str, list[Buyer]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, list[list[Span]]] = field(default_factory=lambda: defaultdict(list))
    trial_months: dict[str, int] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    came: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Each tenant's bank transfers less refunds, in paise."""
    given_up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    deducted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    certified: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def active(self, name: str, month: int) -> int:
        """How many numbers were connected for 24 hours or more."""
        start, end = month_start(2027, month + 1), month_start(2027, month + 2)
        count = 0
        for spans in self.numbers[name]:
            total = timedelta()
            for since, until in spans:
                total += max(timedelta(), min(until or end, end) - max(since, start))
            count += total >= timedelta(hours=24)
        return count

    def price(self, name: str, month: int) -> Price:
        general = [price for price in self.prices if price.since <= month][-1]
        own = [price for price in self.own_prices.get(name, []) if price.since <= month]
        if not own:
            return general
        return Price(month, own[-1].first, own[-1].further, general.rate, own[-1].included)

    def buyer(self, name: str, at: datetime) -> Buyer:
        return [buyer for buyer in self.buyers[name] if buyer.since <= at][-1]

    def invoice(self, name: str, month: int, at: datetime) -> Document | None:
        """Issue the invoice of a month. None for a month of the trial or without numbers."""
        numbers = self.active(name, month)
        if numbers == 0 or month < self.trial_months.get(name, 0):
            return None
        price = self.price(name, month)
        taxable = price.first + price.further * max(0, numbers - price.included)
        buyer = self.buyer(name, at)
        seller = [state for since, state in self.seller if since <= at][-1]
        made = Document(name, month, at, taxable, rate=price.rate, place=buyer.state)
        whole = Decimal(taxable) * price.rate / 100
        if buyer.abroad or buyer.zone:
            made.integrated = 0 if at >= self.undertaking_since else half_up(whole)
        elif buyer.state == seller:
            made.central = made.state = half_up(whole / 2)
        else:
            made.integrated = half_up(whole)
        made.place = "96" if buyer.abroad else buyer.state
        made.table = "exp" if buyer.abroad else "b2b" if buyer.registered else "b2cs"
        if not buyer.abroad:
            made.tds = half_up(Decimal(taxable) * buyer.tds / 100)
            self.deducted[name] += made.tds
        self.documents.append(made)
        return made

    def credited(self, invoice: Document) -> list[Document]:
        return [note for note in self.documents if note.credits is invoice]

    def left(self, invoice: Document) -> int:
        return invoice.total - sum(note.total for note in self.credited(invoice))

    def credit(self, invoice: Document, total: int, at: datetime) -> Document:
        """Credit a part of an invoice with its share of the tax. The last credit has exactly the remaining tax."""
        notes = self.credited(invoice)
        taxable_left = invoice.taxable - sum(note.taxable for note in notes)
        tax_left = invoice.tax - sum(note.tax for note in notes)
        halves = bool(invoice.central)
        share = Decimal(total) * invoice.rate / (100 + invoice.rate)
        tax = 2 * half_up(share / 2) if halves else half_up(share)
        tax = 0 if invoice.tax == 0 else min(tax, tax_left)
        if total - tax > taxable_left:
            tax = total - taxable_left
        if halves and tax % 2:
            tax += 1
        note = Document(
            invoice.business, invoice.month, at, total - tax, rate=invoice.rate, place=invoice.place
        )
        note.credits = invoice
        note.table = {"exp": "cdnur", "b2b": "cdnr", "b2cs": "b2cs"}[invoice.table]
        if halves:
            note.central = note.state = tax // 2
        else:
            note.integrated = tax
        self.documents.append(note)
        return note

    def replace(self, invoice: Document, at: datetime) -> None:
        """Credit the rest of an invoice, issue another invoice for its month, and repeat the previous credits on it."""
        before = sum(note.total for note in self.credited(invoice))
        self.credit(invoice, self.left(invoice), at)
        self.deducted[invoice.business] -= invoice.tds
        new = self.invoice(invoice.business, invoice.month, at)
        if before and new:
            self.credit(new, min(before, new.total), at)

    def owed(self, name: str, collected: int) -> int:
        """The total amount that a tenant owes. Negative for a surplus."""
        total = 0
        for document in self.documents:
            if document.business == name:
                total += -document.total if document.credits else document.total
        return total - collected - self.came[name] - self.deducted[name] - self.given_up[name]

    def accounts(self, book: dict[str, Any]) -> dict[str, int]:
        """The final balance of each account, according to the log and the provider's books."""
        found: defaultdict[str, int] = defaultdict(int)
        for document in self.documents:
            sign = 1 if document.credits else -1
            found["sales"] += sign * document.taxable
            found["gst"] += sign * document.tax
        paid = [row for row in book["payments"] if row["captured"]]
        checks = [row for row in paid if row["invoice_id"]]
        found["checks"] = -sum(row["amount"] - row["amount_refunded"] for row in checks)
        found["fees"] = sum(row["fee"] - row["tax"] for row in paid)
        found["fee_gst"] = sum(row["tax"] for row in paid)
        moved = sum(row["amount"] for row in book["settlements"])
        found["bank"] = moved + sum(self.came.values())
        kept = sum(row["amount"] - row["amount_refunded"] for row in paid)
        found["clearing"] = kept - moved - found["fees"] - found["fee_gst"]
        found["write_off"] = sum(self.given_up.values())
        found["tds_credit"] = sum(self.certified.values())
        found["tds"] = sum(self.deducted.values()) - found["tds_credit"]
        return {name: paise for name, paise in found.items() if paise}

    def returns(self, start: datetime, end: datetime) -> dict[str, dict[str, int]]:
        """The sums of each table in a month's return: documents, taxable value and taxes."""
        tables: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for document in self.documents:
            if not start <= document.issued < end:
                continue
            lowers = -1 if document.credits else 1
            business = document.credits or document
            service = "hsn_b2b" if business.table == "b2b" else "hsn_b2c"
            for table, sign in (
                (document.table, lowers if document.table == "b2cs" else 1),
                (service, lowers),
            ):
                if table in {"b2b", "exp", "cdnr", "cdnur"}:
                    tables[table]["documents"] += 1
                tables[table]["txval"] += sign * document.taxable
                tables[table]["iamt"] += sign * document.integrated
                tables[table]["camt"] += sign * document.central
                tables[table]["samt"] += sign * document.state
            tables["issued"]["credit notes" if document.credits else "invoices"] += 1
        return {name: {key: value for key, value in sums.items() if value} for name, sums in tables.items()}
