"""A tenant that lives in another cell: the billing run of this one neither bills, debits, refunds nor mails."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps

from billing import due_mails, restriction, usage
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import Invoice, Mandate, PaymentAttempt
from billing.payments import debits, refunds
from billing.payments.provider import ProviderUnreachable
from billing.tests.conftest import connected, ist, only_invoice
from billing.tests.test_payments import CHARGE, deliver, set_up_mandate
from tenants.models import OutboundMail, Tenant
from tenants.tenant_status import ELSEWHERE
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

MONTH_OVER = ist(2026, 12, 1, 0, 15)
LATE = ist(2026, 12, 20)
Prepare = Callable[[RunningSimulator, Tenant, pytest.MonkeyPatch], datetime]
"""Makes something that is due, and returns when."""


def a_month(_: RunningSimulator, payer: Tenant, __: pytest.MonkeyPatch) -> datetime:
    connected(payer, "1", (ist(2026, 11, 3), None))
    return MONTH_OVER


def an_invoice(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    at = a_month(provider, payer, patch)
    usage.take_snapshots(at)
    return at


def a_mail_of_an_invoice(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    at = an_invoice(provider, payer, patch)
    issuing.issue_due(at)
    return at


def a_due_date(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    run(a_month(provider, payer, patch))
    return LATE


def a_reminder(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    at = a_due_date(provider, payer, patch)
    restriction.mark_overdue(at)
    return at


def a_restriction(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    run(a_due_date(provider, payer, patch))
    due_mails.send_reminders(LATE + timedelta(days=60))
    return LATE + timedelta(days=60)


def a_debit(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    run(a_month(provider, payer, patch))
    set_up_mandate(provider, payer)
    return CHARGE


def a_debit_that_has_begun(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    at = a_debit(provider, payer, patch)
    assert debits._begin_debit(only_invoice(payer).pk, Mandate.objects.get(), at) is not None
    return at + timedelta(minutes=10)


def a_receipt(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    run(a_debit(provider, payer, patch))
    provider.control("POST", "clock/advance", {"hours": 26})
    deliver(provider, ist(2026, 12, 2, 11))
    assert only_invoice(payer).status == Invoice.Status.PAID
    return ist(2026, 12, 2, 11)


def a_refund(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    def away(*_: Any, **__: Any) -> None:
        raise ProviderUnreachable("timeout")

    at = a_receipt(provider, payer, patch)
    credit_notes.issue(invoice_id=only_invoice(payer).id, total_paise=9_000, reason="Outage", at=at)
    run(at)
    with patch.context() as while_away:
        while_away.setattr(refunds, "refresh", away)
        refunds.pay_back(attempt_id=PaymentAttempt.objects.get().id, amount_paise=9_000, at=at)
    return at + timedelta(hours=2)


def a_pending_mandate(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    mandate = set_up_mandate(provider, payer)
    Mandate.objects.filter(pk=mandate.pk).update(status="pending", provider_token_id=None, instrument="")
    return ist(2026, 11, 2, 12)


def a_replaced_mandate(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    mandate = set_up_mandate(provider, payer)
    Mandate.objects.filter(pk=mandate.pk).update(status="cancelled", cancel_at_provider=True)
    return CHARGE


def a_mail_of_a_credit_note(provider: RunningSimulator, payer: Tenant, patch: pytest.MonkeyPatch) -> datetime:
    run(a_month(provider, payer, patch))
    credit_notes.issue(invoice_id=only_invoice(payer).id, total_paise=9_000, reason="Outage", at=MONTH_OVER)
    OutboundMail.objects.all().delete()
    return MONTH_OVER


def everything(provider: RunningSimulator) -> Any:
    """What is stored of billing, the mails, and what the provider was asked for."""
    rows = [
        [{**row, "next_check_at": None} for row in model._default_manager.order_by("pk").values()]
        for model in apps.get_app_config("billing").get_models()
    ]
    restricted = list(Tenant.objects.order_by("id").values("billing_status", "billing_restricted"))
    asked = provider.control("GET", "payments") | {"now": None}
    return rows, restricted, OutboundMail.objects.count(), asked


@pytest.mark.parametrize(
    "prepare",
    [
        a_month,
        an_invoice,
        a_mail_of_an_invoice,
        a_due_date,
        a_reminder,
        a_restriction,
        a_debit,
        a_debit_that_has_begun,
        a_receipt,
        a_refund,
        a_pending_mandate,
        a_replaced_mandate,
        a_mail_of_a_credit_note,
    ],
)
def test_the_run_does_nothing_for_a_tenant_of_another_cell(
    provider: RunningSimulator, payer: Tenant, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    at = prepare(provider, payer, monkeypatch)
    before = everything(provider)
    for status in ELSEWHERE:
        Tenant.objects.filter(pk=payer.pk).update(status=status)
        run(at)
        assert everything(provider) == before
    Tenant.objects.filter(pk=payer.pk).update(status=Tenant.Status.ACTIVE)
    run(at + timedelta(hours=2))
    assert everything(provider) != before
