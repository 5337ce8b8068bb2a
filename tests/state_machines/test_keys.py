"""Compares the uses of an idempotency key in any order with a small model."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from gateway.api.errors import MetaUnreachable, Reply
from gateway.database.statements import run
from messaging import idempotency
from messaging.idempotency import KeyUse
from tests.state_machines.machine import PICKED, Machine, one, run_machine, unless_away

DAY = 86_400


@dataclass
class FirstUse:
    """The first use of a key, its stored response, and its age in seconds."""

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
    """Within 24 hours, only the first use of a key sends. Every other use gets the outcome of the first use, or an
    error if its request differs.
    """

    MOST_STATEMENTS = 3

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[tuple[str, str], FirstUse] = {}

    @rule(
        environment=st.sampled_from(["live", "test"]),
        key=st.sampled_from(["a", "b"]),
        path=st.sampled_from(["/v1/messages", "/marketing_messages"]),
        body=st.sampled_from([b"1", b"2"]),
    )
    @unless_away
    def use(self, environment: str, key: str, path: str, body: bytes) -> None:
        use = KeyUse(self.tenant.id, environment, key, path, body)
        first = self.first.get((environment, key))
        says = first.says(use) if first and first.age <= DAY else None
        with self.database():
            found = run(idempotency.earlier(use)), run(idempotency.beginning(use))
        assert [said(earlier) for earlier in found] == [says, says]
        if says is None:
            self.first[environment, key] = FirstUse(use)

    @precondition(lambda self: self.first)
    @rule(picked=PICKED, answer=st.sampled_from([b"x", b"y"]))
    @unless_away
    def complete(self, picked: int, answer: bytes) -> None:
        first = one(self.first.values(), picked)
        with self.database():
            run(idempotency.completing(first.use, Reply(200, {}, answer)))
        first.answer = first.answer or answer

    @precondition(lambda self: self.first)
    @rule(picked=PICKED)
    @unless_away
    def release(self, picked: int) -> None:
        place = one(self.first, picked)
        with self.database():
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


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says() -> None:
    run_machine(Keys)
