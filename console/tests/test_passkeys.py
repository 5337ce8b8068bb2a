"""Passkeys in Chromium with a virtual authenticator: adding one, log-in with and without the password, limits."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings

from console import log_in_and_passkeys
from tenants.models import OutboundMail, Tenant, User
from tests.accessibility import ACCOUNT_MENU, Chromium, session_of, window
from tests.browsers import text
from tests.fixtures import Api, assert_error

PASSWORD = "a long enough password"
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def with_authenticator(browser: Browser) -> Page:
    """A page in a window with a virtual authenticator."""
    page = browser.new_page()
    page.set_default_timeout(30_000)
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    return page


@pytest.mark.django_db(transaction=True)
@pytest.mark.e2e
def test_a_passkey_is_added_opens_the_account_alone_and_after_the_password(
    tenant: Tenant, live_server: Any, settings: Settings, in_chromium: Chromium
) -> None:
    settings.APP_URL = live_server.url
    person = User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)
    home = f"{live_server.url}/console"

    def log_in(page: Page) -> None:
        page.get_by_label("Email").fill(person.email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in", exact=True).click()

    def play(browser: Browser) -> list[str]:
        page = with_authenticator(browser)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{live_server.url}/login")
        log_in(page)
        page.locator(ACCOUNT_MENU).click()
        page.get_by_role("link", name="Security").click()
        page.get_by_role("link", name="Add a passkey").click()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        page.get_by_label("Name").fill("laptop")
        page.get_by_role("button", name="Add the passkey").click()
        page.get_by_role("heading", name="Recovery codes").wait_for()
        page.locator(ACCOUNT_MENU).click()
        page.get_by_role("button", name="Log out").click()

        page.get_by_role("button", name="Log in with a passkey").click()
        page.wait_for_url(home)
        page.locator(ACCOUNT_MENU).click()
        page.get_by_role("button", name="Log out").click()

        log_in(page)
        page.get_by_text("Or enter one of your recovery codes").wait_for()
        page.get_by_role("button", name="Use a passkey").click()
        page.wait_for_url(home)

        page.goto(f"{live_server.url}/second-factor/webauthn/")
        page.get_by_role("link", name="Remove").click()
        page.get_by_role("link", name="Use a passkey").click()
        page.get_by_role("button", name="Use a passkey").click()
        page.get_by_role("button", name="Remove").click()
        page.get_by_text("No passkey yet").wait_for()
        page.locator(ACCOUNT_MENU).click()
        page.get_by_role("button", name="Log out").click()

        page.get_by_role("button", name="Log in with a passkey").click()
        page.get_by_text("Incorrect code").wait_for()
        return complaints

    assert in_chromium(play) == []
    assert not Authenticator.objects.exists()
    subjects = list(OutboundMail.objects.order_by("id").values_list("subject", flat=True))
    assert [subject for subject in subjects if "asskey" in subject] == [
        "Passkey added at Whabuzz",
        "Passkey removed at Whabuzz",
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.e2e
def test_the_button_for_a_passkey_is_shown_where_it_does_something(
    live_server: Any, in_chromium: Chromium
) -> None:
    """Before its script is loaded, the button would submit the form without a code and show an error."""

    def play(browser: Browser) -> list[bool]:
        page = with_authenticator(browser)
        button = page.get_by_role("button", name="Log in with a passkey")
        page.route("**/mfa/js/**", lambda route: route.abort())
        page.goto(f"{live_server.url}/login")
        without_script = button.is_visible()
        page.unroute("**/mfa/js/**")
        page.reload()
        return [without_script, button.is_visible()]

    assert in_chromium(play) == [False, True]


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


@pytest.mark.django_db(transaction=True)
@pytest.mark.e2e
@pytest.mark.parametrize("has_factor", [False, True])
def test_what_was_typed_is_there_again_after_the_log_in(
    has_factor: bool, person: User, live_server: Any, in_chromium: Chromium
) -> None:
    code = ""
    if has_factor:
        TOTP.activate(person, generate_totp_secret())
        code = RecoveryCodes.activate(person).generate_codes()[0]
    session = session_of(person)

    def play(browser: Browser) -> None:
        with window(browser, live_server.url, session) as page:
            page.goto("/console/api-keys")
            page.get_by_label("Name").fill("web shop")
            page.context.clear_cookies(name=settings.SESSION_COOKIE_NAME)
            page.get_by_role("button", name="Create key").click()
            page.get_by_label("Email").fill(person.email)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in", exact=True).click()
            if has_factor:
                page.get_by_label("Code").fill(code)
                page.get_by_role("button", name="Log in", exact=True).click()
            expect(page.get_by_label("Name")).to_have_value("web shop")

    in_chromium(play)


def add_passkey(user: User, name: str = "laptop") -> Authenticator:
    """The row of a passkey, without the key itself."""
    data = {"name": name, "credential": {}}
    return Authenticator.objects.create(user=user, type=Authenticator.Type.WEBAUTHN, data=data)


@pytest.mark.django_db
def test_a_console_token_of_a_person_with_a_passkey_needs_a_recovery_code(person: User) -> None:
    add_passkey(person)
    code = RecoveryCodes.activate(person).generate_codes()[0]
    asked = {"email": person.email, "password": PASSWORD}
    assert_error(Api(None).post("/v1/console/sessions", asked), 401, "unauthorized")
    assert_error(Api(None).post("/v1/console/sessions", asked | {"otp": "123456"}), 401, "unauthorized")
    assert Api(None).post("/v1/console/sessions", asked | {"otp": code}).status_code == 201


@pytest.mark.django_db
@pytest.mark.parametrize("credential", ["", "{}", "[]", '"x"', '{"response": {"userHandle": "MQ"}}', "1"])
def test_what_is_no_passkey_opens_nothing(person: User, credential: str) -> None:
    client = Client()
    options = client.get("/second-factor/webauthn/login/", headers={"Accept": "application/json"})
    assert json.loads(options.content)["request_options"]["publicKey"]["userVerification"] == "required"
    client.post("/second-factor/webauthn/login/", {"credential": credential})
    assert client.get("/console").status_code == 302


@pytest.mark.django_db
def test_staff_keep_a_second_factor(staff: User, settings: Settings) -> None:
    settings.STAFF_SECOND_FACTOR = True
    first, second = add_passkey(staff), add_passkey(staff, "key")
    client = Client()
    client.force_login(staff)
    client.post("/reauthenticate", {"password": PASSWORD})
    assert client.post(f"/second-factor/webauthn/keys/{first.pk}/remove/").status_code == 302
    page = client.post(f"/second-factor/webauthn/keys/{second.pk}/remove/", follow=True)
    assert "Staff need a second factor" in page.content.decode()
    assert list(Authenticator.objects.values_list("pk", flat=True)) == [second.pk]


@pytest.mark.django_db
def test_a_passkey_was_added_on_the_day_of_the_members_zone(person: User) -> None:
    passkey = add_passkey(person)
    Authenticator.objects.filter(pk=passkey.pk).update(created_at=datetime(2026, 12, 1, 20, 30, tzinfo=UTC))
    client = Client()
    client.force_login(person)
    client.post("/reauthenticate", {"password": PASSWORD})
    assert "<td>2 Dec 2026</td>" in text(client, "/second-factor/webauthn/")


@pytest.mark.django_db
def test_passkeys_of_a_person_are_bounded(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_in_and_passkeys, "MOST_PASSKEYS", 1)
    add_passkey(person)
    other = User.objects.create_user("ravi@traders.example", PASSWORD)
    for user, is_refused in ((person, True), (other, False)):
        form = log_in_and_passkeys.AddPasskeyForm({"credential": "{}"}, user=user)
        assert not form.is_valid()
        assert ("at most 1 passkeys" in str(form.errors)) is is_refused
