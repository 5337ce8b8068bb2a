"""A tenant with long overdue bills can connect its own numbers again, but cannot add a number."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from gateway.clock import now
from messaging.tests.conftest import connected_number
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import BusinessAccount, ConnectSession, PhoneNumber
from phone_numbers.tests.connecting.test_connect import PATH
from phone_numbers.tests.test_connection import make_account, make_number
from tenants.credentials import api_keys
from tenants.models import Tenant
from tenants.tenant_status import is_restricted
from tests.browsers import text
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db

SESSIONS = "/v1/connect-sessions"
RETURN = {"return_url": "https://shop.example/done"}


@pytest.fixture
def account(tenant: Tenant, simulator: RunningSimulator) -> SimulatedAccount:
    """An account with two numbers. Its tenant has the first, a rejected token, and long overdue bills."""
    made = simulator.account(2)
    connected_number(tenant, made)
    BusinessAccount.objects.update(token_invalid_at=now())
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    return made


def closed(answer: Any) -> None:
    error = assert_error(answer, 403, "forbidden")
    assert error["details"] == {"reason": "billing_past_due"}


@pytest.fixture(autouse=True)
def _billing_is_on(settings: Settings) -> None:
    settings.BILLING_ENABLED = True


def test_nobody_is_restricted_while_billing_is_off(tenant: Tenant, settings: Settings) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    assert is_restricted(tenant.pk)
    settings.BILLING_ENABLED = False
    assert not is_restricted(tenant.pk)


def test_a_new_token_brings_back_what_it_had_and_nothing_more(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    fresh = simulator.control("POST", "tokens", {"waba_id": account.waba_id})["access_token"]
    answer = api.post(PATH, {"waba_id": account.waba_id, "access_token": fresh})
    assert answer.status_code == 200, answer.content
    assert [row["phone_number_id"] for row in answer.json()["numbers"]] == [account.phone_number_id]
    assert answer.json()["held_elsewhere"] == []
    again = BusinessAccount.objects.get()
    assert (again.access_token, again.token_invalid_at) == (fresh, None)


def test_an_embedded_sign_up_repairs_its_own_number_alone(
    api: Api, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    own, further = account.phone_number_ids
    path, body = "/v1/numbers/embedded-signup", {"waba_id": account.waba_id}
    closed(api.post(path, {**body, "code": account.code, "phone_number_id": further}))
    answer = api.post(path, {**body, "code": account.code, "phone_number_id": own})
    assert answer.status_code == 200, "the refusal spent no code"
    assert BusinessAccount.objects.get().token_invalid_at is None
    assert PhoneNumber.objects.count() == 1


def test_no_number_moves_in_from_another_provider(api: Api, account: SimulatedAccount) -> None:
    given = {"cc": "91", "phone_number": "9800555501"}
    closed(api.post("/v1/numbers/migrate", {**given, "waba_id": account.waba_id}))
    answer = api.post(f"/v25.0/{account.waba_id}/phone_numbers", {**given, "migrate_phone_number": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, 10)
    assert PhoneNumber.objects.count() == 1


def test_a_session_opens_for_a_repair_and_brings_no_further_number(
    api: Api, account: SimulatedAccount, tenant: Tenant
) -> None:
    assert api.post(SESSIONS, RETURN).status_code == 201
    session = sessions.finish(
        ConnectSession.objects.get(),
        code=account.code,
        waba_id=account.waba_id,
        phone_number_id=account.phone_number_ids[1],
    )
    assert (session.status, (session.error or {}).get("code")) == ("failed", "forbidden")


def test_no_session_opens_while_every_token_works(
    api: Api, browser: Client, account: SimulatedAccount
) -> None:
    BusinessAccount.objects.update(token_invalid_at=None)
    closed(api.post(SESSIONS, RETURN))
    assert "Pay now" in text(browser, "/console/numbers")


@pytest.mark.parametrize(
    ("of_account", "of_number", "is_open"),
    [
        ({}, {}, False),
        ({"token_invalid_at": now()}, {}, True),
        ({"taken_away": "account_removed"}, {}, True),
        ({}, {"taken_away": "account_removed"}, True),
        ({"taken_away": "account_restricted"}, {"taken_away": "account_restricted"}, False),
        ({"token_expires_at": now() + timedelta(days=6)}, {}, True),
        ({"data_access_expires_at": now() + timedelta(days=6)}, {}, True),
        ({"token_expires_at": now() + timedelta(days=8)}, {}, False),
        ({"token_invalid_at": now(), "environment": "test"}, {}, False),
        ({"token_invalid_at": now()}, None, False),
    ],
)
def test_a_session_opens_only_for_an_account_with_numbers_that_needs_a_token(
    api: Api, tenant: Tenant, other_tenant: Tenant, of_account: Any, of_number: Any, is_open: bool
) -> None:
    make_number(make_account(other_tenant))
    BusinessAccount.objects.update(token_invalid_at=now())
    account = make_account(tenant)
    BusinessAccount.objects.filter(pk=account.pk).update(**of_account)
    if of_number is not None:
        PhoneNumber.objects.filter(pk=make_number(account).pk).update(**of_number)
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    assert api.post(SESSIONS, RETURN).status_code == (201 if is_open else 403)


def test_the_console_offers_the_repair(browser: Client, account: SimulatedAccount) -> None:
    page = text(browser, f"/console/numbers/{account.phone_number_id}")
    assert "Connect the account again" in page
    assert "No further number" not in page
    listed = text(browser, "/console/numbers")
    assert "Connect the account again" in listed
    assert "Connect a number" not in listed
    assert "/connect/" in browser.post("/console/numbers/connect")["Location"]


def test_the_sandbox_is_not_bounded(tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    key = api_keys.create(name="test", environment="test", tenant=tenant).key
    assert Api(key).post(SESSIONS, RETURN).status_code == 201
