"""What the machines share. Each runs inside a transaction, so the database's clock stands still: time passes by moving
what is stored.
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
"""Which of those that there are."""


class DatabaseAwayError(Exception):
    """The database went away within a step: nothing of the step may have happened."""


class Machine(RuleBasedStateMachine):
    """A business and its rows, which are gone afterwards. The database may go away between any two statements."""

    MOST_STATEMENTS = 10
    """About as many as a step has."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = ExitStack()
        self.rows.enter_context(shared_rows())
        self.tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        self.statements_left: int | None = None

    @rule(share=st.floats(0, 1, exclude_max=True))
    def lose_the_database(self, share: float) -> None:
        """Some statements of the next step come through."""
        self.statements_left = int(share * self.MOST_STATEMENTS)

    @contextmanager
    def database(self) -> Iterator[None]:
        """What a step asks of the product, on a database that may go away. Raises DatabaseAwayError."""
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
                # Outside a transaction of its own a single statement leaves nothing to roll back.
                transaction.set_rollback(False)
                raise DatabaseAwayError from error
            raise
        assert not is_away, "the step says that it was done, but a statement of it was not"

    def teardown(self) -> None:
        self.rows.close()


def unless_away(step: Callable[..., None]) -> Callable[..., None]:
    """A step whose model is untouched when the database goes away within it."""

    @wraps(step)
    def run(*arguments: Any, **drawn: Any) -> None:
        with suppress(DatabaseAwayError):
            step(*arguments, **drawn)

    return run


def one(things: Any, picked: int) -> Any:
    """The picked one of several."""
    things = list(things)
    return things[picked % len(things)]


def run_machine(machine: type[Machine], *, runs: int = 25) -> None:
    """Any order of steps ends as the machine's model says."""
    run_state_machine_as_test(machine, settings=settings(STEPS, max_examples=runs))
