"""Which status the gateway answers for an answer of the upstream (upstream fact 2.5)."""

import orjson
import pytest

from gateway.api.errors import MetaUnreachable
from gateway.upstream.calls import GraphAnswer
from gateway.upstream.judging import Verdict, judge

SOON = 1
"""Seconds of Retry-After where the upstream says nothing of when: never 0, which would make clients hammer."""


def judged(code: int | None, status: int = 400, *, usage: str = "{}") -> Verdict:
    body = {"error": {} if code is None else {"code": code}}
    return judge(GraphAnswer(status, orjson.dumps(body), {"X-Business-Use-Case-Usage": usage}, 1.0))


@pytest.mark.parametrize("code", [4, 17, 32, 613, 80007, 130429])
def test_throttling_codes_are_429_whatever_their_status(code: int) -> None:
    assert judged(code) == Verdict(429, code, SOON)
    assert judged(code, 403) == Verdict(429, code, SOON)


def test_the_pair_rate_waits_for_its_next_message() -> None:
    assert judged(131056) == Verdict(429, 131056, 6)


@pytest.mark.parametrize("code", [131048, 131064, 133016])
def test_what_seconds_do_not_help_waits_an_hour(code: int) -> None:
    assert judged(code) == Verdict(429, code, 3600)


@pytest.mark.parametrize("code", [0, 102, 190])
def test_token_problems_are_401(code: int) -> None:
    assert judged(code) == Verdict(401, code)


def test_a_status_speaks_where_no_code_does() -> None:
    assert judged(None, 429) == Verdict(429, None, SOON)
    assert judged(None, 401) == Verdict(401, None)
    assert judged(131026) == Verdict(400, 131026)


def test_the_usage_header_says_when_to_come_back() -> None:
    usage = '{"1": [{"estimated_time_to_regain_access": 2}, {"estimated_time_to_regain_access": 5}]}'
    assert judged(80007, usage=usage).retry_after == 300
    assert judged(80007, usage="no JSON").retry_after == SOON


def test_an_empty_object_is_an_answer_where_it_is_no_error() -> None:
    """A number without settings answers `{}`."""
    assert judge(GraphAnswer(200, b"{}", {}, 1.0)) == Verdict(200, None)


@pytest.mark.parametrize(
    ("status", "body"), [(200, b""), (200, b"[]"), (200, b"<p>"), (302, b"{}"), (500, b"{}")]
)
def test_what_says_nothing_is_no_usable_answer(status: int, body: bytes) -> None:
    with pytest.raises(MetaUnreachable):
        judge(GraphAnswer(status, body, {}, 1.0))
