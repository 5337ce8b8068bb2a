"""A year of billing by a moved clock: trials, numbers that come and go, failed and late payments, a refund, wrong keys
for a day, a corrected buyer, a special zone, a union territory, buyers that deduct tax, higher prices and another rate,
notices that are lost, doubled and shuffled. The books balance to the paisa, against an independent recount from the
intervals and against what the provider collected.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import F, Sum
from pytest_django import Settings

from billing import accounting, terms
from billing.billing_run import run
from billing.buyers import profiles
from billing.invoices import credit_notes, replacing
from billing.models import (
    BillingProfile,
    BillingSnapshot,
    CreditNote,
    Invoice,
    LedgerEntry,
    PaymentAttempt,
    PlanVersion,
    ProviderEvent,
)
from billing.payments import notices, payment_links, refreshing, settlements
from billing.pricing.periods import Period, financial_year, ist_date
from billing.tests.conftest import connected, ist
from billing.tests.test_payments import answer, post, set_up_mandate
from gateway.clock import now
from tenants.models import Tenant
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

FIRST = Period(2026, 11)
START = FIRST.start
MONTHS = 12
HOUR = timedelta(hours=1)

PAYERS: dict[str, dict[str, Any]] = {
    # name: how it pays, the provider's scenario, months of trial
    "steady": {"method": "upi", "scenario": "ok"},
    "doubled": {"method": "upi", "scenario": "duplicate_webhook"},
    "silent": {"method": "emandate", "scenario": "webhook_lost", "max_amount_paise": 5_000_000},
    "shuffled": {"method": "card", "scenario": "out_of_order"},
    "poor": {"method": "upi", "scenario": "insufficient_funds"},
    "slow": {"method": "upi", "scenario": "late_auth"},
    "late": {"method": None, "scenario": "ok", "pays_after": 12},
    "never": {"method": None, "scenario": "ok"},
    "later": {"method": "upi", "scenario": "ok", "trial": 4},
    "zone": {"method": "upi", "scenario": "ok", "profile": {"is_sez": True}},
    "deductor": {"method": None, "scenario": "ok", "pays_after": 4, "profile": {"tds_percent": 10}},
    "small_deductor": {"method": "upi", "scenario": "ok", "profile": {"tds_percent": 2}},
}


def months() -> Iterator[Period]:
    period = FIRST
    for _ in range(MONTHS):
        yield period
        period = period.next


def next_run(at: datetime) -> datetime:
    """The next day on which billing runs: each of the first half of a month, when it issues, debits and is paid.

    Then every fifth: the time limits that end in the second half are kept a few days later.
    """
    days = 1 if ist_date(at).day < 15 else 5
    return min(at + timedelta(days=days), Period.of(at).end)


def make_tenant(name: str, values: dict[str, Any]) -> Tenant:
    trial_end = START
    for _ in range(values.get("trial", 0)):
        trial_end = Period.of(trial_end).end
    return Tenant.objects.create(
        name=name,
        status=Tenant.Status.ACTIVE,
        billing_status="trialing" if values.get("trial") else "active",
        trial_ends_at=trial_end,
        billing_email=f"{name}+{values['scenario']}@shop.example",
        created_at=START - timedelta(days=20),
    )


def number_lives(rng: random.Random) -> list[tuple[datetime, datetime | None]]:
    """When one number was connected: up to five spans of whole hours, the last one perhaps still open."""
    spans: list[tuple[datetime, datetime | None]] = []
    moment = START + rng.randrange(-200, 24 * 300) * HOUR
    for _ in range(rng.randrange(1, 6)):
        end = moment + rng.choice([3, 10, 23, 24, 25, 200, 900, 4000]) * HOUR
        spans.append((moment, end))
        moment = end + rng.choice([1, 30, 700]) * HOUR
    return [*spans, (moment, None)] if rng.random() < 0.6 else spans


def expected_numbers(lives: list[list[tuple[datetime, datetime | None]]], period: Period) -> int:
    """The count by hours: how many numbers were connected in at least 24 hours of a month."""
    active = 0
    for spans in lives:
        hours = 0
        moment = period.start
        while moment < period.end:
            hours += any(start <= moment and (end is None or moment < end) for start, end in spans)
            moment += HOUR
        active += hours >= 24
    return active


def deliver_badly(provider: RunningSimulator, rng: random.Random, seen: int, at: datetime) -> int:
    """Deliver the new notices in any order, some twice, some never."""
    hooks = provider.control("GET", "payments")["webhooks"]
    fresh = hooks[seen:]
    rng.shuffle(fresh)
    for hook in fresh:
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            assert post(hook).status_code == 200
    notices.apply_waiting(at)
    return len(hooks)


def kept() -> int:
    """What the attempts collected and did not give back; tax deducted at source is collected by the tax office."""
    return (
        PaymentAttempt.objects.exclude(kind="tds").aggregate(
            total=Sum(F("captured_paise") - F("refunded_paise"))
        )["total"]
        or 0
    )


def collected_by(provider: RunningSimulator) -> int:
    """The same by the provider's own books, without the rupee that approves a mandate."""
    return sum(
        row["amount"] - row["amount_refunded"]
        for row in provider.control("GET", "payments")["payments"]
        if row["captured"] and row["amount"] > 100
    )


def priced(numbers: int, period: Period) -> tuple[int, int]:
    """What a month of so many numbers costs without tax, and the rate: from May 2027 on prices and rate are higher."""
    first, further, rate = (60_000, 30_000, 28) if str(period) >= "2027-05" else (50_000, 25_000, 18)
    return first + further * (numbers - 1) if numbers else 0, rate


def expected_taxes(name: str, numbers: int, period: Period) -> dict[str, int]:
    """The taxes of a month, counted anew from `priced`."""
    subtotal, rate = priced(numbers, period)
    tax = subtotal * rate // 100
    return {"CGST": tax // 2, "UTGST": tax // 2} if name == "late" else {"IGST": tax}


def check_books(provider: RunningSimulator) -> None:
    """Snapshots = invoices = payments + open + credited, and payments are what the provider collected."""
    snapshots = BillingSnapshot.objects.aggregate(total=Sum("total_paise"))["total"] or 0
    invoices = list(Invoice.objects.all())
    captured = kept()
    credited = CreditNote.objects.aggregate(total=Sum("total_paise"))["total"] or 0
    total = sum(invoice.total_paise for invoice in invoices)
    assert snapshots == sum(invoice.total_paise for invoice in invoices if invoice.replaces_id is None)
    deducted = sum(invoice.tds_paise for invoice in invoices)
    assert captured + deducted == sum(invoice.amount_paid_paise for invoice in invoices)
    assert credited == sum(invoice.credited_paise for invoice in invoices)
    due = sum(invoice.amount_due_paise for invoice in invoices)
    balances = -accounting.trial_balance(now() + timedelta(days=1000)).get("balance", 0)
    assert total == captured + deducted + due + credited - balances
    assert balances == 0, "nobody paid anything twice"
    check_ledger(provider)
    assert captured <= collected_by(provider), "nothing is recorded that the provider does not have"


def check_ledger(provider: RunningSimulator) -> None:
    """The accounts sum to zero, and say the same as the documents and the provider's own books."""
    accounts = defaultdict(int, accounting.trial_balance(now() + timedelta(days=1000)))
    invoices, notes = Invoice.objects.all(), CreditNote.objects.all()
    assert sum(accounts.values()) == 0
    assert accounts["receivable"] == sum(invoice.amount_due_paise for invoice in invoices)
    assert -accounts["gst"] == sum(
        invoice.cgst_paise + invoice.sgst_paise + invoice.igst_paise for invoice in invoices
    ) - sum(note.tax_paise for note in notes)
    assert accounts["tds"] + accounts["tds_credit"] == sum(invoice.tds_paise for invoice in invoices)
    assert -accounts["sales"] == sum(invoice.subtotal_paise for invoice in invoices) - sum(
        note.taxable_paise for note in notes
    )
    book = provider.control("GET", "payments")
    assert accounts["bank"] == sum(
        row["amount"]
        for row in book["settlements"]
        if LedgerEntry.objects.filter(key=f"settlement {row['id']}").exists()
    )


def test_a_year(provider: RunningSimulator, settings: Settings) -> None:
    rng = random.Random(20261101)
    settings.BILLING_FIRST_PERIOD = str(FIRST)
    settings.BILLING_SELLER_GSTIN = "04AAPFU0939F1Z3"
    right_key = settings.RAZORPAY_KEY_SECRET
    higher = PlanVersion(
        starts="2027-05",
        first_number_paise=60_000,
        additional_number_paise=30_000,
        gst_percent=28,
        reason="Prices and rate of 2027",
    )
    terms.add(higher, at=START)
    tenants, lives = {}, defaultdict(list)
    for name, values in PAYERS.items():
        tenant = tenants[name] = make_tenant(name, values)
        for index in range(rng.randrange(2, 7)):
            lives[name].append(number_lives(rng))
            connected(tenant, str(index), *lives[name][-1])
        if values["method"]:
            cap = values.get("max_amount_paise", 1_500_000)
            set_up_mandate(provider, tenant, method=values["method"], max_amount_paise=cap, at=START)
        BillingProfile.objects.filter(tenant=tenant).update(**values.get("profile", {}))
    BillingProfile.objects.filter(tenant=tenants["late"]).update(state_code="04")
    seen = deliver_badly(provider, rng, 0, START)

    at, end = START, FIRST.start + timedelta(days=31 * MONTHS + 40)
    while at < end:
        if Period.of(at).start == at:
            run(at + timedelta(minutes=15))
        settings.RAZORPAY_KEY_SECRET = "wrong" if at == ist(2027, 2, 1) else right_key
        run(at + timedelta(hours=9, minutes=30))
        if at == ist(2027, 2, 1):
            assert not PaymentAttempt.objects.filter(created_at__gte=at, status="failed").exists()
            settings.RAZORPAY_KEY_SECRET = right_key
        by_link = [tenants[name] for name, values in PAYERS.items() if "pays_after" in values]
        for invoice in Invoice.objects.unpaid().filter(tenant__in=by_link).select_related("tenant"):
            if invoice.issued_at + timedelta(days=PAYERS[invoice.tenant.name]["pays_after"]) <= at:
                link = payment_links.pay_now(invoice=invoice, at=at + timedelta(hours=11))
                assert link.payment_url is not None
                if rng.random() < 0.3:
                    answer(link.payment_url, "decline")
                answer(link.payment_url, "approve")
        following = next_run(at)
        provider.control("POST", "clock/advance", {"hours": (following - at) // HOUR})
        at = following
        seen = deliver_badly(provider, rng, seen, at - HOUR)
        if Period.of(at).start == at:
            provider.control("POST", "settle")
            check_books(provider)
        if at == ist(2027, 4, 20):
            given_back = PaymentAttempt.objects.filter(
                invoice__tenant=tenants["steady"], status="captured"
            ).latest("id")
            provider.control("POST", "refund", {"payment_id": given_back.provider_payment_id})
            refreshing.refresh(given_back.id, at)
            credit_notes.issue(
                invoice_id=given_back.invoice_id,
                total_paise=given_back.captured_paise,
                reason="Goodwill, paid back",
                at=at,
            )
        if at == ist(2027, 5, 20):
            wrong = Invoice.objects.filter(tenant=tenants["doubled"], status="paid").latest("id")
            profiles.change(tenant_id=tenants["doubled"].id, changes={"legal_name": "Corrected Traders"})
            replaced = replacing.replace(invoice_id=wrong.id, reason="Wrong buyer", at=at)
            assert (replaced.status, replaced.period) == ("paid", wrong.period)
        if at == ist(2027, 6, 15):
            oldest = Invoice.objects.filter(tenant=tenants["never"]).order_by("id").first()
            assert oldest is not None
            credit_notes.issue(invoice_id=oldest.id, total_paise=oldest.total_paise, reason="Goodwill", at=at)
            provider.control("POST", "scenario", {"scenario": "ok", "email": tenants["poor"].billing_email})
            set_up_mandate(provider, tenants["poor"], max_amount_paise=1_400_000, at=at)

    # A settlement that came after the last run of the year is booked by the next look.
    provider.control("POST", "settle")
    settlements.reconcile(end)
    check_books(provider)
    book = provider.control("GET", "payments")
    accounts = accounting.trial_balance(now() + timedelta(days=1000))
    assert accounts["bank"] == sum(row["amount"] for row in book["settlements"])
    assert accounts["fees"] + accounts["fee_gst"] == sum(
        row["fee"] for row in book["payments"] if row["captured"]
    )
    assert -accounts["checks"] == sum(
        row["amount"] for row in book["payments"] if row["captured"] and row["amount"] <= 100
    )
    unseen = collected_by(provider) - kept()
    assert accounts["clearing"] == -unseen
    first_trial_free = {name: PAYERS[name].get("trial", 0) for name in PAYERS}
    for name, tenant in tenants.items():
        for index, period in enumerate(months()):
            snapshot = BillingSnapshot.objects.filter(tenant=tenant, period=str(period)).first()
            if index < first_trial_free[name]:
                assert snapshot is None
                continue
            numbers = expected_numbers(lives[name], period)
            assert snapshot is not None
            assert snapshot.active_numbers == numbers, (name, str(period))
            subtotal, rate = priced(numbers, period)
            assert snapshot.total_paise == subtotal * (100 + rate) // 100
            issued = Invoice.objects.filter(snapshot=snapshot)
            assert issued.exists() == (numbers > 0)
            for invoice in issued:
                taxes = {row.type: row.amount_paise for row in invoice.taxes.rows()}
                assert taxes == expected_taxes(name, numbers, period), (name, str(period))
                percent = PAYERS[name].get("profile", {}).get("tds_percent", 0)
                assert invoice.tds_paise == subtotal * percent // 100, (name, str(period))
                assert bool(invoice.endorsement) == (name == "zone")

    for year in {financial_year(invoice.issued_at) for invoice in Invoice.objects.all()}:
        issued = Invoice.objects.filter(financial_year=year).order_by("issued_at", "number")
        serials = [int(number[-6:]) for number in issued.values_list("number", flat=True)]
        assert sorted(serials) == list(range(1, len(serials) + 1)), year

    standing = {name: Tenant.objects.get(pk=tenant.pk).billing_status for name, tenant in tenants.items()}
    assert standing.pop("never") == "past_due"
    assert Tenant.objects.get(name="never").billing_restricted
    final = FIRST.start + timedelta(days=31 * MONTHS + 40)
    recent = {
        invoice.tenant.name
        for invoice in Invoice.objects.unpaid().select_related("tenant")
        if invoice.issued_at > final - timedelta(days=12)
    }
    assert {name for name, status in standing.items() if status != "active"} <= recent
    assert not ProviderEvent.objects.filter(processed_at__isnull=True).exists()
    old_open = (
        Invoice.objects.unpaid()
        .exclude(tenant__name="never")
        .filter(issued_at__lt=final - timedelta(days=20))
    )
    assert list(old_open) == []
    collected = collected_by(provider)
    in_flight = PaymentAttempt.objects.filter(status__in=PaymentAttempt.IN_FLIGHT)
    captured = kept()
    assert captured <= collected <= captured + sum(attempt.amount_paise for attempt in in_flight)
    happened = set(PaymentAttempt.objects.values_list("kind", "status"))
    assert {("autopay", "captured"), ("autopay", "failed"), ("link", "captured")} <= happened
    assert Invoice.objects.filter(status="void").exists()
    assert {invoice.supply_type for invoice in Invoice.objects.all()} == {"inter_state", "intra_state"}
    assert len({invoice.financial_year for invoice in Invoice.objects.all()}) == 2
