"""The circuit breaker over any sequence of results, and its figures in plain cases."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from webhooks.delivery.outcomes import circuit_breaker
from webhooks.delivery.outcomes.circuit_breaker import (
    FAILURES_IN_A_ROW,
    FIRST_WAIT,
    LONGEST_WAIT,
    WINDOW,
    AttemptResult,
    EndpointCounters,
)

START = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Step:
    """So many seconds later an attempt ends."""

    seconds: int
    ok: bool


steps = st.lists(st.builds(Step, st.integers(0, 2000), st.booleans()), max_size=80)


def attempted(figures: EndpointCounters, moment: datetime) -> bool:
    return figures.open_until is None or figures.open_until <= moment


@given(steps)
def test_whatever_comes_the_figures_stay_sound(sequence: list[Step]) -> None:
    figures, moment, in_a_row = EndpointCounters(), START, 0
    for step in sequence:
        moment += timedelta(seconds=step.seconds)
        before = figures
        figures = circuit_breaker.after(
            before, [AttemptResult(step.ok, probe=before.open_until is not None)], moment
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
        one_by_one = circuit_breaker.after(one_by_one, [AttemptResult(True, probe=True)], later)
    assert circuit_breaker.after(opened, [AttemptResult(True, probe=True)] * 3, later) == one_by_one
    assert one_by_one.window_attempts == 2


def test_half_of_twenty_in_five_minutes_open_it() -> None:
    alternating = [AttemptResult(number % 2 == 1) for number in range(20)]
    assert circuit_breaker.after(EndpointCounters(), alternating[:19], START).open_until is None
    figures = circuit_breaker.after(EndpointCounters(), [AttemptResult(True), *alternating[:19]], START)
    assert figures.open_until == START + FIRST_WAIT


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
        figures = circuit_breaker.after(figures, [AttemptResult(False, probe=True)], moment)
        assert figures.open_until is not None
        waits.append((figures.open_until - moment).total_seconds())
    assert waits == [60, 120, 240, 480, 900, 900, 900, 900]


def test_hopeless_after_five_days_and_twenty_failures_without_a_success() -> None:
    figures = circuit_breaker.after(EndpointCounters(), [AttemptResult(False)] * 20, START)
    assert not figures.hopeless(START + timedelta(days=4.9))
    assert figures.hopeless(START + timedelta(days=5))
    assert not circuit_breaker.after(EndpointCounters(), [AttemptResult(False)] * 19, START).hopeless(
        START + timedelta(days=9)
    )
    assert not circuit_breaker.after(figures, [AttemptResult(True)], START).hopeless(
        START + timedelta(days=9)
    )
