"""Mandates, debits, links and notices with the simulated provider: every scenario ends correctly."""

from datetime import datetime, timedelta
from typing import Any

import pytest
import requests
from django.test import Client

from billing import buyers, ledger
from billing.billing_run import run
from billing.invoices import credit_notes
from billing.models import CreditNote, Invoice, Mandate, PaymentAttempt, ProviderEvent
from billing.payments import debits, mandates, payment_links, provider_notices
from billing.payments.provider import (
    MandateRegistration,
    MandateState,
    NotCarriedOut,
    Payment,
    ProviderRefused,
    ProviderUnreachable,
)
from billing.payments.razorpay import Razorpay
from billing.tests.conftest import PROFILE, ist, only_invoice
from gateway.api.errors import Conflict, InvalidRequest
from phone_numbers import leaving
from tenants.models import AuditEntry, OutboundMail, Tenant
from tests.fixtures import assert_error
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

CHARGE = ist(2026, 12, 1, 9, 5)
HOOK = "/internal/razorpay/webhook"


def deliver(provider: RunningSimulator, at: datetime, *, since: int = 0) -> int:
    """Deliver the provider's stored notices, then apply them. Returns their number."""
    hooks = provider.control("GET", "payments")["webhooks"]
    for hook in hooks[since:]:
        post(hook)
    provider_notices.apply_waiting(at)
    return len(hooks)


def post(hook: dict[str, Any], route: str = HOOK) -> Any:
    return Client().post(
        route,
        hook["body"],
        content_type="application/json",
        headers={"X-Razorpay-Signature": hook["signature"], "X-Razorpay-Event-Id": hook["event_id"]},
    )


def answer(page_url: str, choice: str) -> requests.Response:
    """Press a button on the provider's page, as the payer."""
    return requests.post(page_url, data={"answer": choice}, timeout=10, allow_redirects=False)


def refuse(*_: Any, **__: Any) -> None:
    """A method of the provider that refuses every call."""
    raise ProviderRefused(provider_code="BAD_REQUEST_ERROR", reason=None, text="Refused")


def ask_for_mandate(tenant: Tenant, **values: Any) -> Mandate:
    buyers.change(tenant_id=tenant.id, changes=PROFILE)
    wanted: dict[str, Any] = {
        "method": "upi",
        "max_amount_paise": 1_500_000,
        "return_url": None,
        "at": ist(2026, 11, 2),
    }
    return mandates.ask_for(tenant_id=tenant.id, **(wanted | values))


def set_up_mandate(provider: RunningSimulator, tenant: Tenant, **values: Any) -> Mandate:
    mandate = ask_for_mandate(tenant, **values)
    assert mandate.authorization_url is not None
    answer(mandate.authorization_url, "approve")
    mandates.sync(mandate.id, ist(2026, 11, 2))
    mandate.refresh_from_db()
    return mandate


def pay_state(tenant: Tenant) -> tuple[str, int, str, str]:
    invoice = only_invoice(tenant)
    attempt = invoice.attempts.order_by("-id").first()
    tenant.refresh_from_db()
    return (
        invoice.status,
        invoice.amount_paid_paise,
        attempt.status if attempt else "",
        tenant.billing_status or "",
    )


def test_an_approved_mandate_pays_the_invoice(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    mandate = set_up_mandate(provider, payer)
    assert (mandate.status, mandate.instrument) == ("active", "b***@okaxis")
    run(ist(2026, 12, 1, 8, 59))
    assert not PaymentAttempt.objects.exists(), "debits begin at nine"
    run(CHARGE)
    assert pay_state(payer) == ("processing", 0, "processing", "active")
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    run(ist(2026, 12, 20))
    assert PaymentAttempt.objects.count() == 1


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("duplicate_webhook", ("paid", 59_000, "captured", "active")),
        ("out_of_order", ("paid", 59_000, "captured", "active")),
        ("insufficient_funds", ("failed", 0, "failed", "past_due")),
        ("notification_failed", ("failed", 0, "failed", "past_due")),
        ("token_cancelled", ("failed", 0, "failed", "past_due")),
        ("webhook_lost", ("processing", 0, "processing", "active")),
        ("bad_signature", ("processing", 0, "processing", "active")),
        ("peak_hour_hold", ("processing", 0, "processing", "active")),
    ],
)
def test_how_a_debit_ends(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice, scenario: str, expected: tuple[object, ...]
) -> None:
    mandate = set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": scenario})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert pay_state(payer) == expected
    mandate.refresh_from_db()
    assert mandate.status == ("cancelled" if scenario == "token_cancelled" else "active")
    if expected[0] == "processing":
        provider.control("POST", "clock/advance", {"hours": 12})
        run(ist(2026, 12, 2, 16))
        assert pay_state(payer) == ("paid", 59_000, "captured", "active"), "found by asking after 30 hours"


def test_a_mandate_that_ended_at_the_bank_ends_here_with_its_mail_without_a_notice(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    mandate = set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "token_cancelled"})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 38})
    run(ist(2026, 12, 2, 16))
    mandate.refresh_from_db()
    assert (mandate.status, pay_state(payer)[0]) == ("cancelled", "failed")
    assert OutboundMail.objects.filter(subject="Your autopay mandate is cancelled").count() == 1


def test_an_attempt_that_was_never_asked_for_goes_on_with_the_next_run(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    """The process ended after the commit of the attempt and before the call of the provider."""
    mandate = set_up_mandate(provider, payer)
    assert debits._begin_debit(invoice.pk, mandate, CHARGE) is not None
    run(CHARGE + timedelta(minutes=10))
    assert pay_state(payer) == ("processing", 0, "processing", "active")
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    assert PaymentAttempt.objects.count() == 1


def test_a_late_authorisation_after_a_failure_is_taken(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "late_auth"})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert pay_state(payer) == ("failed", 0, "failed", "past_due")
    provider.control("POST", "clock/advance", {"hours": 24})
    deliver(provider, ist(2026, 12, 3, 11))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    assert payer.past_due_since is None


def test_before_a_retry_a_failed_debit_is_looked_at_again(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "late_auth"})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert pay_state(payer) == ("failed", 0, "failed", "past_due")
    provider.control("POST", "clock/advance", {"hours": 24})
    debits.charge_due(ist(2026, 12, 6, 10))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    assert PaymentAttempt.objects.count() == 1


def test_lost_answers_are_found_again_and_nothing_is_asked_for_twice(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "timeout_after_accept", "email": "bills@shop.example"})
    run(CHARGE)
    assert pay_state(payer)[2] == "unknown"
    run(CHARGE + timedelta(hours=2))
    state = provider.control("GET", "payments")
    debits = [row for row in state["payments"] if row["amount"] == 59_000]
    assert len(debits) == 1
    provider.control("POST", "clock/advance", {"hours": 26})
    run(ist(2026, 12, 2, 16))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    assert len([row for row in provider.control("GET", "payments")["orders"] if row["amount"] == 59_000]) == 1


def test_a_debit_that_the_provider_had_no_time_for_is_requested_again(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise NotCarriedOut

    set_up_mandate(provider, payer)
    with monkeypatch.context() as patch:
        patch.setattr(Razorpay, "debit", busy)
        run(CHARGE)
    assert pay_state(payer) == ("processing", 0, "created", "active")
    run(CHARGE + timedelta(hours=1))
    assert pay_state(payer) == ("processing", 0, "processing", "active")


def test_a_provider_in_trouble_is_asked_again_and_a_refused_debit_fails(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "500"})
    run(CHARGE)
    assert pay_state(payer)[:3] == ("processing", 0, "unknown")
    Mandate.objects.update(provider_token_id="token_unknown")
    provider.control("POST", "scenario", {"scenario": "ok"})
    run(ist(2026, 12, 2, 16))
    assert pay_state(payer) == ("failed", 0, "failed", "past_due")
    error = PaymentAttempt.objects.get().error
    assert error is not None
    assert (error["code"], error["reason"]) == ("BAD_REQUEST_ERROR", "input_validation_failed")
    assert Mandate.objects.get().status == "cancelled", "the provider does not know it"


def test_failed_debits_are_retried_reminded_of_and_restrict_in_the_end(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "insufficient_funds"})
    at, seen = CHARGE, 0
    # Run twice a day until the last retry. After that, only reminders are due.
    for hours in [12] * 20 + [72] * 6 + [24] * 2:
        run(at)
        provider.control("POST", "clock/advance", {"hours": hours})
        seen = deliver(provider, at + timedelta(hours=1), since=seen)
        at += timedelta(hours=hours)
    assert PaymentAttempt.objects.count() == 3
    payer.refresh_from_db()
    assert payer.billing_restricted
    mails = OutboundMail.objects.filter(subject__contains="is not paid").count()
    assert mails == 5
    attempt = payment_links.pay_now(invoice=only_invoice(payer), at=CHARGE + timedelta(days=30))
    assert attempt.payment_url is not None
    answer(attempt.payment_url, "approve")
    deliver(provider, CHARGE + timedelta(days=30, hours=1))
    payer.refresh_from_db()
    assert (payer.billing_status, payer.billing_restricted) == ("active", False)


def test_a_debit_by_a_mandate_that_was_set_up_late_is_repeated_as_well(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    run(ist(2026, 12, 9, 12))
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "insufficient_funds", "email": "*"})
    for day in range(18, 32):
        run(ist(2026, 12, day, 10))
        provider.control("POST", "clock/advance", {"hours": 30})
        deliver(provider, ist(2026, 12, day, 16))
    begun = PaymentAttempt.objects.order_by("id").values_list("created_at", flat=True)
    days = [at.day for at in begun]
    assert days == [18, 22, 26], "three and seven days after the failure at 16:00, at the next run"


def test_without_a_mandate_an_unpaid_invoice_becomes_overdue_on_its_due_date(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    run(ist(2026, 12, 8, 23))
    assert pay_state(payer) == ("open", 0, "", "active")
    run(ist(2026, 12, 9, 0, 10))
    assert pay_state(payer) == ("open", 0, "", "past_due")
    assert payer.past_due_since == invoice.due_at
    assert not payer.billing_restricted
    for days, is_restricted in ((20, False), (21, True)):
        run(invoice.due_at + timedelta(days=days))
        payer.refresh_from_db()
        assert payer.billing_restricted is is_restricted


def test_a_payment_link_is_the_same_while_it_lives_and_blocks_a_debit(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    first = payment_links.pay_now(invoice=invoice, at=CHARGE)
    assert payment_links.pay_now(invoice=invoice, at=CHARGE).payment_url == first.payment_url
    set_up_mandate(provider, payer)
    run(CHARGE + timedelta(hours=1))
    assert PaymentAttempt.objects.count() == 1
    assert first.payment_url is not None
    assert answer(first.payment_url, "approve").status_code == 303
    deliver(provider, CHARGE + timedelta(hours=2))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")
    with pytest.raises(payment_links.InvoiceNotPayable):
        payment_links.pay_now(invoice=invoice, at=CHARGE + timedelta(hours=3))


@pytest.mark.parametrize("status", ["unknown", "created"])
def test_a_link_whose_answer_was_lost_is_found_again(
    provider: RunningSimulator, invoice: Invoice, status: str
) -> None:
    """If the process ended before it could record the failure, the attempt is still `created`."""
    lost, before = {"scenario": "timeout_after_accept", "email": "bills@shop.example"}, provider.total()
    provider.control("POST", "scenario", lost)
    with pytest.raises(ProviderUnreachable):
        payment_links.pay_now(invoice=invoice, at=CHARGE)
    PaymentAttempt.objects.update(status=status)
    provider.control("POST", "scenario", {**lost, "scenario": "ok"})
    link = payment_links.pay_now(invoice=invoice, at=CHARGE)
    [made] = provider.control("GET", "payments")["payment_links"]
    assert (link.payment_url, link.status) == (made["short_url"], "created")
    requested = provider.control("GET", f"requests?since={before}&path=payment_links&method=POST")["data"]
    assert len(requested) == (1 if status == "unknown" else 2)


def test_an_invoice_whose_debit_was_refused_before_its_order_is_paid_by_link(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up_mandate(provider, payer)
    monkeypatch.setattr(Razorpay, "create_order", refuse)
    run(CHARGE)
    assert pay_state(payer)[2] == "failed"
    assert payment_links.pay_now(invoice=invoice, at=CHARGE).payment_url is not None


def test_a_new_mandate_replaces_the_old_one_at_the_provider_too(
    provider: RunningSimulator, payer: Tenant
) -> None:
    old = set_up_mandate(provider, payer)
    new = set_up_mandate(provider, payer, max_amount_paise=100_000)
    old.refresh_from_db()
    assert (old.status, old.cancel_at_provider, new.status) == ("cancelled", False, "active")
    assert new.replaces_id == old.id
    statuses = [
        token["recurring_details"]["status"] for token in provider.control("GET", "payments")["tokens"]
    ]
    assert statuses == ["cancelled", "confirmed"]


def test_a_replaced_mandate_ends_at_the_provider_after_its_debit_in_flight(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    old = set_up_mandate(provider, payer)
    run(CHARGE)
    set_up_mandate(provider, payer, max_amount_paise=100_000)
    old.refresh_from_db()
    assert (old.status, old.cancel_at_provider) == ("cancelled", True)
    provider.control("POST", "clock/advance", {"hours": 26})
    run(ist(2026, 12, 2, 16))
    old.refresh_from_db()
    assert (pay_state(payer), old.cancel_at_provider) == (("paid", 59_000, "captured", "active"), False)


def mandate_of(tenant: Tenant, status: str, **values: Any) -> Mandate:
    """A mandate without a page at the provider."""
    known = {"method": "upi", "max_amount_paise": 100_000, "created_at": CHARGE, "status": status}
    return Mandate.objects.create(tenant=tenant, **(known | values))


@pytest.mark.parametrize(
    ("before", "said", "after", "mails", "ends"),
    [
        ("pending", "active", "active", 0, False),
        ("pending", "paused", "pending", 0, False),
        ("pending", "rejected", "rejected", 0, False),
        ("active", "paused", "paused", 1, False),
        ("active", "cancelled", "cancelled", 1, False),
        ("active", "pending", "active", 0, False),
        ("paused", "active", "active", 0, False),
        ("paused", "pending", "paused", 0, False),
        ("paused", "cancelled", "cancelled", 0, False),
        ("expired", "active", "expired", 0, True),
        ("expired", "paused", "expired", 0, False),
        ("cancelled", "active", "cancelled", 0, True),
    ],
)
def test_what_the_provider_says_of_a_mandate(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch, before: str, said: str, after: str, mails: int, ends: bool
) -> None:
    """One that was approved too late has to end at the provider (`ends`)."""

    def away(*_: Any, **__: Any) -> None:
        raise ProviderUnreachable("timeout")

    state = MandateState("token_1", said, "b***@okaxis", expires_at=ist(2027, 1, 1))
    approval = Payment("pay_1", "captured", 100, token_id="token_1")
    monkeypatch.setattr(Razorpay, "payments_of", lambda *_: [approval])
    monkeypatch.setattr(Razorpay, "mandate", lambda *_, **__: state)
    monkeypatch.setattr(Razorpay, "cancel_mandate", away)
    mandate = mandate_of(payer, before, provider_order_id="order_1", provider_customer_id="cust_1")
    mandates.sync(mandate.pk, CHARGE)
    mandate.refresh_from_db()
    assert (mandate.status, mandate.cancel_at_provider) == (after, ends)
    assert OutboundMail.objects.filter(subject=f"Your autopay mandate is {after}").count() == mails
    if before in {"pending", "active", "paused"}:
        assert (mandate.provider_token_id, mandate.instrument) == ("token_1", "b***@okaxis")
        assert mandate.expires_at == ist(2027, 1, 1)


def test_a_mandate_that_the_payer_resumes_is_active_again_without_a_notice(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider sends no notice of this."""
    monkeypatch.setattr(Razorpay, "payments_of", lambda *_: [])
    monkeypatch.setattr(Razorpay, "mandate", lambda *_, **__: MandateState("token_1", "active"))
    known = {"provider_order_id": "order_1", "provider_customer_id": "cust_1", "provider_token_id": "token_1"}
    mandate = mandate_of(payer, "paused", **known)
    assert mandates.reconcile(CHARGE) == 1
    mandate.refresh_from_db()
    assert mandate.status == "active"


@pytest.mark.parametrize(
    ("oldest_first", "shown"),
    [
        (["active", "pending"], 0),
        (["paused", "pending"], 0),
        (["paused", "cancelled"], 0),
        (["cancelled", "expired"], 1),
        ([], None),
    ],
)
def test_the_mandate_in_force_is_shown_else_the_newest(
    payer: Tenant, oldest_first: list[str], shown: int | None
) -> None:
    made = [mandate_of(payer, status) for status in oldest_first]
    assert mandates.current(payer.id) == (None if shown is None else made[shown])


@pytest.mark.parametrize(
    ("method", "most"), [("upi", 1_500_000), ("card", 1_500_000), ("emandate", 100_000_000)]
)
def test_each_method_has_its_largest_limit(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch, method: str, most: int
) -> None:
    pages = (
        MandateRegistration("inv_1", f"order_{n}", "cust_1", f"https://rzp.example/{n}") for n in range(2)
    )
    monkeypatch.setattr(Razorpay, "register_mandate", lambda *_, **__: next(pages))
    at = ist(2026, 11, 2)
    mandate = ask_for_mandate(payer, method=method, max_amount_paise=most)
    assert (mandate.authorization_url, mandate.authorization_expires_at) == (
        "https://rzp.example/0",
        at + timedelta(days=7),
    )
    with pytest.raises(InvalidRequest):
        ask_for_mandate(payer, method=method, max_amount_paise=most + 1)
    again = [
        ask_for_mandate(payer, method=method, max_amount_paise=most, at=at + timedelta(days=7, seconds=s))
        for s in (-1, 0)
    ]
    assert [one == mandate for one in again] == [True, False], "its page is over after a week"


@pytest.mark.parametrize("status", Mandate.Status.values)
def test_which_mandate_a_new_one_replaces_and_which_ends_with_its_tenant(
    payer: Tenant, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    page = MandateRegistration("inv_1", "order_1", "cust_1", "https://rzp.example/1")
    monkeypatch.setattr(Razorpay, "register_mandate", lambda *_, **__: page)
    monkeypatch.setattr(Razorpay, "cancel_registration", lambda *_: None)
    stands, waits = status in {"active", "paused"}, status == "pending"
    known = mandate_of(payer, status, authorization_url="https://rzp.example/0")
    assert mandates.on_tenant_closing(tenant_id=payer.id) == {"mandates": int(stands or waits)}
    Mandate.objects.update(status=status)
    made = ask_for_mandate(payer, at=CHARGE)
    assert made.replaces_id == (known.pk if stands else None)
    known.refresh_from_db()
    assert known.status == ("cancelled" if waits else status)


def test_the_mandate_of_a_tenant_that_closes_ends_at_the_provider_too(
    provider: RunningSimulator, payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ProviderUnreachable("timeout")

    mandate = set_up_mandate(provider, payer)
    with monkeypatch.context() as patch:
        patch.setattr(Razorpay, "cancel_mandate", away)
        assert leaving.close(tenant_id=payer.id).ended["mandates"] == 1
    mandate.refresh_from_db()
    assert (mandate.status, mandate.cancel_at_provider) == ("cancelled", True)
    assert leaving.close(tenant_id=payer.id).ended["mandates"] == 0
    [token] = provider.control("GET", "payments")["tokens"]
    assert token["recurring_details"]["status"] == "cancelled", "what the provider missed is sent again"


def test_a_mandate_that_waits_for_approval_ends_with_its_tenant_too(
    provider: RunningSimulator, payer: Tenant
) -> None:
    mandate = ask_for_mandate(payer)
    assert leaving.close(tenant_id=payer.id).ended["mandates"] == 1
    assert mandate.authorization_url is not None
    answer(mandate.authorization_url, "approve")
    mandates.sync(mandate.id, ist(2026, 11, 2))
    mandate.refresh_from_db()
    assert mandate.status == "cancelled"


def test_a_mandate_that_was_replaced_stays_so_while_it_lives_at_the_provider(
    provider: RunningSimulator, payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ProviderUnreachable("timeout")

    old = set_up_mandate(provider, payer)
    monkeypatch.setattr(Razorpay, "cancel_mandate", away)
    new = set_up_mandate(provider, payer, max_amount_paise=100_000)
    mandates.sync(old.pk, CHARGE)
    assert list(Mandate.objects.order_by("id").values_list("id", "status")) == [
        (old.id, "cancelled"),
        (new.id, "active"),
    ]


def test_a_declined_mandate_stays_pending_and_one_asked_for_again_is_the_same(
    provider: RunningSimulator, payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    wanted: dict[str, Any] = {
        "tenant_id": payer.id,
        "method": "upi",
        "max_amount_paise": 1_500_000,
        "return_url": None,
    }
    at = datetime.now(tz=CHARGE.tzinfo)
    mandate = mandates.ask_for(**wanted, at=at)
    assert mandate.authorization_url is not None
    answer(mandate.authorization_url, "decline")
    mandates.reconcile(at)
    assert mandates.ask_for(**wanted, at=at).id == mandate.id
    with monkeypatch.context() as patched:
        patched.setattr(Razorpay, "payments_of", refuse)
        assert mandates.reconcile(at) == 1, "a refusal is no failure of the run"
    mandates.reconcile(at + timedelta(days=8))
    mandate.refresh_from_db()
    assert mandate.status == "expired"


def test_paying_now_finds_that_a_failed_debit_was_paid_after_all(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "late_auth"})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    provider.control("POST", "clock/advance", {"hours": 24})
    with pytest.raises(payment_links.InvoiceNotPayable):
        payment_links.pay_now(invoice=invoice, at=ist(2026, 12, 3, 11))
    assert pay_state(payer) == ("paid", 59_000, "captured", "active")


def test_an_invoice_above_the_cap_is_not_debited(
    provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, payer, max_amount_paise=58_999)
    run(CHARGE)
    assert not PaymentAttempt.objects.exists()


def test_a_webhook_is_kept_once_and_only_when_signed(provider: RunningSimulator, payer: Tenant) -> None:
    set_up_mandate(provider, payer)
    hook = provider.control("GET", "payments")["webhooks"][0]
    assert post(hook).status_code == post(hook).status_code == 200
    assert ProviderEvent.objects.count() == 1
    assert_error(post({**hook, "signature": "0" * 64}), 401, "unauthorized")
    assert_error(post({**hook, "signature": "ä"}), 401, "unauthorized")
    assert_error(Client().get(HOOK), 405, "method_not_allowed")


class TestCreditNotes:
    def test_a_full_credit_voids_an_unpaid_invoice(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        run(ist(2026, 12, 9))
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=59_000, reason="Outage", at=ist(2026, 12, 9), actor_user_id=7
        )
        assert (note.number, note.taxable_paise, note.tax_paise) == ("WGCN/2627/000001", 50_000, 9_000)
        invoice.refresh_from_db()
        payer.refresh_from_db()
        assert (invoice.status, invoice.amount_due_paise, payer.billing_status) == ("void", 0, "active")
        assert AuditEntry.objects.get(action="billing.credit").actor_user_id == 7

    def test_parts_add_up_to_the_invoice_exactly(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        for part in (1, 33_333, 59_000 - 33_334):
            credit_notes.issue(invoice_id=invoice.id, total_paise=part, reason="Part", at=CHARGE)
        notes = CreditNote.objects.all()
        assert sum(note.taxable_paise for note in notes) == invoice.subtotal_paise
        assert sum(note.tax_paise for note in notes) == 9_000
        with pytest.raises(InvalidRequest):
            credit_notes.issue(invoice_id=invoice.id, total_paise=1, reason="More", at=CHARGE)

    def test_not_while_a_debit_is_on_its_way_but_a_link_is_ended(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        payment_links.pay_now(invoice=invoice, at=CHARGE)
        credit_notes.issue(invoice_id=invoice.id, total_paise=9_000, reason="Part", at=CHARGE)
        assert provider.control("GET", "payments")["payment_links"][0]["status"] == "cancelled"
        set_up_mandate(provider, payer)
        run(CHARGE)
        assert PaymentAttempt.objects.get(kind="autopay").amount_paise == 50_000
        with pytest.raises(Conflict):
            credit_notes.issue(invoice_id=invoice.id, total_paise=1, reason="More", at=CHARGE)

    def test_a_payment_that_was_not_yet_announced_counts_before_the_credit(
        self, provider: RunningSimulator, payer: Tenant, invoice: Invoice
    ) -> None:
        link = payment_links.pay_now(invoice=invoice, at=CHARGE)
        answer(link.payment_url or "", "approve")
        credit_notes.issue(invoice_id=invoice.id, total_paise=9_000, reason="Part", at=CHARGE)
        assert pay_state(payer)[:3] == ("paid", 50_000, "captured")
        assert ledger.balance_paise(payer.id) == 9_000
