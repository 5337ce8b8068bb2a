"""Circuit breaker of an endpoint: when it opens, how long it stays open, and when the endpoint is disabled.

The circuit opens after 10 consecutive failures, or when at least half of 20 or more attempts in 5 minutes failed. It
stays open for 30 s at first, and then twice as long each time, up to 15 min. Then one delivery is the probe, and its
success closes the circuit. If the probe says nothing about the endpoint, the next delivery is the probe. An attempt
that was in flight when the circuit opened is late. Its result describes the endpoint before the opening, so it neither
closes the circuit nor opens it again. If the endpoint was made active in the meantime, by its owner or a passed ping,
perhaps of another url, the attempt is outdated: it does not disable the endpoint either.

Pure functions: (counters, results) → counters (decision "Webhooks to customers").
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

FAILURES_IN_A_ROW = 10
WINDOW = timedelta(minutes=5)
WINDOW_ATTEMPTS = 20
FIRST_WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(minutes=15)

DISABLE_AFTER = timedelta(days=5)
DISABLE_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How one attempt ended. `probe` marks the attempt that an open circuit let through.

    `ok` is None for a probe that says nothing about the endpoint. `generation` is the circuit's generation when the
    delivery was claimed.
    """

    ok: bool | None
    probe: bool = False
    generation: int = 0


@dataclass(frozen=True, slots=True)
class EndpointCounters:
    """Counters of an endpoint's attempts, as its row stores them. `open_until` is None while the circuit is closed.

    `generation` counts all openings of the circuit, and how often the endpoint was made active.
    """

    consecutive_failures: int = 0
    failing_since: datetime | None = None
    last_success_at: datetime | None = None
    open_until: datetime | None = None
    opened: int = 0
    generation: int = 0
    window_started_at: datetime | None = None
    window_attempts: int = 0
    window_failures: int = 0

    def is_past_recovery(self, at: datetime) -> bool:
        """Whether the endpoint has failed for five days and at least 20 attempts in a row. It is then disabled when
        a delivery dies.
        """
        return (
            self.failing_since is not None
            and at - self.failing_since >= DISABLE_AFTER
            and self.consecutive_failures >= DISABLE_ATTEMPTS
        )


def is_outdated(attempt: int, *, generation: int, opened: int) -> bool:
    """Whether the endpoint was made active since an attempt of generation `attempt` was claimed. Also true if a success
    has closed the circuit since then.

    `generation` and `opened` are the endpoint's now. Openings of the circuit alone do not make an attempt outdated.
    """
    return attempt + opened < generation


def after(counters: EndpointCounters, results: Iterable[AttemptResult], at: datetime) -> EndpointCounters:
    """The counters after attempts that ended at about `at`, in order. A late success only sets `last_success_at`."""
    for (ok, generation), together in groupby(results, key=attrgetter("ok", "generation")):
        if ok is None:
            if generation == counters.generation and counters.open_until is not None:
                counters = replace(counters, open_until=at)
        elif not ok:
            for result in together:
                if generation == counters.generation:
                    counters = _failed(counters, at, probe=result.probe)
        elif generation == counters.generation:
            counters = _succeeded(counters, at, attempts=sum(1 for _ in together))
        else:
            counters = replace(counters, last_success_at=at)
    return counters


def _succeeded(counters: EndpointCounters, at: datetime, *, attempts: int) -> EndpointCounters:
    if counters.open_until is not None:
        # The new window does not count the probe that closed the circuit.
        counters = replace(counters, window_started_at=None, window_attempts=0, window_failures=0)
        attempts -= 1
    if attempts:
        counters = _counted(counters, at, attempts=attempts, failures=0)
    return replace(
        counters, consecutive_failures=0, failing_since=None, last_success_at=at, open_until=None, opened=0
    )


def _failed(counters: EndpointCounters, at: datetime, *, probe: bool) -> EndpointCounters:
    counters = replace(
        _counted(counters, at, attempts=1, failures=1),
        consecutive_failures=counters.consecutive_failures + 1,
        failing_since=counters.failing_since or at,
    )
    if counters.open_until is not None:
        # While the circuit is open, an attempt without `probe` is a replay of one delivery that the tenant requested.
        # Its failure does not open the circuit again.
        return _open(counters, at) if probe else counters
    half_failed = (
        counters.window_attempts >= WINDOW_ATTEMPTS
        and counters.window_failures * 2 >= counters.window_attempts
    )
    if counters.consecutive_failures >= FAILURES_IN_A_ROW or half_failed:
        return _open(counters, at)
    return counters


def _open(counters: EndpointCounters, at: datetime) -> EndpointCounters:
    wait = min(FIRST_WAIT * 2 ** min(counters.opened, 10), LONGEST_WAIT)
    return replace(
        counters,
        open_until=at + wait,
        opened=min(counters.opened + 1, 100),
        generation=counters.generation + 1,
        window_started_at=None,
        window_attempts=0,
        window_failures=0,
    )


def _counted(counters: EndpointCounters, at: datetime, *, attempts: int, failures: int) -> EndpointCounters:
    running = counters.window_started_at is not None and at - counters.window_started_at < WINDOW
    return replace(
        counters,
        window_started_at=counters.window_started_at if running else at,
        window_attempts=(counters.window_attempts if running else 0) + attempts,
        window_failures=(counters.window_failures if running else 0) + failures,
    )
