"""Mails about numbers and tokens. A cause leads to at most one mail a day, and only in the live environment. A failed
mail blocks nothing.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.clock import now
from phone_numbers import tokens
from phone_numbers.connection import mails, state
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import mail
from tenants.models import OutboundMail, Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _has_an_address(tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(contact_email="asha@traders.example")


def connected(tenant: Tenant, count: int = 1, environment: str = "live") -> BusinessAccount:
    """An account with connected numbers."""
    account = BusinessAccount.objects.create(
        tenant=tenant, environment=environment, waba_id="200", access_token="EAAx", subscribed=True
    )
    PhoneNumber.objects.bulk_create(
        PhoneNumber(
            tenant=tenant,
            account=account,
            environment=environment,
            phone_number_id=f"10{place}",
            display_phone_number=f"+91 98000 0000{place}",
            registered=True,
            ever_connected=True,
            connection_state="connected",
        )
        for place in range(count)
    )
    return account


def take_away(account: BusinessAccount, cause: str | None) -> None:
    with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
        BusinessAccount.objects.filter(pk=account.pk).update(taken_away=cause)


def subjects() -> list[str]:
    return list(OutboundMail.objects.order_by("id").values_list("subject", flat=True))


def test_numbers_that_are_taken_away_together_are_one_mail_with_reasons(tenant: Tenant) -> None:
    take_away(connected(tenant, count=2), "account_removed")
    row = OutboundMail.objects.get()
    assert row.to == "asha@traders.example"
    assert row.subject == "2 numbers of “Asha Traders” are disconnected"
    assert "+91 98000 00000" in row.text
    assert "withdrawn at Meta" in row.text
    assert mail.links_in(row.text)[0].endswith("/console/numbers?in=live")


def test_many_numbers_are_counted(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "MOST_NUMBERS", 1)
    take_away(connected(tenant, count=3), "account_restricted")
    assert "And 2 more." in OutboundMail.objects.get().text
    assert not PhoneNumber.objects.filter(disconnect_mailed_at=None).exists(), (
        "no number causes a further mail"
    )


def test_a_number_that_comes_and_goes_is_mailed_once_a_day(tenant: Tenant) -> None:
    account = connected(tenant)
    for cause in ("account_removed", None, "account_removed"):
        take_away(account, cause)
    assert len(subjects()) == 1
    mailed_at = now() - timedelta(hours=23)
    PhoneNumber.objects.update(disconnect_mailed_at=mailed_at)
    take_away(account, None)
    take_away(account, "account_removed")
    assert PhoneNumber.objects.get().disconnect_mailed_at == mailed_at, "a day counts from the mail"
    PhoneNumber.objects.update(disconnect_mailed_at=now() - timedelta(days=1))
    take_away(account, None)
    take_away(account, "account_removed")
    assert subjects() == ["A number of “Asha Traders” is disconnected"] * 2


def test_a_refused_token_is_one_mail_for_its_numbers_and_one_a_day(tenant: Tenant) -> None:
    account = connected(tenant, count=2)
    for _ in range(2):
        state.token_failed(waba_id=account.waba_id)
        BusinessAccount.objects.update(token_invalid_at=None)
        state.recompute(tenant_id=tenant.id)
    assert subjects() == ["Meta refuses the token of a WhatsApp account of “Asha Traders”"]
    assert "+91 98000 00000, +91 98000 00001" in OutboundMail.objects.get().text
    BusinessAccount.objects.update(token_mailed_at=now() - timedelta(days=1))
    state.token_failed(waba_id=account.waba_id)
    assert len(subjects()) == 2


def test_the_end_of_a_token_is_mailed_in_advance(tenant: Tenant) -> None:
    account = connected(tenant)
    BusinessAccount.objects.filter(pk=account.pk).update(token_expires_at=now() + timedelta(days=5))
    assert tokens.warn_of_ends() == 1
    assert tokens.warn_of_ends() == 0
    assert ["ends on" in subject for subject in subjects()] == [True]


@pytest.mark.parametrize(
    ("of_account", "of_number", "reason"),
    [
        ({"subscribed": False}, {}, "Its account does not send events to the gateway."),
        ({}, {"registered": False}, "It was deregistered. Register it again to send."),
        ({}, {"taken_away": "account_removed"}, "The access to its account was withdrawn at Meta."),
        ({"taken_away": "account_restricted"}, {}, "Meta restricted its account."),
        ({"token_invalid_at": now()}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_disconnection_is_mailed_with_its_reason_and_nothing_else_is(
    tenant: Tenant, of_account: dict[str, Any], of_number: dict[str, Any], reason: str | None
) -> None:
    """A rejected token has its own mail. Without an endpoint, a number is only pending."""
    connected(tenant)
    with state.facts_change(tenant_id=tenant.id):
        BusinessAccount.objects.update(**{"subscribed": True, **of_account})
        PhoneNumber.objects.update(**{"display_phone_number": "", **of_number})
    mailed = [row.text for row in OutboundMail.objects.all()]
    assert [(f"Why: {reason}" in text, "Number: 100\n" in text) for text in mailed] == [(True, True)] * bool(
        reason
    )
    PhoneNumber.objects.update(disconnect_mailed_at=None)
    other = "account_restricted" if "removed" in str(of_number) else "account_removed"
    with state.facts_change(tenant_id=tenant.id):
        PhoneNumber.objects.update(taken_away=other)
    mails_of_a_further_reason = len(subjects()) - len(mailed)
    assert mails_of_a_further_reason == (not of_account and not of_number)


def test_a_mail_counts_only_the_numbers_that_it_is_about(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mails, "MOST_NUMBERS", 2)
    account = connected(tenant, count=4)
    PhoneNumber.objects.filter(phone_number_id="103").update(disconnect_mailed_at=now())
    take_away(account, "account_removed")
    assert subjects() == ["3 numbers of “Asha Traders” are disconnected"]
    assert "And 1 more." in OutboundMail.objects.get().text


def test_mails_about_a_token_name_the_numbers_of_its_account(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mails, "MOST_NUMBERS", 2)
    account = connected(tenant, count=3)
    PhoneNumber.objects.filter(phone_number_id="100").update(display_phone_number="")
    other = BusinessAccount.objects.create(tenant=tenant, environment="live", waba_id="201")
    PhoneNumber.objects.filter(phone_number_id="101").update(account=other)
    ends = datetime(2031, 3, 1, 20, tzinfo=UTC)
    mails.token_ends(account, ends)
    mails.token_refused(account)
    mails.token_ends(account, None)
    for row in OutboundMail.objects.all():
        assert "Account: 200\nNumbers: 100, +91 98000 00002\n" in row.text
    assert "ends on 2 March 2031, 01:30 IST" in OutboundMail.objects.earliest("id").text
    assert len(subjects()) == 2


def test_the_test_environment_is_silent(tenant: Tenant) -> None:
    account = connected(tenant, environment="test")
    BusinessAccount.objects.filter(pk=account.pk).update(token_expires_at=now() + timedelta(days=5))
    take_away(account, "account_removed")
    state.token_failed(waba_id=account.waba_id)
    tokens.warn_of_ends()
    assert subjects() == []


def test_a_mail_that_fails_does_not_undo_the_change(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        Tenant.objects.raw("SELECT no_such_column")[0]

    monkeypatch.setattr(mail, "send_to_tenant", broken)
    take_away(connected(tenant), "account_removed")
    assert PhoneNumber.objects.get().connection_state == "disconnected"
