"""The circuit breaker: properties for any sequence of results, and exact counters in simple cases."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.endpoints import circuit_breaker
from webhooks.endpoints.circuit_breaker import (
    FAILURES_IN_A_ROW,
    FIRST_WAIT,
    LONGEST_WAIT,
    WINDOW,
    AttemptResult,
    EndpointCounters,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
LATE_SUCCESS, LATE_FAILURE = AttemptResult(True), AttemptResult(False)
"""Results of attempts that were claimed before the circuit first opened."""
PROBED = AttemptResult(True, probe=True, generation=1)


@dataclass(frozen=True)
class Step:
    """An attempt that ends this many seconds after the previous one."""

    seconds: int
    ok: bool


steps = st.lists(st.builds(Step, st.integers(0, 2000), st.booleans()), max_size=80)


def attempted(figures: EndpointCounters, moment: datetime) -> bool:
    return figures.open_until is None or figures.open_until <= moment


def probed(figures: EndpointCounters, *, ok: bool) -> AttemptResult:
    """The result of the probe that a circuit with these counters lets through."""
    return AttemptResult(ok, probe=True, generation=figures.generation)


@given(steps)
def test_whatever_comes_the_figures_stay_sound(sequence: list[Step]) -> None:
    figures, moment, in_a_row = EndpointCounters(), START, 0
    for step in sequence:
        moment += timedelta(seconds=step.seconds)
        before = figures
        figures = circuit_breaker.after(
            before,
            [AttemptResult(step.ok, probe=before.open_until is not None, generation=before.generation)],
            moment,
        )
        in_a_row = 0 if step.ok else in_a_row + 1
        assert figures.consecutive_failures == in_a_row
        assert (figures.failing_since is None) == (in_a_row == 0)
        assert 0 <= figures.window_failures <= figures.window_attempts
        if step.ok:
            assert (figures.open_until, figures.opened, figures.last_success_at) == (None, 0, moment)
        if in_a_row >= FAILURES_IN_A_ROW:
            assert figures.open_until is not None, "ten failures in a row always open it"
        if figures.open_until is not None and figures.open_until != before.open_until:
            wait = figures.open_until - moment
            assert wait == min(FIRST_WAIT * 2 ** (figures.opened - 1), LONGEST_WAIT)


@given(steps, st.integers(0, 9))
def test_a_batch_counts_as_its_results_one_by_one(sequence: list[Step], cut: int) -> None:
    results = [AttemptResult(step.ok) for step in sequence]
    once = circuit_breaker.after(EndpointCounters(), results, START)
    parts = circuit_breaker.after(
        circuit_breaker.after(EndpointCounters(), results[:cut], START), results[cut:], START
    )
    assert once == parts


def test_successes_together_close_a_circuit_as_they_would_one_by_one() -> None:
    opened = circuit_breaker.after(EndpointCounters(), [AttemptResult(False)] * FAILURES_IN_A_ROW, START)
    later = START + FIRST_WAIT
    one_by_one = opened
    for _ in range(3):
        one_by_one = circuit_breaker.after(one_by_one, [PROBED], later)
    assert circuit_breaker.after(opened, [PROBED] * 3, later) == one_by_one
    assert one_by_one.window_attempts == 2


def test_half_of_twenty_in_five_minutes_open_it() -> None:
    alternating = [AttemptResult(number % 2 == 1) for number in range(20)]
    assert circuit_breaker.after(EndpointCounters(), alternating[:19], START).open_until is None
    figures = circuit_breaker.after(EndpointCounters(), [AttemptResult(True), *alternating[:19]], START)
    assert figures.open_until == START + FIRST_WAIT


@pytest.mark.parametrize(("seconds", "opens"), [(299, True), (300, False)])
def test_attempts_count_together_for_five_minutes(seconds: int, opens: bool) -> None:
    half = [AttemptResult(number % 2 == 1) for number in range(18)]
    before = circuit_breaker.after(EndpointCounters(), half, START)
    two = [AttemptResult(True), AttemptResult(False)]
    figures = circuit_breaker.after(before, two, START + timedelta(seconds=seconds))
    assert (figures.open_until is not None) is opens


def opened_by_their_share() -> EndpointCounters:
    results = [AttemptResult(number % 2 == 1) for number in range(19)]
    return circuit_breaker.after(EndpointCounters(), [AttemptResult(True), *results], START)


def test_a_late_success_is_the_last_one_and_closes_nothing() -> None:
    opened, later = opened_by_their_share(), START + timedelta(seconds=3)
    after_it = circuit_breaker.after(opened, [LATE_SUCCESS, LATE_SUCCESS], later)
    assert after_it == replace(opened, last_success_at=later)
    closed = circuit_breaker.after(after_it, [PROBED], START + FIRST_WAIT)
    assert (closed.open_until, closed.opened) == (None, 0)


def test_what_ends_together_with_the_failure_that_opens_is_late() -> None:
    results = [AttemptResult(False)] * FAILURES_IN_A_ROW + [LATE_SUCCESS, LATE_FAILURE]
    figures = circuit_breaker.after(EndpointCounters(), results, START)
    assert (figures.open_until, figures.consecutive_failures) == (START + FIRST_WAIT, FAILURES_IN_A_ROW)


def test_late_failures_do_not_open_a_circuit_that_closed_meanwhile() -> None:
    closed = circuit_breaker.after(opened_by_their_share(), [PROBED], START + FIRST_WAIT)
    assert circuit_breaker.after(closed, [LATE_FAILURE] * 20, START + FIRST_WAIT) == closed
    fresh = AttemptResult(False, generation=1)
    reopened = circuit_breaker.after(closed, [fresh] * FAILURES_IN_A_ROW, START + FIRST_WAIT)
    assert reopened.open_until == START + 2 * FIRST_WAIT


def test_a_probe_that_a_newer_one_overtook_does_not_double_the_wait_again() -> None:
    probe = AttemptResult(False, probe=True, generation=1)
    once = circuit_breaker.after(opened_by_their_share(), [probe], START + FIRST_WAIT)
    assert circuit_breaker.after(once, [probe], START + 2 * FIRST_WAIT) == once


def test_a_single_replay_closes_an_open_circuit_and_never_lengthens_it() -> None:
    opened, later = opened_by_their_share(), START + timedelta(seconds=3)
    failed = circuit_breaker.after(opened, [AttemptResult(False, generation=1)], later)
    assert (failed.open_until, failed.opened) == (opened.open_until, 1)
    assert circuit_breaker.after(failed, [AttemptResult(True, generation=1)], later).open_until is None


def test_failures_of_an_earlier_window_do_not_count() -> None:
    old = circuit_breaker.after(
        EndpointCounters(), [AttemptResult(number % 2 == 1) for number in range(18)], START
    )
    later = circuit_breaker.after(old, [AttemptResult(False), AttemptResult(True)], START + WINDOW)
    assert (later.open_until, later.window_attempts) == (None, 2)


def test_late_failures_of_an_open_circuit_do_not_lengthen_it_but_a_failed_probe_doubles_it() -> None:
    figures = circuit_breaker.after(EndpointCounters(), [AttemptResult(False)] * 10, START)
    assert circuit_breaker.after(figures, [AttemptResult(False)] * 5, START).open_until == START + FIRST_WAIT
    waits = []
    moment = START
    for _ in range(8):
        assert figures.open_until is not None
        moment = figures.open_until
        figures = circuit_breaker.after(figures, [probed(figures, ok=False)], moment)
        assert figures.open_until is not None
        waits.append((figures.open_until - moment).total_seconds())
    assert waits == [60, 120, 240, 480, 900, 900, 900, 900]


def test_past_recovery_after_five_days_and_twenty_failures_without_a_success() -> None:
    figures = circuit_breaker.after(EndpointCounters(), [AttemptResult(False)] * FAILURES_IN_A_ROW, START)
    for _ in range(10):
        assert not figures.is_past_recovery(START + timedelta(days=9))
        figures = circuit_breaker.after(figures, [probed(figures, ok=False)], START)
    assert not figures.is_past_recovery(START + timedelta(days=4.9))
    assert figures.is_past_recovery(START + timedelta(days=5))
    assert not circuit_breaker.after(figures, [probed(figures, ok=True)], START).is_past_recovery(
        START + timedelta(days=9)
    )
