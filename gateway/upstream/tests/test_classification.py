"""The gateway's status for each answer of Meta (upstream fact 2.5)."""

import hmac
from contextlib import nullcontext
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.api.errors import MetaUnreachable
from gateway.upstream.calls import AppSecretRefused, GraphAnswer, Verdict, classify, prepare, reply_of

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
SOON = 1
"""Seconds of Retry-After if Meta names no time. Never 0, which would make clients retry at once."""


def verdict_of(code: int | None, status: int = 400, *, usage: str = "{}") -> Verdict:
    body = {"error": {} if code is None else {"code": code}}
    return classify(GraphAnswer(status, orjson.dumps(body), {"X-Business-Use-Case-Usage": usage}, 1.0))


@pytest.mark.parametrize("code", [4, 17, 32, 613, 80007, 80008, 130429])
def test_throttling_codes_are_429_whatever_their_status(code: int) -> None:
    assert verdict_of(code) == Verdict(429, code, SOON)
    assert verdict_of(code, 403) == Verdict(429, code, SOON)


def test_the_pair_rate_waits_for_its_next_message() -> None:
    assert verdict_of(131056) == Verdict(429, 131056, 6)


@pytest.mark.parametrize("code", [131048, 131064, 133016])
def test_what_seconds_do_not_help_waits_an_hour(code: int) -> None:
    assert verdict_of(code) == Verdict(429, code, 3600)


@pytest.mark.parametrize("code", [0, 102, 190])
def test_token_problems_are_401(code: int) -> None:
    assert verdict_of(code) == Verdict(401, code)


def test_a_status_speaks_where_no_code_does() -> None:
    assert verdict_of(None, 429) == Verdict(429, None, SOON)
    assert verdict_of(None, 401) == Verdict(401, None)
    assert verdict_of(131026) == Verdict(400, 131026)


@pytest.mark.parametrize("code", [{}, [], [190], {"code": 190}, False, True, "190", 190.0, 4.0, None])
@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_code_that_is_no_integer_says_nothing(code: object, status: int) -> None:
    answer = GraphAnswer(status, orjson.dumps({"error": {"code": code}}), {}, 1.0)
    assert classify(answer) == Verdict(status, None)


@given(
    error=st.fixed_dictionaries({"code": ANY_JSON}, optional={"message": ANY_JSON}) | ANY_JSON,
    status=st.sampled_from([400, 401, 403, 429, 500, 503]),
    minutes=ANY_JSON,
)
@example(error={"code": {}}, status=400, minutes=0)
@example(error={"code": 4}, status=400, minutes=1e308)
def test_whatever_an_error_holds_it_is_an_answer(error: object, status: int, minutes: object) -> None:
    """A crash here would end a send with 500. Its idempotency key would answer 409 from then on."""
    usage = orjson.dumps({"1": [{"estimated_time_to_regain_access": minutes}]}).decode()
    answer = GraphAnswer(status, orjson.dumps({"error": error}), {"X-Business-Use-Case-Usage": usage}, 1.0)
    verdict = classify(answer)
    code = error.get("code") if isinstance(error, dict) else None
    assert verdict.status == status or type(code) is int
    assert verdict.code == (code if type(code) is int else None)
    assert verdict.retry_after is None or 1 <= verdict.retry_after <= 86_400


def test_the_usage_header_says_when_to_come_back() -> None:
    usage = '{"1": [{"estimated_time_to_regain_access": 2}, {"estimated_time_to_regain_access": 5}]}'
    assert verdict_of(80007, usage=usage).retry_after == 300
    for nonsense in ("no JSON", "[]", '{"1": [{"estimated_time_to_regain_access": -5}]}'):
        assert verdict_of(80007, usage=nonsense).retry_after == SOON


def test_an_empty_object_is_an_answer_where_it_is_no_error() -> None:
    """A number without settings is answered with `{}`."""
    assert classify(GraphAnswer(200, b"{}", {}, 1.0)) == Verdict(200, None)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"[]"),
        (200, b"<p>"),
        (300, b'{"a":1}'),
        (302, b"{}"),
        (399, b'{"error":{"code":1}}'),
        (500, b"{}"),
    ],
)
def test_what_says_nothing_is_no_usable_answer(status: int, body: bytes) -> None:
    with pytest.raises(MetaUnreachable):
        classify(GraphAnswer(status, body, {}, 1.0))


REFUSED_PROOF = "(#100) Invalid appsecret_proof provided in the API argument"


@pytest.mark.parametrize(
    ("code", "message", "is_refused"),
    [(100, REFUSED_PROOF, True), (190, REFUSED_PROOF, False), (100, "Invalid parameter", False)],
)
def test_a_refused_app_secret_is_the_services_own_fault(code: int, message: str, is_refused: bool) -> None:
    body = orjson.dumps({"error": {"code": code, "message": message}})
    with pytest.raises(AppSecretRefused) if is_refused else nullcontext():
        assert classify(GraphAnswer(400, body, {}, 1.0)).code == code


@pytest.mark.parametrize(
    ("code", "status", "is_unsent"),
    [
        *((code, 400, True) for code in (130429, 131056, 131048, 190, 0, 131057)),
        *((None, status, True) for status in (401, 429)),
        *((code, 400, False) for code in (100, 131026, 131047, 131000, 1, None)),
        *((None, status, False) for status in (403, 500, 503)),
    ],
)
def test_a_message_that_was_refused_for_another_reason_than_itself_may_be_sent_again(
    code: int | None, status: int, is_unsent: bool
) -> None:
    assert verdict_of(code, status).is_unsent is is_unsent


def test_an_answer_goes_to_the_caller_with_the_headers_of_its_kind() -> None:
    for sent, shown in (({"Content-Type": "text/x"}, "text/x"), ({}, "application/json")):
        answer = GraphAnswer(201, b'{"a" : 1}', {**sent, "X-Other": "y"}, 1.0)
        reply = reply_of(answer, classify(answer))
        assert (reply.status, reply.headers, reply.body) == (201, {"Content-Type": shown}, b'{"a" : 1}')
    common = {"Content-Type": "application/json", "X-Service-Error-Source": "meta"}
    for code, status, headers in (
        (131026, 400, {}),
        (190, 401, {"WWW-Authenticate": "Bearer"}),
        (131056, 429, {"Retry-After": "6"}),
    ):
        body = orjson.dumps({"error": {"code": code}})
        answer = GraphAnswer(400, body, {"Content-Type": "text/x"}, 1.0)
        reply = reply_of(answer, classify(answer))
        assert (reply.status, reply.headers) == (status, {**common, **headers})
        assert reply.body == b'{"source":"meta",' + body[1:]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("1/messages", "1/messages"),
        ("oauth/access_token", "oauth/access_token"),
        ("upload:MTphd", "upload:MTphd"),
        ("1?x=1&y", "1%3Fx%3D1%26y"),
        ("1#x", "1%23x"),
        ("a b/é", "a%20b/%C3%A9"),
    ],
)
def test_no_text_in_a_path_or_parameter_becomes_a_parameter_of_its_own(path: str, sent: str) -> None:
    call = prepare(environment="live", method="GET", path=path, token=None, params={"a&b": "c=d&e/é"})
    assert call.url.endswith(f"/v25.0/{sent}?a%26b=c%3Dd%26e%2F%C3%A9")
    bare = prepare(environment="live", method="GET", path=path, token=None)
    assert bare.url.endswith(f"/v25.0/{sent}")


def test_a_call_has_its_token_with_a_proof_and_a_type_for_its_body(settings: Any) -> None:
    settings.META_APP_SECRET, settings.SANDBOX_APP_SECRET = "of-meta", "of-the-sandbox"
    common = {"Accept": "application/json", "User-Agent": settings.SERVICE_NAME}
    for environment, secret in (("live", "of-meta"), ("test", "of-the-sandbox")):
        call = prepare(environment=environment, method="POST", path="1", token="t", body=b"{}")
        json_type = {"Content-Type": "application/json"}
        assert call.headers == {**common, "Authorization": "Bearer t", **json_type}
        assert call.url.endswith(f"/1?appsecret_proof={hmac.digest(secret.encode(), b't', 'sha256').hex()}")
    assert prepare(environment="live", method="GET", path="1", token=None).headers == common
