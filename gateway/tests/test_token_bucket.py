"""The token bucket: a burst, then the rate, which all callers of the bucket share."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from gateway.valkey import token_bucket

pytestmark = pytest.mark.usefixtures("empty_valkey")


def test_a_full_bucket_gives_its_burst_and_then_names_the_wait() -> None:
    taken = [token_bucket.take("b", rate=0.1, burst=5) for _ in range(6)]
    assert [verdict.allowed for verdict in taken] == [True] * 5 + [False]
    assert [verdict.remaining for verdict in taken] == [4, 3, 2, 1, 0, 0]
    assert 9 < taken[5].retry_after <= 10
    assert 49 < taken[5].reset_after <= 50


def test_many_takers_at_once_get_no_more_than_the_burst() -> None:
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda _: token_bucket.take("b", rate=0.01, burst=20), range(100)))
    assert sum(verdict.allowed for verdict in verdicts) == 20


def test_buckets_are_apart_and_leave_valkey_when_full(empty_valkey: redis.Redis) -> None:
    assert token_bucket.take("one", rate=10, burst=1).allowed
    assert token_bucket.take("two", rate=10, burst=1).allowed
    assert 0 < int(empty_valkey.pttl("one")) <= 1_200


def test_a_bucket_stays_until_it_is_full(empty_valkey: redis.Redis) -> None:
    """Otherwise a caller who pauses would have the whole burst again."""
    taken = [token_bucket.take("b", rate=0.1, burst=5) for _ in range(5)]
    assert taken[-1].reset_after * 1000 <= int(empty_valkey.pttl("b")) <= 51_000
    assert token_bucket.reserve("r", rate=0.1, tokens=5, at_most_ahead=3600) == 0
    assert 49_000 < int(empty_valkey.pttl("r")) <= 51_000


def test_a_reservation_is_never_refused_and_waits_for_those_before_it() -> None:
    def reserve(tokens: int) -> float:
        return round(token_bucket.reserve("b", rate=0.001, tokens=tokens, at_most_ahead=7000), -2)

    assert [reserve(each) for each in (2, 3, 100, 1)] == [0, 2000, 5000, 7000], "no debt is longer"


def test_owed_tokens_are_taken_first_as_far_as_the_bucket_has_them() -> None:
    assert token_bucket.take("b", rate=0.001, burst=5, owed=2).remaining == 2
    refused = token_bucket.take("b", rate=0.001, burst=5, owed=9)
    assert (refused.allowed, refused.remaining, round(refused.retry_after, -2)) == (False, 0, 1000)
