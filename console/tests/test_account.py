"""The console's pages: access by role, keys shown once, security headers, log-in and password reset."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from console import home
from console.templatetags.console import away, time_left
from console.warnings import HomeWarning
from gateway import ids
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from gateway.roles import Area
from tenants import audit, mail
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import ApiKey, OutboundMail, Tenant, User
from tests.browsers import logged_in, text
from tests.fixtures import Api, assert_error
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

PASSWORD = "a long enough password"


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


@pytest.fixture
def browser(person: User) -> Client:
    return logged_in(person)


INLINE = re.compile(r"""<script(?![^>]*(?:src=|type="application/json"))|<style|\son\w+=|\sstyle=""")
"""Matches scripts and styles that a strict policy forbids. A block of JSON is allowed, because it is data."""


def log_in(client: Client, password: str = PASSWORD, email: str = "asha@traders.example") -> Any:
    return client.post("/login", {"login": email, "password": password})


def test_a_session_ends_twelve_hours_after_the_log_in(person: User) -> None:
    browser = Client()
    assert log_in(browser).status_code == 302
    ends = Session.objects.get().expire_date
    assert abs(ends - now() - timedelta(hours=12)) < timedelta(minutes=1)
    assert browser.get("/console").status_code == 200
    Session.objects.update(expire_date=ends - timedelta(hours=12, minutes=1))
    assert browser.get("/console").status_code == 302


PUBLIC = [
    "/sign-up",
    "/sign-up/sent",
    "/login",
    "/password/reset",
    "/password/reset/sent",
    "/password/reset/done",
]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_pages_are_open_and_carry_a_strict_policy(path: str, db: None) -> None:
    answer = Client().get(path)
    assert answer.status_code == 200
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    page = answer.content.decode()
    assert '<html lang="en">' in page
    assert not INLINE.search(page)


def test_a_person_logs_in_creates_a_key_and_logs_out(person: User, tenant: Tenant) -> None:
    client = Client()
    assert log_in(client)["Location"] == "/console"
    answer = client.post("/console/api-keys", {"name": "shop", "environment": "live"})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    key = re.search(r"wb_live_\w{40}", answer.content.decode())
    assert key is not None
    assert Api(key[0]).get("/v1/tenant").json()["id"] == str(tenant.id)
    assert key[0] not in client.get("/console/api-keys").content.decode()
    tenant.refresh_from_db()
    assert tenant.api_key_created
    client.post("/logout")
    assert client.get("/console").status_code == 302


def test_a_key_is_rotated_and_revoked_by_its_name(browser: Client, tenant: Tenant) -> None:
    old = api_keys.create(name="till", environment="live", tenant=tenant)
    assert browser.get(f"/console/api-keys/{old.row.id}/rotate").status_code == 200
    for wrong in ("7" * 65, " ".join(map(str, range(101)))):
        refused = browser.post(
            "/console/api-keys", {"name": "a", "environment": "live", "phone_number_ids": wrong}
        )
        assert "At most 100 ids of numbers." in refused.content.decode()
    page = browser.post(f"/console/api-keys/{old.row.id}/rotate", {"form_id": "a1"}).content.decode()
    new = re.search(r"wb_live_\w{40}", page)
    assert new is not None
    assert new[0] != old.key
    assert browser.post(f"/console/api-keys/{old.row.id}/rotate", {"form_id": "a1"}).status_code == 302
    row = ApiKey.objects.get(replaces=old.row)
    ends = f"{row.replaces.expires_at:%Y-%m-%dT%H:%M:%SZ}"  # type: ignore[union-attr]
    assert ends in page
    listed = browser.get("/console/api-keys").content.decode()
    assert f"replaces <code>{old.row.prefix}…</code>" in listed
    assert listed.index(ends) > listed.index(old.row.prefix), "the old key counts down"
    assert browser.post(f"/console/api-keys/{row.id}/revoke", {"name": "wrong"}).status_code == 400
    assert browser.post(f"/console/api-keys/{row.id}/revoke", {"name": "till"}).status_code == 302
    row.refresh_from_db()
    assert row.revoked_at is not None
    answer = browser.post(f"/console/api-keys/{row.id}/rotate", follow=True)
    assert "cannot be rotated" in answer.content.decode()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("pending_approval", "Waiting for approval"),
        ("rejected", "Not approved"),
        ("suspended", "Suspended"),
        ("active", "First steps"),
    ],
)
def test_home_says_what_the_status_means(browser: Client, tenant: Tenant, status: str, words: str) -> None:
    Tenant.objects.update(status=status, rejected_reason="Two <b>companies</b>")
    page = browser.get("/console").content.decode()
    assert words in page
    assert ("Two &lt;b&gt;companies" in page) == (status == "rejected")
    answer = browser.post("/console/api-keys", {"name": "x", "environment": "live"})
    assert answer.status_code == (200 if status == "active" else 403)
    assert ApiKey.objects.exists() == (status == "active")


def test_the_first_steps_step_back_once_all_are_done(browser: Client, tenant: Tenant) -> None:
    folded = "<details><summary>First steps"
    assert folded not in browser.get("/console").content.decode()
    Tenant.objects.filter(pk=tenant.pk).update(**dict.fromkeys(tenant.checklist, True))
    assert folded in browser.get("/console").content.decode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"billing_status": "past_due"}, "Payment overdue"),
        ({"billing_status": "past_due", "billing_restricted": True}, "Long overdue: no new numbers"),
    ],
)
def test_home_does_not_say_active_alone_while_payment_is_overdue(
    browser: Client, tenant: Tenant, settings: Settings, changes: dict[str, Any], words: str
) -> None:
    settings.BILLING_ENABLED = True
    assert words not in browser.get("/console").content.decode()
    Tenant.objects.filter(pk=tenant.pk).update(**changes)
    assert words in browser.get("/console").content.decode()
    settings.BILLING_ENABLED = False
    assert "no new numbers" not in browser.get("/console").content.decode()


def test_the_console_and_the_api_share_one_count_of_failures(person: User) -> None:
    for number in range(5):
        if number % 2:
            log_in(Client(), "wrong")
        else:
            Api(None).post("/v1/console/sessions", {"email": person.email, "password": "wrong"})
    assert "Too many" in log_in(Client()).content.decode()
    answer = Api(None).post("/v1/console/sessions", {"email": person.email, "password": PASSWORD})
    assert_error(answer, 429, "rate_limited")


def test_a_password_is_reset_by_a_single_use_link(person: User) -> None:
    token = bearer_tokens.open_session(person).token
    client = Client()
    unknown = client.post("/password/reset", {"email": "nobody@traders.example"})
    known = client.post("/password/reset", {"email": person.email})
    assert (unknown.status_code, unknown["Location"]) == (known.status_code, known["Location"])
    assert OutboundMail.objects.count() == 1
    link = mail.links_in(OutboundMail.objects.get().text)[0]
    path = "/" + link.split("/", 3)[3]
    form = client.get(path, follow=True)
    where = form.redirect_chain[-1][0]
    assert "set-key" not in path
    assert "A sentence is easy to remember" in client.get(where).content.decode()
    new = {"password1": "a brand new long password", "password2": "a brand new long password"}
    assert client.post(where, new, follow=True).status_code == 200
    assert log_in(Client(), "a brand new long password").status_code == 302
    assert_error(Api(token).get("/v1/tenant"), 401, "unauthorized")
    assert "does not work" in Client().get(path, follow=True).content.decode()
    assert OutboundMail.objects.latest("id").subject.endswith("password was reset")


def test_a_person_without_a_password_gets_the_first_by_mail(person: User) -> None:
    person.set_unusable_password()
    person.save()
    client = Client()
    client.force_login(person)
    asked = client.get("/password/change", follow=True)
    assert asked.redirect_chain[-1][0] == "/password/reset"
    client.post("/password/reset", {"email": person.email})
    link = mail.links_in(OutboundMail.objects.get().text)[0]
    where = Client().get("/" + link.split("/", 3)[3], follow=True)
    assert "Set the password" in where.content.decode()


def test_staff_without_a_tenant_are_led_to_the_admin(staff: User) -> None:
    client = Client()
    client.force_login(staff)
    assert client.get("/console")["Location"] == reverse("admin:index")
    assert client.get("/console/api-keys").status_code == 403


def test_the_second_factor_is_added_and_asked_for(person: User) -> None:
    from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

    client = Client()
    log_in(client)
    asked = client.get("/second-factor/totp/activate/", follow=True)
    assert "confirm that it is you" in asked.content.decode()
    page = client.post(asked.redirect_chain[-1][0], {"password": PASSWORD}, follow=True)
    assert "data:image/svg+xml" in page.content.decode()
    secret = client.session["mfa.totp.secret"]
    counter = int(now().timestamp()) // 30
    code = format_hotp_value(hotp_value(secret, counter))
    assert (
        "Recovery codes"
        in client.post("/second-factor/totp/activate/", {"code": code}, follow=True).content.decode()
    )
    again = Client()
    assert log_in(again)["Location"] == "/second-factor/authenticate/"
    assert again.get("/console").status_code == 302
    assert "Use a passkey" not in again.get("/second-factor/authenticate/").content.decode()
    following = format_hotp_value(hotp_value(secret, counter + 1))
    again.post("/second-factor/authenticate/", {"code": following})
    assert again.get("/console").status_code == 200


def test_pages_that_fail_are_pages(browser: Client) -> None:
    answer = browser.get("/no-such-page", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "There is nothing here" in answer.content.decode()
    strict = Client(enforce_csrf_checks=True)
    assert "Please try again" in strict.post("/login", {}).content.decode()


def test_an_expired_key_is_shown_as_expired(browser: Client, tenant: Tenant) -> None:
    key = api_keys.create(name="old", environment="test", tenant=tenant)
    ApiKey.objects.filter(pk=key.row.pk).update(expires_at=now() - timedelta(minutes=1))
    assert "Expired" in browser.get("/console/api-keys?ended=yes").content.decode()
    assert "Show revoked and expired keys" in browser.get("/console/api-keys").content.decode()


@pytest.mark.parametrize("ended", ["revoked_at", "expires_at"])
def test_a_key_that_has_ended_is_found_in_the_list_and_not_offered_for_rotation(
    browser: Client, tenant: Tenant, ended: str
) -> None:
    key = api_keys.create(name="old", environment="live", tenant=tenant)
    ApiKey.objects.filter(pk=key.row.pk).update(**{ended: now() - timedelta(minutes=1)})
    answer = browser.get("/console/search", {"q": key.key})
    assert answer["Location"] == f"/console/api-keys?ended=yes#key-{key.row.pk}"
    assert f'id="key-{key.row.pk}"' in browser.get(answer["Location"]).content.decode()
    answer = browser.get(f"/console/api-keys/{key.row.pk}/rotate", follow=True)
    page = answer.content.decode()
    assert answer.redirect_chain == [("/console/api-keys", 302)]
    assert "A revoked or expired key cannot be rotated." in page
    assert "keeps working" not in page


def logged_call(tenant: Tenant, **values: Any) -> ApiRequest:
    """A row of the request log, of a GET that was answered 200."""
    answered = {"environment": "live", "method": "GET", "status": 200, "own_ms": 1, "upstream_ms": 0}
    return ApiRequest.objects.create(id=ids.uuid7(), tenant_id=tenant.id, **{**answered, **values})


def test_the_request_log_shows_the_tenants_own_calls(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    failed = {"method": "POST", "route": "/v1/messages", "status": 409, "error_code": "number_not_connected"}
    own, foreign = (logged_call(owner, **failed).public_id for owner in (tenant, other_tenant))
    for query in ("", "?status_class=4", "?method=POST", "?error_code=number_not_connected"):
        page = browser.get(f"/console/requests{query}").content.decode()
        assert own in page
        assert foreign not in page
    assert own not in browser.get("/console/requests?status_class=2").content.decode()
    of_key = logged_call(tenant, route="/v1/tenant", key_prefix="wb_live_abcdefgh").public_id
    for typed in ("wb_live_abcdefgh", "wb_live_abcdefgh…", " wb_live_abcdefghijklmnopqrstuvwx"):
        page = browser.get("/console/requests", {"key_prefix": typed}).content.decode()
        assert (of_key in page, own in page) == (True, False), typed
    assert re.search(r'name="key_prefix"[^>]* maxlength="16"', page), (
        "the rest of a key stays out of addresses"
    )
    put = logged_call(tenant, method="PUT", route="/v1/numbers/{phone_number_id}/flow-endpoint").public_id
    page = browser.get("/console/requests?method=PUT").content.decode()
    assert (put in page, own in page) == (True, False)
    page = browser.get(f"/console/requests/{own}").content.decode()
    assert "curl -X POST" in page
    assert '<span class="badge">Gateway</span>' in page
    ApiRequest.objects.update(error_code="131047")
    for path in ("/console/requests", f"/console/requests/{own}"):
        assert '<span class="badge">Meta</span>' in browser.get(path).content.decode()
    assert browser.get(f"/console/requests/{foreign}").status_code == 404
    browser.post("/console/preferences", {"environment": "test"})
    assert own not in browser.get("/console/requests").content.decode()
    assert browser.get(f"/console/requests/{own}").status_code == 404


def test_a_call_of_an_unknown_path_is_not_shown_as_another_call(browser: Client, tenant: Tenant) -> None:
    call = logged_call(tenant, route=None, status=404, error_code="not_found")
    page = browser.get(f"/console/requests/{call.public_id}").content.decode()
    assert "The API has no such path." in page
    assert "Check the id" not in page
    assert "curl" not in page.partition("<main")[2]


def test_a_key_says_how_often_it_was_used_and_leads_to_its_calls(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    key = api_keys.create(name="shop", environment="live", tenant=tenant)
    sandbox = api_keys.create(name="trial", environment="test", tenant=tenant)
    for owner, environment in ((tenant, "live"), (tenant, "live"), (tenant, "test"), (other_tenant, "live")):
        logged_call(owner, environment=environment, route="/v1/tenant", key_prefix=key.row.prefix)
    for _ in range(3):
        logged_call(tenant, environment="test", route="/v1/tenant", key_prefix=sandbox.row.prefix)
    page = text(browser, "/console/api-keys")
    assert "never used" not in page, "the last use is written within a minute"
    for name, count in (("shop", 2), ("trial", 3)):
        calls = re.search(
            rf'<a href="([^"]+)">{count} calls in 7 days<span class="skip"> of {name}</span>', page
        )
        assert calls is not None, name
        log = browser.get(calls[1], follow=True).content.decode().partition("<main")[2]
        assert log.count("/console/requests/req_") == count


def test_a_form_for_a_key_that_was_refused_can_be_sent_again(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"name": "shop", "environment": "test", "form_id": "f1"}
    monkeypatch.setattr(api_keys, "MOST_KEYS", 0)
    assert browser.post("/console/api-keys", form).status_code == 400
    monkeypatch.undo()
    assert b"wb_test_" in browser.post("/console/api-keys", form).content
    assert ApiKey.objects.filter(tenant=tenant).count() == 1


def test_a_form_that_is_sent_twice_makes_one_key(browser: Client, tenant: Tenant) -> None:
    form = {"name": "shop", "environment": "test", "form_id": "f1"}
    assert b"wb_test_" in browser.post("/console/api-keys", form).content
    answer = browser.post("/console/api-keys", form, follow=True)
    assert "was already sent" in answer.content.decode()
    assert ApiKey.objects.filter(tenant=tenant).count() == 1


def test_keys_are_paged_and_ended_ones_are_hidden(browser: Client, tenant: Tenant) -> None:
    for number in range(60):
        api_keys.create(name=f"key {number}", environment="test", tenant=tenant)
    ApiKey.objects.filter(name="key 59").update(revoked_at=now())
    page = browser.get("/console/api-keys").content.decode()
    assert "Page 1 of 2" in page
    assert "key 58" in page
    assert "key 59" not in page
    assert "key 59" in browser.get("/console/api-keys?ended=yes").content.decode()


def test_a_key_in_the_list_has_its_maker_and_the_buttons_of_its_state(
    browser: Client, person: User, tenant: Tenant, staff: User
) -> None:
    assert "revoked and expired keys" not in browser.get("/console/api-keys").content.decode()
    first = api_keys.create(name="works", environment="test", tenant=tenant).row
    assert "revoked and expired keys" not in browser.get("/console/api-keys").content.decode()
    for name, fields in (
        ("ends", {"expires_at": now() + timedelta(hours=1), "created_by_user_id": person.pk}),
        ("expired", {"expires_at": now() - timedelta(seconds=1), "created_by_user_id": staff.pk}),
        ("revoked", {"revoked_at": now(), "created_by_key_id": first.pk}),
    ):
        row = api_keys.create(name=name, environment="test", tenant=tenant).row
        ApiKey.objects.filter(pk=row.pk).update(**fields)

    def listed(query: str) -> list[tuple[str, str, list[str]]]:
        page = browser.get(f"/console/api-keys{query}").content.decode()
        rows = re.findall(r'<li id="key-.*?</li>', page, re.DOTALL)
        return [
            (
                "".join(re.findall(r"<strong>(\w+)", row)),
                "".join(re.findall(r"</time> (?:by (.+?) )?·", row)),
                re.findall(r">(Rotate|Revoke)<span", row),
            )
            for row in rows
        ]

    working = [("ends", person.email, ["Rotate", "Revoke"]), ("works", "", ["Rotate", "Revoke"])]
    ended = [("revoked", f"key {first.prefix}…", []), ("expired", "our team", ["Revoke"])]
    assert listed("") == working
    assert "Show revoked and expired keys" in browser.get("/console/api-keys").content.decode()
    assert listed("?ended=yes") == [*ended, *working]
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert listed("") == [("ends", person.email, ["Revoke"]), ("works", "", ["Revoke"])]
    page = browser.get(f"/console/api-keys/{first.pk}/revoke").content.decode()
    assert "Revoke the key" in page
    assert "cannot change anything" not in page


def ends_shown(browser: Client, row: ApiKey) -> list[str]:
    """The ends of the old key and, if it has one, of the new key on the page of a rotation."""
    page = browser.get(f"/console/api-keys/{row.pk}/rotate").content.decode().partition("<main")[2]
    shown = re.findall(r"\((in [^)]+)\)</time>", page)
    assert ("the same end" in page) is (len(shown) == 2)
    return shown


def test_a_rotation_says_when_both_keys_end(browser: Client, tenant: Tenant) -> None:
    for expires, old_end, new_end in (
        (None, "in 1 day", None),
        (timedelta(hours=2), "in 2 hours", "in 2 hours"),
        (timedelta(days=30), "in 1 day", "in 30 days"),
    ):
        row = api_keys.create(name="till", environment="test", tenant=tenant).row
        ApiKey.objects.filter(pk=row.pk).update(expires_at=now() + expires if expires else None)
        assert ends_shown(browser, row) == [end for end in (old_end, new_end) if end]


def test_the_next_rotation_names_the_end_with_which_the_key_was_made(browser: Client, tenant: Tenant) -> None:
    """A rotation ends the old key in a day. A key that replaces it later ends when the old key was to end."""
    for expires, new_end in ((None, None), (timedelta(days=30), "in 30 days")):
        ends = now() + expires if expires else None
        row = api_keys.create(name="till", environment="test", tenant=tenant, expires_at=ends).row
        api_keys.rotate(keys=ApiKey.objects.all(), key_id=row.pk)
        assert ends_shown(browser, row)[1:] == ([new_end] if new_end else [])


@pytest.mark.parametrize("days", ["", "7", "30", "90", "365"])
def test_a_new_key_ends_after_the_chosen_days(browser: Client, days: str) -> None:
    browser.post("/console/api-keys", {"name": "shop", "environment": "test", "days": days})
    ends = ApiKey.objects.get().expires_at
    assert (ends is None) is (not days)
    assert ends is None or abs(ends - now() - timedelta(days=int(days))) < timedelta(minutes=1)


def test_the_quickstart_names_the_newest_own_keys_and_endpoints_that_work(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for owner, environment, name in (
        *((tenant, "live", f"key {number}") for number in range(5)),
        (tenant, "test", "sandbox"),
        (other_tenant, "live", "theirs"),
    ):
        api_keys.create(name=name, environment=environment, tenant=owner)
        Endpoint.objects.create(
            tenant=owner, environment=environment, url=f"https://{name}/", event_types=["*"]
        )
    ApiKey.objects.filter(name="key 3").update(revoked_at=now())
    Endpoint.objects.filter(url="https://key 4/").update(kind="inbox")
    page = browser.get("/console/quickstart").content.decode()
    assert re.findall(r"<strong>([^<]+)</strong> \(<code>", page) == ["key 4", "key 2", "key 1"]
    assert re.findall(r">https://([^<]+)/</a>", page) == ["key 3", "key 2", "key 1"]


@pytest.mark.parametrize(
    ("query", "is_wrong"),
    [
        ("since=2000-01-01&until=2199-12-31", False),
        ("since=1999-12-31", True),
        ("until=2200-01-01", True),
        ("wa_id=%2B91 (98123) 45-678", False),
        ("wa_id=12345", False),
        ("wa_id=1234", True),
        ("wa_id=91981x", True),
        ("batch=bat_x", True),
        ("status=none", True),
    ],
)
def test_a_wrong_filter_is_named_and_left_out(
    browser: Client, tenant: Tenant, query: str, is_wrong: bool
) -> None:
    page = browser.get(f"/console/messages?{query}").content.decode()
    assert ('class="problem"' in page) is is_wrong
    assert ("No message matches." in page) is not is_wrong


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (timedelta(days=-2, hours=-1), "2 days ago"),
        (timedelta(days=-1), "1 day ago"),
        (timedelta(hours=-23, minutes=-59), "23 hours ago"),
        (timedelta(minutes=-61), "1 hour ago"),
        (timedelta(seconds=-119), "1 minute ago"),
        (timedelta(seconds=-59), "now"),
        (timedelta(seconds=0), "now"),
        (timedelta(seconds=2), "in 1 minute"),
        (timedelta(minutes=59), "in 59 minutes"),
        (timedelta(minutes=59, seconds=30), "in 1 hour"),
        (timedelta(hours=24), "in 1 day"),
        (timedelta(hours=47), "in 1 day"),
        (timedelta(days=2), "in 2 days"),
    ],
)
def test_a_distance_is_in_its_largest_whole_unit(
    distance: timedelta, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now()
    monkeypatch.setattr("console.templatetags.console.now", lambda: at)
    assert away(at + distance) == words


def test_the_time_left_is_in_hours_or_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    at = now()
    monkeypatch.setattr("console.templatetags.console.now", lambda: at)
    left = {
        -1: "",
        0: "1 min",
        59: "1 min",
        60: "1 min",
        119: "1 min",
        120: "2 min",
        3599: "59 min",
        3600: "1 h",
    }
    left |= {7199: "1 h", 7200: "2 h", 86_400: "24 h"}
    assert {seconds: time_left(at + timedelta(seconds=seconds)) for seconds in left} == left
    assert time_left(None) == ""


def test_the_environment_chosen_before_the_approval_ends_with_it(browser: Client, tenant: Tenant) -> None:
    def environment() -> str:
        return str(browser.get("/console").context["console"].environment)

    assert environment() == "live"
    Tenant.objects.update(status="pending_approval")
    assert environment() == "test"
    browser.post("/console/preferences", {"environment": "live"})
    assert environment() == "live"
    browser.post("/console/preferences", {"environment": "test"})
    Tenant.objects.update(status="active")
    assert environment() == "live"
    for chosen, kept in (("test", "test"), ("sandbox", "test"), ("live", "live")):
        browser.post("/console/preferences", {"environment": chosen})
        assert environment() == kept


@pytest.mark.parametrize(
    ("status", "connect", "key"),
    [
        ("pending_approval", "Connect a number /console/numbers", None),
        ("active", "Connect a number /console/numbers?in=live", "Create a key /console/api-keys"),
    ],
)
def test_a_first_step_leads_to_where_the_status_allows_it(
    browser: Client, tenant: Tenant, status: str, connect: str, key: str | None
) -> None:
    def buttons() -> list[str | None]:
        page = (
            browser.get("/console").content.decode().partition('<ol class="steps">')[2].partition("</ol>")[0]
        )
        found = [re.search(r'<a href="([^"]+)"[^>]*>([^<]+)', each) for each in page.split("<li")[1:]]
        return [each and f"{each[2]} {each[1]}" for each in found]

    Tenant.objects.update(status=status)
    assert buttons() == ["Add an endpoint /console/webhooks", connect, key, "Send one /console/send"]
    Tenant.objects.update(api_key_created=True)
    assert buttons()[2] == "Create a key /console/api-keys", "a key that an owner has is not locked"
    browser.post("/console/preferences", {"way": "none"})
    browser.post("/console/preferences", {"way": "both"})
    assert buttons() == ["Open conversations /console/conversations", connect, "Send one /console/send"]


def test_times_are_read_in_the_zone_that_was_chosen(browser: Client, tenant: Tenant) -> None:
    key = api_keys.create(name="till", environment="test", tenant=tenant)
    ApiKey.objects.filter(pk=key.row.pk).update(created_at=datetime(2026, 12, 31, 18, 30, tzinfo=UTC))
    assert "1 Jan 2027, 00:00 IST" in browser.get("/console/api-keys").content.decode()
    browser.post("/console/preferences", {"time_zone": "UTC"})
    assert "31 Dec 2026, 18:30 UTC" in browser.get("/console/api-keys").content.decode()
    browser.post("/console/preferences", {"time_zone": "Mars"})
    assert "18:30 UTC" in browser.get("/console/api-keys").content.decode()


def test_a_time_has_its_own_offset_of_the_zone_in_summer_and_winter(browser: Client, tenant: Tenant) -> None:
    browser.post("/console/preferences", {"time_zone": "Europe/Berlin"})
    for month in (1, 7):
        key = api_keys.create(name="till", environment="test", tenant=tenant)
        ApiKey.objects.filter(pk=key.row.pk).update(created_at=datetime(2026, month, 1, 10, tzinfo=UTC))
    page = text(browser, "/console/api-keys")
    assert "1 Jan 2026, 11:00 CET" in page
    assert "1 Jul 2026, 12:00 CEST" in page


@pytest.mark.parametrize(
    "back", ["console_number", "https://evil.example/", "//evil.example", "javascript:alert(1)"]
)
def test_preferences_lead_back_to_our_own_pages_alone(browser: Client, back: str) -> None:
    assert browser.post("/console/preferences", {"next": back})["Location"] == "/console"


def test_a_sandbox_tenant_is_always_in_the_test_environment(browser: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
    browser.post("/console/preferences", {"environment": "live"})
    answer = browser.get("/console")
    page = answer.content.decode()
    assert 'name="environment"' not in page
    assert "Sandbox" in page
    assert answer.context["console"].environment == "test", "what its pages show and make"


def test_settings_change_retention_and_the_billing_address_with_an_audit_entry(
    browser: Client, tenant: Tenant, person: User, staff: User, other_tenant: Tenant
) -> None:
    audit.record(
        action="tenant.suspend", target_type="tenant", target_id=other_tenant.id, tenant_id=other_tenant.id
    )
    audit.record(
        action="api_key.revoke",
        target_type="api_key",
        target_id="1",
        tenant_id=tenant.id,
        actor_user_id=staff.pk,
        details={"note": "looks like a reseller"},
    )
    sent = {"retention_days": "30", "billing_email": "bills@traders.example"}
    assert browser.post("/console/settings", sent).status_code == 302
    tenant.refresh_from_db()
    assert (tenant.retention_days, tenant.billing_email) == (30, "bills@traders.example")
    assert browser.post("/console/settings", {"retention_days": "31"}).status_code == 400
    assert browser.post("/console/settings", {"retention_days": "90"}).status_code == 302
    tenant.refresh_from_db()
    assert (tenant.retention_days, tenant.billing_email) == (90, None)
    opened = {"initial-retention_days": "30", "retention_days": "30", "billing_email": "b@traders.example"}
    assert browser.post("/console/settings", opened).status_code == 302
    tenant.refresh_from_db()
    shown = "a page that was opened before does not shorten the retention"
    assert (tenant.retention_days, tenant.billing_email) == (90, "b@traders.example"), shown
    assert 'name="initial-retention_days" value="90"' in browser.get("/console/settings").content.decode()
    page = browser.get("/console/settings/audit").content.decode()
    assert "Retention days: 90 → 30" in page
    assert "API key revoked" in page
    assert person.email in page
    assert "Our team" in page
    assert staff.email not in page
    assert "Business suspended" not in page, "another business's entry"
    assert "looks like a reseller" not in page, "what staff noted"


def test_the_audit_log_shows_times_in_the_readers_zone_and_only_changed_values(
    browser: Client, tenant: Tenant
) -> None:
    before = {"trial_ends_at": None, "rejected_reason": None}
    details = {"before": before, "after": {**before, "trial_ends_at": "2026-12-31T18:30:00Z"}}
    audit.record(
        action="tenant.approve",
        target_type="tenant",
        target_id=tenant.id,
        tenant_id=tenant.id,
        details=details,
    )
    page = browser.get("/console/settings/audit").content.decode()
    assert "Trial ends at: – → 1 Jan 2027, 00:00 IST" in page
    assert "Rejected reason" not in page
    browser.post("/console/preferences", {"time_zone": "UTC"})
    page = browser.get("/console/settings/audit").content.decode()
    assert "Trial ends at: – → 31 Dec 2026, 18:30 UTC" in page


def test_the_audit_log_says_whom_or_what_a_change_concerned(browser: Client, tenant: Tenant) -> None:
    key = api_keys.create(name="web shop", environment="test", tenant=tenant, scopes=["events"])
    browser.post("/console/team", {"email": "bina@traders.example", "role": "developer"})
    former = User.objects.create(email="chitra@traders.example", tenant=tenant, role="agent")
    browser.post(f"/console/team/people/{former.pk}/remove")
    page = browser.get("/console/settings/audit").content.decode()
    lines = ("Name: web shop", f"Prefix: {key.row.prefix}", "Scopes: events", "Environment: test")
    for line in (*lines, "Email: bina@traders.example", "Role: developer", "Email: chitra@traders.example"):
        assert line in page, line


def test_the_audit_log_is_paged_and_has_only_own_entries(
    browser: Client, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.lists.ROWS_PER_PAGE", 2)
    for number in range(5):
        for owner in (tenant, other_tenant):
            target = f"{owner.name[0]}{number}"
            audit.record(action="team.role", target_type="user", target_id=target, tenant_id=owner.id)
    found: list[list[str]] = []
    query: str | None = ""
    while query is not None:
        page = browser.get(f"/console/settings/audit{query}").content.decode()
        found.append(re.findall(r"<code>([AB]\d)</code>", page))
        assert page.count("The gateway</td>") == len(found[-1])
        older = re.search(r'<a href="(\?before=\d+)">Older', page)
        query = older and older[1]
    assert found == [["A4", "A3"], ["A2", "A1"], ["A0"]]
    for odd in ("²", "9" * 5_000, "x"):
        assert browser.get("/console/settings/audit", {"before": odd}).status_code == 200


def test_warnings_of_one_app_that_fail_leave_the_home_page_and_the_warnings_of_the_others(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tenant: Tenant, environment: str) -> list[HomeWarning]:
        return list(Tenant.objects.raw("SELECT no_such_column FROM tenants_tenant"))  # type: ignore[arg-type]

    def fine(tenant: Tenant, environment: str) -> list[HomeWarning]:
        Tenant.objects.get(pk=tenant.pk)
        return [HomeWarning("Your endpoint fails.", "See why", "/console/webhooks", "bad")]

    monkeypatch.setattr(home, "WARNINGS", [(Area.OWN, broken), (Area.OWN, fine)])
    answer = browser.get("/console")
    assert answer.status_code == 200
    assert "Your endpoint fails." in answer.content.decode()
    assert "Something could not be checked" in answer.content.decode()


def test_a_suspended_business_changes_no_settings(browser: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert browser.post("/console/settings", {"retention_days": "30"}).status_code == 403
    for status, reason in (
        ("suspended", "while your account is suspended"),
        ("pending_approval", "is approved"),
    ):
        Tenant.objects.filter(pk=tenant.pk).update(status=status)
        page = browser.get("/console/settings").content.decode()
        assert reason in page
        assert 'name="retention_days"' not in page, "a form that nobody can send"
        page = browser.get("/console/settings/data").content.decode()
        assert reason in page
        assert 'name="customer"' not in page


def test_the_outbox_shows_mails_in_development_alone(tenant: Tenant, settings: Settings) -> None:
    settings.EMAIL_MODE, settings.PRODUCTION = "log", False
    mail.queue(to="asha@traders.example", subject="Confirm <it>", text="https://x.example/confirm/1")
    row = OutboundMail.objects.get()
    stranger = Client()
    assert "Confirm &lt;it&gt;" in stranger.get("/outbox").content.decode()
    assert 'href="https://x.example/confirm/1"' in stranger.get(f"/outbox/{row.pk}").content.decode()
    assert "default-src 'none'" in stranger.get(f"/outbox/{row.pk}?as=html")["Content-Security-Policy"]
    assert "outbox" in stranger.get("/sign-up/sent").content.decode()
    for mode, production in (("log", True), ("smtp", False)):
        settings.EMAIL_MODE, settings.PRODUCTION = mode, production
        assert stranger.get("/outbox").status_code == 404
        assert stranger.get("/components").status_code == 404
        assert stranger.get(f"/outbox/{row.pk}").status_code == 404
        assert "outbox" not in stranger.get("/sign-up/sent").content.decode()


def test_the_outbox_has_the_newest_mails_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    settings.EMAIL_MODE, settings.PRODUCTION = "log", False
    monkeypatch.setattr("console.outbox.MAILS_PER_PAGE", 2)
    for number in range(3):
        mail.queue(to="asha@traders.example", subject=f"Mail {number}", text="Hello")
    pages = [Client().get(f"/outbox?page={page}").content.decode() for page in (1, 2)]
    assert [re.findall(r">(Mail \d)<", page) for page in pages] == [["Mail 2", "Mail 1"], ["Mail 0"]]


@pytest.mark.parametrize(("reason", "is_said"), [("abuse", True), ("admin", False), (None, False)])
def test_home_says_abuse_only_of_a_suspension_for_abuse(
    browser: Client, reason: str | None, is_said: bool
) -> None:
    Tenant.objects.update(status="suspended", suspended_reason=reason)
    assert ("because of how it was used" in browser.get("/console").content.decode()) is is_said


@pytest.mark.parametrize(("role", "follows"), [("owner", True), ("billing", False)])
def test_home_follows_the_events_of_who_may_read_them(tenant: Tenant, role: str, follows: bool) -> None:
    Tenant.objects.update(status="active")
    person = User.objects.create_user(f"{role}@traders.example", tenant=tenant, role=role)
    client = Client()
    client.force_login(person)
    page = client.get("/console").content.decode()
    assert ('id="warnings" data-live="/console/live?' in page) is follows
    assert (client.get("/console/live").status_code != 403) is follows
