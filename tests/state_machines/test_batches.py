"""Compares a batch's leases, items and results in any order with a small model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import orjson
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from gateway.api.errors import Conflict
from gateway.clock import now
from messaging.batches import held_batch, lifecycle
from messaging.batches.held_batch import BatchLeaseLost, ClaimedItem, Held
from messaging.models import BatchItem
from phone_numbers.models import BusinessAccount, PhoneNumber
from tests.state_machines.machine import PICKED, DatabaseAwayError, Machine, one, run_machine, unless_away


@dataclass
class ItemModel:
    """An item: `by` is the lease that claimed it."""

    status: Literal["pending", "accepted", "failed", "skipped"] = "pending"
    by: Any = None


@dataclass
class BatchModel:
    """A batch, the token of its lease, and whether the lease has expired."""

    items: list[ItemModel] = field(default_factory=lambda: [ItemModel() for _ in range(3)])
    status: Literal["queued", "cancelled", "completed"] = "queued"
    ended: bool = False
    token: Any = None
    expired: bool = False

    def skip_unclaimed(self) -> None:
        for item in self.items:
            if item.status == "pending" and item.by is None:
                item.status = "skipped"


class Batches(Machine):
    """A claimed item can be claimed again only after its holder releases it, or after a retry queues it because it
    certainly was not sent.
    """

    def __init__(self) -> None:
        super().__init__()
        account = BusinessAccount.objects.create(
            tenant=self.tenant, environment="live", waba_id="200", access_token="EAA"
        )
        PhoneNumber.objects.create(
            tenant=self.tenant,
            account=account,
            environment="live",
            phone_number_id="100",
            connection_state="connected",
        )
        messages = [
            {"to": f"+9198123456{place:02}", "type": "text", "text": {"body": "Hi"}} for place in range(3)
        ]
        raw = orjson.dumps({"from": "100", "messages": messages})
        self.batch = lifecycle.create(tenant_id=self.tenant.id, environment="live", raw=raw).batch
        self.model, self.runners, self.sent = BatchModel(), list[Held](), 0

    def runs(self, held: Held) -> bool:
        return held.lease == self.model.token and not self.model.ended

    @rule()
    @unless_away
    def lease(self) -> None:
        with self.database():
            held = held_batch.claim_batches(10)
        is_free = not self.model.ended and (self.model.token is None or self.model.expired)
        assert len(held) == is_free
        if held:
            self.model.token, self.model.expired = held[0].lease, False
            self.runners += held

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, count=st.integers(1, 2))
    @unless_away
    def take(self, picked: int, count: int) -> None:
        held = one(self.runners, picked)
        waiting = [
            idx for idx, item in enumerate(self.model.items) if (item.status, item.by) == ("pending", None)
        ]
        self._claimed(
            held,
            lambda: held_batch.take(held, first=0, count=count, country_code="91").items,
            waiting[:count] if self.model.status == "queued" else [],
        )

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED)
    @unless_away
    def take_over(self, picked: int) -> None:
        held = one(self.runners, picked)
        left = [
            idx
            for idx, item in enumerate(self.model.items)
            if item.status == "pending" and item.by is not None
        ]
        self._claimed(held, lambda: held_batch.take_over(held), left)

    def _claimed(self, held: Held, claim: Callable[[], list[ClaimedItem]], expected: list[int]) -> None:
        if not self.runs(held):
            with pytest.raises(BatchLeaseLost), self.database():
                claim()
            return
        with self.database():
            claimed = claim()
        assert sorted(item.idx for item in claimed) == expected
        self.model.expired = False
        for idx in expected:
            self.model.items[idx].by = held.lease

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, idx=st.integers(0, 2), accepted=st.booleans())
    @unless_away
    def record(self, picked: int, idx: int, accepted: bool) -> None:
        held, item = one(self.runners, picked), self.model.items[idx]
        self.sent += 1
        response = orjson.dumps(
            {"messages": [{"id": f"wamid.{self.sent}"}]} if accepted else {"error": {"code": 1}}
        )
        sent = ClaimedItem(idx, b'{"to": "+919812345600"}')
        outcome = held_batch.Outcome(
            response, accepted, 200 if accepted else 400, now(), retryable=not accepted
        )
        number = held_batch.number_of(held.tenant_id, held.environment, held.phone_number_id)
        with self.database():
            held_batch.record(held, number, [(sent, outcome)])
        if (item.status, item.by) == ("pending", held.lease):
            item.status = "accepted" if accepted else "failed"

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, idx=st.integers(0, 2))
    @unless_away
    def release(self, picked: int, idx: int) -> None:
        held, item = one(self.runners, picked), self.model.items[idx]
        try:
            with self.database():
                held_batch.release(held, [ClaimedItem(idx, b"")])
        except DatabaseAwayError:
            # `record_waiting` runs after the transaction of the release, so its failure leaves the batch released.
            if type(self.batch).objects.get().lease_token == self.model.token:
                return
        if held.lease == self.model.token:
            if (item.status, item.by) == ("pending", held.lease):
                item.by = None
            is_cancelled = self.model.status == "cancelled"
            if is_cancelled:
                self.model.skip_unclaimed()
            if is_cancelled and any(item.status == "pending" for item in self.model.items):
                self.model.expired = True
            else:
                self.model.token, self.model.ended = None, is_cancelled

    @precondition(lambda self: self.runners and all(item.status != "pending" for item in self.model.items))
    @rule(picked=PICKED)
    @unless_away
    def finish(self, picked: int) -> None:
        held = one(self.runners, picked)
        with self.database():
            held_batch.finish(held)
        if self.runs(held):
            self.model.status = "cancelled" if self.model.status == "cancelled" else "completed"
            self.model.ended, self.model.token = True, None

    @rule()
    @unless_away
    def cancel(self) -> None:
        if self.model.status != "queued":
            with pytest.raises(Conflict), self.database():
                lifecycle.cancel(self.batch)
            return
        with self.database():
            lifecycle.cancel(self.batch)
        self.model.status, self.model.ended = "cancelled", self.model.token is None
        self.model.skip_unclaimed()

    @rule()
    @unless_away
    def retry(self) -> None:
        failed = [item for item in self.model.items if item.status == "failed"]
        if self.model.status != "completed" or not failed:
            with pytest.raises(Conflict), self.database():
                lifecycle.retry(self.batch)
            return
        with self.database():
            lifecycle.retry(self.batch)
        self.model.status, self.model.ended = "queued", False
        for item in failed:
            item.status, item.by = "pending", None

    @precondition(lambda self: self.model.token is not None)
    @rule()
    def expire(self) -> None:
        type(self.batch).objects.update(lease_until=now() - timedelta(hours=1))
        self.model.expired = True

    @invariant()
    def rows_are_the_models(self) -> None:
        batch = type(self.batch).objects.get()
        counted = {"accepted": batch.accepted, "failed": batch.failed}
        statuses = [item.status for item in self.model.items]
        assert list(BatchItem.objects.order_by("idx").values_list("status", flat=True)) == statuses
        assert counted == {status: statuses.count(status) for status in counted}
        assert (batch.status, batch.completed_at is not None) == (self.model.status, self.model.ended)


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says() -> None:
    run_machine(Batches)
