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
