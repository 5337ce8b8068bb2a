"""Which first attempts show how late the dispatchers are, and which waited for their endpoint."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from gateway import ids
from webhooks.delivery.senders import FirstAttempts

BEGAN = 1_793_500_000.0


@pytest.fixture
def attempts() -> FirstAttempts:
    return FirstAttempts(BEGAN)


def delivery(created: float, *, generation: int = 1, probe: bool = False) -> Any:
    """A delivery that was created this many seconds after the dispatcher began."""
    return SimpleNamespace(
        id=ids.uuid7_at(round((BEGAN + created) * 1000)),
        endpoint_id=UUID(int=1),
        attempts=0,
        is_held=False,
        probe=probe,
        circuit_generation=generation,
        target=SimpleNamespace(takes_several=False),
    )


def test_a_late_first_attempt_counts_with_its_age(attempts: FirstAttempts) -> None:
    assert [attempts.age(delivery(created), BEGAN + 12) for created in (-8.0, 2.0, 12.0)] == [20, 10, 0]


def test_what_waited_for_the_end_of_a_pause_or_of_an_open_circuit_does_not_count(
    attempts: FirstAttempts,
) -> None:
    assert attempts.age(delivery(1), BEGAN + 1) == 0
    assert attempts.age(delivery(2, generation=2), BEGAN + 100) is None
    assert attempts.age(delivery(99, generation=2), BEGAN + 103) is None, "it was created before the end"
    assert attempts.age(delivery(101, generation=2), BEGAN + 103) == 2


def test_what_waited_for_a_probe_does_not_count(attempts: FirstAttempts) -> None:
    assert attempts.age(delivery(1), BEGAN + 1) == 0
    assert attempts.age(delivery(2, generation=2, probe=True), BEGAN + 100) is None
    assert attempts.age(delivery(101, generation=2), BEGAN + 110) is None
    assert attempts.age(delivery(111, generation=2), BEGAN + 112) == 1


def test_what_is_much_older_than_the_dispatcher_does_not_count(attempts: FirstAttempts) -> None:
    """The endpoint may have been paused, and the deliveries may have waited for a dispatcher to start."""
    assert attempts.age(delivery(-61), BEGAN + 1) is None
    assert attempts.age(delivery(-59), BEGAN + 1) == 60
