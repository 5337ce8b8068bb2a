"""Early warnings, receipts, tax deducted at source, and the export for the accountant."""

from typing import Any

import pytest

from billing import mails
from billing.billing_run import run
from billing.models import Mandate
from billing.tests.conftest import FIRST_OF_DECEMBER, connected, ist
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
