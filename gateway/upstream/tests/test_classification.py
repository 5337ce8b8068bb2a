"""The gateway's status for each answer of Meta (upstream fact 2.5)."""

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.api.errors import MetaUnreachable
from gateway.upstream.calls import GraphAnswer, Verdict, classify

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


@pytest.mark.parametrize("code", [4, 17, 32, 613, 80007, 130429])
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
    ("status", "body"), [(200, b""), (200, b"[]"), (200, b"<p>"), (302, b"{}"), (500, b"{}")]
)
def test_what_says_nothing_is_no_usable_answer(status: int, body: bytes) -> None:
    with pytest.raises(MetaUnreachable):
        classify(GraphAnswer(status, body, {}, 1.0))
