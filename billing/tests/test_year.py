"""A year of many tenants with a simulated clock. `recount.py` computes all amounts again, without code of the product.

It includes trials, numbers that connect and disconnect, rising prices and a rising rate, tenants' own prices, a seller
that moves, letters of undertaking, special zones, exports, and tax deducted at source. Debits fail, are late or are
held. Transfers are too large, too small or partial. There are links, goodwill, replacements, write-offs, and refunds by
API, by dashboard and by bank. Notices are lost, repeated, reordered, forged or weeks late. `FAULTS=long` runs the whole
year.
"""

import csv
import io
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.db.models import Sum
from pytest_django import Settings
from stdnum import luhn

from billing import accounting, buyers, gstr1, ledger, plan
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import CreditNote, Invoice, LedgerPosting, PaymentAttempt, PlanVersion, ProviderEvent
from billing.payments import (
    attempts,
    bank_transfers,
    mandates,
    payment_links,
    provider_notices,
    refunds,
    settlements,
)
from billing.pricing.periods import Period
from billing.tests.conftest import connected
from billing.tests.recount import Buyer, Document, Price, Recount, Span, month_start
from billing.tests.test_payments import answer, post
from gateway.api.errors import InvalidRequest
from tenants.models import Tenant
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db, pytest.mark.faults]

WHOLE = os.environ.get("FAULTS") == "long"
FIRST, MONTHS = (0, 12) if WHOLE else (1, 4)
"""The months from FIRST to MONTHS are billed, without MONTHS. Months are counted from January 2027."""
LAST = MONTHS + 2 if WHOLE else MONTHS + 1
"""The end of the year, with the months in which the last debts are collected."""
START = month_start(2027, 1 + FIRST)
HOUR = timedelta(hours=1)
APRIL = month_start(2027, 4)
QUIET = [(2, 12), (9, 9.5), (12, 9.5), (22, 9.5), (28, 9.5)] if WHOLE else []
STEPS = sorted([(1, 0.25), (1, 9.5), (3, 23), (5, 12), (15, 9.5), *QUIET])
"""Day and hour (Indian time) of each billing run in a month."""


@dataclass(frozen=True)
class Business:
    """A tenant and its way of paying: a mandate's method, a link, bank transfer, or none."""

    name: str
    how: str
    scenario: str = "ok"
    state: str = "29"
    registered: bool = True
    zone: bool = False
    country: str = "IN"
    tds: int = 0
    trial: int = 0
    cap: int = 1_500_000

    @property
    def email(self) -> str:
        return f"{self.name}+{self.scenario}@shop.example"


BUSINESSES = [
    Business("goodwill", "upi"),
    Business("transferor", "bank", state="27"),
    Business("short", "bank", state="04"),
    Business("halves", "bank", registered=False),
    Business("returned", "bank", state="33"),
    Business("dashboard", "upi", state="27"),
    Business("payback", "link", registered=False, state="27"),
    Business("gross", "upi"),
    Business("certified", "link", tds=10),
    Business("small_tds", "upi", tds=2, state="27"),
    Business("never", "none"),
    Business("emigrant", "link", registered=False),
    Business("into_zone", "emandate", cap=5_000_000),
    Business("registers", "card", registered=False),
    Business("all_at_once", "none", state="33"),
    Business("own_terms", "upi", state="27"),
    Business("poor", "upi", "insufficient_funds"),
    Business("slow", "upi", "late_auth"),
    Business("abroad", "link", country="SG"),
    Business("zone", "upi", "out_of_order", zone=True),
    Business("later", "upi", "duplicate_webhook", trial=2),
    Business("silent", "emandate", "webhook_lost", state="27", cap=5_000_000),
]
if WHOLE:
    for number, (how, state) in enumerate(
        product(("upi", "card", "emandate", "link", "bank"), ("27", "04", "29", "33", "26"))
    ):
        scenario = ("ok", "peak_hour_hold", "bad_signature", "late_auth", "duplicate_webhook")[number % 5]
        BUSINESSES.append(
            Business(
                f"more{number}",
                how,
                scenario,
                state,
                registered=number % 3 > 0,
                trial=number % 4,
                tds=(0, 0, 2, 10)[number % 4],
            )
        )

PRICES = [
    Price(0, 50_000, 25_000, 18),
    Price(1, 55_000, 27_500, 18),
    Price(3, 60_000, 30_000, 28),
    Price(7, 60_001, 30_001, 28),
]
OWN = {"own_terms": [Price(2, 90_000, 20_000, 0, included=3)]}


def gstin(state: str) -> str:
    """A valid GSTIN in a State."""
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    start = f"{state}AAACI1681G1Z"
    return start + luhn.calc_check_digit(start, alphabet)


def lives(rng: random.Random) -> list[Span]:
    """The intervals in which one number was connected. Some are a second shorter or longer than a day."""
    spans: list[Span] = []
    moment = START + rng.randrange(-200, 24 * 30 * (MONTHS - FIRST)) * HOUR
    for _ in range(rng.randrange(1, 5)):
        length = rng.choice([3, 23, 24, 25, 200, 900, 4000]) * HOUR
        end = moment + length + timedelta(seconds=rng.choice([-1, 0, 0, 1]))
        spans.append((moment, end))
        moment = end + rng.choice([1, 30, 700]) * HOUR
    return [*spans, (moment, None)] if rng.random() < 0.6 else spans


class Year:
    """Runs the product through a simulated year and logs the actions."""

    def __init__(self, provider: RunningSimulator, settings: Settings) -> None:
        self.provider, self.settings = provider, settings
        self.rng = random.Random(20270101)
        self.log = Recount(PRICES, OWN, [(START, "27"), (APRIL, "04")], APRIL)
        self.tenants: dict[str, Tenant] = {}
        self.at = START
        self.seen: set[str] = set()
        self.late: list[dict[str, Any]] = []
        self.transfers = 0
        provider.control("POST", "clock/advance", {"hours": (START - datetime.now(UTC)) / HOUR})

    # --- Creation of the tenants

    def begin(self) -> None:
        for price in PRICES[1:]:
            self._terms(price, None, price.rate)
        for business in BUSINESSES:
            self._make(business)
        for name, own in OWN.items():
            for price in own:
                self._terms(price, self.tenants[name], None)

    def _terms(self, price: Price, tenant: Tenant | None, rate: int | None) -> None:
        version = PlanVersion(
            tenant=tenant,
            starts=f"2027-{price.since + 1:02d}",
            first_number_paise=price.first,
            additional_number_paise=price.further,
            included_numbers=price.included,
            gst_percent=rate,
            reason="The year",
        )
        plan.add_version(version, at=month_start(2027, 1))

    def _make(self, business: Business) -> None:
        name, begins = business.name, month_start(2027, 1 + business.trial)
        tenant = self.tenants[name] = Tenant.objects.create(
            name=name,
            status=Tenant.Status.ACTIVE,
            billing_status="trialing" if business.trial else "active",
            trial_ends_at=begins,
            billing_email=business.email,
            created_at=START - timedelta(days=20),
        )
        self.log.trial_months[name] = business.trial
        for index in range(self.rng.randrange(1, 6)):
            spans: list[Span] = lives(self.rng) if index else [(START - HOUR, None)]
            self.log.numbers[name].append(spans)
            connected(tenant, str(index), *spans)
        known = {"legal_name": f"{name} Limited", "address": "1 Road", "city": "Town", "pin": "560025"}
        tax_id = gstin(business.state) if business.registered else "AAACI1681G"
        values = known | {"state_code": business.state, "tax_id": tax_id, "phone": "+919845012345"}
        buyers.change(tenant_id=tenant.id, changes=values | {"tds_percent": business.tds})
        decided = {"country": business.country, "is_sez": business.zone}
        buyers.change(tenant_id=tenant.id, changes=decided, evidence="File 1")
        self.log.buyers[name].append(
            Buyer(
                START - timedelta(days=99),
                business.state,
                business.registered,
                business.zone,
                business.country != "IN",
                business.tds,
            )
        )
        if business.how in {"upi", "card", "emandate"}:
            self.mandate(name, business.how, business.cap)

    def mandate(self, name: str, method: str, cap: int = 1_500_000) -> None:
        tenant = self.tenants[name]
        made = mandates.ask_for(
            tenant_id=tenant.id, method=method, max_amount_paise=cap, return_url=None, at=self.at
        )
        assert made.authorization_url is not None
        answer(made.authorization_url, "approve")
        mandates.sync(made.id, self.at)

    # --- Time

    def go_to(self, at: datetime) -> None:
        self.provider.control("POST", "clock/advance", {"hours": (at - self.at) / HOUR})
        self.at = at
        self.settings.BILLING_SELLER_GSTIN = "04AAPFU0939F1Z3" if at >= APRIL else "27AAPFU0939F1ZV"
        self.settings.BILLING_LUT_NUMBERS = {"2728": "AD270427000001X"}

    def deliver(self) -> None:
        """Deliver the new notices in random order: some twice, some forged, some weeks late, some never."""
        hooks = self.provider.control("GET", "payments")["webhooks"]
        fresh = [hook for hook in hooks if hook["event_id"] not in self.seen]
        self.seen |= {hook["event_id"] for hook in fresh}
        old, self.late = self.late, []
        self.rng.shuffle(fresh)
        for hook in [*old, *fresh]:
            fate = self.rng.random()
            if fate < 0.1 and hook not in old:
                self.late.append(hook)
            elif fate < 0.8:
                for _ in range(1 + (fate < 0.2)):
                    assert post(hook).status_code in {200, 401}
            if fate > 0.97:
                assert post({**hook, "body": hook["body"].replace("event", "evenT", 1)}).status_code == 401
        provider_notices.apply_waiting(self.at)

    # --- Actions of staff

    def issued(self, name: str) -> tuple[Invoice, Document]:
        """The newest invoice of a tenant, and the same invoice in the log."""
        invoice = Invoice.objects.filter(tenant=self.tenants[name]).latest("id")
        mine = [one for one in self.log.documents if one.business == name and not one.credits]
        return invoice, mine[-1]

    def transfer(self, name: str, paise: int) -> PaymentAttempt:
        invoice, _ = self.issued(name)
        self.transfers += 1
        self.log.came[name] += paise
        reference = f"UTR{self.transfers}"
        made = bank_transfers.record(
            invoice_id=invoice.id, amount_paise=paise, reference=reference, at=self.at
        )
        with pytest.raises(InvalidRequest):
            bank_transfers.record(invoice_id=invoice.id, amount_paise=paise, reference=reference, at=self.at)
        return made

    def credit(self, name: str, paise: int | None = None) -> int:
        invoice, mine = self.issued(name)
        paise = self.log.left(mine) if paise is None else paise
        credit_notes.issue(invoice_id=invoice.id, total_paise=paise, reason="Outage", at=self.at)
        self.log.credit(mine, paise, self.at)
        return paise

    def pay_link(self, name: str, *, everything: bool = False) -> None:
        tenant = self.tenants[name]
        for invoice in Invoice.objects.for_tenant(tenant.id).owing().order_by("id"):
            link = (
                payment_links.pay_all(tenant_id=tenant.id, at=self.at)
                if everything
                else payment_links.pay_now(invoice=invoice, at=self.at)
            )
            assert link.payment_url is not None
            if self.rng.random() < 0.3:
                answer(link.payment_url, "decline")
            answer(link.payment_url, "approve")
            attempts.refresh(link.id, self.at)
            if everything:
                return

    def change(self, name: str, changes: dict[str, Any], **known: Any) -> None:
        buyers.change(tenant_id=self.tenants[name].id, changes=changes, evidence="File 2")
        buyer = self.log.buyer(name, self.at)
        self.log.buyers[name].append(replace(buyer, since=self.at, **known))

    def paid_by(self, name: str, kind: str) -> PaymentAttempt:
        invoice, _ = self.issued(name)
        return PaymentAttempt.objects.get(invoice=invoice, kind=kind, status="captured")

    def on_the_fifth(self, month: int) -> None:
        for business in BUSINESSES:
            name = business.name
            if business.how == "link":
                self.pay_link(name)
            elif business.how == "bank" and (due := self._due(name)):
                if name == "transferor" and month == 2:
                    due += 1_000
                if name == "short" and month == 3:
                    due -= 40
                    self.log.given_up[name] += 40
                if name == "halves" and month % 2:
                    self.transfer(name, due // 2)
                    due -= due // 2
                self.transfer(name, due)

    def _due(self, name: str) -> int:
        own = Invoice.objects.for_tenant(self.tenants[name].id).owing()
        return sum(invoice.amount_due_paise for invoice in own)

    def on_the_fifteenth(self, month: int) -> None:
        if month == 2:
            self.credit("goodwill", 44_251)
            self.change("goodwill", {"legal_name": "Corrected Traders"})
            invoice, mine = self.issued("goodwill")
            issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=self.at)
            self.log.replace(mine, self.at)
            self.change("registers", {"tax_id": gstin("29")}, registered=True)
        if month == 3:
            whole = self.credit("returned")
            paid = self.paid_by("returned", "manual")
            bank_transfers.give_back(attempt_id=paid.id, amount_paise=whole, reference="BACK", at=self.at)
            self.log.came["returned"] -= whole
            half = self.paid_by("dashboard", "autopay")
            body = {"payment_id": half.provider_payment_id, "amount": half.amount_paise // 2}
            self.provider.control("POST", "refund", body)
            attempts.refresh(half.id, self.at)
            self.credit("dashboard", half.amount_paise // 2)
            self.change("emigrant", {"country": "US"}, abroad=True)
            self.change("into_zone", {"is_sez": True}, zone=True)
            self.mandate("poor", "upi")
            scenario = {"scenario": "ok", "email": BUSINESSES[16].email}
            self.provider.control("POST", "scenario", scenario)
        if month == 4:
            self.credit("payback", 10_000)
            paid = self.paid_by("payback", "link")
            assert refunds.pay_back(attempt_id=paid.id, amount_paise=10_000, at=self.at).status == "processed"
            self.deduct_after_a_gross_debit()
            self.deduct("certified", "CERT-1")
            self.pay_link("all_at_once", everything=True)
            oldest = Invoice.objects.filter(tenant=self.tenants["never"]).earliest("id")
            self.log.given_up["never"] += oldest.amount_due_paise
            bank_transfers.write_off(invoice_id=oldest.id, reason="Closed", at=self.at)

    def deduct(self, name: str, certificate: str) -> int:
        """Record TDS of 10 % for the newest invoice, with or without a certificate."""
        invoice, mine = self.issued(name)
        paise = (2 * mine.taxable * 10 + 100) // 200
        self.log.deducted[name] += paise - mine.tds
        self.log.certified[name] += paise if certificate else 0
        bank_transfers.record_tds(
            invoice_id=invoice.id, amount_paise=paise, certificate=certificate, at=self.at
        )
        return paise

    def deduct_after_a_gross_debit(self) -> None:
        paise = self.deduct("gross", "")
        paid = self.paid_by("gross", "autopay")
        assert refunds.pay_back(attempt_id=paid.id, amount_paise=paise, at=self.at).status == "processed"

    def invoice_all(self, month: int) -> None:
        for business in BUSINESSES:
            self.log.invoice(business.name, month, self.at)

    # --- The year

    def live(self) -> None:
        for month in range(FIRST, LAST):
            for day, hour in STEPS:
                self.go_to(month_start(2027, 1 + month) + timedelta(days=day - 1, hours=hour))
                run(self.at)
                if (day, hour) == STEPS[0] and FIRST < month <= MONTHS:
                    self.invoice_all(month - 1)
                if day in {3, 15, 28}:
                    self.deliver()
                if day == 5:
                    self.on_the_fifth(month)
                if day == 15:
                    self.on_the_fifteenth(month)
            self.provider.control("POST", "settle")
            settlements.reconcile(self.at)
            assert sum(accounting.trial_balance(self.at + timedelta(days=999)).values()) == 0
            if month == MONTHS:
                Tenant.objects.update(billing_status=None)  # no further month is billed
        self.provider.control("POST", "settle")
        settlements.reconcile(self.at)


@pytest.fixture
def year(provider: RunningSimulator, settings: Settings) -> Year:
    settings.BILLING_FIRST_PERIOD = f"2027-{1 + FIRST:02d}"
    return Year(provider, settings)


def test_a_year(year: Year) -> None:
    year.begin()
    year.live()
    log, book = year.log, year.provider.control("GET", "payments")
    assert (
        not PaymentAttempt.objects.filter(status__in=PaymentAttempt.IN_FLIGHT).exclude(kind="link").exists()
    )
    check_documents(year)
    check_balances(year, book)
    found = accounting.trial_balance(year.at + timedelta(days=999))
    wanted = log.accounts(book)
    owed = {name: log.owed(name, collected(book, name)) for name in year.tenants}
    net = found.pop("receivable", 0) + found.pop("balance", 0)
    assert net == sum(owed.values())
    assert {name: paise for name, paise in found.items() if paise} == wanted
    check_returns(log)
    check_ledger_export(wanted, net)
    assert Tenant.objects.get(name="never").billing_restricted
    assert not ProviderEvent.objects.filter(
        processed_at=None, received_at__lt=year.at - timedelta(days=8)
    ).exists()
    happened = set(PaymentAttempt.objects.values_list("kind", "status"))
    assert {
        ("autopay", "captured"),
        ("autopay", "failed"),
        ("link", "captured"),
        ("tds", "captured"),
    } <= happened


def collected(book: dict[str, Any], name: str) -> int:
    """The amount that the provider has collected from a tenant, without the one rupee that confirms a mandate."""
    own = [row for row in book["payments"] if row["captured"] and not row["invoice_id"]]
    emails = {link["id"]: link["customer"]["email"] for link in book["payment_links"]}
    orders = {link.get("order_id"): emails[link["id"]] for link in book["payment_links"]}
    return sum(
        row["amount"] - row["amount_refunded"]
        for row in own
        if (row["email"] or orders.get(row["order_id"], "")).startswith(f"{name}+")
    )


def check_documents(year: Year) -> None:
    """Check every invoice and credit note: its amounts to the paisa, and the order within its series."""
    wanted = [document for document in year.log.documents if not document.credits]
    key = {tenant.pk: name for name, tenant in year.tenants.items()}
    found = defaultdict(list)
    for invoice in Invoice.objects.prefetch_related("lines").order_by("id"):
        found[key[invoice.tenant_id], Period.parse(invoice.period).month - 1].append(invoice)
    assert sum(map(len, found.values())) == len(wanted)
    for mine in wanted:
        invoice = found[mine.business, mine.month].pop(0)
        where = (mine.business, mine.month)
        assert invoice.subtotal_paise == mine.taxable, where
        taxes = (invoice.cgst_paise, invoice.sgst_paise, invoice.igst_paise)
        assert taxes == (mine.central, mine.state, mine.integrated), where
        assert (invoice.place_of_supply[:2], invoice.issued_at) == (mine.place, mine.issued), where
        assert {line.gst_percent for line in invoice.lines.all()} == {mine.rate}, where
        assert bool(invoice.endorsement) == (
            year.log.buyer(mine.business, mine.issued).zone or mine.place == "96"
        )
        notes = sorted((note.taxable, note.tax) for note in year.log.credited(mine))
        assert notes == sorted(invoice.credit_notes.values_list("taxable_paise", "tax_paise")), where
    for model, prefix in ((Invoice, "WG"), (CreditNote, "WGCN")):
        for financial_year in ("2627", "2728"):
            series = model.objects.filter(number__startswith=f"{prefix}/{financial_year}/").order_by("number")
            serials = [int(number[-6:]) for number in series.values_list("number", flat=True)]
            assert serials == list(range(1, len(serials) + 1))
            dates = list(series.values_list("issued_at", flat=True))
            assert dates == sorted(dates)
            assert all((at >= APRIL) == (financial_year == "2728") for at in dates)


def check_balances(year: Year, book: dict[str, Any]) -> None:
    """Check that postings, invoices and statement give the same amount owed by each tenant."""
    for name, tenant in year.tenants.items():
        owed = year.log.owed(name, collected(book, name))
        own = LedgerPosting.objects.filter(entry__tenant=tenant, account__in=("receivable", "balance"))
        assert (own.aggregate(total=Sum("amount_paise"))["total"] or 0) == owed, name
        due = sum(invoice.amount_due_paise for invoice in Invoice.objects.for_tenant(tenant.id))
        assert due - ledger.balance_paise(tenant.id) == owed, name
        lines = accounting.statement(tenant.id)
        assert (lines[-1].owed_paise if lines else 0) == owed, name
        assert due == 0 or ledger.balance_paise(tenant.id) == 0, f"{name}: a balance pays what is due"


def check_returns(log: Recount) -> None:
    """Check each table of every month's GSTR-1."""
    for number in range(1, MONTHS + 3):
        start, end = month_start(2027, number), month_start(2027, number + 1)
        assert sums_of(gstr1.of(Period.of(start))) == log.returns(start, end), number


def sums_of(content: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The sums of each table in an exported return, in paise, in the form of `Recount.returns`."""
    found: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for table in ("b2b", "exp", "cdnr", "cdnur", "b2cs", "hsn"):
        for name, row, is_document in _rows(table, content.get(table, ())):
            found[name]["documents"] += is_document
            for key in ("txval", "iamt", "camt", "samt"):
                found[name][key] += round(row.get(key, 0) * 100)
    for series in content.get("doc_issue", {}).get("doc_det", ()):
        kind = "invoices" if series["doc_num"] == 1 else "credit notes"
        found["issued"][kind] += sum(row["net_issue"] for row in series["docs"])
    return {name: {key: value for key, value in sums.items() if value} for name, sums in found.items()}


def _rows(table: str, content: Any) -> Iterator[tuple[str, dict[str, Any], int]]:
    if table == "hsn":
        for name, rows in dict(content).items():
            yield from ((name, row, 0) for row in rows)
    elif table == "b2cs":
        yield from ((table, row, 0) for row in content)
    else:
        documents = [one for group in content for one in group.get("inv", group.get("nt", [group]))]
        for document in documents:
            for item in document["itms"]:
                yield table, item.get("itm_det", item), 1


def check_ledger_export(wanted: dict[str, int], net: int) -> None:
    """Check that the CSV files of all months add up to the balance of each account."""
    labels = {account.label: account.value for account in LedgerPosting.Account}
    found: defaultdict[str, int] = defaultdict(int)
    for number in range(1, MONTHS + 4):
        written = accounting.ledger_csv(Period.of(month_start(2027, number)))
        for row in csv.DictReader(io.StringIO(written)):
            amounts = [int(row[name].replace(".", "") or 0) for name in ("Debit", "Credit")]
            found[labels[row["Account"]]] += amounts[0] - amounts[1]
    assert found.pop("receivable", 0) + found.pop("balance", 0) == net
    assert {name: paise for name, paise in found.items() if paise} == wanted
