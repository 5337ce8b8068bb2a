"""The security headers of the responses of every route, and of responses without a route."""

import re
import uuid
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.http import HttpResponseBase
from django.test import Client
from django.urls import get_resolver
from pytest_django import Settings

from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant, User

pytestmark = pytest.mark.django_db

POLICY = {
    "default-src": {"'self'"},
    "img-src": {"'self'", "data:"},
    "object-src": {"'none'"},
    "base-uri": {"'none'"},
    "form-action": {"'self'"},
    "frame-ancestors": {"'none'"},
}
"""The policy of every page except those below."""
OWN_POLICY = re.compile(r"/(?:admin/|connect/|pay/|outbox/|console/billing)")
"""Pages with a wider policy, for the scripts of a theme, the SDK of the sign-up, the payment provider, or a mail."""
OF_EXPRESSIONS = {
    "account_reset_password_from_key": "/password/reset/key/1-abc/",
    "graph-media": "/v25.0/106540352242922/media",
    "graph-group": "/v25.0/Y2FwaV9ncm91cDoxMjM",
    "graph-signup": "/v25.0/signups/106540352242922",
    "graph-node": "/v25.0/106540352242922/content",
    "graph-upload": "/v25.0/upload:MTphdHRhY2htZW50",
    "graph-root": "/v25.0/debug_token",
    "graph-version": "/v25.0",
    "graph-unknown": "/v25.0/nothing!",
}
"""A path for each URL pattern that is a regular expression."""
NOWHERE = (
    "/nothing",
    "/v1/nothing",
    "/v25.0/106540352242922x",
    "/106540352242922x",
    "/upload:",
    "/upstream/nothing",
    "/internal/nothing",
    "/mcp/nothing",
    "/docs/nothing",
    "/static/nothing.css",
    "/admin/nothing",
    "/console/nothing",
)


def registered_paths() -> list[str]:
    """Return a path for every URL pattern of the service."""
    return sorted({*_walk(get_resolver(), "/"), *OF_EXPRESSIONS.values()})


def _walk(resolver: Any, prefix: str) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        part = str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, prefix + part)
        elif "(?" in part or part.startswith("^"):
            assert pattern.name in OF_EXPRESSIONS or prefix.startswith("/admin/"), part
        else:
            path = prefix + re.sub(r"<int:\w+>", "1", part)
            yield re.sub(r"<(?:\w+:)?\w+>", str(uuid.UUID(int=7)), path)


def assert_safe(answer: HttpResponseBase, path: str) -> None:
    """Check that browsers may not guess the type, and that HTML has the complete policy and may not be framed."""
    assert answer["X-Content-Type-Options"] == "nosniff"
    if not answer.get("Content-Type", "").startswith("text/html") or 300 <= answer.status_code < 400:
        return
    directives = [part.split() for part in answer["Content-Security-Policy"].split(";") if part.strip()]
    policy = {name: set(values) for name, *values in directives}
    assert answer["X-Frame-Options"] == "DENY"
    if OWN_POLICY.match(path) and policy != POLICY:
        assert "'none'" in policy.get("object-src", policy["default-src"])
        assert policy["frame-ancestors"] == policy["base-uri"] == {"'none'"}
        assert "*" not in policy["form-action"] | policy["default-src"]
    else:
        assert policy == POLICY


OF_KEYS = re.compile(r"/(?:v1|v25\.0|internal|mcp)(?:/|$)")
OF_STAFF = re.compile(r"/admin/(?!login/)")


def concerns(caller: str, path: str) -> bool:
    """Return whether a path answers this caller otherwise than nobody."""
    return {
        "nobody": True,
        "a key": OF_KEYS.match(path) is not None,
        "an owner": not OF_KEYS.match(path) and not OF_STAFF.match(path),
        "staff": not OF_KEYS.match(path),
    }[caller]


def client_of(caller: str, tenant: Tenant, key: NewKey) -> tuple[Client, dict[str, str]]:
    """A client of a caller, and the headers of its requests."""
    browser = Client(raise_request_exception=False)
    headers = {"Accept": "text/html"}
    if caller == "a key":
        headers["Authorization"] = f"Bearer {key.key}"
    elif caller == "an owner":
        browser.force_login(User.objects.create_user("owner@traders.example", "pw", tenant=tenant))
    elif caller == "staff":
        browser.force_login(User.objects.create_superuser("staff@gateway.example", "pw"))
    return browser, headers


@pytest.fixture(autouse=True)
def _others_are_away(settings: Settings) -> None:
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = settings.RAZORPAY_BASE_URL = "http://127.0.0.1:9"
    settings.BILLING_ENABLED = True


CALLERS = ("nobody", "a key", "an owner", "staff")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("caller", "method"),
    # Only views of the API have their own answer to OPTIONS. A page answers it like GET or, as to POST, with 405.
    [*product(CALLERS, ["GET", "POST"]), ("nobody", "OPTIONS"), ("a key", "OPTIONS")],
)
def test_every_answer_of_every_route_is_safe_in_a_browser(
    caller: str, method: str, tenant: Tenant, key: NewKey
) -> None:
    browser, headers = client_of(caller, tenant, key)
    paths = [path for path in [*registered_paths(), *NOWHERE] if concerns(caller, path)]
    assert len(paths) > 50
    unsafe = []
    pages = 0
    for path in paths:
        answer = browser.generic(method, path, b"", headers=headers)
        pages += answer.get("Content-Type", "").startswith("text/html")
        try:
            assert_safe(answer, path)
        except (AssertionError, KeyError) as error:
            unsafe.append((path, answer.status_code, str(error)[:300]))
    assert unsafe == []
    assert (pages > len(NOWHERE) / 2) == (caller != "a key")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/tenant%00", {}, 404),
        ("/console%00", {}, 404),
        ("/v1/tenant?a=%00", {}, 400),
        ("/v1/tenant", {"X-Service-Version": "2020-01-01"}, 400),
        ("/console", {"Host": "evil.example"}, 400),
        ("/v1/tenant", {"Host": "evil.example"}, 400),
        ("/v25.0/106540352242922/content", {"Host": "evil.example"}, 400),
        ("/106540352242922x", {"Host": "evil.example"}, 400),
    ],
)
def test_what_is_refused_before_any_view_is_safe_in_a_browser(
    path: str, headers: dict[str, str], status: int
) -> None:
    answer = Client(raise_request_exception=False).get(path, headers={"Accept": "text/html", **headers})
    assert answer.status_code == status
    assert_safe(answer, path)


@pytest.mark.parametrize("path", ["/console/log-in", "/106540352242922x", "/v1/tenant"])
def test_a_redirect_to_https_is_safe_in_a_browser(path: str, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    answer = Client().get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 301
    assert_safe(answer, path)


@pytest.mark.parametrize("path", ["/login", "/106540352242922x"])
def test_a_crash_is_safe_in_a_browser(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("crash")

    monkeypatch.setattr("django.middleware.common.CommonMiddleware.process_response", crash)
    answer = Client(raise_request_exception=False).get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 500
    assert_safe(answer, path)
