"""Circuit breaker of an endpoint. Pure functions: (counters, results) → counters (decision "Webhooks to customers").

Opens at 10 consecutive failures, or when half of at least 20 attempts in 5 minutes failed; waits 30 s doubling to
15 min; then one delivery probes, and success closes it. Attempts that were in flight when it opened are late: how they
end says what the endpoint was like before, so they neither close the circuit nor open it again.
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
    """How one attempt ended; `probe` marks the one that an open circuit let through.

    `generation` is the circuit's at the attempt's claim.
    """

    ok: bool
    probe: bool = False
    generation: int = 0


@dataclass(frozen=True, slots=True)
class EndpointCounters:
    """Counters of an endpoint's attempts, as its row keeps them. `open_until` is None while the circuit is closed.

    `generation` counts how often the circuit opened in all.
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

    def hopeless(self, at: datetime) -> bool:
        """Five days without one success and at least 20 attempts: with a dead delivery the endpoint is disabled."""
        return (
            self.failing_since is not None
            and at - self.failing_since >= DISABLE_AFTER
            and self.consecutive_failures >= DISABLE_ATTEMPTS
        )


def after(figures: EndpointCounters, results: Iterable[AttemptResult], at: datetime) -> EndpointCounters:
    """The figures after attempts that ended at about `at`, in their order. A late success counts as the last one."""
    for (ok, generation), together in groupby(results, key=attrgetter("ok", "generation")):
        if not ok:
            for result in together:
                if generation == figures.generation:
                    figures = _failed(figures, at, probe=result.probe)
        elif generation == figures.generation:
            figures = _succeeded(figures, at, attempts=sum(1 for _ in together))
        else:
            figures = replace(figures, last_success_at=at)
    return figures


def _succeeded(figures: EndpointCounters, at: datetime, *, attempts: int) -> EndpointCounters:
    if figures.open_until is not None:
        # The probe that closes the circuit is not counted in the window that then begins.
        figures = replace(figures, window_started_at=None, window_attempts=0, window_failures=0)
        attempts -= 1
    if attempts:
        figures = _counted(figures, at, attempts=attempts, failures=0)
    return replace(
        figures, consecutive_failures=0, failing_since=None, last_success_at=at, open_until=None, opened=0
    )


def _failed(figures: EndpointCounters, at: datetime, *, probe: bool) -> EndpointCounters:
    figures = replace(
        _counted(figures, at, attempts=1, failures=1),
        consecutive_failures=figures.consecutive_failures + 1,
        failing_since=figures.failing_since or at,
    )
    if figures.open_until is not None:
        # A single replay is its customer's own try, and may fail as often as they like.
        return _open(figures, at) if probe else figures
    half_failed = (
        figures.window_attempts >= WINDOW_ATTEMPTS and figures.window_failures * 2 >= figures.window_attempts
    )
    if figures.consecutive_failures >= FAILURES_IN_A_ROW or half_failed:
        return _open(figures, at)
    return figures


def _open(figures: EndpointCounters, at: datetime) -> EndpointCounters:
    wait = min(FIRST_WAIT * 2 ** min(figures.opened, 10), LONGEST_WAIT)
    return replace(
        figures,
        open_until=at + wait,
        opened=min(figures.opened + 1, 100),
        generation=figures.generation + 1,
        window_started_at=None,
        window_attempts=0,
        window_failures=0,
    )


def _counted(figures: EndpointCounters, at: datetime, *, attempts: int, failures: int) -> EndpointCounters:
    running = figures.window_started_at is not None and at - figures.window_started_at < WINDOW
    return replace(
        figures,
        window_started_at=figures.window_started_at if running else at,
        window_attempts=(figures.window_attempts if running else 0) + attempts,
        window_failures=(figures.window_failures if running else 0) + failures,
    )
