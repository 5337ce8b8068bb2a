"""Pacing: turns, sharing, throttling and recovery. The test moves the clock."""

import time
from itertools import pairwise
from typing import Any

import pytest
import redis

from gateway.valkey import token_bucket, write_behind
from gateway.valkey.write_behind import Debounced
from messaging import pacing
from messaging.pacing import Pacer


class Clock:
    """A fake of the monotonic clock that the tested module uses."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("messaging.pacing.time", clock)
    return clock


def taken(pacer: Pacer, count: int) -> list[float]:
    turns: list[float] = []
    while len(turns) < count:
        turns += pacer.turns()
    return turns[:count]


def test_turns_are_evenly_apart_at_the_rate(clock: Clock) -> None:
    turns = taken(Pacer(phone_number_id="1", rate=80), 200)
    gaps = [after - before for before, after in pairwise(turns)]
    assert min(gaps) >= 1 / 80 - 1e-3
    assert turns[-1] - turns[0] == pytest.approx(199 / 80, rel=0.02)


def test_two_pacers_of_one_number_share_its_rate_and_of_two_numbers_do_not(clock: Clock) -> None:
    one, two, other = (Pacer(phone_number_id=number, rate=80) for number in "112")
    for _ in range(40):
        one.turns()
        two.turns()
        other.turns()
    assert one.turns()[0] - clock.now == pytest.approx(80 * 3 / 80, rel=0.1)
    assert other.turns()[0] - clock.now == pytest.approx(40 * 3 / 80, rel=0.1)


def test_a_batch_waits_at_most_an_hour_for_other_batches_of_its_number(clock: Clock) -> None:
    slow, other = (Pacer(phone_number_id="1", rate=1 / 10_000) for _ in range(2))
    slow.turns()
    assert 3_590 < other.turns()[0] - clock.now <= 3_600


def test_single_sends_delay_a_batch_by_at_most_a_second(clock: Clock) -> None:
    for _ in range(40):
        pacing.count_send(phone_number_id="1", rate=80)
    write_behind.flush()
    assert Pacer(phone_number_id="1", rate=80).turns()[0] - clock.now == pytest.approx(0.5, abs=0.1)
    for _ in range(400):
        pacing.count_send(phone_number_id="1", rate=80)
    write_behind.flush()
    assert Pacer(phone_number_id="1", rate=80).turns()[0] - clock.now == pytest.approx(1.0, abs=0.15)


def test_a_burst_of_single_sends_is_counted_at_once(
    empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        write_behind, "_debounced", Debounced(write_behind.flush, seconds=3600.0, collects=True)
    )
    for _ in range(write_behind.MOST_PENDING):
        pacing.count_send(phone_number_id="1", rate=80)
    deadline = time.monotonic() + 10
    while not empty_valkey.exists("pace:1"):
        assert time.monotonic() < deadline, "a batch of the number goes on as if nothing had been sent"


def test_turns_that_nobody_used_are_lost(clock: Clock, empty_valkey: redis.Redis) -> None:
    pacer = Pacer(phone_number_id="1", rate=80)
    taken(pacer, 10)
    clock.now += 60
    empty_valkey.flushdb()
    turns = taken(pacer, 80)
    assert turns[0] >= clock.now
    assert turns[-1] - turns[0] == pytest.approx(79 / 80, rel=0.05)


def test_without_valkey_the_pace_is_kept_alone_and_valkey_is_left_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def refuse(*_: Any, **__: Any) -> float:
        asked.append(clock.now)
        raise redis.exceptions.TimeoutError

    monkeypatch.setattr(token_bucket, "reserve", refuse)
    pacer = Pacer(phone_number_id="1", rate=80)
    turns = taken(pacer, 240)
    assert turns[-1] - turns[0] == pytest.approx(239 / 80)
    assert len(asked) == 1
    clock.now += pacing.ALONE_SECONDS
    pacer.turns()
    assert len(asked) == 2
    pacing.count_send(phone_number_id="1", rate=80)
    write_behind.flush()


def test_throttling_halves_for_a_minute_and_climbs_back_by_steps(clock: Clock) -> None:
    pacer = Pacer(phone_number_id="1", rate=80)
    pacer.throttled()
    pacer.throttled()
    assert pacer.pace() == 40, "what comes within a second is one incident"
    clock.now += 2
    pacer.throttled()
    assert pacer.pace() == 20
    clock.now += 59.75
    assert pacer.pace() == 20
    clock.now += 0.25
    assert pacer.pace() == pytest.approx(28), "the minute is over"
    clock.now += 5
    assert pacer.pace() == pytest.approx(36)
    clock.now += 60
    assert pacer.pace() == 80
    pacer.throttled()
    assert pacer.pace() == 40, "the pace of earlier incidents is forgotten"


def test_throttling_never_stops_a_batch(clock: Clock) -> None:
    pacer = Pacer(phone_number_id="1", rate=80)
    for _ in range(50):
        pacer.throttled()
        clock.now += 2
    assert pacer.pace() == 80 * pacing.SLOWEST
    assert len(pacer.turns()) == 1
