"""`/v1/connect-sessions` and the hosted page of a session, without a browser."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from gateway.api import limits
from gateway.api.errors import Conflict
from gateway.api.limits import Bulkhead
from gateway.clock import now
from phone_numbers.hosted_connect import sessions
from phone_numbers.hosted_connect.pages import SDK_URL, sdk_url_for
from phone_numbers.hosted_connect.sessions import problem_of, with_result
from phone_numbers.models import BusinessAccount, ConnectSession
from phone_numbers.tests.test_connection import in_threads
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator

RETURN_URL = "https://shop.example/connected?order=7"


def make(api: Api, return_url: str = RETURN_URL) -> dict[str, Any]:
    answer = api.post("/v1/connect-sessions", {"return_url": return_url})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def shown(api: Api, made: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = api.get(f"/v1/connect-sessions/{made['id']}").json()
    return body


class Browser:
    """A business's browser on the hosted page: it keeps cookies, the CSRF token and the page's state."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.path = urlsplit(made["url"]).path
        self.opened: Any = self.client.get(self.path)
        context = self.opened.context
        self.state = context["state"] if context and "state" in context else None
        self.csrf = str(context["csrf_token"]) if context and "csrf_token" in context else ""

    def answer(self, *, csrf: str | None = None, **body: Any) -> Any:
        return self.client.post(
            f"{self.path}/answer",
            json.dumps({"state": self.state, **body}),
            content_type="application/json",
            headers={"X-CSRFToken": self.csrf if csrf is None else csrf},
        )


@pytest.mark.django_db
def test_a_session_is_open_for_an_hour(api: Api) -> None:
    made = make(api)
    assert list(made) == ["id", "url", "expires_at", "status"]
    assert made["id"].startswith("cs_")
    assert made["url"].startswith("http://127.0.0.1:8000/connect/")
    body = shown(api, made)
    assert body == {
        **made,
        "return_url": RETURN_URL,
        "created_at": body["created_at"],
        "completed_at": None,
        "waba_id": None,
        "phone_number_ids": [],
        "error": None,
    }
    session = ConnectSession.objects.get()
    assert session.expires_at - session.created_at == pytest.approx(
        timedelta(hours=1), abs=timedelta(seconds=1)
    )


@pytest.mark.django_db
def test_sessions_of_the_other_environment_do_not_exist(api: Api, tenant: Tenant) -> None:
    test_api = Api(api_keys.create(name="test", environment="test", tenant=tenant).key)
    body = {"return_url": "https://shop.example/done"}
    for maker, stranger in ((api, test_api), (test_api, api)):
        made = maker.post("/v1/connect-sessions", body).json()
        assert maker.get(f"/v1/connect-sessions/{made['id']}").status_code == 200
        assert_error(stranger.get(f"/v1/connect-sessions/{made['id']}"), 404, "not_found")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "return_url",
    [
        None,
        "",
        "/relative",
        "//shop.example/x",
        "http://shop.example/x",
        "javascript:alert(1)",
        "https:///x",
        "https://user@shop.example/",
        "https://shop.example\\@evil.example/",
        "https://shop.example/\r\nSet-Cookie:x",
        "https://shop.example:port/",
        "https://bücher.example/",
        "https://shop.example/" + "x" * 2048,
        7,
    ],
)
def test_a_bad_return_url_is_refused(api: Api, return_url: Any) -> None:
    answer = api.post("/v1/connect-sessions", {"return_url": return_url})
    error = assert_error(answer, 400, "invalid_request")
    assert list(error["details"]["fields"]) == ["return_url"]


@given(st.text(max_size=40), st.text(max_size=10))
def test_an_accepted_address_never_changes_its_host(path: str, query: str) -> None:
    url = f"https://shop.example/{path}?{query}"
    if problem_of(url) is None:
        sent = with_result(url, session_id="cs_1", status="connected")
        assert sent.startswith("https://shop.example/")
        assert urlsplit(sent).query.endswith("session_id=cs_1&status=connected")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example", "https://a.example?session_id=cs_1&status=failed"),
        ("https://a.example/x?a=1&b=", "https://a.example/x?a=1&b=&session_id=cs_1&status=failed"),
        ("https://a.example/?status=connected", "https://a.example/?session_id=cs_1&status=failed"),
        ("https://a.example/?%73tatus=x&a", "https://a.example/?a&session_id=cs_1&status=failed"),
        (
            "https://a.example/?x=%FF%fe&q=a%20b+c&&s=a/b",
            "https://a.example/?x=%FF%fe&q=a%20b+c&&s=a/b&session_id=cs_1&status=failed",
        ),
        ("http://localhost:3000/#part", "http://localhost:3000/?session_id=cs_1&status=failed#part"),
    ],
)
def test_the_result_joins_the_query(url: str, expected: str) -> None:
    assert problem_of(url) is None
    assert with_result(url, session_id="cs_1", status="failed") == expected


@pytest.mark.parametrize(
    ("environment", "is_simulated", "sdk_url"),
    [("live", False, SDK_URL), ("live", True, "http://sim/sdk.js"), ("test", False, "http://sim/sdk.js")],
)
def test_the_sdk_is_metas_but_where_the_simulator_serves(
    settings: Any, environment: str, is_simulated: bool, sdk_url: str
) -> None:
    settings.SANDBOX_SIGNUP_SDK_URL = "http://sim/sdk.js"
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL if is_simulated else "https://graph.facebook.com"
    assert sdk_url_for(environment) == sdk_url


@pytest.mark.django_db
def test_the_page_allows_nothing_inline_and_nothing_foreign_but_the_sdk(api: Api) -> None:
    page = Browser(make(api)).opened
    assert page.status_code == 200
    policy = page["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'self' https://connect.facebook.net;" in policy
    assert "frame-ancestors 'none'" in policy
    assert page["Cross-Origin-Opener-Policy"] == "same-origin-allow-popups"
    assert "no-store" in page["Cache-Control"]
    text = page.content.decode()
    assert "Asha Traders" in text
    assert " style=" not in text
    assert "<style" not in text
    assert "onclick" not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("is_simulated", "sdk", "foreign"),
    [
        (False, "https://connect.facebook.net", "https://connect.facebook.net https://*.facebook.com"),
        (True, "http://sim:9", "http://sim:9"),
    ],
)
def test_the_pages_policy_names_the_origins_of_the_sign_up_alone(
    api: Api, settings: Any, is_simulated: bool, sdk: str, foreign: str
) -> None:
    settings.SANDBOX_SIGNUP_SDK_URL = "http://sim:9/sdk.js"
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL if is_simulated else "https://graph.facebook.com"
    browser = Browser(make(api))
    assert browser.opened["Content-Security-Policy"] == (
        f"default-src 'none'; script-src 'self' {sdk}; style-src 'self'; img-src 'self' data: {foreign}; "
        f"connect-src 'self' {foreign}; frame-src {foreign}; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    ConnectSession.objects.update(expires_at=now())
    policy = browser.client.get(browser.path)["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "connect-src 'self'; frame-src 'none';" in policy
    assert "no-store" in browser.answer(code="c", waba_id="1")["Cache-Control"]


@pytest.mark.django_db
def test_a_finished_sign_up_goes_back_connected(api: Api, simulator: RunningSimulator) -> None:
    account, made = simulator.account(), make(api)
    browser = Browser(made)
    answer = browser.answer(
        code=account.code, waba_id=account.waba_id, phone_number_id=account.phone_number_id
    )
    back = f"https://shop.example/connected?order=7&session_id={made['id']}&status=connected"
    assert (answer.status_code, answer.json()) == (200, {"status": "connected", "redirect": back})
    body = shown(api, made)
    assert (body["status"], body["waba_id"]) == ("connected", account.waba_id)
    assert body["phone_number_ids"] == [account.phone_number_id]
    assert body["completed_at"] is not None
    assert body["error"] is None
    again = browser.client.get(browser.path)
    assert (again.status_code, again["Location"]) == (302, back)
    repeated = browser.answer(code="another", waba_id="1")
    assert repeated.json() == {"status": "connected", "redirect": back}
    assert api.get(f"/v1/numbers/{account.phone_number_id}").status_code == 200


@pytest.mark.django_db
def test_a_sign_up_without_a_number_imports_the_accounts_numbers(
    api: Api, simulator: RunningSimulator
) -> None:
    account, made = simulator.account(2), make(api)
    assert Browser(made).answer(code=account.code, waba_id=account.waba_id).json()["status"] == "connected"
    assert shown(api, made)["phone_number_ids"] == account.phone_number_ids


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("variant", "source", "code"),
    [("no_messaging", "whabuzz", "invalid_request"), (None, "meta", 100)],
)
def test_a_refused_sign_up_goes_back_failed(
    api: Api, simulator: RunningSimulator, variant: str | None, source: str, code: Any
) -> None:
    account, made = simulator.account(variant=variant or "default"), make(api)
    given_code = account.code if variant else "nonsense"
    answer = Browser(made).answer(
        code=given_code, waba_id=account.waba_id, phone_number_id=account.phone_number_id
    )
    assert answer.json()["status"] == "failed"
    assert answer.json()["redirect"].endswith(f"session_id={made['id']}&status=failed")
    body = shown(api, made)
    assert body["status"] == "failed"
    assert (body["error"]["source"], body["error"]["code"]) == (source, code)


@pytest.mark.django_db
def test_the_token_in_the_upstreams_words_is_shown_to_nobody(api: Api, graph: ScriptedGraph) -> None:
    error = {"error": {"message": "Error validating token EAAsecret1: expired", "code": 190}}
    graph.answers("GET", "/oauth/access_token", error, status=400)
    made = make(api)
    assert Browser(made).answer(code="a", waba_id="1", phone_number_id="2").json()["status"] == "failed"
    assert shown(api, made)["error"]["message"] == "Error validating token EAA…: expired"


@pytest.mark.django_db
def test_a_silent_upstream_leaves_it_open_and_the_same_answer_finishes_it(
    api: Api, simulator: RunningSimulator
) -> None:
    account, made = simulator.account(), make(api)
    simulator.faults({"action": "reset", "match": {"path": "/subscribed_apps"}, "times": 1})
    browser = Browser(made)
    given_answer = {
        "code": account.code,
        "waba_id": account.waba_id,
        "phone_number_id": account.phone_number_id,
    }
    first = browser.answer(**given_answer)
    assert (first.status_code, first.json()) == (503, {"retry": True})
    assert shown(api, made)["status"] == "open"
    assert browser.answer(**given_answer).json()["status"] == "connected"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "code"), [({}, "cancelled"), ({"reason": "Name not allowed"}, "signup_error")]
)
def test_leaving_goes_back_failed(api: Api, body: dict[str, str], code: str) -> None:
    made = make(api)
    assert Browser(made).answer(**body).json()["status"] == "failed"
    assert shown(api, made)["error"]["code"] == code


@pytest.mark.django_db
def test_an_expired_link_shows_a_clear_page_and_takes_nothing(api: Api) -> None:
    made = make(api)
    browser = Browser(made)
    ConnectSession.objects.update(expires_at=now() - timedelta(seconds=1))
    page = browser.client.get(browser.path)
    assert page.status_code == 410
    assert "This link has expired" in page.content.decode()
    assert browser.answer(code="c", waba_id="1").status_code == 410
    body = shown(api, made)
    assert (body["status"], body["error"]) == ("expired", None)


@pytest.mark.django_db
@pytest.mark.parametrize("status", ConnectSession.Status.values)
def test_only_an_open_session_expires(api: Api, status: str) -> None:
    made = make(api)
    for left, expected in (
        (timedelta(minutes=1), status),
        (timedelta(), "expired" if status == "open" else status),
    ):
        ConnectSession.objects.update(status=status, expires_at=now() + left)
        assert shown(api, made)["status"] == expected


@pytest.mark.django_db
@pytest.mark.parametrize("link", ["nonsense", "cs_01M7YD7S84EEG9GNJDG03D6N7Z.signature"])
def test_a_link_that_is_none_of_ours_is_unknown(link: str) -> None:
    client = Client()
    assert client.get(f"/connect/{link}").status_code == 404
    assert client.post(f"/connect/{link}/answer", {}).status_code == 404


@pytest.mark.django_db
def test_another_sessions_link_cannot_be_made_from_ones_own(api: Api, other_api: Api) -> None:
    mine, theirs = make(api), make(other_api)
    forged = mine["url"].replace(mine["id"], theirs["id"])
    assert Client().get(urlsplit(forged).path).status_code == 404


@pytest.mark.django_db
def test_a_forged_state_or_csrf_token_is_refused(api: Api) -> None:
    one, two = make(api), make(api)
    browser = Browser(one)
    assert browser.answer(csrf="x" * 64).status_code == 403
    assert browser.answer(state=Browser(two).state).status_code == 403
    assert browser.answer(state="cs_1.x").status_code == 403
    stranger = Browser(one)
    stranger.client.cookies.clear()
    assert stranger.answer().status_code == 403
    assert shown(api, one)["status"] == "open"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "body", [{"code": "c"}, {"code": "c", "waba_id": "../x"}, {"code": 5.5, "waba_id": []}]
)
def test_an_answer_that_the_page_never_sends_is_refused(api: Api, body: dict[str, Any]) -> None:
    made = make(api)
    browser = Browser(made)
    assert browser.answer(**body).status_code == 400
    for content in (b"{", b"[]", b"\xff"):
        csrf = {"X-CSRFToken": browser.csrf}
        path = f"{browser.path}/answer"
        assert browser.client.post(path, content, "application/json", headers=csrf).status_code == 400
    assert shown(api, made)["status"] == "open"


@pytest.mark.django_db
def test_a_suspended_business_connects_nothing(api: Api, tenant: Tenant) -> None:
    made = make(api)
    browser = Browser(made)
    Tenant.objects.filter(pk=tenant.pk).update(status=Tenant.Status.SUSPENDED)
    assert browser.client.get(browser.path).status_code == 403
    assert browser.answer().status_code == 403
    assert ConnectSession.objects.get().status == "open"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "code", "answered", "session"),
    [
        (400, 190, 200, "failed"),
        (403, 10, 200, "failed"),
        (400, 4, 503, "open"),
        (500, 131000, 503, "open"),
        (503, 2, 503, "open"),
    ],
)
def test_a_session_stays_open_while_meta_is_busy_or_in_trouble(
    api: Api, graph: ScriptedGraph, status: int, code: int, answered: int, session: str
) -> None:
    graph.answers(
        "GET", "/oauth/access_token", {"error": {"code": code, "message": "m" * 600}}, status=status
    )
    made = make(api)
    browser = Browser(made)
    for _ in range(2):
        assert browser.answer(code="a", waba_id="1", phone_number_id="2").status_code == answered
    body = shown(api, made)
    failed = session == "failed"
    assert body["status"] == session
    assert body["error"] == ({"source": "meta", "code": code, "message": "m" * 500} if failed else None)
    assert (body["completed_at"] is not None) is failed
    assert len(graph.received) == (1 if failed else 2)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/oauth/access_token", {"code": 1, "message": "Error validating client secret."}),
        ("/oauth/access_token", {"code": 101, "message": "Error validating application."}),
        ("/debug_token", {"code": 190, "message": "Invalid OAuth access token signature."}),
    ],
)
def test_a_refused_app_secret_is_nobodys_token_and_ends_no_session(
    api: Api, graph: ScriptedGraph, path: str, error: dict[str, Any]
) -> None:
    graph.answers("GET", path, {"error": error}, status=400)
    graph.answers("GET", "/oauth/access_token", {"access_token": "EAAx"})
    answer = api.post("/v1/numbers/connect", {"waba_id": "1", "code": "c"})
    assert assert_error(answer, 502, "meta_unreachable")["details"]["reason"] == "app_secret_refused"
    graph.script.clear()
    graph.answers("GET", path, {"error": error}, status=400)
    made = make(api)
    assert Browser(made).answer(code="c", waba_id="1", phone_number_id="2").status_code == 503
    assert shown(api, made)["status"] == "open"


@pytest.mark.django_db
@pytest.mark.parametrize("body", [{"reason": "CANCEL"}, {"code": "c", "waba_id": "1029384756"}])
def test_an_answer_while_another_is_worked_on_is_to_be_repeated(api: Api, body: dict[str, Any]) -> None:
    made = make(api)
    browser = Browser(made)
    ConnectSession.objects.update(finishing_until=now() + sessions.FINISHING)
    answer = browser.answer(**body)
    assert (answer.status_code, answer.json()) == (409, {"retry": True})
    assert shown(api, made)["status"] == "open"


@pytest.mark.django_db
def test_the_reason_of_leaving_is_kept_up_to_500_characters(api: Api) -> None:
    for reason, error in (
        (
            None,
            {"source": "whabuzz", "code": "cancelled", "message": "The customer left without connecting."},
        ),
        ("r" * 501, {"source": "meta", "code": "signup_error", "message": "r" * 500}),
    ):
        made = make(api)
        Browser(made).answer(reason=reason)
        assert shown(api, made)["error"] == error


@pytest.mark.django_db
@pytest.mark.parametrize("status", [status for status in Tenant.Status.values if status != "active"])
def test_only_an_active_business_connects(api: Api, tenant: Tenant, status: str) -> None:
    browser = Browser(make(api))
    Tenant.objects.filter(pk=tenant.pk).update(status=status)
    assert browser.client.get(browser.path).status_code == 403
    answer = browser.answer()
    assert (answer.status_code, answer.json()) == (403, {"error": "unavailable"})


@pytest.mark.django_db
def test_only_the_open_sessions_of_a_tenants_environment_are_limited(
    api: Api, tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_OPEN", 2)
    row = {
        "tenant": tenant,
        "environment": "live",
        "return_url": RETURN_URL,
        "expires_at": now() + timedelta(hours=1),
    }
    for other in (
        {"tenant": other_tenant},
        {"environment": "test"},
        {"status": "connected"},
        {"status": "failed"},
        {"expires_at": now()},
    ):
        ConnectSession.objects.create(**{**row, **other})
    ConnectSession.objects.create(**{**row, "expires_at": now() + timedelta(seconds=90)})
    make(api)
    answer = api.post("/v1/connect-sessions", {"return_url": RETURN_URL})
    assert assert_error(answer, 429, "rate_limited")["details"] == {"limit": 2}
    assert 60 < int(answer["Retry-After"]) <= 90, "when the first one ends"


@pytest.mark.django_db(transaction=True)
def test_two_answers_at_once_are_worked_on_one_after_the_other(
    tenant: Tenant, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three more results arrive while the first is processed."""
    account = simulator.account([{"registered": False}])
    session = sessions.create(tenant_id=tenant.id, environment="live", return_url=RETURN_URL)
    outcomes: list[str] = []
    onboard = sessions._onboard

    def finish() -> None:
        try:
            ended = sessions.finish(
                session,
                code=account.code,
                waba_id=account.waba_id,
                phone_number_id=account.phone_number_id,
            )
            outcomes.append(ended.status)
        except Conflict:
            outcomes.append("conflict")

    def meeting(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(sessions, "_onboard", onboard)
        in_threads(*[finish] * 3)
        return onboard(*args, **kwargs)

    monkeypatch.setattr(sessions, "_onboard", meeting)
    finish()
    assert outcomes == ["conflict", "conflict", "conflict", "connected"]
    assert BusinessAccount.objects.count() == 1
    assert simulator.calls(account.phone_number_id).count("POST register") == 1


@pytest.mark.django_db
def test_sign_ups_of_one_tenant_hold_a_bounded_number_of_threads(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(make(api))
    monkeypatch.setattr(limits, "upstream", Bulkhead(per_number=1, per_tenant=0, crowded=1, in_all=1))
    answer = browser.answer(code="code", waba_id="1029384756", phone_number_id=None)
    assert (answer.status_code, answer.json()) == (503, {"retry": True})
    assert ConnectSession.objects.get().status == ConnectSession.Status.OPEN


def test_an_answer_that_took_too_long_frees_no_newer_claim_and_changes_no_end(api: Api) -> None:
    make(api)
    session = ConnectSession.objects.get()
    newer = now() + timedelta(minutes=5)
    with sessions._working_on(session) as claimed:
        assert claimed is not None
        ConnectSession.objects.update(finishing_until=newer)
    assert ConnectSession.objects.get().finishing_until == newer
    ended = sessions._end(session, status=ConnectSession.Status.CONNECTED)
    again = sessions._end(session, status=ConnectSession.Status.FAILED)
    assert (again.status, again.completed_at) == ("connected", ended.completed_at)
