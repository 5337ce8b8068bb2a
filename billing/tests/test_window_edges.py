"""The edges of billing's time windows. The tests compare the result just before an edge with the result at the edge."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from billing import buyers, einvoices, mails, next_invoice, restriction, usage
from billing.billing_run import run
from billing.error_isolation import SomeFailed
from billing.invoices import issuing
from billing.models import (
    BillingMail,
    BillingProfile,
    BillingSnapshot,
    Invoice,
    Mandate,
    PaymentAttempt,
    ProviderEvent,
    Refund,
)
from billing.payments import (
    attempts,
    bank_transfers,
    debits,
    mandates,
    payment_links,
    provider_notices,
    refunds,
)
from billing.payments.provider import (
    Link,
    MandateState,
    Payment,
    ProviderUnreachable,
    RefundState,
    require_pages_left,
)
from billing.payments.razorpay import Razorpay
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, NOVEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_money import late_attempt
from gateway.api.errors import Conflict, RateLimited
from gateway.clock import now
from tenants.models import OutboundMail, Tenant
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

MOMENT = timedelta(microseconds=1)
DAY = timedelta(days=1)


@pytest.fixture
def overdue(invoice: Invoice) -> Invoice:
    """An invoice that has just become overdue."""
    restriction.mark_overdue(invoice.due_at)
    invoice.refresh_from_db()
    assert invoice.overdue_since == invoice.due_at
    return invoice


def around(edge: datetime, happened: Callable[[datetime], object]) -> list[object]:
    """The results of `happened` just before an edge and at the edge."""
    return [happened(edge - MOMENT), happened(edge)]


def until(edge: datetime, happened: Callable[[datetime], object]) -> list[object]:
    """Like `around`, for an act that happens only once. Calls `happened` at the edge first, where it must not act."""
    at_the_edge = happened(edge)
    return [happened(edge - MOMENT), at_the_edge]


def test_an_invoice_is_overdue_from_its_due_date_on(invoice: Invoice) -> None:
    assert around(invoice.due_at, restriction.mark_overdue) == [0, 1]


def test_a_business_is_restricted_from_21_days_on(overdue: Invoice) -> None:
    def is_restricted(at: datetime) -> bool:
        restriction.mark_overdue(at)
        return Tenant.objects.get(pk=overdue.tenant_id).billing_restricted

    assert around(overdue.due_at + 21 * DAY, is_restricted) == [False, True]


@pytest.mark.parametrize(("failed", "days"), [(6, 15), (40, 0)])
def test_a_debit_that_failed_early_restricts_after_21_days_but_never_before_the_due_date(
    overdue: Invoice, failed: int, days: int
) -> None:
    Invoice.objects.filter(pk=overdue.pk).update(overdue_since=overdue.due_at - failed * DAY)

    def is_restricted(at: datetime) -> bool:
        restriction.mark_overdue(at)
        restriction.refresh(tenant_id=overdue.tenant_id, at=at)
        return Tenant.objects.get(pk=overdue.tenant_id).billing_restricted

    assert around(overdue.due_at + days * DAY, is_restricted) == [False, True]
    mails.send_reminders(overdue.due_at + (days - 1) * DAY)
    assert "within 1 day: after that" in OutboundMail.objects.latest("id").text


def test_a_business_is_late_since_its_oldest_overdue_invoice(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    for at in (FIRST_OF_DECEMBER, ist(2027, 1, 1, 0, 15)):
        assert (usage.take_snapshots(at), issuing.issue_due(at)) == (1, 1)
    first, second = Invoice.objects.order_by("id")
    restriction.mark_overdue(second.due_at)

    def state() -> tuple[object, ...]:
        restriction.refresh(tenant_id=payer.id, at=second.due_at)
        found = Tenant.objects.get(pk=payer.pk)
        return found.billing_status, found.past_due_since, found.billing_restricted

    assert state() == ("past_due", first.due_at, True)
    Invoice.objects.filter(pk=first.pk).update(status="paid")
    assert state() == ("past_due", second.due_at, False)
    Invoice.objects.update(status="paid")
    assert state() == ("active", None, False)


def test_all_invoices_of_a_business_wait_for_its_debit_in_flight(payer: Tenant) -> None:
    """The provider may refuse the service's own keys, and then the business is late with none of them."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    for at in (FIRST_OF_DECEMBER, ist(2027, 1, 1, 0, 15)):
        assert (usage.take_snapshots(at), issuing.issue_due(at)) == (1, 1)
    first, second = Invoice.objects.order_by("id")
    debit = late_attempt(first, "autopay", kind="autopay", status="processing")
    assert restriction.mark_overdue(second.due_at) == 0
    attempts.fail(attempt_id=debit.id, error=None, at=second.due_at)
    assert restriction.mark_overdue(second.due_at) == 1, "the failed debit marked the first invoice itself"


@pytest.mark.parametrize(("sent", "days"), [(0, 0), (1, 3), (2, 7), (3, 14), (4, 21)])
def test_a_reminder_goes_out_from_its_day_on(overdue: Invoice, sent: int, days: int) -> None:
    Invoice.objects.filter(pk=overdue.pk).update(reminders_sent=sent)
    assert around(overdue.due_at + days * DAY, mails.send_reminders) == [0, 1]


@pytest.mark.parametrize("status", Invoice.Status.values)
def test_only_an_invoice_that_somebody_has_to_pay_has_reminders(overdue: Invoice, status: str) -> None:
    """A debit that is under way may still pay the invoice."""
    Invoice.objects.filter(pk=overdue.pk).update(status=status)
    assert mails.send_reminders(overdue.due_at) == (status in {"open", "failed"})


def test_several_missed_reminders_are_one_mail(overdue: Invoice) -> None:
    days = (8, 13, 14, 40, 41)
    assert [mails.send_reminders(overdue.due_at + day * DAY) for day in days] == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(("left", "is_late"), [(99, False), (100, True)])
def test_less_than_a_rupee_is_never_late(invoice: Invoice, left: int, is_late: bool) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(amount_paid_paise=59_000 - left)
    assert restriction.mark_overdue(invoice.due_at) == is_late
    assert len(payment_links.payable(invoice.tenant_id)) == is_late
    Invoice.objects.filter(pk=invoice.pk).update(overdue_since=invoice.due_at)
    assert mails.send_reminders(invoice.due_at) == is_late
    restriction.refresh(tenant_id=invoice.tenant_id, at=invoice.due_at)
    assert Tenant.objects.get(pk=invoice.tenant_id).billing_status == ("past_due" if is_late else "active")


@pytest.mark.parametrize(("before", "days"), [(0, 3), (1, 7)])
def test_a_failed_debit_is_retried_from_its_day_on(overdue: Invoice, before: int, days: int) -> None:
    mandate = active_mandate(overdue.tenant)
    failed_debit(overdue, mandate)

    def due(at: datetime) -> int:
        return debits._retries_due(overdue, mandate, at)

    assert around(overdue.due_at + days * DAY, due) == [before, before + 1]


def active_mandate(tenant: Tenant, **values: Any) -> Mandate:
    known = {"method": "upi", "status": "active", "max_amount_paise": 59_000}
    return Mandate.objects.create(tenant=tenant, **(known | values))


def failed_debit(overdue: Invoice, mandate: Mandate) -> None:
    """A debit of an invoice that failed when the invoice became overdue."""
    attempts.insert(
        overdue,
        "autopay",
        FIRST_OF_DECEMBER,
        mandate=mandate,
        status="failed",
        completed_at=overdue.overdue_since,
    )


@pytest.mark.parametrize(
    ("invoice_values", "mandate_values", "begins"),
    [
        ({}, {}, True),
        ({"status": "failed"}, {}, True),
        ({"status": "processing"}, {}, False),
        ({"status": "paid"}, {}, False),
        ({"status": "void"}, {}, False),
        ({"amount_paid_paise": 58_900}, {}, True),
        ({"amount_paid_paise": 58_901}, {}, False),
        ({"reopened_at": FIRST_OF_DECEMBER}, {}, False),
        ({}, {"status": "paused"}, False),
        ({}, {"status": "cancelled"}, False),
        ({}, {"max_amount_paise": 58_999}, False),
        ({"amount_paid_paise": 1}, {"max_amount_paise": 58_999}, True),
    ],
)
def test_what_a_mandate_is_debited_for(
    invoice: Invoice, invoice_values: dict[str, Any], mandate_values: dict[str, Any], begins: bool
) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(**invoice_values)
    mandate = active_mandate(invoice.tenant, **mandate_values)
    begun = debits._begin_debit(invoice.pk, mandate, FIRST_OF_DECEMBER)
    assert [attempt.pk for attempt in PaymentAttempt.objects.all()] == ([begun] if begins else [])
    invoice.refresh_from_db()
    wanted = "processing" if begins else invoice_values.get("status", "open")
    assert (begun is not None, invoice.status) == (begins, wanted)


@pytest.mark.parametrize(
    ("method", "of_this_mandate", "started", "begins"),
    [("upi", True, 0, True), ("upi", True, 1, False), ("card", True, 0, False), ("card", False, 0, True)],
)
def test_after_a_failed_debit_another_is_due_by_its_mandate(
    overdue: Invoice, method: str, of_this_mandate: bool, started: int, begins: bool
) -> None:
    """Three days after the failure: the first retry, unless it was begun; a card has none; a new mandate is tried."""
    Invoice.objects.filter(pk=overdue.pk).update(status="failed", retries_started=started)
    mandate = active_mandate(overdue.tenant, method=method)
    other = active_mandate(overdue.tenant, status="cancelled")
    failed_debit(overdue, mandate if of_this_mandate else other)
    begun = debits._begin_debit(overdue.pk, mandate, overdue.due_at + 3 * DAY)
    assert (begun is not None) is begins
    overdue.refresh_from_db()
    assert overdue.retries_started == (1 if method == "upi" else 0)


def test_debits_begin_at_nine_in_india(invoice: Invoice, provider: RunningSimulator) -> None:
    active_mandate(invoice.tenant, provider_token_id="token_1", provider_customer_id="cust_1")
    assert around(ist(2026, 12, 2, 9), debits.charge_due) == [0, 1]


def test_an_invoice_without_a_state_waits_20_days(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.update(state_code="", tax_id="", tax_id_type="")
    run(FIRST_OF_DECEMBER)

    def is_issued(at: datetime) -> bool:
        issuing.issue_due(at)
        return Invoice.objects.exists()

    assert around(NOVEMBER.end + 20 * DAY, is_issued) == [False, True]
    assert only_invoice(payer).place_of_supply == "27-Maharashtra", "the seller's, as the law says"


def test_a_registration_can_be_cancelled_for_24_hours() -> None:
    """The portal still accepts a cancellation exactly 24 hours later (CGST rule 48, schema INV-01)."""
    registered = Invoice(ack_at=FIRST_OF_DECEMBER)
    edge = FIRST_OF_DECEMBER + DAY + MOMENT
    assert around(edge, lambda at: einvoices.is_cancellable(registered, at)) == [True, False]


def test_a_month_is_counted_from_ten_minutes_after_its_end_on() -> None:
    def counted(at: datetime) -> list[Period]:
        return list(usage.due_periods(at))

    assert around(NOVEMBER.end + timedelta(minutes=10), counted) == [[NOVEMBER.previous], [NOVEMBER]]


def test_a_trial_is_over_at_its_end(payer: Tenant) -> None:
    Tenant.objects.update(billing_status="trialing", trial_ends_at=FIRST_OF_DECEMBER)
    assert around(FIRST_OF_DECEMBER, usage.end_trials) == [0, 1]


@pytest.mark.parametrize(
    ("values", "counted"),
    [
        ({"created_at": NOVEMBER.end - MOMENT}, True),
        ({"created_at": NOVEMBER.end}, False),
        ({"trial_ends_at": NOVEMBER.end - MOMENT}, True),
        ({"trial_ends_at": NOVEMBER.end}, False),
        ({"trial_ends_at": None}, True),
        ({"billing_status": "past_due"}, True),
        ({"billing_status": "trialing"}, False),
    ],
)
def test_a_month_is_counted_of_who_was_a_customer_in_it(
    payer: Tenant, values: dict[str, Any], counted: bool
) -> None:
    Tenant.objects.filter(pk=payer.pk).update(**values)
    assert usage.take_snapshots(FIRST_OF_DECEMBER) == counted


@pytest.mark.parametrize(("hours", "billed"), [(24, [86_400]), (23, [])])
def test_a_month_is_billed_from_the_end_of_the_trial(payer: Tenant, hours: int, billed: list[int]) -> None:
    ends = NOVEMBER.end - timedelta(hours=hours)
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ends)
    connected(payer, "1", (ist(2026, 11, 3), None))
    charge = next_invoice.estimate(Tenant.objects.get(pk=payer.pk), NOVEMBER.end - MOMENT)
    usage.take_snapshots(FIRST_OF_DECEMBER)
    numbers = BillingSnapshot.objects.get().numbers
    assert [number["connected_seconds"] for number in numbers] == billed
    assert charge is not None
    assert (charge.period, charge.numbers) == ("2026-11", len(billed))


@pytest.mark.parametrize("registered", [False, True])
def test_an_invoice_is_mailed_until_its_age(invoice: Invoice, registered: bool, settings: Any) -> None:
    """The law allows 30 days for a registration, so mails of registered invoices may be late."""
    settings.BILLING_EINVOICES = registered
    Invoice.objects.update(issued_at=FIRST_OF_DECEMBER, irn="1" * 64)
    BillingMail.objects.all().delete()
    assert until(FIRST_OF_DECEMBER + (31 if registered else 3) * DAY, mails.send_invoices) == [1, 0]


def test_a_receipt_is_mailed_for_two_days(invoice: Invoice) -> None:
    Invoice.objects.update(status="paid", amount_paid_paise=59_000, paid_at=FIRST_OF_DECEMBER)
    assert until(FIRST_OF_DECEMBER + 2 * DAY, mails.send_receipts) == [1, 0]


def test_an_invoice_that_is_paid_again_on_another_day_has_another_receipt(invoice: Invoice) -> None:
    """For example after a refund made it due again."""
    sent = []
    for hours in (1, 2, 24):
        at = FIRST_OF_DECEMBER + timedelta(hours=hours)
        Invoice.objects.update(status="paid", amount_paid_paise=59_000, paid_at=at)
        sent.append(mails.send_receipts(at))
    assert sent == [1, 0, 1]
    Invoice.objects.update(status=Invoice.Status.VOID, paid_at=at + DAY)
    assert mails.send_receipts(at + DAY) == 0


@pytest.mark.parametrize(("what", "days"), [("trial", 7), ("trial", 1), ("mandate", 30), ("mandate", 7)])
def test_an_end_is_mailed_from_its_days_before_on(payer: Tenant, what: str, days: int) -> None:
    ends = ist(2026, 12, 15, 12)
    if what == "trial":
        Tenant.objects.update(billing_status="trialing", trial_ends_at=ends)
    else:
        Mandate.objects.create(
            tenant=payer, method="card", status="active", max_amount_paise=100, expires_at=ends
        )
    mails.send_early_warnings(ends - (days + 1) * DAY)
    assert around(ends - days * DAY, mails.send_early_warnings) == [0, 1]


def test_a_limit_too_low_is_mailed_in_the_last_ten_days_of_a_month(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    Mandate.objects.create(tenant=payer, method="upi", status="active", max_amount_paise=1)
    assert around(NOVEMBER.end - 10 * DAY, mails.send_early_warnings) == [0, 1]
    assert mails.send_early_warnings(NOVEMBER.end - 9 * DAY) == 0
    assert OutboundMail.objects.filter(subject__contains="above the limit").count() == 1


# --- Payments.


def attempt_of(invoice: Invoice, **values: Any) -> PaymentAttempt:
    """A debit of 1 December that the provider does not know."""
    mandate = Mandate.objects.create(
        tenant=invoice.tenant,
        method="upi",
        status="active",
        max_amount_paise=1_500_000,
        provider_customer_id="cust_unknown",
        provider_token_id="token_unknown",
    )
    made = attempts.insert(invoice, PaymentAttempt.Kind.AUTOPAY, FIRST_OF_DECEMBER, mandate=mandate)
    of_the_provider = {
        "provider_order_id": "order_unknown",
        "provider_link_id": "plink_unknown",
        "provider_payment_id": "pay_unknown",
        "scheduled_for": FIRST_OF_DECEMBER,
    }
    PaymentAttempt.objects.filter(pk=made.pk).update(**(of_the_provider | values))
    made.refresh_from_db()
    return made


def refund_of(invoice: Invoice) -> Refund:
    """A refund of 1 December whose result is not known."""
    return Refund.objects.create(
        attempt=attempt_of(invoice, status="captured"),
        amount_paise=100,
        status="unknown",
        receipt="rfnd",
        created_at=FIRST_OF_DECEMBER,
        next_check_at=FIRST_OF_DECEMBER,
    )


@pytest.mark.parametrize(
    ("status", "checked_for"), [("failed", 30 * DAY), ("captured", 180 * DAY)], ids=["failed", "captured"]
)
def test_a_debit_that_ended_is_checked_until_its_age(
    invoice: Invoice, provider: RunningSimulator, status: str, checked_for: timedelta
) -> None:
    attempt_of(invoice, status=status, next_check_at=FIRST_OF_DECEMBER)
    assert until(FIRST_OF_DECEMBER + checked_for, attempts.reconcile) == [1, 0]


@pytest.mark.parametrize(("method", "hours"), [("upi", 30), ("card", 72), ("emandate", 120)])
def test_a_debit_that_never_arrived_fails_once_its_method_had_time(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch, method: str, hours: int
) -> None:
    monkeypatch.setattr(Razorpay, "payments_of", lambda *_: [])
    asked = attempt_of(invoice, status="unknown")
    Mandate.objects.update(method=method)

    def status(at: datetime) -> str:
        attempts.refresh(asked.id, at)
        return PaymentAttempt.objects.get().status

    assert around(FIRST_OF_DECEMBER + timedelta(hours=hours), status) == ["unknown", "failed"]
    assert (PaymentAttempt.objects.get().error or {})["reason"] == "not_received"


@pytest.mark.parametrize(
    ("kind", "status", "invoice_status", "checked"),
    [
        *(("autopay", status, "open", True) for status in PaymentAttempt.IN_FLIGHT),
        ("link", "created", "open", True),
        *(("autopay", "failed", status, True) for status in Invoice.UNPAID),
        ("autopay", "failed", "paid", False),
        ("autopay", "failed", "void", False),
        ("link", "failed", "open", True),
        ("link", "failed", "paid", False),
        ("autopay", "captured", "paid", True),
        ("link", "captured", "paid", True),
        ("manual", "captured", "paid", False),
        ("tds", "captured", "paid", False),
    ],
)
def test_which_payments_are_checked_with_the_provider(
    invoice: Invoice, provider: RunningSimulator, kind: str, status: str, invoice_status: str, checked: bool
) -> None:
    attempt_of(invoice, kind=kind, status=status, next_check_at=FIRST_OF_DECEMBER)
    Invoice.objects.filter(pk=invoice.pk).update(status=invoice_status)
    assert attempts.reconcile(FIRST_OF_DECEMBER) == checked


@pytest.mark.parametrize(
    ("kind", "status", "again"),
    [
        ("autopay", "created", timedelta(hours=1)),
        ("link", "created", timedelta(hours=6)),
        ("autopay", "failed", DAY),
        ("autopay", "captured", 7 * DAY),
    ],
)
def test_a_payment_is_checked_again_after_its_interval(
    invoice: Invoice, provider: RunningSimulator, kind: str, status: str, again: timedelta
) -> None:
    attempt_of(invoice, kind=kind, status=status, next_check_at=FIRST_OF_DECEMBER)
    assert around(FIRST_OF_DECEMBER, attempts.reconcile) == [0, 1]
    assert around(FIRST_OF_DECEMBER + again, attempts.reconcile) == [0, 1]


def test_what_replaces_a_reopened_invoice_is_not_debited_either(invoice: Invoice) -> None:
    mandate = active_mandate(invoice.tenant)
    Invoice.objects.filter(pk=invoice.pk).update(reopened_at=FIRST_OF_DECEMBER)
    new = issuing.replace(invoice_id=invoice.pk, reason="Wrong buyer", at=FIRST_OF_DECEMBER)
    assert debits._begin_debit(new.pk, mandate, FIRST_OF_DECEMBER + DAY) is None


def test_a_link_that_ended_during_its_payment_waits_for_the_result(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = attempt_of(invoice, kind="link", status="created", provider_order_id=None)
    payment = Payment("pay_1", "processing", 59_000)
    link = Link("plink_unknown", "https://rzp.example/l", "ended", [payment], order_id="order_1")
    monkeypatch.setattr(Razorpay, "link", lambda *_: link)

    def status(at: datetime) -> str:
        attempts.refresh(attempt.id, at)
        return PaymentAttempt.objects.get().status

    assert status(FIRST_OF_DECEMBER) == "processing"
    with pytest.raises(payment_links.InvoiceNotPayable):
        payment_links.pay_now(invoice=invoice, at=FIRST_OF_DECEMBER)
    assert around(FIRST_OF_DECEMBER + timedelta(hours=30), status) == ["processing", "failed"]
    assert PaymentAttempt.objects.get().provider_order_id == "order_1", "its notices name the order"


@pytest.mark.parametrize("of_all", [True, False])
def test_no_other_payment_is_asked_for_what_a_begun_payment_may_still_pay(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch, of_all: bool
) -> None:
    """Of two invoices the first has a payment of both, or the second one of its own."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    at = ist(2027, 1, 1, 0, 15)
    for month in (FIRST_OF_DECEMBER, at):
        assert (usage.take_snapshots(month), issuing.issue_due(month)) == (1, 1)
    first, second = Invoice.objects.order_by("id")
    begun = late_attempt(
        first if of_all else second,
        "begun",
        kind="link",
        status="created",
        pays_all=of_all,
        provider_link_id="plink_1",
        created_at=at,
    )
    link = Link(
        "plink_1", "https://rzp.example/l", "ended", [Payment("pay_1", "processing", 59_000)], "order"
    )
    monkeypatch.setattr(Razorpay, "link", lambda *_: link)
    monkeypatch.setattr(Razorpay, "cancel_link", lambda *_: None)
    made = Link("plink_2", "https://rzp.example/2", "live")
    monkeypatch.setattr(Razorpay, "create_link", lambda *_, **__: made)

    def pay(at: datetime) -> str | None:
        if of_all:
            return payment_links.pay_now(invoice=second, at=at).payment_url
        return payment_links.pay_all(tenant_id=payer.id, at=at).payment_url

    with pytest.raises(payment_links.InvoiceNotPayable) as refused:
        pay(at)
    assert (refused.value.details or {})["in_flight"] == begun.public_id
    with pytest.raises(Conflict, match="in flight"):
        bank_transfers.record(invoice_id=second.id, amount_paise=59_000, reference="U1", at=at)
    assert pay(at + timedelta(hours=30)) == "https://rzp.example/2", "an abandoned payment"


def test_a_link_is_replaced_once_its_24_hours_are_over(invoice: Invoice, provider: RunningSimulator) -> None:
    at = now()
    first = payment_links.pay_now(invoice=invoice, at=at)
    provider.control("POST", "clock/advance", {"hours": 25})

    def is_first(at: datetime) -> bool:
        return payment_links.pay_now(invoice=invoice, at=at).pk == first.pk

    assert around(at + DAY, is_first) == [True, False]


def test_a_refund_under_way_is_checked_every_hour(invoice: Invoice, monkeypatch: pytest.MonkeyPatch) -> None:
    state = RefundState("rfnd_1", "rfnd", "processing")
    monkeypatch.setattr(Razorpay, "refunds_of", lambda *_: [state])
    Refund.objects.create(
        attempt=attempt_of(invoice, kind="manual", status="captured"),
        amount_paise=100,
        status="unknown",
        receipt="rfnd",
        created_at=FIRST_OF_DECEMBER,
        next_check_at=FIRST_OF_DECEMBER,
    )
    assert around(FIRST_OF_DECEMBER, refunds.reconcile) == [0, 1]
    assert around(FIRST_OF_DECEMBER + timedelta(hours=1), refunds.reconcile) == [0, 1]
    Refund.objects.update(status="processed")
    assert refunds.reconcile(FIRST_OF_DECEMBER + DAY) == 0


def test_a_refund_that_never_arrived_fails_after_24_hours(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refunds, "provider", lambda _: SimpleNamespace(refunds_of=lambda _: []))
    refund = refund_of(invoice)

    def status(at: datetime) -> str:
        with suppress(ProviderUnreachable):
            refunds.refresh(refund.id, at)
        return Refund.objects.get().status

    assert around(FIRST_OF_DECEMBER + DAY, status) == ["unknown", "failed"]


def test_a_refund_ends_only_after_the_ledger_has_it(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the same amount could be paid back again."""

    def away(_: object) -> None:
        raise ProviderUnreachable

    pay = SimpleNamespace(refunds_of=lambda _: [RefundState("rfnd_1", "rfnd", "processed")])
    monkeypatch.setattr(refunds, "provider", lambda _: pay)
    monkeypatch.setattr(attempts, "provider", away)
    refund = refund_of(invoice)
    with pytest.raises(ProviderUnreachable):
        refunds.refresh(refund.id, FIRST_OF_DECEMBER)
    assert Refund.objects.get().status in Refund.IN_FLIGHT


def test_a_notice_that_cannot_be_read_is_given_up_after_a_week(provider: RunningSimulator) -> None:
    ProviderEvent.objects.create(
        provider="razorpay", event_id="e", type="payment.captured", body=b"{", received_at=FIRST_OF_DECEMBER
    )

    def is_done(at: datetime) -> bool:
        with suppress(SomeFailed):
            provider_notices.apply_waiting(at)
        return ProviderEvent.objects.get().processed_at is not None

    assert around(FIRST_OF_DECEMBER + 7 * DAY, is_done) == [False, True]


def test_a_notice_that_the_provider_refuses_is_given_up_after_a_week(
    invoice: Invoice, provider: RunningSimulator
) -> None:
    attempt_of(invoice, kind="link", status="captured")
    body = notice("payment_link.paid", payment_link={"id": "plink_unknown"})
    ProviderEvent.objects.create(
        provider="razorpay", event_id="e", type="x", body=body, received_at=FIRST_OF_DECEMBER
    )
    assert around(FIRST_OF_DECEMBER + 7 * DAY, provider_notices.apply_waiting) == [0, 1]


def notice(event: str, **entities: dict[str, str]) -> bytes:
    payload = {name: {"entity": entity} for name, entity in entities.items()}
    return json.dumps({"event": event, "payload": payload}).encode()


def test_a_notice_is_about_rows_of_its_own_provider(invoice: Invoice) -> None:
    """A row of a provider that does not exist would fail."""
    attempt_of(invoice, provider="second")
    Mandate.objects.update(provider="second", provider_order_id="order_m")
    body = notice(
        "payment.captured",
        payment={"id": "pay_unknown", "order_id": "order_unknown"},
        token={"id": "token_unknown", "order_id": "order_m"},
    )
    ProviderEvent.objects.create(provider="razorpay", event_id="e", type="x", body=body)
    assert provider_notices.apply_waiting(FIRST_OF_DECEMBER) == 1


def test_a_notice_of_a_token_is_about_its_mandate(payer: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"provider_token_id": "token_1", "provider_order_id": "order_1", "provider_customer_id": "cust_1"}
    mandate = active_mandate(payer, **known)
    paused = MandateState("token_1", "paused")
    monkeypatch.setattr(Razorpay, "payments_of", lambda *_: [])
    monkeypatch.setattr(Razorpay, "mandate", lambda *_, **__: paused)
    body = notice("token.paused", token={"id": "token_1"})
    ProviderEvent.objects.create(provider="razorpay", event_id="e", type="x", body=body)
    assert provider_notices.apply_waiting(FIRST_OF_DECEMBER) == 1
    mandate.refresh_from_db()
    assert mandate.status == "paused"


@pytest.mark.parametrize(
    ("before", "after"), [("active", "expired"), ("paused", "expired"), ("pending", "pending")]
)
def test_a_mandate_ends_on_its_day_without_a_notice(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    Mandate.objects.create(
        tenant=payer,
        method="card",
        status=before,
        max_amount_paise=100,
        created_at=FIRST_OF_DECEMBER,
        expires_at=FIRST_OF_DECEMBER,
    )

    def status(at: datetime) -> str:
        mandates.reconcile(at)
        return Mandate.objects.get().status

    assert around(FIRST_OF_DECEMBER, status) == [before, after]


def test_a_mandate_whose_page_was_never_made_expires_after_a_week(
    payer: Tenant, provider: RunningSimulator
) -> None:
    Mandate.objects.create(tenant=payer, method="upi", max_amount_paise=100, created_at=FIRST_OF_DECEMBER)

    def status(at: datetime) -> str:
        mandates.reconcile(at)
        return Mandate.objects.get().status

    assert around(FIRST_OF_DECEMBER + 7 * DAY, status) == ["pending", "expired"]


def test_a_mandate_that_is_being_made_holds_up_another_for_a_minute(
    payer: Tenant, provider: RunningSimulator
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    Mandate.objects.create(tenant=payer, method="card", max_amount_paise=100, created_at=FIRST_OF_DECEMBER)

    def is_refused(at: datetime) -> bool:
        try:
            mandates.ask_for(
                tenant_id=payer.id, method="upi", max_amount_paise=100_000, return_url=None, at=at
            )
        except Conflict:
            return True
        return False

    assert around(FIRST_OF_DECEMBER + timedelta(minutes=1), is_refused) == [True, False]


def test_a_fourth_page_can_be_asked_for_a_day_after_the_first(payer: Tenant) -> None:
    for hours in (2, 1, 0):
        made_at = FIRST_OF_DECEMBER + timedelta(hours=hours)
        Mandate.objects.create(tenant=payer, method="upi", max_amount_paise=100, created_at=made_at)

    def waits(at: datetime) -> str | None:
        try:
            require_pages_left(Mandate.objects.all(), at, "mandates")
        except RateLimited as error:
            return error.headers["Retry-After"]
        return None

    assert around(FIRST_OF_DECEMBER + DAY, waits) == ["1", None]
    assert waits(FIRST_OF_DECEMBER + timedelta(hours=2)) == str(22 * 3600 + 1)
