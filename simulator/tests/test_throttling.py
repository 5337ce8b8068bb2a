"""The token buckets, on the test's own clock."""

import contextlib
from typing import Any

import pytest

from simulator import throttling
from simulator.errors import GraphError
from simulator.settings import Throttling
from simulator.throttling import Throttle
from simulator.world.records import Number


class Clock:
    """A clock that moves on request."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttling, "time", clock)
    return clock


def number(**values: Any) -> Number:
    return Number("1", "2", "919800000001", "+91 98000 00001", "Shop", **values)


def taken(throttle: Throttle, sender: Number, attempts: int) -> int:
    """The number of attempts that the throttle admits."""
    passed = 0
    for _ in range(attempts):
        with contextlib.suppress(GraphError):
            throttle.take_send(sender)
            passed += 1
    return passed


@pytest.mark.parametrize(
    ("sender", "rate"),
    [
        (number(), 80),
        (number(throughput="HIGH"), 1000),
        (number(throughput="HIGH", is_on_biz_app=True), 20),
    ],
)
def test_a_number_sends_at_its_level(clock: Clock, sender: Number, rate: int) -> None:
    throttle = Throttle(Throttling())
    assert taken(throttle, sender, rate + 50) == rate
    clock.now += 0.5
    assert taken(throttle, sender, rate) == rate // 2
    clock.now += 10
    assert taken(throttle, sender, rate + 50) == rate


def test_a_pair_has_a_burst_and_then_one_in_six_seconds(clock: Clock) -> None:
    throttle = Throttle(Throttling())
    for _ in range(45):
        throttle.take_pair(number(), "919812345678")
    with pytest.raises(GraphError, match="131056"):
        throttle.take_pair(number(), "919812345678")
    throttle.take_pair(number(), "919812345679")
    clock.now += 6
    throttle.take_pair(number(), "919812345678")
    with pytest.raises(GraphError, match="131056"):
        throttle.take_pair(number(), "919812345678")


def test_management_calls_have_an_hourly_limit(clock: Clock) -> None:
    throttle = Throttle(Throttling())
    for _ in range(200):
        usage, is_within = throttle.take_call("100", registered=False)
        assert is_within
    assert usage is not None
    assert usage["100"][0]["call_count"] == 100
    usage, is_within = throttle.take_call("100", registered=False)
    assert usage is not None
    assert 0 < usage["100"][0]["estimated_time_to_regain_access"] <= 60
    assert not is_within
    assert throttle.take_call("100", registered=True)[1]
    clock.now += 3600
    assert throttle.take_call("100", registered=False)[1]
