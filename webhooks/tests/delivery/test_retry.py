"""The retry schedule: its jitter, Retry-After, 410, the last step."""

from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from gateway.outbound.client import Answer
from webhooks.delivery.retries_and_attempt_log import JITTER, Decision, decide

STEPS = settings.WEBHOOK_RETRY_SCHEDULE


def answer(status: int | None, retry_after: float | None = None) -> Answer:
    error = None if status is not None and 200 <= status < 300 else "timeout"
    return Answer(status, error, 3, b"", retry_after)


def test_the_schedule_of_the_documentation() -> None:
    assert STEPS == [5, 30, 120, 600, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert round(sum(STEPS) / 3600) == 76


@given(st.integers(1, len(STEPS)), st.sampled_from([None, 302, 404, 429, 500, 503]))
def test_every_step_is_within_its_jitter(attempt: int, status: int | None) -> None:
    decision = decide(answer(status), attempt=attempt, steps=STEPS)
    assert decision.status == "failed"
    assert decision.delay is not None
    assert STEPS[attempt - 1] * (1 - JITTER) <= decision.delay <= STEPS[attempt - 1] * (1 + JITTER)


def test_delays_differ() -> None:
    assert len({decide(answer(500), attempt=4, steps=STEPS).delay for _ in range(20)}) > 1


@given(st.integers(12, 100))
def test_after_the_last_step_it_is_dead(attempt: int) -> None:
    assert decide(answer(500), attempt=attempt, steps=STEPS) == Decision("dead")


@given(st.integers(200, 299), st.integers(1, 20))
def test_a_taken_delivery_is_delivered(status: int, attempt: int) -> None:
    assert decide(answer(status), attempt=attempt, steps=STEPS) == Decision("delivered")


@given(st.sampled_from([429, 503]), st.floats(0, 10_000_000))
def test_retry_after_lengthens_the_wait_up_to_the_longest_step(status: int, wait: float) -> None:
    delay = decide(answer(status, wait), attempt=1, steps=STEPS).delay
    assert delay is not None
    asked = min(wait, max(STEPS))
    assert max(asked, STEPS[0] * (1 - JITTER)) <= delay <= max(asked, STEPS[0] * (1 + JITTER))


def test_retry_after_of_another_status_is_ignored() -> None:
    delay = decide(answer(500, 3600.0), attempt=1, steps=STEPS).delay
    assert delay is not None
    assert delay <= 6


def test_gone_is_dead_at_once_and_says_so() -> None:
    assert decide(answer(410), attempt=1, steps=STEPS) == Decision("dead", gone=True)
