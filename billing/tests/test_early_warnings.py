"""Early warnings, receipts, tax deducted at source, and the export for the accountant."""

from typing import Any

import pytest

from billing import buyers, mails
from billing.billing_run import run
from billing.invoices import credit_notes
from billing.models import BillingProfile, Invoice, Mandate
from billing.pricing.money import rupees
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist
from billing.tests.test_payments import CHARGE, deliver, set_up_mandate
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
    for at in (FIRST_OF_DECEMBER, ist(2026, 12, 8, 12), ist(2027, 1, 1, 10), ist(2027, 1, 8, 12)):
        run(at)
    newest = OutboundMail.objects.filter(subject__contains="is not paid").latest("id").text
    assert "for December 2026" in newest
    assert "New numbers cannot be connected until all overdue invoices are paid." in newest
