"""Transactions: no network call inside one, lock time-outs of tasks, and which errors mean a database that is away."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg import Connection, errors
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

# --- Guard of network calls: none is made inside a database transaction.
#
# A call to the outside can take many seconds; a transaction held open meanwhile keeps locks and a connection
# that everybody else waits for. Every synchronous call to the network (upstream client, pings, website
# checks) asks here first, so a flow that gets it wrong fails in its first test instead of under load.

log = structlog.get_logger(__name__)


class NetworkInTransactionError(RuntimeError):
    """A network call was about to be made while a database transaction was open."""


def assert_no_transaction() -> None:
    """Raise `NetworkInTransactionError` when the database connection of this thread is in an atomic block.

    The block that a test case wraps around each test does not count; one opened inside it does.
    """
    if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        raise NetworkInTransactionError("Network call inside a transaction: commit first.")


def after_commit(work: Callable[[], None]) -> None:
    """Do something when the current transaction commits, if it does; at once where there is none. Errors are logged.

    Django's `on_commit` would open a connection first, only to see that it has no transaction.
    """
    if connection.in_atomic_block:
        transaction.on_commit(work, robust=True)
        return
    try:
        work()
    except Exception:
        log.exception("after_commit_failed")


def leave_database() -> None:
    """Before a network call: no transaction may be open, and a pooled connection goes back to serve others meanwhile.

    A process without a pool keeps its one connection: nobody else waits for it.
    """
    assert_no_transaction()
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.connection is not None and not database.in_atomic_block and database.pool is not None:
        database.close()


# --- Lock limit of tasks: a row that a hung transaction keeps costs a task seconds, not the time until that
# one ends.
#
# A task walks over the rows of many tenants. Without a limit the first row that another transaction holds
# would stop the rest, and a worker has few threads. With it the statement raises `LockNotAvailable`, which
# `outage.concerns_all` tells from an outage: the walk goes on with the next row, and the next run tries
# again.

LOCK_WAIT = "2s"
"""How long a statement of a task waits for a row. Two transactions of the service meet for milliseconds."""


@contextmanager
def limited_locks() -> Iterator[None]:
    """Within the block, statements on Django's connection wait at most `LOCK_WAIT` for a lock."""
    with connection.execute_wrapper(_limit):
        yield


def _limit(
    execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Set the limit at the begin of each transaction: a session's own would stay behind in a pooler's connection."""
    connected: Connection[Any] = context["cursor"].cursor.connection
    if connected.info.transaction_status != TransactionStatus.IDLE:
        return execute(statement, params, many, context)
    if not connected.autocommit:
        connected.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        return execute(statement, params, many, context)
    if isinstance(statement, str) and statement.lstrip()[:6].upper() == "SELECT":
        return execute(statement, params, many, context)
    with transaction.atomic():
        connected.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        return execute(statement, params, many, context)


# --- Which exceptions of a statement tell that the database is away, and which concern one row alone.

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)
"""Unreachable, restarting, out of disk, or no pooled connection free in time. Postgres names a few troubles of a single
statement by the same exceptions: see `concerns_all`."""
_OF_ONE_STATEMENT = (
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.QueryCanceled,
)
"""A limit, a lock or a time-out that a statement met. The next one may do well, on the same connection."""
_OF_THE_DATABASE = (errors.ReadOnlySqlTransaction, errors.UndefinedTable, errors.InsufficientPrivilege)
"""No row brings these about. A former primary after a fail-over is read-only. Tables are hidden from a connection whose
`search_path` another program changed behind a pooler, and in a database whose restore is not over."""


def is_outage(error: BaseException) -> bool:
    """Whether the database is away, takes no writes, or shows no tables."""
    return isinstance(error, DATABASE_UNAVAILABLE) or isinstance(error.__cause__, _OF_THE_DATABASE)


def concerns_all(error: BaseException) -> bool:
    """Whether an error would meet the next row too: the database is away. A loop over rows ends at no other."""
    return is_outage(error) and not isinstance(_of_driver(error), _OF_ONE_STATEMENT)


def is_lock_limit(error: BaseException) -> bool:
    """Whether a statement gave up waiting for a row that another transaction holds."""
    return isinstance(_of_driver(error), errors.LockNotAvailable)


def _of_driver(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, Error) else error
