"""Connected apps: OAuth 2.1 from registration to revocation, and requests that must not get a token."""

import html
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from django.test import Client
from pytest_django import Settings

from gateway.api.authentication import Caller
from gateway.api.errors import Conflict
from gateway.clock import now
from gateway.roles import KeyScope
from tenants.connected_apps import connections
from tenants.connected_apps.connections import InvalidGrant, Tokens
from tenants.connected_apps.views import AuthorizationRequest, reply_to
from tenants.models import AppConnection, AuditEntry, ConnectedAppClient, Tenant, User
from tenants.team import members
from tenants.tests.connected_apps import (
    CHALLENGE,
    REDIRECT_URI,
    VERIFIER,
    answer_to,
    asked,
    client_of,
    code_of,
    connection_of,
    member_of,
    post,
    tokens_of,
)
from tests.browsers import logged_in
from tests.fixtures import Api, assert_error
from tests.threads import outcomes

pytestmark = pytest.mark.django_db
PAGE = "/console/connect-app"
CLIENT_ID = "0192c3a0-0000-7000-8000-000000000001"


@pytest.fixture
def member(tenant: Tenant) -> User:
    return member_of(tenant)


def register(**metadata: Any) -> Any:
    return Client().post("/oauth/register", metadata, content_type="application/json")


def callers(*tokens: Tokens) -> list[Caller | None]:
    return [connections.caller_for(each.access) for each in tokens]


def test_an_app_connects_by_the_address_alone(member: User, settings: Settings) -> None:
    """The whole flow of a client that knows only the address of the MCP server."""
    settings.BASE_URL, settings.APP_URL = "https://api.example", "https://app.example"
    http = Client()
    refused = http.post("/mcp", b"{}", content_type="application/json")
    assert refused.status_code == 401
    found = re.search(r'resource_metadata="https://api.example(\S+)"', refused["WWW-Authenticate"])
    assert found is not None
    resource = http.get(found[1]).json()
    assert resource["resource"] == "https://api.example/mcp"
    assert resource["authorization_servers"] == ["https://api.example"]
    server = http.get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == "https://api.example"
    assert server["authorization_endpoint"] == f"https://app.example{PAGE}"
    assert server["code_challenge_methods_supported"] == ["S256"]
    registered = register(
        client_name="Assistant", redirect_uris=[REDIRECT_URI], token_endpoint_auth_method="client_secret_post"
    )
    assert registered.status_code == 201
    assert registered.json()["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in registered.json()
    client = ConnectedAppClient.objects.get(pk=registered.json()["client_id"])

    browser, query = logged_in(member), asked(client, resource="https://api.example/mcp")
    assert Client().get(PAGE, query)["Location"].startswith("/login?next=/console/connect-app%3F")
    page = browser.get(PAGE, query)
    shown = page.content.decode()
    assert "Assistant" in shown
    assert "assistant.example" in shown
    assert "form-action 'self' https://assistant.example" in page["Content-Security-Policy"]
    assert "Keys:" not in shown, "a scope that apps cannot have"
    assert not AppConnection.objects.exists(), "looking allows nothing"
    chosen = {"environment": "test", "scopes": ["messages", "events", "keys"]}
    assert browser.post(PAGE, query | chosen).status_code == 400, "a scope that was not offered"
    sent_back = browser.post(PAGE, query | chosen | {"scopes": ["messages"]})["Location"]
    assert sent_back.startswith(f"{REDIRECT_URI}?")
    answer = answer_to(sent_back)
    assert (answer["state"], answer["iss"]) == ("s&1", "https://api.example")

    exchange = {
        "grant_type": "authorization_code",
        "client_id": str(client.id),
        "code": answer["code"],
        "redirect_uri": REDIRECT_URI,
        "code_verifier": VERIFIER,
    }
    given = post("/oauth/token", **exchange)
    assert given["Cache-Control"] == "no-store"
    tokens = given.json()
    assert (tokens["token_type"], tokens["scope"], tokens["expires_in"]) == ("Bearer", "messages", 3600)
    caller = connections.caller_for(tokens["access_token"])
    assert caller is not None
    assert (caller.tenant and caller.tenant.id, caller.environment) == (member.tenant_id, "test")
    assert caller.scopes == {KeyScope.MESSAGES}
    assert (caller.role, caller.user_id) == (member.role, member.pk)
    assert_error(Api(tokens["access_token"]).get("/v1/messages"), 401, "unauthorized")
    stored = str(AppConnection.objects.values().get())
    for secret in (answer["code"], tokens["access_token"], tokens["refresh_token"]):
        assert secret not in stored
        assert secret.rpartition(".")[2] not in stored

    renewed = post(
        "/oauth/token",
        grant_type="refresh_token",
        client_id=str(client.id),
        refresh_token=tokens["refresh_token"],
    ).json()
    assert connections.caller_for(tokens["access_token"]) is None, "the former one ends"
    assert connections.caller_for(renewed["access_token"]) is not None
    assert post("/oauth/revoke", client_id=str(client.id), token=renewed["refresh_token"]).json() == {}
    assert connections.caller_for(renewed["access_token"]) is None
    assert [entry.action for entry in AuditEntry.objects.order_by("id")][-2:] == [
        "connected_app.connect",
        "connected_app.disconnect",
    ]


@pytest.mark.parametrize(
    "uri",
    [
        "http://assistant.example/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://user:pw@assistant.example/",
        "https://assistant.example/#fragment",
        "https://assistant.example/\nSet-Cookie: a",
        "https:///path",
        "https://[::1",
        "//assistant.example/callback",
        "https://assistant.example/;form-action *",
        "https://assistänt.example/",
        "https://assistant.example/" + "x" * 500,
        7,
    ],
)
def test_codes_are_sent_to_no_such_address(uri: object) -> None:
    refused = register(client_name="Assistant", redirect_uris=[REDIRECT_URI, uri])
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_redirect_uri")


def test_registrations_are_bounded(settings: Settings) -> None:
    for uri in ("http://127.0.0.1:33418/", "http://localhost/cb", "http://[::1]:9/cb", "cursor://mcp/oauth"):
        assert register(client_name="Editor", redirect_uris=[uri]).status_code == 201, uri
    refused: list[dict[str, Any]] = [
        {"redirect_uris": []},
        {"redirect_uris": [REDIRECT_URI] * 11},
        {"redirect_uris": [REDIRECT_URI], "client_name": "x" * 101},
        {"redirect_uris": [REDIRECT_URI], "client_name": "Meta\u202e"},
        {"redirect_uris": [REDIRECT_URI], "client_name": ["x"]},
    ]
    for metadata in refused:
        assert register(**metadata).status_code == 400, metadata
    assert Client().post("/oauth/register", b"[1]", content_type="application/json").status_code == 400
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "app_registration": "1/h/ip"}
    metadata = {"client_name": "Editor", "redirect_uris": [REDIRECT_URI]}
    assert [register(**metadata).status_code for _ in range(2)][-1] == 429
    used = tokens_of(member_of(Tenant.objects.create(name="T", status="active")))
    ConnectedAppClient.objects.update(created_at=now() - connections.UNUSED_CLIENT_LIFETIME)
    connections.prune_expired()
    assert ConnectedAppClient.objects.count() == 1, "the one that a member is connected to"
    assert callers(used) != [None]


def test_the_page_sends_nobody_to_an_address_that_is_not_registered(member: User) -> None:
    browser, client = logged_in(member), client_of()
    for query in (
        asked(client, redirect_uri="https://assistant.example/callback/"),
        asked(client, redirect_uri="https://assistant.example/callback?x=1"),
        asked(client, redirect_uri="https://evil.example/"),
        asked(client, client_id="0192c3a0-0000-7000-8000-000000000000"),
        asked(client, client_id="x"),
        asked(client, state="x" * 2_001),
        {},
    ):
        for answer in (browser.get(PAGE, query), browser.post(PAGE, query)):
            assert answer.status_code == 400
            assert "not known here" in answer.content.decode()


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": "é" * 43}, "invalid_request"),
        ({"code_challenge": f"{CHALLENGE}="}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
    ],
)
def test_a_request_without_its_proof_is_refused_at_the_app(
    member: User, changed: dict[str, str], error: str
) -> None:
    browser, query = logged_in(member), asked(client_of(), **changed)
    for answer in (browser.get(PAGE, query), browser.post(PAGE, query | {"environment": "test"})):
        assert answer_to(answer["Location"])["error"] == error
    assert not AppConnection.objects.exists()


def test_the_form_submits_each_parameter_of_the_request_again(member: User, settings: Settings) -> None:
    query = asked(client_of(), resource=f"{settings.BASE_URL}/mcp")
    page = html.unescape(logged_in(member).get(PAGE, query).content.decode()).partition("<main")[2]
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    assert {name: value for name, value in hidden.items() if name != "csrfmiddlewaretoken"} == query


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("https://assistant.example:8443/cb", "https://assistant.example:8443"),
        ("http://127.0.0.1:33418/", "http:"),
        ("cursor://mcp/oauth", "cursor:"),
    ],
)
def test_the_form_may_lead_only_to_the_app(member: User, uri: str, source: str) -> None:
    browser, query = logged_in(member), asked(client_of(uri))
    for page in (browser.get(PAGE, query), browser.post(PAGE, query)):
        policy = re.search("form-action ([^;]+)", page["Content-Security-Policy"])
        assert policy is not None
        assert policy[1] == f"'self' {source}"


def test_a_member_refuses_an_app(member: User) -> None:
    sent_back = logged_in(member).post(PAGE, asked(client_of()) | {"refuse": "yes"})["Location"]
    assert answer_to(sent_back)["error"] == "access_denied"
    assert not AppConnection.objects.exists()


def test_a_form_of_another_site_connects_nothing(member: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(member)
    chosen = {"environment": "test", "scopes": ["messages"]}
    assert browser.post(PAGE, asked(client_of()) | chosen).status_code == 403
    assert "frame-ancestors 'none'" in browser.get(PAGE, asked(client_of()))["Content-Security-Policy"]


REDEEM: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "another verifier": lambda right: right | {"verifier": "w" * 43},
    "the challenge itself": lambda right: right | {"verifier": CHALLENGE},
    "another redirect URI": lambda right: right | {"redirect_uri": "https://assistant.example/"},
    "another client": lambda right: right | {"client_id": str(client_of().id)},
}


@pytest.mark.parametrize("name", REDEEM)
def test_a_code_is_bound_to_what_it_was_asked_with(member: User, name: str) -> None:
    client = client_of()
    right = {
        "client_id": str(client.id),
        "code": code_of(client, member),
        "redirect_uri": REDIRECT_URI,
        "verifier": VERIFIER,
    }
    with pytest.raises(InvalidGrant):
        connections.redeem_code(**REDEEM[name](right))
    with pytest.raises(InvalidGrant):
        connections.redeem_code(**right)  # a code works once
    assert not AppConnection.objects.exists()


def test_a_code_lives_for_a_minute(member: User) -> None:
    client = client_of()
    code = code_of(client, member)
    AppConnection.objects.update(expires_at=now())
    with pytest.raises(InvalidGrant):
        connections.redeem_code(
            client_id=str(client.id), code=code, redirect_uri=REDIRECT_URI, verifier=VERIFIER
        )


def test_a_second_use_of_a_code_or_a_refresh_token_ends_the_connection(member: User) -> None:
    client = client_of()
    code = code_of(client, member)
    right = {"client_id": str(client.id), "redirect_uri": REDIRECT_URI, "verifier": VERIFIER}
    first = connections.redeem_code(code=code, **right)
    with pytest.raises(InvalidGrant):
        connections.redeem_code(code=code, **right)
    assert callers(first) == [None]

    first = tokens_of(member, client)
    second = connections.refresh(client_id=str(client.id), token=first.refresh)
    with pytest.raises(InvalidGrant):
        connections.refresh(client_id=str(client_of().id), token=second.refresh)
    assert callers(second) != [None], "a stranger's client ends nothing"
    with pytest.raises(InvalidGrant):
        connections.refresh(client_id=str(client.id), token=first.refresh)
    assert callers(second) == [None]
    with pytest.raises(InvalidGrant):
        connections.refresh(client_id=str(client.id), token=second.refresh)
    assert AuditEntry.objects.latest("id").details["reason"] == "token_used_twice"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("access token", "by_the_app"),
        ("refresh token", "by_the_app"),
        ("member", "by_a_member"),
        ("wrong verifier", "code_refused"),
        ("new password", "no_longer_allowed"),
        ("old refresh token", "token_used_twice"),
    ],
)
def test_the_end_of_a_connection_is_audited_with_its_reason(member: User, how: str, reason: str) -> None:
    client, other = client_of(), tokens_of(member_of(Tenant.objects.create(name="Other", status="active")))
    named, actor = {"client_id": str(client.id)}, None
    if how == "wrong verifier":
        code = code_of(client, member)
        with pytest.raises(InvalidGrant):
            connections.redeem_code(code=code, redirect_uri=REDIRECT_URI, verifier="w" * 43, **named)
    else:
        tokens = tokens_of(member, client, environment="live", scopes=[KeyScope.MESSAGES], only_reads=True)
        row = AppConnection.objects.get(client=client)
        if how.endswith("token") and how != "old refresh token":
            connections.revoke_token(token=getattr(tokens, how.split()[0]), **named)
        elif how == "member":
            actor = member.pk
            connections.revoke(tenant_id=row.tenant_id, connection_id=row.id, actor_user_id=actor)
        else:
            new_password(row.tenant, member) if how == "new password" else connections.refresh(
                token=tokens.refresh, **named
            )
            with pytest.raises(InvalidGrant):
                connections.refresh(token=tokens.refresh, **named)
        assert callers(tokens, other) == [None, callers(other)[0]]
    assert callers(other) != [None]
    entry = AuditEntry.objects.get(action="connected_app.disconnect")
    assert (entry.details["reason"], entry.actor_user_id) == (reason, actor)
    assert entry.tenant_id == member.tenant_id
    assert entry.details["redirect_uri"] == REDIRECT_URI


@pytest.mark.parametrize(
    ("asked_for", "given"),
    [
        ({}, set(connections.SCOPES)),
        ({"scope": ""}, set(connections.SCOPES)),
        ({"scope": "keys offline_access"}, set(connections.SCOPES)),
        ({"scope": "messages  events keys"}, {KeyScope.MESSAGES, KeyScope.EVENTS}),
        ({"scope": "messages", "resource": "https://api.example/mcp/"}, {KeyScope.MESSAGES}),
        ({"scope": "messages", "resource": "https://api.example"}, {KeyScope.MESSAGES}),
    ],
)
def test_an_app_is_offered_what_it_asks_for_or_everything(
    settings: Settings, asked_for: dict[str, str], given: set[KeyScope]
) -> None:
    settings.BASE_URL = "https://api.example"
    query = {name: value for name, value in asked(client_of()).items() if name != "scope"}
    request = AuthorizationRequest.read(QueryDict(urlencode(query | asked_for)))
    assert request.scopes == given


@pytest.mark.parametrize(
    ("redirect_uri", "state", "address"),
    [
        (
            "https://a.example/cb",
            "s&1",
            "https://a.example/cb?code=c&state=s%261&iss=https%3A%2F%2Fapi.example",
        ),
        (
            "https://a.example/cb?x=1",
            "",
            "https://a.example/cb?x=1&code=c&state=&iss=https%3A%2F%2Fapi.example",
        ),
        ("cursor://cb", None, "cursor://cb?code=c&iss=https%3A%2F%2Fapi.example"),
    ],
)
def test_an_answer_is_added_to_the_redirect_uri(
    settings: Settings, redirect_uri: str, state: str | None, address: str
) -> None:
    settings.BASE_URL = "https://api.example"
    assert reply_to(redirect_uri, state, code="c") == address


def test_an_app_without_a_name_and_with_a_scheme_of_its_domain_registers() -> None:
    answer = register(redirect_uris=["com.example.app:/cb"]).json()
    assert (answer["client_name"], answer["redirect_uris"]) == (
        "An app without a name",
        ["com.example.app:/cb"],
    )
    assert answer["scope"] == "messages numbers templates webhooks events"
    assert register(redirect_uris=["example:/cb"]).json()["error"] == "invalid_redirect_uri"
    for refused in (":pw@", "user@"):
        answer = register(redirect_uris=[f"https://{refused}assistant.example/"])
        assert answer.json()["error"] == "invalid_redirect_uri"


def test_a_token_that_ends_with_its_connection_says_so(member: User) -> None:
    client = client_of()
    tokens = tokens_of(member, client)
    AppConnection.objects.update(expires_at=now() + timedelta(minutes=10))
    form = {"grant_type": "refresh_token", "client_id": str(client.id), "refresh_token": tokens.refresh}
    assert 590 <= post("/oauth/token", **form).json()["expires_in"] <= 600


def test_an_app_that_was_deleted_meanwhile_is_not_connected(member: User) -> None:
    client = client_of()
    ConnectedAppClient.objects.all().delete()
    with pytest.raises(Conflict, match="Start again in the app"):
        code_of(client, member)
    assert not AppConnection.objects.exists()


def test_a_client_can_ask_again_after_its_connection_and_registers_again_when_it_was_deleted(
    member: User,
) -> None:
    client = client_of()
    tokens = tokens_of(member, client)
    ConnectedAppClient.objects.update(created_at=now() - timedelta(days=90))
    AppConnection.objects.update(expires_at=now())
    connections.prune_expired()
    assert logged_in(member).get(PAGE, asked(client)).status_code == 200
    form = {"grant_type": "refresh_token", "client_id": str(client.id), "refresh_token": tokens.refresh}
    for status, error in ((400, "invalid_grant"), (401, "invalid_client")):
        refused = post("/oauth/token", **form)
        assert (refused.status_code, refused.json()["error"]) == (status, error)
        ConnectedAppClient.objects.all().delete()


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
def test_requests_with_tokens_are_bounded_for_each_address(settings: Settings, path: str) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "app_token": "2/m/ip"}
    form = {"token": "x", "grant_type": "refresh_token", "refresh_token": "wbr_x.y"}
    form["client_id"] = str(client_of().id)
    answers = [post(path, **form) for _ in range(3)]
    assert [answer.status_code for answer in answers[:2]] == [200 if path.endswith("revoke") else 400] * 2
    assert (answers[2].status_code, answers[2].json()["error"]) == (429, "temporarily_unavailable")
    assert Client().post(path, form, REMOTE_ADDR="192.0.2.9").status_code != 429


@pytest.mark.parametrize("missing", ["client_id", "token"])
def test_a_revocation_names_its_client_and_token(missing: str) -> None:
    form = {name: "x" for name in ("client_id", "token") if name != missing}
    answer = post("/oauth/revoke", **form)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert missing in answer.json()["error_description"]


def test_expired_connections_are_pruned_with_their_codes(member: User) -> None:
    over, kept = connection_of(Tenant.objects.create(name="Other")), tokens_of(member)
    AppConnection.objects.filter(pk=over.pk).update(expires_at=now())
    assert connections.prune_expired() == 1
    assert not AppConnection.objects.filter(pk=over.pk).exists()
    assert callers(kept) != [None]
    [entry] = AuditEntry.objects.filter(action="connected_app.disconnect")
    assert (entry.tenant_id, entry.target_id, entry.details["reason"]) == (
        over.tenant_id,
        str(over.pk),
        "expired",
    )


def test_connected_apps_outlive_a_new_secret_key(member: User, settings: Settings) -> None:
    used, unused = client_of(), client_of()
    first, second = tokens_of(member, used), tokens_of(member, unused)
    former, settings.SECRET_KEY = settings.SECRET_KEY, "x" * 60
    settings.SECRET_KEY_FALLBACKS = [former]
    assert None not in callers(first, second)
    renewed = connections.refresh(client_id=str(used.id), token=first.refresh)
    settings.SECRET_KEY_FALLBACKS = []
    [caller, ended] = callers(renewed, second)
    assert caller is not None, "the refresh needs the former key no longer"
    assert ended is None
    with pytest.raises(InvalidGrant):
        connections.refresh(client_id=str(unused.id), token=second.refresh)


def test_a_new_password_ends_an_app_also_while_the_secret_key_changes(
    member: User, settings: Settings
) -> None:
    tokens = tokens_of(member)
    former, settings.SECRET_KEY = settings.SECRET_KEY, "x" * 60
    settings.SECRET_KEY_FALLBACKS = [former]
    member.set_password("another long password")
    member.save(update_fields=["password"])
    assert callers(tokens) == [None]


def test_tokens_are_of_one_client(member: User) -> None:
    tokens = tokens_of(member)
    for token in (tokens.access, tokens.refresh, "wbr_x", "x"):
        connections.revoke_token(client_id=str(client_of().id), token=token)
    assert callers(tokens) != [None]


def suspended(tenant: Tenant, member: User) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")


def locked(tenant: Tenant, member: User) -> None:
    User.objects.filter(pk=member.pk).update(is_active=False)


def billing(tenant: Tenant, member: User) -> None:
    User.objects.filter(pk=member.pk).update(role="billing")


def moved(tenant: Tenant, member: User) -> None:
    User.objects.filter(pk=member.pk).update(tenant=Tenant.objects.create(name="Other", status="active"))


def removed(tenant: Tenant, member: User) -> None:
    owner = User.objects.create_user("owner@members.example", tenant=tenant, role="owner")
    members.remove(tenant_id=tenant.id, user_id=member.pk, actor_user_id=owner.pk)


def new_password(tenant: Tenant, member: User) -> None:
    member.set_password("another long password")
    member.save()


def over(tenant: Tenant, member: User) -> None:
    AppConnection.objects.update(expires_at=now())


@pytest.mark.parametrize("change", [locked, billing, moved, removed, new_password, over])
def test_what_ends_the_members_access_ends_the_app(
    tenant: Tenant, member: User, change: Callable[[Tenant, User], None]
) -> None:
    client = client_of()
    tokens = tokens_of(member, client)
    assert callers(tokens) != [None]
    change(tenant, member)
    assert callers(tokens) == [None]
    with pytest.raises(InvalidGrant):
        connections.refresh(client_id=str(client.id), token=tokens.refresh)


@pytest.mark.parametrize("change", [suspended, locked, billing, moved, new_password])
def test_what_changes_before_the_tokens_are_made_counts(
    tenant: Tenant, member: User, change: Callable[[Tenant, User], None]
) -> None:
    client = client_of()
    code = code_of(client, member)
    change(tenant, member)
    with pytest.raises(InvalidGrant):
        connections.redeem_code(
            client_id=str(client.id), code=code, redirect_uri=REDIRECT_URI, verifier=VERIFIER
        )


def test_an_app_can_no_more_than_its_member_and_its_choice(tenant: Tenant, member: User) -> None:
    for role in ("read_only", "billing", "agent"):
        with pytest.raises(Conflict):
            code_of(client_of(), member_of(tenant, role))
    [caller] = callers(tokens_of(member, only_reads=True))
    assert caller is not None
    assert caller.role == "read_only"
    tokens = tokens_of(member, scopes=[*KeyScope], environment="live")
    [caller] = callers(tokens)
    assert caller is not None
    assert caller.scopes == set(connections.SCOPES)
    assert caller.environment == "live"
    User.objects.filter(pk=member.pk).update(role="read_only")
    [caller] = callers(tokens)
    assert caller is not None
    assert caller.role == "read_only", "from the next call on"
    Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
    [caller] = callers(tokens_of(member_of(tenant), environment="live"))
    assert caller is not None
    assert caller.environment == "test", "a sandbox business has no live environment"


def test_an_access_token_lives_an_hour_and_a_connection_no_longer_than_its_consent(member: User) -> None:
    client = client_of()
    tokens = tokens_of(member, client)
    row = AppConnection.objects.get()
    assert row.expires_at - row.created_at > timedelta(days=89)
    AppConnection.objects.update(access_expires_at=now())
    assert callers(tokens) == [None]
    AppConnection.objects.update(expires_at=now() + timedelta(minutes=5))
    renewed = connections.refresh(client_id=str(client.id), token=tokens.refresh)
    row.refresh_from_db()
    assert row.access_expires_at == row.expires_at
    assert callers(renewed) != [None]


def test_the_list_has_what_each_working_connection_may_do_newest_first(tenant: Tenant, member: User) -> None:
    tokens_of(member, scopes=[KeyScope.MESSAGES, KeyScope.EVENTS], only_reads=True)
    tokens_of(member, client_of("http://127.0.0.1:9/"), environment="live", scopes=[KeyScope.NUMBERS])
    code_of(client_of(), member)
    tokens_of(member)
    AppConnection.objects.filter(pk=AppConnection.objects.latest("id").pk).update(expires_at=now())
    page = logged_in(member_of(tenant, "read_only")).get("/console/connected-apps").content.decode()
    rows = re.findall(r"<li>\s*<div class=\"what\">(.*?)<p class", page, re.DOTALL)
    assert [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in rows] == [
        "Assistant Live A program on a computer · numbers",
        "Assistant Test Only reads At assistant.example · events, messages",
    ]
    assert "Disconnect<" not in page


def test_a_sandbox_business_connects_apps_to_its_sandbox_alone(tenant: Tenant, member: User) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
    browser, query = logged_in(member), asked(client_of())
    assert re.findall(r'<option value="(\w+)"', browser.get(PAGE, query).content.decode()) == ["test"]
    assert browser.post(PAGE, query | {"environment": "live", "scopes": ["messages"]}).status_code == 400
    assert not AppConnection.objects.exists()


def test_a_business_lists_and_ends_its_own_connections(
    tenant: Tenant, other_tenant: Tenant, member: User
) -> None:
    theirs = connection_of(other_tenant)
    tokens = tokens_of(member)
    own = AppConnection.objects.for_tenant(tenant.id).get()
    browser = logged_in(member_of(tenant, "owner"))
    page = browser.get("/console/connected-apps").content.decode()
    assert str(own.id) in page
    assert member.email in page
    assert str(theirs.id) not in page
    assert browser.post(f"/console/connected-apps/{theirs.id}/disconnect").status_code == 404
    browser.post(f"/console/connected-apps/{own.id}/disconnect")
    assert callers(tokens) == [None]
    assert list(AppConnection.objects.all()) == [theirs]


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "invalid_request"),
        ({"grant_type": "password", "client_id": "x"}, "unsupported_grant_type"),
        ({"grant_type": "authorization_code", "client_id": "x"}, "invalid_request"),
        (
            {"grant_type": "authorization_code", "client_id": "x", "code": "a\0", "redirect_uri": "x"},
            "invalid_request",
        ),
        ({"grant_type": "refresh_token", "client_id": CLIENT_ID, "refresh_token": "wbr_"}, "invalid_grant"),
        (
            {
                "grant_type": "refresh_token",
                "client_id": "x",
                "refresh_token": "x",
                "resource": "https://o.example",
            },
            "invalid_target",
        ),
    ],
)
def test_odd_requests_for_tokens_are_refused_in_oauths_form(form: dict[str, str], error: str) -> None:
    ConnectedAppClient.objects.create(pk=CLIENT_ID, name="Editor", redirect_uris=[])
    answer = post("/oauth/token", **form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert set(answer.json()) == {"error", "error_description"}
    assert Client().get("/oauth/token").status_code == 405
    twice = Client().post(
        "/oauth/token",
        "client_id=a&client_id=b&grant_type=refresh_token",
        content_type="application/x-www-form-urlencoded",
    )
    assert twice.json()["error"] == "invalid_request"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["code", "refresh"])
def test_of_two_uses_at_once_one_gets_tokens_that_end(member: User, kind: str) -> None:
    client = client_of()
    right = {"client_id": str(client.id), "redirect_uri": REDIRECT_URI, "verifier": VERIFIER}
    code = code_of(client, member)
    call = partial(connections.redeem_code, code=code, **right)
    if kind == "refresh":
        call = partial(connections.refresh, client_id=str(client.id), token=call().refresh)
    one, other = outcomes(call, call)
    given, refused = (one, other) if isinstance(one, Tokens) else (other, one)
    assert isinstance(refused, InvalidGrant)
    assert callers(given) == [None]
