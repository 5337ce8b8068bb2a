"""The base class of the state machines. Each runs inside a transaction, where the database's clock stands still, so a
step lets time pass by moving the stored times.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import Any

from django.db import OperationalError, connection, transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tenants.models import Tenant
from tests.fixtures import shared_rows

STEPS = settings(stateful_step_count=25, database=None)
PICKED = st.integers(0, 99)
"""A random number with which `one` picks an object."""


class DatabaseAwayError(Exception):
    """The database failed during a step. The step must have changed nothing."""


class Machine(RuleBasedStateMachine):
    """A tenant and its rows, which the end of the run removes. The database may fail before any statement."""

    MOST_STATEMENTS = 10
    """The approximate number of statements of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = ExitStack()
        self.rows.enter_context(shared_rows())
        self.tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        self.statements_left: int | None = None

    @rule(share=st.floats(0, 1, exclude_max=True))
    def lose_the_database(self, share: float) -> None:
        """Let the database fail after some statements of the next step."""
        self.statements_left = int(share * self.MOST_STATEMENTS)

    @contextmanager
    def database(self) -> Iterator[None]:
        """Run a step's calls of the product while the database may fail. Raises DatabaseAwayError."""
        left, self.statements_left = self.statements_left, None
        is_away = False

        def execute(run: Callable[..., Any], statement: str, *arguments: Any) -> Any:
            nonlocal left, is_away
            if statement.startswith("ROLLBACK"):
                left = None
            if left == 0:
                left, is_away = None, True
                raise OperationalError("The database is away.")
            if left is not None:
                left -= 1
            return run(statement, *arguments)

        try:
            with connection.execute_wrapper(execute):
                yield
        except Exception as error:
            if is_away:
                # Outside a transaction, a single failed statement leaves nothing to roll back.
                transaction.set_rollback(False)
                raise DatabaseAwayError from error
            raise
        assert not is_away, "the step says that it was done, but a statement of it was not"

    def teardown(self) -> None:
        self.rows.close()


def unless_away(step: Callable[..., None]) -> Callable[..., None]:
    """Decorate a step: when the database fails during the step, its model stays unchanged."""

    @wraps(step)
    def run(*arguments: Any, **drawn: Any) -> None:
        with suppress(DatabaseAwayError):
            step(*arguments, **drawn)

    return run


def one(things: Any, picked: int) -> Any:
    """The object that the number picks."""
    things = list(things)
    return things[picked % len(things)]


def run_machine(machine: type[Machine], *, runs: int = 25) -> None:
    """Run the steps in many random orders. Each must end in the state of the machine's model."""
    run_state_machine_as_test(machine, settings=settings(STEPS, max_examples=runs))
