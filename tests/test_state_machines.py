"""Any order of steps against a model of a few lines: uses of a key, a delivery's claims and results, a batch's items.

Each runs inside a transaction, so the database's clock stands still: time passes by moving what is stored.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import orjson
import pytest
from django.db import connection
from django.db.models import F
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.api.errors import Conflict, MetaUnreachable, Reply
from gateway.clock import now
from gateway.database.statements import run
from gateway.outbound.connection import Answer
from messaging import idempotency
from messaging.batches import held_batch, lifecycle
from messaging.batches.held_batch import BatchLeaseLost, ClaimedItem, Held
from messaging.idempotency import KeyUse
from messaging.models import BatchItem
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from tests.fixtures import shared_rows
from webhooks.delivery import attempts
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim
from webhooks.delivery.recorder import Outcome, record
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import endpoint_of

STEPS = settings(max_examples=25, stateful_step_count=25, database=None)
DAY = 86_400
PICKED = st.integers(0, 99)
"""Which of those that there are."""


class Machine(RuleBasedStateMachine):
    """A business and its rows, which are gone afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = ExitStack()
        self.rows.enter_context(shared_rows())
        self.tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)

    def teardown(self) -> None:
        self.rows.close()


@dataclass
class FirstUse:
    """What the first use of a key was, and how many seconds ago."""

    use: KeyUse
    answer: bytes | None = None
    age: float = 0

    def says(self, use: KeyUse) -> Any:
        if (use.path, use.body_hash) != (self.use.path, self.use.body_hash):
            return idempotency.DifferentBody
        if self.answer is not None:
            return self.answer
        return MetaUnreachable if self.age > 30 else idempotency.InProgress


class Keys(Machine):
    """In 24 hours one use of a key sends; every other is told what became of it, or that it differs."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[tuple[str, str], FirstUse] = {}

    @rule(
        environment=st.sampled_from(["live", "test"]),
        key=st.sampled_from(["a", "b"]),
        path=st.sampled_from(["/v1/messages", "/marketing_messages"]),
        body=st.sampled_from([b"1", b"2"]),
    )
    def use(self, environment: str, key: str, path: str, body: bytes) -> None:
        use = KeyUse(self.tenant.id, environment, key, path, body)
        first = self.first.get((environment, key))
        says = first.says(use) if first and first.age <= DAY else None
        assert said(run(idempotency.earlier(use))) == says
        assert said(run(idempotency.beginning(use))) == says
        if says is None:
            self.first[environment, key] = FirstUse(use)

    @precondition(lambda self: self.first)
    @rule(picked=PICKED, answer=st.sampled_from([b"x", b"y"]))
    def complete(self, picked: int, answer: bytes) -> None:
        first = _one(self.first.values(), picked)
        run(idempotency.completing(first.use, Reply(200, {}, answer)))
        first.answer = first.answer or answer

    @precondition(lambda self: self.first)
    @rule(picked=PICKED)
    def release(self, picked: int) -> None:
        place = _one(self.first, picked)
        run(idempotency.releasing(self.first[place].use))
        if self.first[place].answer is None:
            del self.first[place]

    @rule(seconds=st.sampled_from([1, 29, 30, DAY - 30, DAY]))
    def wait(self, seconds: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE messaging_idempotencyrecord SET started_at = started_at - make_interval(secs => %s)",
                [seconds],
            )
        for first in self.first.values():
            first.age += seconds


def said(earlier: idempotency.Earlier | None) -> Any:
    return earlier.body if isinstance(earlier, Reply) else earlier and type(earlier)


@dataclass
class DeliveryModel:
    """A delivery: open until an attempt that counts says otherwise; `due_in` seconds, by its lease or its retry."""

    status: Literal["pending", "delivered", "failed", "dead"] = "pending"
    attempts: int = 0
    due_in: float = 0


class Deliveries(Machine):
    """What is due is claimed, by one worker at a time; of the results for one attempt the first counts."""

    LEASE = 60

    def __init__(self) -> None:
        super().__init__()
        endpoint_of(self.tenant, verified_at=now())
        self.model: dict[Any, DeliveryModel] = {}
        self.claims: list[Claimed] = []

    @precondition(lambda self: len(self.model) < 4)
    @rule()
    def publish(self) -> None:
        event_id = publish_one(self.tenant, f"k{len(self.model)}")
        self.model[Delivery.objects.get(event_id=event_id).id] = DeliveryModel()

    @rule()
    def claim(self) -> None:
        claimed = claim(Room(100, 100))
        due = {key: row for key, row in self.model.items() if row.status in OPEN and row.due_in <= 0}
        assert {each.id: each.attempts for each in claimed} == {key: row.attempts for key, row in due.items()}
        self.claims += claimed
        for row in due.values():
            row.due_in = self.LEASE

    @precondition(lambda self: self.claims)
    @rule(picked=PICKED, status=st.sampled_from([200, 500, None]))
    def record(self, picked: int, status: int | None) -> None:
        """The result of any claim there was: its worker may have been overtaken. Without a status nothing was sent."""
        claimed = _one(self.claims, picked)
        row = self.model[claimed.id]
        if status is None:
            answer, decision = None, attempts.put_off(claimed.attempts)
        else:
            answer = Answer(status, None if status == 200 else "http_5xx", 3, b"", None)
            decision = attempts.decide(answer, attempt=claimed.attempts + 1, steps=(30.0, 30.0))
        counts = row.status in OPEN and row.attempts == claimed.attempts
        assert (
            record([Outcome(claimed.id, claimed.endpoint_id, claimed.attempts, decision, answer)]) == counts
        )
        if counts:
            row.status, row.due_in = decision.status, decision.delay or 0
            row.attempts += answer is not None
        # The circuit breaker has a model of its own.
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


OPEN = ("pending", "failed")


@dataclass
class ItemModel:
    """An item: `by` is the lease that claimed it."""

    status: Literal["pending", "accepted", "failed", "skipped"] = "pending"
    by: Any = None


@dataclass
class BatchModel:
    """A batch: the token of its lease, and whether that has run out."""

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
    """An item is claimed once, until its own holder frees it or a retry queues what was certainly not sent."""

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
    def lease(self) -> None:
        held = held_batch.claim_batches(10)
        is_free = not self.model.ended and (self.model.token is None or self.model.expired)
        assert len(held) == is_free
        if held:
            self.model.token, self.model.expired = held[0].lease, False
            self.runners += held

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, count=st.integers(1, 2))
    def take(self, picked: int, count: int) -> None:
        held = _one(self.runners, picked)
        waiting = [
            idx for idx, item in enumerate(self.model.items) if (item.status, item.by) == ("pending", None)
        ]
        self._claimed(
            held,
            lambda: held_batch.take(held, first=0, count=count).items,
            waiting[:count] if self.model.status == "queued" else [],
        )

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED)
    def take_over(self, picked: int) -> None:
        held = _one(self.runners, picked)
        left = [
            idx
            for idx, item in enumerate(self.model.items)
            if item.status == "pending" and item.by is not None
        ]
        self._claimed(held, lambda: held_batch.take_over(held), left)

    def _claimed(self, held: Held, claim: Callable[[], list[ClaimedItem]], expected: list[int]) -> None:
        if not self.runs(held):
            with pytest.raises(BatchLeaseLost):
                claim()
            return
        assert sorted(item.idx for item in claim()) == expected
        self.model.expired = False
        for idx in expected:
            self.model.items[idx].by = held.lease

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, idx=st.integers(0, 2), accepted=st.booleans())
    def record(self, picked: int, idx: int, accepted: bool) -> None:
        held, item = _one(self.runners, picked), self.model.items[idx]
        self.sent += 1
        response = orjson.dumps(
            {"messages": [{"id": f"wamid.{self.sent}"}]} if accepted else {"error": {"code": 1}}
        )
        sent = ClaimedItem(idx, b'{"to": "+919812345600"}')
        outcome = held_batch.Outcome(
            response, accepted, 200 if accepted else 400, now(), retryable=not accepted
        )
        number = held_batch.number_of(held.tenant_id, held.environment, held.phone_number_id)
        held_batch.record(held, number, [(sent, outcome)])
        if (item.status, item.by) == ("pending", held.lease):
            item.status = "accepted" if accepted else "failed"

    @precondition(lambda self: self.runners)
    @rule(picked=PICKED, idx=st.integers(0, 2))
    def release(self, picked: int, idx: int) -> None:
        held, item = _one(self.runners, picked), self.model.items[idx]
        held_batch.release(held, [ClaimedItem(idx, b"")])
        if held.lease == self.model.token:
            if (item.status, item.by) == ("pending", held.lease):
                item.by = None
            self.model.token = None

    @precondition(lambda self: self.runners and all(item.status != "pending" for item in self.model.items))
    @rule(picked=PICKED)
    def finish(self, picked: int) -> None:
        held = _one(self.runners, picked)
        held_batch.finish(held)
        if self.runs(held):
            self.model.status = "cancelled" if self.model.status == "cancelled" else "completed"
            self.model.ended, self.model.token = True, None

    @rule()
    def cancel(self) -> None:
        if self.model.status != "queued":
            with pytest.raises(Conflict):
                lifecycle.cancel(self.batch)
            return
        lifecycle.cancel(self.batch)
        self.model.status, self.model.ended = "cancelled", self.model.token is None
        self.model.skip_unclaimed()

    @rule()
    def retry(self) -> None:
        failed = [item for item in self.model.items if item.status == "failed"]
        if self.model.status != "completed" or not failed:
            with pytest.raises(Conflict):
                lifecycle.retry(self.batch)
            return
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


def _one(things: Any, picked: int) -> Any:
    things = list(things)
    return things[picked % len(things)]


@pytest.mark.django_db
@pytest.mark.parametrize("machine", [Keys, Deliveries, Batches])
def test_any_order_of_steps_ends_as_the_model_says(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=STEPS)
