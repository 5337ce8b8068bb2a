"""Results of payments only move forward: a repeated, late or reordered result changes nothing.

A change between a check and the lock is detected, so no debit or refund exceeds its limit.
"""

from typing import Any

import pytest

from billing import usage
from billing.invoices import issuing
from billing.models import Invoice, Mandate, PaymentAttempt, Refund
from billing.payments import attempts, debits, refunds
from billing.payments.provider import Payment, ProviderUnreachable
from billing.tests.conftest import ist
from billing.tests.test_money import late_attempt
from gateway.api.errors import InvalidRequest
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


def test_a_part_payment_reopens_an_invoice_without_a_debit(invoice: Invoice) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(status="processing")
    late = attempt_of(invoice, "link", "failed")
    captured(late, 10_000)
    assert state(late) == ("captured", "open", 10_000)


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


@pytest.mark.usefixtures("twice_paid")
def test_a_balance_that_is_being_paid_back_pays_no_invoice() -> None:
    january = ist(2027, 1, 1, 0, 15)
    assert (usage.take_snapshots(january), issuing.issue_due(january)) == (1, 1)
    assert Invoice.objects.latest("id").amount_due_paise == 50_000
