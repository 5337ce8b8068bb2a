"""Compares a message's status with a small model, after events in any order and grouping, repeated and interrupted."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.state_machines.machine import Machine, run_machine, unless_away
from webhooks.events.envelope import NewEvent
from webhooks.models import Event, Message
from webhooks.tests.messages import SECOND, outbound, status, write

ORDER = ["accepted", "sent", "delivered", "read", "failed"]
"""Statuses from the earliest to the furthest. A message shows the furthest."""
MESSAGES = [("live", "wamid.A"), ("live", "wamid.B"), ("test", "wamid.C")]
REPORTS = st.tuples(st.sampled_from(MESSAGES), st.sampled_from(ORDER), st.integers(0, 3)).map(
    # Meta may repeat a status with another time. `accepted` is one event, always at second 0.
    lambda report: report if report[1] != "accepted" else (*report[:2], 0)
)
"""A message, its reported status, and the seconds since the start."""


class Statuses(Machine):
    """A status keeps its earliest reported time. A message has its furthest status, whatever the order of reports."""

    def __init__(self) -> None:
        super().__init__()
        self.times: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self.seen: set[Any] = set()

    @rule(reports=st.lists(REPORTS, min_size=1, max_size=5))
    @unless_away
    def publish(self, reports: list[tuple[tuple[str, str], str, int]]) -> None:
        with self.database():
            write(self.tenant, [event(*message, name, at) for message, name, at in reports])
        for message, name, at in reports:
            self.seen.add((message, name, at))
            times = self.times[message]
            times[name] = min(at, times.get(name, at))

    @invariant()
    def rows_are_the_models(self) -> None:
        rows = {(row.environment, row.key): row for row in Message.objects.filter(tenant_id=self.tenant.id)}
        assert set(rows) == set(self.times)
        for place, times in self.times.items():
            row = rows[place]
            stored = {name: getattr(row, f"{name}_at") for name in ORDER}
            assert stored == {name: moment(times[name]) if name in times else None for name in ORDER}
            assert row.status == max(times, key=ORDER.index)
            assert (row.event_id is not None, row.template is not None) == ("accepted" in times,) * 2
        assert Event.objects.filter(tenant_id=self.tenant.id).count() == len(self.seen)


def event(environment: str, wamid: str, name: str, seconds: int) -> NewEvent:
    at_ms = (SECOND + seconds) * 1000
    if name == "accepted":
        return outbound(wamid, environment=environment, at_ms=at_ms)
    return status(name, wamid, environment=environment, at_ms=at_ms)


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(SECOND + seconds, UTC)


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says() -> None:
    run_machine(Statuses, runs=10)
