"""Early warnings, receipts, tax deducted at source, and the export for the accountant."""

from datetime import timedelta
from typing import Any

import pytest

from billing import buyers, mails
from billing.billing_run import run
from billing.invoices import credit_notes, documents
from billing.models import BillingMail, BillingProfile, Invoice, Mandate, PaymentAttempt
from billing.payments import attempts, bank_transfers
from billing.pricing.money import rupees
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_ledger import transfer
from billing.tests.test_money import late_attempt
from billing.tests.test_payments import CHARGE, deliver, set_up_mandate
from gateway.api.errors import Conflict
from tenants.models import OutboundMail, Tenant
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


def mailed(words: str) -> int:
    return OutboundMail.objects.filter(subject__contains=words).count()


def test_a_trial_warns_seven_days_and_one_day_before_it_ends(payer: Tenant) -> None:
    Tenant.objects.update(billing_status="trialing", trial_ends_at=ist(2026, 12, 1))
    counts = []
    for day in (20, 23, 24, 25, 28, 30):
        run(ist(2026, 11, day, 12))
        counts.append(mailed("Your trial ends on 30 November 2026"))
    assert counts == [0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(("country", "asked"), [("IN", True), ("US", False)])
def test_a_buyer_abroad_is_not_asked_to_set_up_autopay(payer: Tenant, country: str, asked: bool) -> None:
    buyers.profile_of(payer)
    BillingProfile.objects.update(country=country)
    Tenant.objects.update(billing_status="trialing", trial_ends_at=ist(2026, 12, 1))
    mails.send_early_warnings(ist(2026, 11, 25))
    text = OutboundMail.objects.get(subject__contains="Your trial ends").text
    assert ("autopay" in text) is asked
    assert ("/console/billing/profile" in text) is not asked


@pytest.mark.parametrize(
    "changes", [{"sandbox": True}, {"status": "suspended"}, {"billing_status": "active"}], ids=str
)
def test_without_an_ending_trial_no_warning_is_sent(payer: Tenant, changes: dict[str, Any]) -> None:
    trial = {"billing_status": "trialing", "trial_ends_at": ist(2026, 12, 1)}
    Tenant.objects.update(**(trial | changes))
    assert mails.send_early_warnings(ist(2026, 11, 25, 12)) == 0


def test_a_mandate_that_has_expired_does_not_warn(provider: RunningSimulator, payer: Tenant) -> None:
    mandate = set_up_mandate(provider, payer)
    Mandate.objects.filter(pk=mandate.pk).update(expires_at=ist(2026, 12, 31))
    mails.send_early_warnings(ist(2027, 1, 2, 12))
    assert mailed("mandate expires") == 0


def test_a_mandate_warns_before_it_expires(provider: RunningSimulator, payer: Tenant) -> None:
    mandate = set_up_mandate(provider, payer)
    Mandate.objects.filter(pk=mandate.pk).update(expires_at=ist(2026, 12, 31))
    for day in (1, 2, 3, 24, 25):
        run(ist(2026, 12, day, 12))
    assert mailed("mandate expires on 31 December 2026") == 2


def test_a_limit_just_high_enough_and_an_account_without_numbers_get_no_warning(
    provider: RunningSimulator, payer: Tenant
) -> None:
    assert mails.send_early_warnings(ist(2026, 11, 21, 12)) == 0
    connected(payer, "1", (ist(2026, 11, 3), None))
    set_up_mandate(provider, payer, max_amount_paise=59_000)
    mails.send_early_warnings(ist(2026, 11, 21, 12))
    assert mailed("above the limit") == 0


def test_missing_buyer_data_is_mailed_once_from_ten_days_before(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(ist(2026, 11, 20, 12))
    assert mailed("Billing details are missing") == 0
    run(ist(2026, 11, 21, 12))
    run(ist(2026, 11, 30, 12))
    assert mailed("Billing details are missing") == 1
    assert "GSTIN or PAN" in OutboundMail.objects.get(subject__contains="details are missing").text


@pytest.mark.parametrize(
    ("billed", "lacks", "mailed_text"),
    [
        ({}, {"pin": ""}, "lacks: PIN code. An issued"),
        ({}, {"address": ""}, "Without them we cannot issue your next invoice"),
        ({}, {"phone": "", "tax_id": "", "tax_id_type": ""}, "lacks: GSTIN or PAN, phone number. An"),
        ({}, {}, None),
        ({"billing_status": "trialing", "trial_ends_at": ist(2026, 11, 29)}, {"pin": ""}, "PIN code"),
        ({"billing_status": "trialing", "trial_ends_at": ist(2026, 12, 1)}, {"pin": ""}, None),
        ({"billing_status": "exempt"}, {"pin": ""}, None),
    ],
)
def test_missing_buyer_data_is_named_when_this_month_is_billed(
    payer: Tenant, billed: dict[str, Any], lacks: dict[str, str], mailed_text: str | None
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    BillingProfile.objects.update(**lacks)
    Tenant.objects.update(**billed)
    mails.send_early_warnings(ist(2026, 11, 25))
    assert mailed("details are missing") == 0, "nothing is billed without a number"
    connected(payer, "1", (ist(2026, 11, 3), None))
    mails.send_early_warnings(ist(2026, 11, 25))
    found = OutboundMail.objects.filter(subject__contains="details are missing")
    assert [mailed_text in mail.text for mail in found if mailed_text] == ([True] if mailed_text else [])
    assert found.count() == bool(mailed_text)


PAY, DEBITED, ABOVE = "See and pay the invoice", "mandate will be debited", "above the limit"


@pytest.mark.parametrize(
    ("status", "limit", "paid", "said"),
    [
        (None, 0, 0, [PAY]),
        ("paused", 59_000, 0, [PAY]),
        ("active", 59_000, 0, [DEBITED]),
        ("active", 58_999, 0, [PAY, ABOVE]),
        ("active", 58_999, 1_000, [DEBITED, "₹580.00 of it is still due"]),
        ("active", 59_000, 59_000, ["Nothing of it is due"]),
        (None, 0, 59_000, ["Nothing of it is due"]),
    ],
)
def test_the_mail_of_an_invoice_says_how_it_is_paid(
    invoice: Invoice, status: str | None, limit: int, paid: int, said: list[str]
) -> None:
    if status:
        Mandate.objects.create(tenant=invoice.tenant, method="upi", status=status, max_amount_paise=limit)
    invoice.amount_paid_paise = paid
    mails.send_again(invoice)
    text = OutboundMail.objects.latest("id").text
    every = (PAY, DEBITED, ABOVE, "Nothing of it is due", "₹580.00 of it is still due")
    assert [words for words in every if words in text] == said


@pytest.mark.parametrize(
    ("method", "values", "said"),
    [
        ("upi", {"status": "processing"}, DEBITED),
        ("upi", {"status": "failed", "retries_started": 1}, DEBITED),
        ("upi", {"status": "failed", "retries_started": 2}, PAY),
        ("card", {"status": "failed"}, PAY),
        ("upi", {"reopened_at": FIRST_OF_DECEMBER}, PAY),
    ],
)
def test_a_mail_promises_only_a_debit_that_comes(
    invoice: Invoice, method: str, values: dict[str, Any], said: str
) -> None:
    mandate = Mandate.objects.create(
        tenant=invoice.tenant, method=method, status="active", max_amount_paise=59_000
    )
    if "status" in values:
        attempts.insert(invoice, "autopay", FIRST_OF_DECEMBER, mandate=mandate)
    if values.get("status") == "failed":
        attempts.fail(attempt_id=PaymentAttempt.objects.get().pk, error=None, at=FIRST_OF_DECEMBER)
    Invoice.objects.filter(pk=invoice.pk).update(**values)
    mails.send_again(Invoice.objects.get(pk=invoice.pk))
    text = OutboundMail.objects.latest("id").text
    assert [words for words in (PAY, DEBITED, ABOVE) if words in text] == [said]


def test_the_mail_of_a_credit_note_says_what_is_still_due(invoice: Invoice) -> None:
    for paise, said in (
        (9_000, "₹500.00 of the invoice is still due."),
        (50_000, "Nothing of the invoice is due."),
    ):
        note = credit_notes.issue(
            invoice_id=invoice.id, total_paise=paise, reason="Outage", at=FIRST_OF_DECEMBER
        )
        assert mails.send_credit_notes(FIRST_OF_DECEMBER) == 1
        mail = OutboundMail.objects.latest("id")
        assert mail.subject == f"Credit note {note.number} of {rupees(paise)}"
        assert f"{said}\n\nReason: Outage" in mail.text


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0, "within 21 days: after that"),
        (3, "within 18 days: after that"),
        (7, "within 14 days: after that"),
        (7.01, "within 14 days: after that"),
        (20, "within 1 day: after that"),
        (20.9, "within 1 day: after that"),
        (21, "New numbers cannot be connected until all overdue invoices are paid."),
        (40, "New numbers cannot be connected until all overdue invoices are paid."),
    ],
)
def test_a_reminder_says_how_many_days_are_left(invoice: Invoice, days: float, words: str) -> None:
    """A day that has begun counts, because the billing run may be minutes late."""
    Invoice.objects.update(overdue_since=invoice.due_at)
    assert mails.send_reminders(invoice.due_at + timedelta(days=days)) == 1
    assert words in OutboundMail.objects.latest("id").text


def test_a_mail_without_an_address_waits_for_one(payer: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    Tenant.objects.update(billing_email=None, contact_email=None)
    connected(payer, "1", (ist(2026, 11, 3), None))
    typeset: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(documents, "render_pdf", typeset.append)
        run(FIRST_OF_DECEMBER)
        credit_notes.issue(invoice_id=only_invoice(payer).id, total_paise=100, reason="x", at=CHARGE)
        for at in (CHARGE, ist(2026, 12, 9, 12)):
            run(at)
    assert typeset == [], "each run would do so again"
    kinds = ["credit_note_waits", "invoice_waits"]
    assert list(BillingMail.objects.order_by("kind").values_list("kind", flat=True)) == kinds
    assert only_invoice(payer).reminders_sent == 0
    with pytest.raises(Conflict, match="no address"):
        mails.send_again(only_invoice(payer))
    Tenant.objects.filter(pk=payer.pk).update(billing_email="bills@shop.example")
    at = ist(2026, 12, 9, 13)
    for counts in (1, 0):
        for send in (mails.send_invoices, mails.send_credit_notes, mails.send_reminders):
            assert send(at) == counts, send
    assert not BillingMail.objects.filter(kind__in=kinds).exists()


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        ([], False),
        ([("link", "failed")], False),
        ([("autopay", "failed")], True),
        ([("autopay", "failed"), ("link", "failed")], True),
        ([("autopay", "failed"), ("autopay", "created")], False),
    ],
)
def test_a_reminder_names_a_debit_only_if_the_last_one_failed(
    invoice: Invoice, tried: list[tuple[str, str]], said: bool
) -> None:
    for place, (kind, status) in enumerate(tried):
        late_attempt(invoice, f"pat_{place}", kind=kind, status=status, error={"reason": "payment_declined"})
    Invoice.objects.update(overdue_since=invoice.due_at)
    mails.send_reminders(invoice.due_at)
    text = OutboundMail.objects.latest("id").text
    assert ("The debit of your autopay mandate failed: the bank declined." in text) is said


def test_a_limit_too_low_is_mailed_with_both_amounts(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    for status, limit in (("paused", 100), ("active", 58_999)):
        Mandate.objects.all().delete()
        Mandate.objects.create(tenant=payer, method="upi", status=status, max_amount_paise=limit)
        mails.send_early_warnings(ist(2026, 11, 25))
    text = OutboundMail.objects.get(subject__contains="above the limit").text
    assert "is expected to be ₹590.00 including GST. Your autopay mandate allows ₹589.99" in text


@pytest.mark.parametrize(
    ("paid", "received", "written_off"),
    [
        (0, None, "₹590.00"),
        (20_000, "₹200.00", "₹390.00"),
        (58_960, "₹589.60", "₹0.40"),
        (59_000, "₹590.00", None),
    ],
)
def test_a_receipt_names_what_was_received_without_what_was_written_off(
    invoice: Invoice, paid: int, received: str | None, written_off: str | None
) -> None:
    if paid:
        transfer(invoice, paid)
    if paid < 58_900:
        bank_transfers.write_off(invoice_id=invoice.id, reason="Closed", at=CHARGE)
    mails.send_receipts(CHARGE)
    found = OutboundMail.objects.filter(subject__startswith="Receipt").values_list("subject", flat=True)
    assert list(found) == ([f"Receipt for invoice {invoice.number}: {received}"] if received else [])
    invoice.refresh_from_db()
    shown = documents.of_invoice(invoice)["settled"]
    assert shown[0] == ("Paid", received or "₹0.00")
    assert [amount for name, amount in shown if name == "Written off"] == (
        [written_off] if written_off else []
    )


def test_a_payment_has_one_receipt(provider: RunningSimulator, payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    set_up_mandate(provider, payer)
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    run(ist(2026, 12, 2, 12))
    run(ist(2026, 12, 2, 13))
    assert mailed("Receipt for invoice WG/2627/000001: ₹590.00") == 1


def test_a_failed_debit_says_why_and_when_new_numbers_close(
    provider: RunningSimulator, payer: Tenant
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    set_up_mandate(provider, payer)
    provider.control("POST", "scenario", {"scenario": "insufficient_funds"})
    run(CHARGE)
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    run(ist(2026, 12, 2, 11))
    text = OutboundMail.objects.get(subject__contains="is not paid").text
    assert "The debit of your autopay mandate failed: the account has too little money." in text
    assert "for November 2026, due on 8 December 2026, is not paid: ₹590.00 is still due." in text
    assert "within 21 days: after that, new numbers cannot be connected" in text


def test_a_reminder_counts_to_the_day_on_which_the_oldest_invoice_closes_new_numbers(
    provider: RunningSimulator, payer: Tenant
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    for at in (FIRST_OF_DECEMBER, ist(2026, 12, 9, 12), ist(2027, 1, 1, 10), ist(2027, 1, 9, 12)):
        run(at)
    newest = OutboundMail.objects.filter(subject__contains="is not paid").latest("id").text
    assert "for December 2026" in newest
    assert "New numbers cannot be connected until all overdue invoices are paid." in newest
