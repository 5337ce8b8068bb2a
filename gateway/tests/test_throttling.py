"""The rate limit of processes: exact while a bucket is nearly empty, with few questions to Valkey while the bucket is
full.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
import redis

from gateway.api import limits
from gateway.api.authentication import Caller
from gateway.api.errors import RateLimited
from gateway.api.limits import KNOWN_SECONDS, MOST_OWED, RateAllowance
from gateway.valkey import token_bucket, write_behind
from gateway.valkey.token_bucket import BucketAnswer
from gateway.valkey.write_behind import MOST_PENDING, Debounced
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.usefixtures("empty_valkey")

SLOW = 0.001
"""A rate at which no token comes back during a test."""

TAKE = token_bucket.take

Later = Callable[[float], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Time stands still. Calling this lets seconds pass."""
    moment = [1000.0]

    def pass_(seconds: float) -> None:
        moment[0] += seconds

    monkeypatch.setattr(limits, "monotonic", lambda: moment[0])
    return pass_


def take(process: RateAllowance, burst: int = 400) -> BucketAnswer:
    return process.take("b", rate=SLOW, burst=burst)


@pytest.mark.parametrize("burst", [1, 2, 3, 20, 50])
def test_one_process_allows_exactly_the_burst(burst: int) -> None:
    process = RateAllowance()
    verdicts = [take(process, burst) for _ in range(burst + 2)]
    assert [verdict.allowed for verdict in verdicts] == [True] * burst + [False] * 2
    assert [verdict.remaining for verdict in verdicts] == [*range(burst - 1, -1, -1), 0, 0]
    assert verdicts[-1].retry_after > 900


def test_threads_of_a_process_exceed_the_burst_only_by_what_is_on_its_way() -> None:
    """Tokens on their way to Valkey are at most half of the burst, because the other half is asked for one by one."""
    process = RateAllowance()
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda _: take(process, 60), range(200)))
    assert 60 <= sum(verdict.allowed for verdict in verdicts) <= 60 + 60 // 2
    assert not take(process, 60).allowed


def test_an_answer_that_comes_late_is_no_news(monkeypatch: pytest.MonkeyPatch, later: Later) -> None:
    process = RateAllowance()
    take(process, 60)
    later(KNOWN_SECONDS)
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        answered, arrives = threading.Event(), threading.Event()

        def late(key: str, **values: Any) -> BucketAnswer:
            verdict = TAKE(key, **values)
            answered.set()
            assert arrives.wait(10)
            return verdict

        patch.setattr(token_bucket, "take", late)
        waiting = pool.submit(take, process, 60)
        assert answered.wait(10)
        patch.setattr(token_bucket, "take", TAKE)
        later(0.001)
        assert sum(take(process, 60).allowed for _ in range(100)) == 58
        arrives.set()
        assert waiting.result(10).remaining == 58, "as it was then"
    assert not take(process, 60).allowed


def test_what_is_on_its_way_to_valkey_counts_as_taken(monkeypatch: pytest.MonkeyPatch, later: Later) -> None:
    process = RateAllowance()
    for _ in range(1 + MOST_OWED):
        take(process, 60)
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        asks, arrives = threading.Event(), threading.Event()

        def late(key: str, **values: Any) -> BucketAnswer:
            asks.set()
            assert arrives.wait(10)
            return TAKE(key, **values)

        patch.setattr(token_bucket, "take", late)
        waiting = pool.submit(take, process, 60)
        assert asks.wait(10)
        patch.setattr(token_bucket, "take", TAKE)
        later(0.001)
        for _ in range(MOST_OWED + 1):
            take(process, 60)
        left = 60 - 1 - 2 * (MOST_OWED + 1)
        assert sum(process.recall("b", burst=60) is not None for _ in range(MOST_OWED)) == left - 60 // 2
        arrives.set()
        assert waiting.result(10).allowed


def test_many_processes_allow_too_much_only_by_what_they_may_owe() -> None:
    processes = [RateAllowance() for _ in range(4)]
    allowed = sum(take(processes[n % 4], 200).allowed for n in range(400))
    assert 200 <= allowed <= 200 + 3 * MOST_OWED
    assert not any(take(process, 200).allowed for process in processes)


def test_while_there_is_plenty_valkey_is_seldom_asked(empty_valkey: redis.Redis, later: Later) -> None:
    process = RateAllowance()
    empty_valkey.config_resetstat()
    assert [take(process).remaining for _ in range(110)] == [*range(399, 289, -1)]
    assert empty_valkey.info("commandstats")["cmdstat_eval"]["calls"] == 110 / (MOST_OWED + 1)


def test_what_is_owed_is_taken_at_the_next_asking(later: Later) -> None:
    process, other = RateAllowance(), RateAllowance()
    for _ in range(5):
        take(process)
    assert take(other).remaining == 398, "one was taken, four are owed"
    later(KNOWN_SECONDS)
    assert take(process).remaining == 393, "old news is asked for again"
    later(KNOWN_SECONDS)
    assert take(other).remaining == 392


def test_a_debt_that_the_bucket_cannot_pay_does_not_outlast_it(later: Later) -> None:
    """Other processes have emptied the bucket meanwhile. No caller waits longer than until the next token."""
    process, other = RateAllowance(), RateAllowance()
    for _ in range(1 + MOST_OWED):
        take(process, 40)
    while take(other, 40).allowed:
        later(KNOWN_SECONDS)
    verdict = take(process, 40)
    assert not verdict.allowed
    assert verdict.retry_after <= 1 / SLOW


def test_what_is_owed_is_booked_without_a_call_that_asks(
    empty_valkey: redis.Redis, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, other = RateAllowance(), RateAllowance()
    monkeypatch.setattr(write_behind, "_sources", [process.pending_writes])
    for key in "bc":
        for _ in range(6):
            process.take(key, rate=SLOW, burst=400)
    empty_valkey.config_resetstat()
    write_behind.flush()
    write_behind.flush()
    assert empty_valkey.info("commandstats")["cmdstat_eval"]["calls"] == 2, "each bucket's debt once"
    assert take(other).remaining == 393
    assert take(process).remaining == 393, (
        "its own 394 as they were booked: the other's call is not known here"
    )
    later(KNOWN_SECONDS)
    assert take(process).remaining == 391, "asked again"


def test_a_write_returns_what_other_processes_took(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    process, other = RateAllowance(), RateAllowance()
    monkeypatch.setattr(write_behind, "_sources", [process.pending_writes])
    take(process, 100)
    take(process, 100)
    while take(other, 100).allowed:
        pass
    write_behind.flush()
    assert not take(process, 100).allowed


def test_pending_writes_that_valkey_does_not_take_are_dropped(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = RateAllowance()
    monkeypatch.setattr(write_behind, "_sources", [process.pending_writes])
    take(process)
    take(process)

    def away() -> None:
        raise redis.exceptions.ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(write_behind, "valkey", away)
        write_behind.flush()
    assert process.pending_writes() == []
    assert take(process).allowed


def test_pending_writes_of_calls_that_do_not_ask_are_written_soon(empty_valkey: redis.Redis) -> None:
    limits.allowance.take("soon", rate=SLOW, burst=400)
    before = float(empty_valkey.get("soon") or 0)
    assert limits.allowance.recall("soon", burst=400) is not None
    deadline = time.monotonic() + 10
    while float(empty_valkey.get("soon") or 0) == before:
        assert time.monotonic() < deadline, "never booked"


def test_a_bucket_that_is_owed_much_is_booked_at_once(
    empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy caller never owes enough tokens to make its calls wait for Valkey."""
    monkeypatch.setattr(
        write_behind, "_debounced", Debounced(write_behind.flush, seconds=3600.0, collects=True)
    )
    limits.allowance.take("busy", rate=SLOW, burst=400)
    before = float(empty_valkey.get("busy") or 0)
    for _ in range(MOST_PENDING):
        assert limits.allowance.recall("busy", burst=400) is not None
    deadline = time.monotonic() + 10
    while float(empty_valkey.get("busy") or 0) == before:
        assert time.monotonic() < deadline, "not booked before its time"


class TestBytes:
    """Large bodies are counted in bytes, here for one caller."""

    CALLER = Caller("tenant_key", "live", app_id=UUID(int=7))
    MIB = 1024 * 1024

    @pytest.fixture(autouse=True)
    def _nothing_comes_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1024)
        monkeypatch.setattr(limits, "BYTES_AT_ONCE", 4 * self.MIB)
        monkeypatch.setattr(limits, "MOST_DEBT_SECONDS", 1_000_000.0)

    def send(self, size: int, caller: Caller = CALLER) -> None:
        limits.require_room_for_body(caller, size)

    def test_what_was_sent_is_waited_for(self) -> None:
        for _ in range(4):
            self.send(self.MIB)
        with pytest.raises(RateLimited) as refused:
            self.send(self.MIB)
        assert int(refused.value.headers["Retry-After"]) > 10
        self.send(limits.SMALL_BODY_BYTES)
        self.send(self.MIB, Caller("tenant_key", "live", app_id=UUID(int=8)))

    def test_one_larger_than_the_bucket_is_taken_and_paid_back(self) -> None:
        self.send(20 * self.MIB)
        waits = []
        for _ in range(2):
            with pytest.raises(RateLimited) as refused:
                self.send(self.MIB)
            waits.append(int(refused.value.headers["Retry-After"]))
        assert waits[0] > 16 * 1024, "16 MiB at 1 KiB a second"
        assert waits[1] <= waits[0], "a refusal takes nothing"

    def test_without_valkey_everything_is_allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(*_: Any, **__: Any) -> None:
            raise redis.exceptions.ConnectionError

        monkeypatch.setattr(token_bucket, "take", away)
        for _ in range(10):
            self.send(self.MIB)


@pytest.mark.django_db
def test_a_call_with_too_many_bytes_is_refused_before_its_body_is_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1024)
    monkeypatch.setattr(limits, "BYTES_AT_ONCE", limits.SMALL_BODY_BYTES)
    large = b'{"name":"' + b" " * 100_000 + b'"}'
    assert api.request("PATCH", "/v1/tenant", large).status_code == 400
    error = assert_error(api.request("PATCH", "/v1/tenant", large), 429, "rate_limited")
    assert error["details"] == {"limit_bytes_per_second": 1024}
    assert api.patch("/v1/tenant", {"name": "Small"}).status_code == 200


@pytest.mark.django_db
def test_a_body_that_is_too_large_takes_no_bytes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1024)
    monkeypatch.setattr(limits, "BYTES_AT_ONCE", limits.SMALL_BODY_BYTES)
    for size, status in ((2_000_000, 413), (100_000, 400)):
        assert api.request("PATCH", "/v1/tenant", b" " * size).status_code == status
