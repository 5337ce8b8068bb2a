"""Device log-in: a program requests a key, and a member confirms it on a page of the console."""

from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import redis
from django.db import transaction
from django.test import Client
from pytest_django import Settings

from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.roles import ALL_SCOPES, LIVE_SCOPES
from gateway.valkey import token_bucket
from tenants import device_login
from tenants.models import ApiKey, AuditEntry, DeviceLogin, Tenant, User
from tenants.team import members
from tests.browsers import logged_in
from tests.fixtures import Api, a_lock_is_waited_for, assert_error, wait_until
from tests.threads import outcomes

pytestmark = pytest.mark.django_db

PASSWORD = "a long enough password"


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


@pytest.fixture
def browser(person: User) -> Client:
    return logged_in(person)


def start() -> dict[str, Any]:
    answer = Api(None).post("/v1/device-logins", {"client_name": "asha's laptop"})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def redeem(started: dict[str, Any]) -> Any:
    return Api(None).post("/v1/device-logins/redeem", {"device_code": started["device_code"]})


def decide(browser: Client, started: dict[str, Any], **more: str) -> Any:
    return browser.post("/console/device", {"code": started["user_code"], "environment": "test", **more})


def test_a_confirmed_program_gets_a_key_once(browser: Client, person: User, tenant: Tenant) -> None:
    started = start()
    assert started["verification_url_complete"].endswith(f"/console/device?code={started['user_code']}")
    assert redeem(started).json() == {"status": "waiting", "api_key": None}
    page = browser.get("/console/device", {"code": started["user_code"].lower()})
    assert started["user_code"] in page.content.decode()
    assert "asha&#x27;s laptop" in page.content.decode()
    assert ApiKey.objects.count() == 0, "looking confirms nothing"

    assert "Confirmed" in decide(browser, started).content.decode()
    body = redeem(started).json()
    assert body["status"] == "confirmed"
    assert Api(body["api_key"]["key"]).get("/v1/tenant").json()["id"] == str(tenant.id)
    key = ApiKey.objects.get()
    assert (key.tenant_id, key.environment, key.name) == (tenant.id, "test", "Command line on asha's laptop")
    assert key.expires_at is not None
    assert timedelta(days=89) < key.expires_at - now() <= timedelta(days=90)
    assert AuditEntry.objects.get(action="api_key.create").actor_user_id == person.pk
    assert redeem(started).json() == {"status": "expired", "api_key": None}
    assert decide(browser, started).status_code == 404, "a code confirms once"


@pytest.mark.parametrize(("role", "scopes"), [("owner", ALL_SCOPES), ("developer", ALL_SCOPES - LIVE_SCOPES)])
def test_the_key_can_do_what_the_role_of_the_member_can(tenant: Tenant, role: str, scopes: set[str]) -> None:
    member, started = User.objects.create_user("m@traders.example", tenant=tenant, role=role), start()
    device_login.confirm(started["user_code"], user=member, tenant=tenant, environment="live")
    redeem(started)
    assert set(ApiKey.objects.get().scopes) == scopes


def test_a_code_is_found_however_it_is_typed() -> None:
    code = start()["user_code"]
    for typed in (
        code,
        code.lower(),
        code.replace("-", ""),
        f" {code[:4]} {code[4:]} ",
        f"{code}B",
        f"1{code}",
    ):
        assert device_login.shown(device_login.waiting(typed).user_code) == code
    for typed in ("", code[:8], code[::-1] if code[::-1] != code else "BBBB-BBBB"):
        with pytest.raises(NotFound):
            device_login.waiting(typed)


def test_a_member_who_has_typed_all_codes_may_type_one_more_after_half_a_minute(
    person: User, empty_valkey: redis.Redis
) -> None:
    assert [device_login.may_look_up(person) for _ in range(21)] == [True] * 20 + [False]
    (bucket,) = empty_valkey.keys(f"*device-codes:{person.pk}*")

    def later(seconds: float) -> bool:
        empty_valkey.decrby(bucket, int(seconds * 1_000_000))
        return device_login.may_look_up(person)

    assert [later(28), later(2), later(0)] == [False, True, False]


def test_each_member_types_twenty_codes_and_all_of_them_without_valkey(
    person: User, staff: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [device_login.may_look_up(person) for _ in range(21)] == [True] * 20 + [False]
    assert device_login.may_look_up(staff), "another member has codes of their own"

    def away(*_: object, **__: object) -> None:
        raise redis.exceptions.ConnectionError

    monkeypatch.setattr(token_bucket, "take", away)
    assert device_login.may_look_up(person)


def test_a_program_is_asked_to_try_again_when_no_code_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_login, "ALPHABET", "B")
    assert start()["user_code"] == "BBBB-BBBB"
    refused = Api(None).post("/v1/device-logins", {"client_name": "another"})
    assert "Try again" in assert_error(refused, 409, "conflict")["message"]
    assert DeviceLogin.objects.count() == 1


def test_the_person_chooses_live(browser: Client) -> None:
    started = start()
    decide(browser, started, environment="live")
    assert redeem(started).json()["api_key"]["environment"] == "live"


def test_a_sandbox_business_has_test_keys_alone(browser: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
    started = start()
    assert decide(browser, started, environment="live").status_code == 400
    decide(browser, started)
    assert redeem(started).json()["api_key"]["environment"] == "test"


def test_a_sandbox_business_has_test_keys_alone_whatever_the_form_allows(
    tenant: Tenant, person: User
) -> None:
    tenant.sandbox = True
    tenant.save()
    started = start()
    device_login.confirm(started["user_code"], user=person, tenant=tenant, environment="live")
    assert redeem(started).json()["api_key"]["environment"] == "test"


def test_a_refused_program_gets_nothing(browser: Client) -> None:
    started = start()
    decide(browser, started, deny="yes")
    assert redeem(started).json() == {"status": "denied", "api_key": None}
    assert decide(browser, started).status_code == 404
    assert not ApiKey.objects.exists()


def test_codes_end_after_ten_minutes(browser: Client, tenant: Tenant, person: User) -> None:
    waiting, confirmed = start(), start()
    decide(browser, confirmed)
    DeviceLogin.objects.update(expires_at=now())
    assert decide(browser, waiting).status_code == 404
    for started in (waiting, confirmed):
        assert redeem(started).json() == {"status": "expired", "api_key": None}
    assert device_login.prune_expired() == 2


def test_only_a_logged_in_person_of_an_active_business_confirms(browser: Client, tenant: Tenant) -> None:
    started = start()
    assert decide(Client(), started).url.startswith("/login")
    assert Client(enforce_csrf_checks=True).post("/console/device", {"code": "x"}).status_code == 403
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert decide(browser, started).status_code == 403
    assert (
        "once the account is active"
        in browser.get("/console/device", {"code": started["user_code"]}).content.decode()
    )
    assert redeem(started).json()["status"] == "waiting"


@pytest.mark.parametrize("change", ["suspended", "locked", "read_only", "removed", "moved"])
def test_what_changes_before_the_key_is_made_counts(
    browser: Client, tenant: Tenant, other_tenant: Tenant, person: User, change: str
) -> None:
    started = start()
    decide(browser, started)
    if change == "suspended":
        Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    elif change == "locked":
        User.objects.filter(pk=person.pk).update(is_active=False)
    elif change == "read_only":
        User.objects.filter(pk=person.pk).update(role=change)
    else:
        to = other_tenant if change == "moved" else None
        User.objects.filter(pk=person.pk).update(tenant=to, is_active=True)
    assert_error(redeem(started), 409, "conflict")
    assert not ApiKey.objects.exists()


def test_neither_code_is_stored_so_that_it_opens_anything(browser: Client) -> None:
    started = start()
    decide(browser, started)
    row = DeviceLogin.objects.get()
    assert started["device_code"] not in str(DeviceLogin.objects.values().get())
    for known in (row.device_code_hash, row.user_code):
        assert device_login.redeem(known).status == device_login.EXPIRED


def test_strangers_and_guesses_are_bounded(
    browser: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ACCOUNT_RATE_LIMITS = {"device_login": "1/10m/ip", "device_redeem": "1/m/ip"}
    monkeypatch.setattr(device_login, "CODES_AT_ONCE", 1)
    started = start()
    refused = Api(None).post("/v1/device-logins", {"client_name": "another"})
    assert_error(refused, 429, "rate_limited")
    assert refused["Retry-After"] == "600"
    assert redeem(started).status_code == 200
    assert_error(redeem(started), 429, "rate_limited")
    assert browser.get("/console/device", {"code": "BBBB-BBBB"}).status_code == 404
    assert decide(browser, started).status_code == 429


def test_five_colleagues_behind_one_address_log_in_at_once() -> None:
    """Each program starts twice, and polls every three seconds for a minute."""
    for _ in range(5):
        start()
    for started in [start() for _ in range(5)]:
        for _ in range(60 // device_login.POLL_SECONDS):
            assert redeem(started).status_code == 200


def test_one_code_is_redeemed_at_a_bounded_pace() -> None:
    started, other = start(), start()
    statuses = [redeem(started).status_code for _ in range(31)]
    assert statuses == [*[200] * 30, 429]
    assert redeem(other).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_two_redemptions_at_once_make_one_key(browser: Client) -> None:
    started = start()
    decide(browser, started)
    found = outcomes(*[lambda: device_login.redeem(started["device_code"]).new is not None] * 4)
    assert sorted(found) == [False, False, False, True]
    assert ApiKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_redemption_waits_for_the_removal_of_the_member(
    browser: Client, person: User, tenant: Tenant
) -> None:
    owner = User.objects.create_user("owner@traders.example", PASSWORD, tenant=tenant, role="owner")
    started = start()
    decide(browser, started)
    is_locked = Event()

    def remove() -> None:
        with transaction.atomic():
            members.lock_team(tenant.id, actor_user_id=owner.pk)
            is_locked.set()
            wait_until(a_lock_is_waited_for, "the redemption waits for the team")
            members.remove(tenant_id=tenant.id, user_id=person.pk, actor_user_id=owner.pk)

    def redeem_then() -> str:
        assert is_locked.wait(10)
        return device_login.redeem(started["device_code"]).status

    assert outcomes(remove, redeem_then) == [None, device_login.EXPIRED]
    assert ApiKey.objects.count() == 0
