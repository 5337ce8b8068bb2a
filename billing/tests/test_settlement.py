"""Results of payments only move forward: a repeated, late or reordered result changes nothing.

A change between a check and the lock is detected, so no debit or refund exceeds its limit.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from pytest_django import Settings

from billing import ledger, restriction, usage
from billing.admin import second_person
from billing.admin.money_acts import carry_out
from billing.invoices import issuing
from billing.models import (
    Invoice,
    Mandate,
    PaymentAttempt,
    ProviderEvent,
    ProviderTrouble,
    Refund,
    StaffAct,
)
from billing.payments import attempts, bank_transfers, debits, refunds
from billing.payments.provider import Payment, ProviderRefused, ProviderUnreachable, RefundState
from billing.payments.razorpay import Razorpay
from billing.tests.conftest import connected, ist
from billing.tests.test_money import late_attempt
from gateway.api.errors import Conflict, InvalidRequest
from gateway.monitoring import admin_health
from tenants.models import Tenant

pytestmark = pytest.mark.django_db

AT = ist(2026, 12, 2, 11)


def attempt_of(invoice: Invoice, kind: str, status: str) -> PaymentAttempt:
    return late_attempt(invoice, f"{kind}-{status}", kind=kind, status=status)


def captured(attempt: PaymentAttempt, paise: int, *, refunded: int = 0) -> None:
    payment = Payment(id="pay_1", status="captured", amount_paise=paise, refunded_paise=refunded)
    attempts.apply_payments(attempt_id=attempt.id, payments=[payment], at=AT)


def state(attempt: PaymentAttempt) -> tuple[str, str, int]:
    """The states of the attempt and of its invoice, and the amount paid."""
    attempt.refresh_from_db()
    attempt.invoice.refresh_from_db()
    return attempt.status, attempt.invoice.status, attempt.invoice.amount_paid_paise


def test_a_result_that_is_reported_twice_counts_once(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "processing")
    for _ in range(2):
        captured(attempt, 59_000)
        assert state(attempt) == ("captured", "paid", 59_000)
    captured(attempt, 59_000, refunded=9_000)
    assert state(attempt) == ("captured", "open", 50_000)


def test_an_answer_from_before_a_refund_does_not_undo_it(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "processing")
    captured(attempt, 59_000, refunded=9_000)
    captured(attempt, 59_000)
    assert state(attempt) == ("captured", "open", 50_000)


def test_more_money_in_an_answer_from_before_a_refund_keeps_the_refund(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "processing")
    captured(attempt, 50_000, refunded=9_000)
    captured(attempt, 59_000)
    assert state(attempt) == ("captured", "open", 50_000)


def test_collected_money_is_neither_failed_nor_in_flight_again(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "processing")
    captured(attempt, 59_000)
    attempts.record_processing(attempt_id=attempt.id, payment_id="pay_1", at=AT)
    attempts.fail(attempt_id=attempt.id, error=None, at=AT)
    assert state(attempt) == ("captured", "paid", 59_000)


@pytest.mark.parametrize(
    ("kind", "before", "after", "is_late"),
    [
        ("autopay", "open", "failed", True),
        ("autopay", "processing", "failed", True),
        ("autopay", "failed", "failed", True),
        ("autopay", "paid", "paid", False),
        ("autopay", "void", "void", False),
        ("link", "open", "open", False),
        ("link", "failed", "failed", False),
    ],
)
def test_only_a_debit_that_fails_makes_an_unpaid_invoice_late(
    invoice: Invoice, kind: str, before: str, after: str, is_late: bool
) -> None:
    attempt = attempt_of(invoice, kind, "processing")
    Invoice.objects.filter(pk=invoice.pk).update(status=before)
    error = {"reason": "payment_declined"}
    attempts.fail(attempt_id=attempt.id, error=error, at=AT)
    assert state(attempt)[:2] == ("failed", after)
    assert (attempt.invoice.overdue_since, attempt.completed_at) == (AT if is_late else None, AT)
    assert attempt.error == error
    tenant = Tenant.objects.get(pk=invoice.tenant_id)
    assert tenant.billing_status == ("past_due" if is_late else "active")
    captured(attempt, 59_000)
    attempt.refresh_from_db()
    assert (attempt.error, attempt.provider_payment_id) == (None, "pay_1"), "the bank paid after all"


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("autopay", "open", "processing"),
        ("autopay", "failed", "processing"),
        ("autopay", "paid", "paid"),
        ("autopay", "void", "void"),
        ("link", "open", "open"),
        ("link", "failed", "failed"),
    ],
)
def test_only_a_debit_under_way_holds_an_unpaid_invoice(
    invoice: Invoice, kind: str, before: str, after: str
) -> None:
    attempt = attempt_of(invoice, kind, "created")
    Invoice.objects.filter(pk=invoice.pk).update(status=before)
    attempts.record_processing(attempt_id=attempt.id, payment_id="pay_1", at=AT)
    assert state(attempt)[:2] == ("processing", after)
    assert attempt.provider_payment_id == "pay_1"


def test_of_several_payments_the_last_says_how_an_attempt_goes_on(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "created")
    failed = [Payment(f"pay_{name}", "failed", 59_000, error={"reason": name}) for name in "ab"]
    under_way = [Payment(f"pay_{name}", "processing", 59_000) for name in "cd"]
    attempts.apply_payments(attempt_id=attempt.id, payments=[*under_way, *failed], at=AT)
    attempt.refresh_from_db()
    assert (attempt.status, attempt.provider_payment_id) == ("processing", "pay_d")
    attempts.apply_payments(attempt_id=attempt.id, payments=failed, at=AT)
    attempt.refresh_from_db()
    assert (attempt.status, attempt.provider_payment_id, attempt.error) == (
        "failed",
        "pay_b",
        {"reason": "b"},
    )


@pytest.mark.parametrize("status", PaymentAttempt.Status.values)
def test_a_provider_that_is_away_changes_only_an_attempt_without_an_answer(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    def away(*_: Any) -> None:
        raise ProviderUnreachable("timeout")

    attempt = attempt_of(invoice, "link", status)
    monkeypatch.setattr(attempts, "_refresh_link", away)
    with pytest.raises(ProviderUnreachable):
        attempts.refresh(attempt.id, AT)
    attempt.refresh_from_db()
    assert attempt.status == ("unknown" if status == "created" else status)


def test_a_late_part_payment_leaves_the_debit_under_way(invoice: Invoice) -> None:
    """The invoice stays `processing` until the debit ends, so it cannot be paid in another way."""
    attempt_of(invoice, "autopay", "processing")
    Invoice.objects.filter(pk=invoice.pk).update(status="processing")
    late = attempt_of(invoice, "link", "failed")
    captured(late, 10_000)
    assert state(late) == ("captured", "processing", 10_000)


@pytest.mark.parametrize(("overdue_since", "after"), [(None, "open"), (AT, "failed")])
def test_a_part_payment_reopens_an_invoice_without_a_debit(
    invoice: Invoice, overdue_since: datetime | None, after: str
) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(status="processing", overdue_since=overdue_since)
    late = attempt_of(invoice, "link", "failed")
    captured(late, 10_000)
    assert state(late) == ("captured", after, 10_000)


def test_an_invoice_that_a_refund_reopens_begins_again(invoice: Invoice) -> None:
    attempt = attempt_of(invoice, "autopay", "processing")
    Invoice.objects.filter(pk=invoice.pk).update(status="failed", overdue_since=AT, reminders_sent=3)
    captured(attempt, 59_000)
    captured(attempt, 59_000, refunded=9_000)
    assert state(attempt)[1:] == ("open", 50_000)
    row = attempt.invoice
    assert (row.reminders_sent, row.overdue_since, row.paid_at, row.reopened_at) == (0, None, None, AT)


@pytest.mark.parametrize("first_is_debited", [False, True])
def test_a_balance_pays_the_oldest_invoice_that_is_not_being_paid(
    payer: Tenant, first_is_debited: bool
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    for month in (ist(2026, 12, 1, 0, 15), ist(2027, 1, 1, 0, 15), ist(2027, 2, 1, 0, 15)):
        assert (usage.take_snapshots(month), issuing.issue_due(month)) == (1, 1)
    first, second, third = Invoice.objects.order_by("id")
    if first_is_debited:
        attempt_of(first, "autopay", "processing")
    bank_transfers.record(invoice_id=second.id, amount_paise=69_000, reference="U1", at=AT)
    due = [row.amount_due_paise for row in Invoice.objects.order_by("id")]
    assert due == ([59_000, 0, 49_000] if first_is_debited else [49_000, 0, 59_000])
    assert third.status == "open"


@pytest.mark.parametrize("kind", ["autopay", "link"])
def test_a_balance_that_pays_what_is_overdue_after_an_attempt_failed_ends_the_restriction(
    payer: Tenant, kind: str
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    for month in (ist(2026, 12, 1, 0, 15), ist(2027, 1, 1, 0, 15)):
        assert (usage.take_snapshots(month), issuing.issue_due(month)) == (1, 1)
    first, second = Invoice.objects.order_by("id")
    restriction.mark_overdue(ist(2027, 1, 2))
    attempt = attempt_of(first, kind, "processing")
    bank_transfers.record(invoice_id=second.id, amount_paise=118_000, reference="U1", at=ist(2027, 1, 2))
    payer.refresh_from_db()
    assert (payer.billing_status, payer.billing_restricted) == ("past_due", True), "the payment is in flight"
    attempts.fail(attempt_id=attempt.id, error=None, at=ist(2027, 1, 3))
    payer.refresh_from_db()
    assert state(attempt) == ("failed", "paid", 59_000)
    assert (payer.billing_status, payer.billing_restricted) == ("active", False)


@pytest.mark.parametrize(("allowed", "begins"), [(58_999, False), (59_000, True)])
def test_a_debit_never_exceeds_what_the_payer_approved(
    payer: Tenant, invoice: Invoice, allowed: int, begins: bool
) -> None:
    """The mandate's limit is lowered after the first check and before the lock."""
    mandate = Mandate.objects.create(
        tenant=payer, method="upi", status="active", max_amount_paise=100_000, created_at=AT
    )
    Mandate.objects.update(max_amount_paise=allowed)
    assert (debits._begin_debit(invoice.pk, mandate, AT) is not None) is begins


@pytest.fixture
def twice_paid(invoice: Invoice) -> PaymentAttempt:
    """The second of two payments of one invoice. A refund of ₹500.00 of the first is in flight."""
    first, second = attempt_of(invoice, "autopay", "processing"), attempt_of(invoice, "link", "failed")
    for attempt in (first, second):
        captured(attempt, 59_000)
    Refund.objects.create(
        attempt=first,
        amount_paise=50_000,
        receipt="rfnd_1",
        status="unknown",
        created_at=AT,
        next_check_at=AT,
    )
    return second


def test_a_refund_counts_what_another_payments_refund_under_way_takes(twice_paid: PaymentAttempt) -> None:
    with pytest.raises(InvalidRequest) as refused:
        refunds.pay_back(attempt_id=twice_paid.id, amount_paise=9_001, at=AT)
    assert "₹90.00" in str(refused.value.details)
    assert Refund.objects.count() == 1


def test_a_payment_is_paid_back_only_up_to_what_is_left_of_it(invoice: Invoice) -> None:
    """The balance is larger, because three payments paid one invoice."""
    payments = [attempt_of(invoice, kind, "failed") for kind in ("autopay", "link")]
    payments.append(attempt_of(invoice, "link", "processing"))
    for attempt in payments:
        captured(attempt, 59_000)
    captured(payments[1], 59_000, refunded=50_000)
    with pytest.raises(InvalidRequest) as refused:
        refunds.pay_back(attempt_id=payments[1].id, amount_paise=9_001, at=AT)
    assert "to ₹90.00" in str(refused.value.details)
    assert not Refund.objects.exists()


@pytest.mark.usefixtures("twice_paid")
def test_a_balance_that_is_being_paid_back_pays_no_invoice() -> None:
    january = ist(2027, 1, 1, 0, 15)
    assert (usage.take_snapshots(january), issuing.issue_due(january)) == (1, 1)
    assert Invoice.objects.latest("id").amount_due_paise == 50_000


@pytest.mark.usefixtures("twice_paid")
def test_a_balance_that_could_not_be_paid_back_pays_an_overdue_invoice_at_once(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    january = ist(2027, 1, 1, 0, 15)
    assert (usage.take_snapshots(january), issuing.issue_due(january)) == (1, 1)
    restriction.mark_overdue(ist(2027, 1, 9))
    payer.refresh_from_db()
    assert payer.billing_status == "past_due"
    monkeypatch.setattr(Razorpay, "refunds_of", lambda *_: [RefundState("rfnd_1", "rfnd_1", "failed")])
    monkeypatch.setattr(attempts, "refresh", lambda *_: None)
    refunds.refresh(Refund.objects.get().id, ist(2027, 1, 9))
    payer.refresh_from_db()
    assert (Invoice.objects.latest("id").status, payer.billing_status) == ("paid", "active")


@pytest.mark.parametrize(
    ("kind", "collected", "by_provider", "by_bank"),
    [
        ("autopay", 59_000, True, False),
        ("link", 59_000, True, False),
        ("link", 0, False, False),
        ("manual", 59_000, False, True),
        ("tds", 59_000, False, False),
    ],
)
def test_a_payment_goes_back_the_way_it_came(
    invoice: Invoice,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    collected: int,
    by_provider: bool,
    by_bank: bool,
) -> None:
    """A surplus of ₹590.00 is paid back from one rupee on by the provider, and from one paisa on by bank transfer."""

    def away(*_: Any) -> None:
        raise ProviderUnreachable("timeout")

    monkeypatch.setattr(Razorpay, "refunds_of", away)
    captured(attempt_of(invoice, "autopay", "processing"), 118_000)
    paid = late_attempt(
        invoice,
        "paid",
        kind=kind,
        status="captured",
        captured_paise=collected,
        provider_payment_id="pay_2",
    )
    accepted = {
        (name, paise): not refuses(back, attempt_id=paid.id, amount_paise=paise, at=AT, **more)
        for name, back, more in (
            ("provider", refunds.pay_back, {}),
            ("bank", bank_transfers.give_back, {"reference": "U1"}),
        )
        for paise in (59_001, 99, 100)
    }
    assert accepted == {
        ("provider", 59_001): False,
        ("provider", 99): False,
        ("provider", 100): by_provider,
        ("bank", 59_001): False,
        ("bank", 99): by_bank,
        ("bank", 100): by_bank,
    }
    if not by_provider:
        with pytest.raises(Conflict, match="that the provider collected"):
            refunds.pay_back(attempt_id=paid.id, amount_paise=100, at=AT)


@pytest.mark.parametrize(
    "error", [ProviderRefused(provider_code="BAD", reason=None, text="Read later"), OperationalError()]
)
def test_a_refund_that_was_sent_out_is_done_whatever_fails_afterwards(
    invoice: Invoice, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Otherwise the act of staff would wait again, and its next approval would pay a second time."""
    paid = attempt_of(invoice, "autopay", "processing")
    captured(paid, 60_000)

    def fails(*_: Any) -> None:
        raise error

    accepted = RefundState("rfnd_1", "rfnd_1", "processed")
    monkeypatch.setattr(Razorpay, "refunds_of", lambda *_: [])
    monkeypatch.setattr(Razorpay, "refund", lambda *_, **__: accepted)
    monkeypatch.setattr(attempts, "refresh", fails)
    settings.BILLING_SECOND_PERSON_RUPEES = 1
    second_person.act(
        carry_out,
        act="refund",
        target_id=paid.id,
        tenant_id=invoice.tenant_id,
        values={"amount_paise": 500},
        amount_paise=500,
        at=AT,
        actor_user_id=1,
    )
    act = StaffAct.objects.get()
    second_person.approve(act.pk, carry_out, at=AT, actor_user_id=2)
    with pytest.raises(Conflict):
        second_person.approve(act.pk, carry_out, at=AT, actor_user_id=2)
    act.refresh_from_db()
    assert (act.status, Refund.objects.get().status) == ("done", "processing")


def test_a_refund_that_the_provider_refuses_is_over_and_says_why(
    invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another refund of the payment, with another receipt, is not taken for it."""
    other = [RefundState("rfnd_1", "another", "processed")]
    monkeypatch.setattr(Razorpay, "refunds_of", lambda *_: other)

    def refused(*_: Any, **__: Any) -> None:
        raise ProviderRefused(provider_code="BAD", reason="too_old", text="Too old")

    monkeypatch.setattr(Razorpay, "refund", refused)
    paid = attempt_of(invoice, "autopay", "processing")
    captured(paid, 60_000)
    refund = refunds.pay_back(attempt_id=paid.id, amount_paise=1_000, at=AT, actor_user_id=7)
    assert (refund.status, refund.requested_by, refund.completed_at) == ("failed", 7, AT)
    assert refund.error == {"code": "BAD", "reason": "too_old", "message": "Too old"}
    assert ledger.available_paise(invoice.tenant_id) == 1_000, "it can be paid back in another way"


def refuses(act: Callable[..., object], **values: Any) -> bool:
    try:
        act(**values)
    except (Conflict, InvalidRequest):
        return True
    return False


def test_operators_see_notices_that_wait_and_payments_without_an_answer(invoice: Invoice) -> None:
    for status in PaymentAttempt.Status.values:
        if status not in PaymentAttempt.IN_FLIGHT or status == "unknown":
            attempt_of(invoice, "link", status)
    for name, done in (("1", None), ("2", None), ("3", AT)):
        ProviderEvent.objects.create(
            provider="razorpay", event_id=name, type="x", body=b"", processed_at=done
        )
    for name, since in (("second", AT), ("razorpay", AT - timedelta(days=1))):
        ProviderTrouble.objects.create(provider=name, since=since, status=401, text="")
    assert admin_health.report()["billing"] == {
        "provider_refuses_since": AT - timedelta(days=1),
        "notices_waiting": 2,
        "payments_unknown": 1,
    }
