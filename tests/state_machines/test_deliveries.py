"""Compares a delivery's claims and results in any order with a small model."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from gateway.clock import now
from gateway.outbound.connection import Answer
from tests.state_machines.machine import PICKED, Machine, one, run_machine, unless_away
from webhooks.delivery import retries_and_attempt_log
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
from webhooks.delivery.recorder import Outcome, record
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import endpoint_of

OPEN = ("pending", "failed")


@dataclass
class DeliveryModel:
    """A delivery. `due_in` is the seconds until its lease expires or its retry is due."""

    status: Literal["pending", "delivered", "failed", "dead"] = "pending"
    attempts: int = 0
    due_in: float = 0


class Deliveries(Machine):
    """One worker at a time claims each due delivery. Only the first result of an attempt counts."""

    LEASE = 60

    def __init__(self) -> None:
        super().__init__()
        endpoint_of(self.tenant, verified_at=now())
        self.model: dict[Any, DeliveryModel] = {}
        self.claims: list[Claimed] = []

    @precondition(lambda self: len(self.model) < 4)
    @rule()
    @unless_away
    def publish(self) -> None:
        with self.database():
            event_id = publish_one(self.tenant, f"k{len(self.model)}")
        self.model[Delivery.objects.get(event_id=event_id).id] = DeliveryModel()

    @rule()
    @unless_away
    def claim(self) -> None:
        with self.database():
            claimed = claim(Room(100, 100))
        due = {key: row for key, row in self.model.items() if row.status in OPEN and row.due_in <= 0}
        assert {each.id: each.attempts for each in claimed} == {key: row.attempts for key, row in due.items()}
        self.claims += claimed
        for row in due.values():
            row.due_in = self.LEASE

    @precondition(lambda self: self.claims)
    @rule(picked=PICKED, status=st.sampled_from([200, 500, None]))
    @unless_away
    def record(self, picked: int, status: int | None) -> None:
        """Record the result of any earlier claim, even a superseded one. Status None means that nothing was sent."""
        claimed = one(self.claims, picked)
        row = self.model[claimed.id]
        if status is None:
            answer, decision = None, retries_and_attempt_log.put_off(claimed.attempts)
        else:
            answer = Answer(status, None if status == 200 else "http_5xx", 3, b"", None)
            decision = retries_and_attempt_log.decide(
                answer, attempt=claimed.attempts + 1, steps=(30.0, 30.0)
            )
        counts = row.status in OPEN and row.attempts == claimed.attempts
        with self.database():
            counted = record(
                [
                    Outcome(
                        claimed.id, claimed.tenant_id, claimed.endpoint_id, claimed.attempts, decision, answer
                    )
                ]
            )
        assert counted == counts
        if counts:
            row.status, row.due_in = decision.status, decision.delay or 0
            row.attempts += answer is not None
        # Keep the circuit closed: `test_circuits.py` tests the circuit breaker.
        Endpoint.objects.update(circuit_open_until=None, consecutive_failures=0, window_started_at=None)

    @rule(seconds=st.sampled_from([1, 40, 60]))
    def wait(self, seconds: int) -> None:
        earlier = timedelta(seconds=seconds)
        Delivery.objects.update(
            next_attempt_at=F("next_attempt_at") - earlier, leased_until=F("leased_until") - earlier
        )
        for row in self.model.values():
            row.due_in -= seconds

    @invariant()
    def rows_are_the_models(self) -> None:
        stored = {row.id: (row.status, row.attempts) for row in Delivery.objects.all()}
        assert stored == {key: (row.status, row.attempts) for key, row in self.model.items()}
        assert all(row.attempts <= 3 for row in self.model.values())


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says() -> None:
    run_machine(Deliveries)
