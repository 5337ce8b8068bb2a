"""Every route outside of /v1, /console and /admin. Each route is in one of the groups below, by who may open it.

A route without a group fails the test. The tests beside the code check access by a link, a signature or a key. These
tests check that no tenant's session opens a route that a stranger cannot open.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.http import HttpResponse
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import Settings

from tenants.models import Tenant, User
from web import routes

pytestmark = pytest.mark.django_db

ANYBODYS = {
    "root",
    "terms",
    "privacy",
    "docs",
    "llms.txt",
    "llms-full.txt",
    "packages",
    "package_index",
    "robots",
    "sitemap",
    "security_txt",
    "oauth_server",
    "oauth_resource",
    "oauth_resource_of_mcp",
    "error_page",
    "meta_error_page",
    "account_signup",
    "sign_up_sent",
    "account_login",
    "account_inactive",
    "account_reset_password",
    "account_set_password",
    "account_reset_password_done",
    "account_reset_password_from_key_done",
    "mfa_login_webauthn",
}
"""Open to everybody, because they show nothing about a tenant."""
OPENED_BY_A_LINK = {
    "sign_up_confirm",
    "account_reset_password_from_key",
    "invitation",
    "pay",
    "pay-invoice",
    "pay-returned",
    "connect_page",
    "connect_answer",
}
"""Opened by the secret in the path, which was sent to one person."""
OF_THE_PERSON = {
    "account_logout",
    "account_change_password",
    "account_reauthenticate",
    "mfa_index",
    "mfa_authenticate",
    "mfa_reauthenticate",
    "mfa_activate_totp",
    "mfa_deactivate_totp",
    "mfa_view_recovery_codes",
    "mfa_generate_recovery_codes",
    "mfa_download_recovery_codes",
    "mfa_list_webauthn",
    "mfa_add_webauthn",
    "mfa_reauthenticate_webauthn",
    "mfa_remove_webauthn",
    "mfa_edit_webauthn",
    "person",
}
"""Open to every person who is logged in: log-in, second factor and settings of this person."""
OF_MACHINES = {
    "/upstream/webhook",
    "payment-webhook",
    "metrics",
    "mcp",
    "oauth_register",
    "oauth_token",
    "oauth_revoke",
    "graph-media",
    "graph-group",
    "graph-node",
    "graph-upload",
    "graph-root",
    "graph-version",
    "graph-signup",
    "graph-unknown",
}
"""Called by programs, with a signature, a key or a token."""
OF_DEVELOPMENT = {"components", "outbox", "outbox_mail"}
"""Served only in development. `console/tests/test_account.py` tests them."""

PARTS = {
    "token": "x" * 43,
    "uidb36": "1",
    "key": "abc-def",
    "provider": "razorpay",
    "version": "v23.0",
    "node": "100000000001",
    "edge": "media",
    "session": "abc",
    "mail_id": 1,
    "name": "131047",
}
"""Values for the parts of paths: secrets and ids that do not exist."""
WITHOUT_REVERSE = {
    "llms.txt": "/llms.txt",
    "llms-full.txt": "/llms-full.txt",
    "graph-root": "/debug_token",
    "graph-group": "/v23.0/Y2FwaV9ncm91cDoxMjM",
    "graph-signup": "/v23.0/signups/106540352242922",
    "graph-unknown": "/v23.0/nothing!",
    "/upstream/webhook": "/upstream/webhook",
}
STATUSES = ("active", "pending_approval", "rejected", "suspended")


def registered_routes() -> dict[str, str]:
    """The paths outside of the tables of the API, the console and the staff admin, by name or path."""
    answered_by_listener = {path: path for path in routes.ROUTES if not path.startswith("/v1/")}
    return dict(_walk(get_resolver(), "")) | answered_by_listener


def _walk(resolver: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, path)
        elif not path.startswith(("v1/", "console", "admin/")):
            yield pattern.name or path, path


def test_every_route_is_in_one_group_and_every_group_has_routes_alone() -> None:
    groups = [ANYBODYS, OPENED_BY_A_LINK, OF_THE_PERSON, OF_MACHINES, OF_DEVELOPMENT]
    grouped = [name for group in groups for name in group]
    assert sorted(registered_routes()) == sorted(grouped)


def path_of(name: str, **more: Any) -> str:
    if name in WITHOUT_REVERSE:
        return WITHOUT_REVERSE[name]
    parts = set(re.findall(r"<(?:\w+:)?(\w+)>", registered_routes()[name]))
    return reverse(name, kwargs={part: value for part, value in (PARTS | more).items() if part in parts})


def answers(browser: Client, path: str) -> list[HttpResponse]:
    """The responses to GET and POST. A method that the route does not support is left out."""
    both: list[Any] = [browser.get(path), browser.post(path)]
    return [answer for answer in both if answer.status_code != 405]


@pytest.fixture
def browsers(tenant: Tenant, settings: Settings) -> dict[str, Client]:
    """A stranger, and an owner of a tenant in each status."""
    settings.BILLING_ENABLED = True
    found = {"stranger": Client()}
    for status in STATUSES:
        business = Tenant.objects.create(name=f"Secretive Traders {status}", status=status)
        found[status] = Client()
        found[status].force_login(
            User.objects.create_user(f"{status}@traders.example", "a long password", tenant=business)
        )
    return found


def test_what_is_anybodys_opens_for_everybody_and_names_no_business(browsers: dict[str, Client]) -> None:
    for name in sorted(ANYBODYS):
        for who, browser in browsers.items():
            shown = browser.get(path_of(name))
            assert shown.status_code in {200, 302}, (name, who)
            assert b"Secretive" not in shown.getvalue(), (name, who)


@pytest.mark.django_db(transaction=True)
def test_a_session_opens_no_link_and_nothing_of_machines(browsers: dict[str, Client]) -> None:
    for name in sorted(OPENED_BY_A_LINK | OF_MACHINES):
        refused = [answer.status_code for answer in answers(browsers["stranger"], path_of(name))]
        is_page_that_says_so = name == "account_reset_password_from_key"
        assert is_page_that_says_so or all(400 <= status < 500 for status in refused), (name, refused)
        for who, browser in browsers.items():
            given = answers(browser, path_of(name))
            assert [answer.status_code for answer in given] == refused, (name, who)
            assert not any(b"Secretive" in answer.getvalue() for answer in given), (name, who)


def test_a_persons_pages_ask_strangers_to_log_in_and_are_open_in_every_status(
    browsers: dict[str, Client],
) -> None:
    for name in sorted(OF_THE_PERSON):
        path = path_of(name, pk=1)
        for answer in answers(browsers["stranger"], path):
            assert answer.status_code == 302, name
            assert answer["Location"].startswith("/login"), name
        active = [answer.status_code for answer in answers(browsers["active"], path)]
        assert all(status < 500 for status in active), (name, active)
    for status in STATUSES[1:]:
        for name in ("mfa_index", "mfa_list_webauthn", "account_change_password", "account_logout"):
            assert browsers[status].get(path_of(name)).status_code == 200, (name, status)


def test_a_passkey_is_its_persons_alone(browsers: dict[str, Client]) -> None:
    browser = browsers["active"]
    own, other = (
        Authenticator.objects.create(
            user=User.objects.get(email=f"{status}@traders.example"),
            type=Authenticator.Type.WEBAUTHN,
            data={"name": "phone", "credential": {}},
        )
        for status in ("active", "suspended")
    )
    browser.post("/reauthenticate", {"password": "a long password"})
    for name in ("mfa_remove_webauthn", "mfa_edit_webauthn"):
        assert browser.get(path_of(name, pk=own.pk)).status_code == 200
        assert [answer.status_code for answer in answers(browser, path_of(name, pk=other.pk))] == [404, 404]
    other.refresh_from_db()
    assert other.data["name"] == "phone"
