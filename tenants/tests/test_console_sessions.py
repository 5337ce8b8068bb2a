"""`/v1/console/sessions`: log-in, second factor, limits, and how a token ends."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.core.cache import caches
from django.test import Client

from gateway.clock import now
from gateway.valkey import connection as valkey_module
from gateway.valkey.cache import ValkeyCache
from tenants import mail
from tenants.credentials.log_in import check_second_factor, use_address
from tenants.models import ConsoleSession, OutboundMail, Tenant, User
from tests.fixtures import Api, assert_error
from tests.threads import outcomes

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough password"
URL = "/v1/console/sessions"


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


def log_in(email: str = "asha@traders.example", password: str = PASSWORD, **more: str) -> Any:
    return Api(None).post(URL, {"email": email, "password": password, **more})


def code_of(user: User) -> str:
    """Add an authenticator app to `user` and return its current code."""
    secret = generate_totp_secret()
    TOTP.activate(user, secret)
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))


def test_a_person_gets_a_token_that_works_as_a_live_key(person: User, tenant: Tenant) -> None:
    answer = log_in("Asha@Traders.example")
    assert answer.status_code == 201
    body = answer.json()
    assert body["token"].startswith("wbc_")
    assert len(body["token"]) == len("wbc_") + 43
    assert body["user"] == {"id": person.pk, "email": person.email, "is_staff": False}
    assert body["tenant_id"] == str(tenant.id)
    api = Api(body["token"])
    assert api.get("/v1/api-keys").status_code == 200
    current = api.get(f"{URL}/current").json()
    assert current == {name: value for name, value in body.items() if name != "token"}
    assert not ConsoleSession.objects.filter(token_hash__contains=body["token"]).exists()


def test_blanks_are_part_of_a_password(person: User) -> None:
    person.set_password(f" {PASSWORD} ")
    person.save()
    assert log_in(password=f" {PASSWORD} ").status_code == 201
    assert log_in().status_code == 401


def test_a_staff_token_opens_the_admin_api(staff: User) -> None:
    token = log_in(staff.email).json()["token"]
    assert Api(token).get("/v1/admin/tenants").status_code == 200


def test_a_token_ends_by_delete_by_time_and_by_a_new_password(person: User) -> None:
    deleted, expired, changed = (Api(log_in().json()["token"]) for _ in range(3))
    assert deleted.delete(f"{URL}/current").status_code == 204
    assert_error(deleted.get(f"{URL}/current"), 401, "unauthorized")
    assert changed.get(f"{URL}/current").status_code == 200
    person.set_password("another long password")
    person.save()
    assert_error(changed.get(f"{URL}/current"), 401, "unauthorized")
    ConsoleSession.objects.update(expires_at=now() - timedelta(seconds=1))
    assert_error(expired.get(f"{URL}/current"), 401, "unauthorized")


def test_wrong_credentials_sound_the_same_for_known_and_unknown_addresses(person: User) -> None:
    known = assert_error(log_in(password="wrong"), 401, "unauthorized")
    assert assert_error(log_in("nobody@traders.example"), 401, "unauthorized") == known
    assert_error(Api(None).post(URL, {"email": "x"}), 400, "invalid_request")


def test_a_person_who_left_cannot_log_in_and_their_token_ends(person: User) -> None:
    token = Api(log_in().json()["token"])
    assert token.get(f"{URL}/current").status_code == 200
    User.objects.update(is_active=False)
    assert_error(token.get(f"{URL}/current"), 401, "unauthorized")
    assert_error(log_in(), 401, "unauthorized")


@pytest.fixture(params=["valkey", "without_valkey"])
def _with_and_without_valkey(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.param == "without_valkey":
        hang(monkeypatch)
    caches["default"].memory.clear()  # type: ignore[attr-defined]
    yield
    caches["default"].memory.clear()  # type: ignore[attr-defined]


def hang(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Make the cache's Valkey hang. Returns a list that gets an entry for each call to Valkey."""
    attempts: list[None] = []

    def ask() -> Any:
        attempts.append(None)
        raise redis.exceptions.TimeoutError

    monkeypatch.setattr("gateway.valkey.cache.valkey", ask)
    return attempts


@pytest.mark.usefixtures("_with_and_without_valkey")
def test_the_sixth_failure_of_an_account_within_15_minutes_is_429(person: User, staff: User) -> None:
    for spelling in ("Asha@traders.example", "ASHA@Traders.Example"):
        assert Client().post("/login", {"login": spelling, "password": "wrong"}).status_code == 200
        assert_error(log_in(spelling, "wrong"), 401, "unauthorized")
    assert_error(log_in(password="wrong"), 401, "unauthorized")
    answer = log_in()
    assert_error(answer, 429, "rate_limited")
    assert 0 < int(answer["Retry-After"]) <= 900
    assert log_in(staff.email).status_code == 201


@pytest.mark.usefixtures("_with_and_without_valkey")
def test_the_21st_failure_of_an_address_within_15_minutes_is_429(person: User) -> None:
    for number in range(20):
        assert_error(log_in(f"person{number}@traders.example"), 401, "unauthorized")
    assert_error(log_in(), 429, "rate_limited")


def test_a_log_in_waits_once_for_a_valkey_that_hangs(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log-in calls Valkey about ten times, and each call to a hanging Valkey takes seconds."""
    attempts = hang(monkeypatch)
    page = Client().post("/login", {"login": person.email, "password": PASSWORD})
    assert (page.status_code, page["Location"]) == (302, "/console")
    assert len(attempts) == 1
    monkeypatch.setattr(ValkeyCache, "alone_until", time.monotonic())
    Client().post("/login", {"login": person.email, "password": PASSWORD})
    assert len(attempts) == 2


def test_successes_do_not_count(person: User) -> None:
    for _ in range(25):
        assert log_in().status_code == 201


def test_a_second_factor_asks_for_its_code_once(staff: User) -> None:
    code = code_of(staff)
    assert "otp" in assert_error(log_in(staff.email), 401, "unauthorized")["message"]
    assert_error(log_in(staff.email, otp="000000"), 401, "unauthorized")
    assert log_in(staff.email, otp=code).status_code == 201
    assert_error(log_in(staff.email, otp=code), 401, "unauthorized")
    recovery = RecoveryCodes.activate(staff).get_unused_codes()[0]
    assert log_in(staff.email, otp=recovery).status_code == 201
    assert_error(log_in(staff.email, otp=recovery), 401, "unauthorized")


@pytest.mark.parametrize("first", [-30, 0, 30])
def test_a_code_of_the_app_works_once_as_long_as_it_is_current(
    staff: User, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """A code is current in its period of 30 seconds, and in those before and after it."""
    hang(monkeypatch)
    caches["default"].memory.clear()  # type: ignore[attr-defined]
    begin = time.time() // 30 * 30
    monkeypatch.setattr(time, "time", lambda: begin)
    code = code_of(staff)
    monkeypatch.setattr(time, "time", lambda: begin + first)
    assert check_second_factor(staff, code)
    for later in range(first, 75, 15):
        monkeypatch.setattr(time, "time", lambda moment=begin + later: moment)
        assert not check_second_factor(staff, code)


@pytest.mark.django_db(transaction=True)
def test_a_recovery_code_works_once_for_all_who_send_it_together(person: User) -> None:
    code = RecoveryCodes.activate(person).generate_codes()[0]
    found = outcomes(*[lambda: check_second_factor(person, code)] * 4)
    assert sorted(found) == [False, False, False, True]


def test_codes_cannot_be_guessed(staff: User) -> None:
    code_of(staff)
    for _ in range(5):
        assert_error(log_in(staff.email, otp="000000"), 401, "unauthorized")
    assert_error(log_in(staff.email, otp="000000"), 429, "rate_limited")


def test_a_right_code_clears_the_count_of_wrong_ones(staff: User) -> None:
    code_of(staff)
    recovery = RecoveryCodes.activate(staff).generate_codes()
    for code in recovery[:3]:
        for wrong in ("000000", "é" * 6, "１２３４５６", "0" * 20):
            assert_error(log_in(staff.email, otp=wrong), 401, "unauthorized")
        assert log_in(staff.email, otp=code).status_code == 201


def by_api(person: User) -> None:
    assert log_in(person.email, otp=code_of(person)).status_code == 201


def by_page(person: User) -> None:
    client, code = Client(), code_of(person)
    second = client.post("/login", {"login": person.email, "password": PASSWORD})["Location"]
    assert client.post(second, {"code": code})["Location"] == "/console"


def by_a_new_password(person: User) -> None:
    use_address(person)
    Client().post("/password/reset", {"email": person.email})
    [link] = mail.links_in(OutboundMail.objects.get().text)
    client = Client()
    page = client.get("/" + link.split("/", 3)[3])["Location"]
    new = "a brand new long password"
    assert client.post(page, {"password1": new, "password2": new}).status_code == 302
    person.refresh_from_db()
    assert person.check_password(new)


@pytest.mark.parametrize("success", [by_api, by_page, by_a_new_password])
def test_a_success_clears_no_failures_of_other_accounts_and_is_none_itself(
    person: User, success: Callable[[User], None]
) -> None:
    for number in range(19):
        assert_error(log_in(f"person{number}@traders.example"), 401, "unauthorized")
    success(person)
    assert_error(log_in("person20@traders.example"), 401, "unauthorized")
    assert_error(log_in("person21@traders.example"), 429, "rate_limited")


def test_a_new_password_clears_the_failures_of_its_account(person: User) -> None:
    for _ in range(5):
        assert_error(log_in(password="wrong"), 401, "unauthorized")
    assert_error(log_in(), 429, "rate_limited")
    by_a_new_password(person)
    assert log_in(password="a brand new long password").status_code == 201


def test_a_person_without_a_business_gets_no_token(person: User) -> None:
    User.objects.filter(pk=person.pk).update(tenant=None)
    assert_error(log_in(), 403, "forbidden")
    assert not ConsoleSession.objects.exists()


def test_the_secret_of_a_second_factor_is_encrypted(staff: User) -> None:
    code_of(staff)
    assert len(Authenticator.objects.get(user=staff).data["secret"]) > 100


def test_staff_without_a_second_factor_are_refused_where_it_is_required(staff: User, settings: Any) -> None:
    settings.STAFF_SECOND_FACTOR = True
    assert_error(log_in(staff.email), 403, "forbidden")
    assert log_in(staff.email, otp=code_of(staff)).status_code == 201


def test_api_keys_have_no_console_session(api: Api) -> None:
    assert_error(api.get(f"{URL}/current"), 403, "forbidden")
    assert valkey_module.valkey().ping()
