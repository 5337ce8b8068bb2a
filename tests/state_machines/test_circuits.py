"""Compares an endpoint's circuit breaker, after claims and results in any order, with a small model."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from gateway.clock import now
from gateway.outbound.connection import Answer
from tests.state_machines.machine import PICKED, Machine, run_machine, unless_away
from webhooks.delivery import retries_and_attempt_log
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
from webhooks.delivery.recorder import Outcome, record
from webhooks.models import Delivery, Endpoint
from webhooks.tests.publishing import endpoint_of, make

LEASE, FIRST_WAIT, LONGEST_WAIT, WINDOW = 60, 30, 900, 300
AT_ONCE = (0.0,) * 1000
"""A retry schedule without waits."""


@dataclass
class Circuit:
    """The model. It stays open for `open_for` seconds (None: closed). `window` has the results since `began`."""

    generation: int = 0
    opened: int = 0
    in_a_row: int = 0
    open_for: float | None = None
    window: list[bool] = field(default_factory=list)
    began: float = 0

    def ended(self, ok: bool, *, probe: bool) -> None:
        if ok:
            if self.open_for is not None:
                self.window = []
            else:
                self._count(ok)
            self.in_a_row, self.opened, self.open_for = 0, 0, None
            return
        self._count(ok)
        self.in_a_row += 1
        share = len(self.window) >= 20 and 2 * self.window.count(False) >= len(self.window)
        if probe or (self.open_for is None and (self.in_a_row >= 10 or share)):
            self.open_for = min(FIRST_WAIT * 2**self.opened, LONGEST_WAIT)
            self.opened, self.generation, self.window = self.opened + 1, self.generation + 1, []

    def _count(self, ok: bool) -> None:
        if not self.window or self.began >= WINDOW:
            self.window, self.began = [], 0
        self.window.append(ok)


class Circuits(Machine):
    """An open circuit allows no claim until its pause is over, and then one delivery as a probe. Late results change
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        endpoint_of(self.tenant, verified_at=now())
        self.model = Circuit()
        self.claims: list[Claimed] = []
        make(self.tenant, count=60)
        self.waiting = 60

    @rule(most=st.sampled_from([1, 5, 12]))
    @unless_away
    def claim(self, most: int) -> None:
        with self.database():
            claimed = claim(Room(most, most))
        if self.model.open_for is None:
            assert len(claimed) == min(most, self.waiting)
        else:
            assert len(claimed) == (self.model.open_for <= 0 and self.waiting > 0)
            self.model.open_for = LEASE if claimed else self.model.open_for
        for each in claimed:
            assert (each.probe, each.circuit_generation) == (
                self.model.open_for is not None,
                self.model.generation,
            )
        self.claims += claimed
        self.waiting -= len(claimed)

    @precondition(lambda self: self.claims)
    @rule(picked=PICKED, count=st.integers(1, 12), ok=st.booleans())
    @unless_away
    def record(self, picked: int, count: int, ok: bool) -> None:
        """Record the results of several claims together, some long after the claim."""
        start = picked % len(self.claims)
        ended = self.claims[start : start + count]
        answer = Answer(200 if ok else 500, None if ok else "http_5xx", 3, b"", None)
        outcomes = [
            Outcome(
                each.id,
                each.tenant_id,
                each.endpoint_id,
                each.attempts,
                retries_and_attempt_log.decide(answer, attempt=each.attempts + 1, steps=AT_ONCE),
                answer,
                probe=each.probe,
                circuit_generation=each.circuit_generation,
            )
            for each in ended
        ]
        with self.database():
            assert record(outcomes) == len(ended)
        del self.claims[start : start + count]
        self.waiting += 0 if ok else len(ended)
        for each in ended:
            if each.circuit_generation == self.model.generation:
                self.model.ended(ok, probe=each.probe)

    @rule(seconds=st.sampled_from([1, 29, 30, 60, 299, 900]))
    def wait(self, seconds: int) -> None:
        earlier = timedelta(seconds=seconds)
        Endpoint.objects.update(
            circuit_open_until=F("circuit_open_until") - earlier,
            window_started_at=F("window_started_at") - earlier,
        )
        self.model.began += seconds
        if self.model.open_for is not None:
            self.model.open_for -= seconds

    @invariant()
    def row_is_the_model(self) -> None:
        row = Endpoint.objects.get()
        assert (
            row.circuit_open_until is None,
            row.circuit_generation,
            row.circuit_opened,
            row.consecutive_failures,
            row.window_failures,
        ) == (
            self.model.open_for is None,
            self.model.generation,
            self.model.opened,
            self.model.in_a_row,
            self.model.window.count(False),
        )
        assert Delivery.objects.filter(status__in=("pending", "failed")).count() == self.waiting + len(
            self.claims
        )


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says() -> None:
    run_machine(Circuits, runs=10)
