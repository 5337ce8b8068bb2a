"""Terms of an unpaid invoice: nothing happens a moment before their end, and it happens at it."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from billing import mails, restriction
from billing.billing_run import run
from billing.invoices import issuing
from billing.models import BillingProfile, Invoice, Mandate
from billing.payments import debits
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, connected, ist, only_invoice
from tenants.models import Tenant

pytestmark = pytest.mark.django_db

MOMENT = timedelta(microseconds=1)
DAY = timedelta(days=1)


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


@pytest.fixture
def overdue(invoice: Invoice) -> Invoice:
    """An invoice that has just become overdue."""
    restriction.mark_overdue(invoice.due_at)
    invoice.refresh_from_db()
    assert invoice.overdue_since == invoice.due_at
    return invoice


def around(edge: datetime, happened: Callable[[datetime], object]) -> list[object]:
    """What is found a moment before an edge, and at it."""
    return [happened(edge - MOMENT), happened(edge)]


def test_an_invoice_is_overdue_from_its_due_date_on(invoice: Invoice) -> None:
    assert around(invoice.due_at, restriction.mark_overdue) == [0, 1]


def test_a_business_is_restricted_from_21_days_on(overdue: Invoice) -> None:
    def is_restricted(at: datetime) -> bool:
        restriction.mark_overdue(at)
        return Tenant.objects.get(pk=overdue.tenant_id).billing_restricted

    assert around(overdue.due_at + 21 * DAY, is_restricted) == [False, True]


@pytest.mark.parametrize(("sent", "days"), [(0, 0), (1, 3), (2, 7), (3, 14), (4, 21)])
def test_a_reminder_goes_out_from_its_day_on(overdue: Invoice, sent: int, days: int) -> None:
    Invoice.objects.filter(pk=overdue.pk).update(reminders_sent=sent)
    assert around(overdue.due_at + days * DAY, mails.send_reminders) == [0, 1]


@pytest.mark.parametrize(("before", "days"), [(0, 3), (1, 7)])
def test_a_failed_debit_is_retried_from_its_day_on(overdue: Invoice, before: int, days: int) -> None:
    mandate = Mandate(tenant=overdue.tenant, method=Mandate.Method.UPI)

    def due(at: datetime) -> int:
        return debits._retries_due(overdue, mandate, at)

    assert around(overdue.due_at + days * DAY, due) == [before, before + 1]


def test_an_invoice_without_a_state_waits_20_days(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.update(state_code="", tax_id="", tax_id_type="")
    run(FIRST_OF_DECEMBER)

    def is_issued(at: datetime) -> bool:
        issuing.issue_due(at)
        return Invoice.objects.exists()

    assert around(Period.parse("2026-11").end + 20 * DAY, is_issued) == [False, True]
