"""Transactions: the guard of network calls, lock time-outs of tasks, and the errors of an unavailable database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg import Connection, errors
from psycopg import Error as DriverError
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

# --- Guard of network calls: none is made inside a database transaction.
#
# A network call can take many seconds. An open transaction would keep its locks and its connection for that time. Every
# synchronous network call (Graph API client, pings, website checks) calls the guard first, so a wrong flow fails in its
# first test instead of under load.

log = structlog.get_logger(__name__)


class NetworkInTransactionError(RuntimeError):
    """A network call was about to be made while a database transaction was open."""


def assert_no_transaction() -> None:
    """Raise `NetworkInTransactionError` when this thread's database connection is in an atomic block.

    Ignores the block that a test case puts around each test, but not a block inside it.
    """
    if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        raise NetworkInTransactionError("Network call inside a transaction: commit first.")


def after_commit(work: Callable[[], None]) -> None:
    """Call `work` when the current transaction commits, or at once without a transaction. Errors are logged.

    Django's `on_commit` would first open a connection, even without a transaction.
    """
    if connection.in_atomic_block:
        transaction.on_commit(work, robust=True)
        return
    try:
        work()
    except Exception:
        log.exception("after_commit_failed")


def leave_database() -> None:
    """Prepare for a network call: require that no transaction is open, and return a pooled connection to its pool.

    A process without a pool keeps its connection, because no other thread waits for it.
    """
    assert_no_transaction()
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.connection is not None and not database.in_atomic_block and database.pool is not None:
        database.close()


# --- Lock time-out of tasks: a row that a hung transaction has locked delays a task only for seconds.
#
# A task iterates over the rows of many tenants. Without a time-out the first locked row would stop the other rows, and
# a worker has few threads. With the time-out the statement raises `LockNotAvailable`, which `concerns_all`
# distinguishes from an outage. The task continues with the next row, and the next run retries the locked row.

LOCK_WAIT = "2s"
"""How long a task's statement waits for a row. Transactions of the service hold locks only for milliseconds."""


@contextmanager
def limited_locks() -> Iterator[None]:
    """Within the block, statements on Django's connection wait at most `LOCK_WAIT` for a lock."""
    with connection.execute_wrapper(_limit):
        yield


def _limit(
    execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Set the time-out at the start of each transaction. A session's setting would stay on a pooler's connection."""
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


# --- Exceptions of a statement: those of an unavailable database, and those that concern one row.

_UNAVAILABLE: tuple[type[Exception], ...] = (OperationalError, InterfaceError, PoolTimeout)
"""Unreachable, restarting, out of disk, or no free pooled connection in time. Postgres raises some of these for an
error of one statement too: see `concerns_all`. Private, because a caller that caught them would miss the other errors
of `is_outage`.
"""
if settings.DATABASE_IS_DISTRIBUTED:
    # Citus raises this error when a node fails within a transaction.
    _UNAVAILABLE += (InternalError,)
_OF_A_MOMENT = (errors.DeadlockDetected, errors.LockNotAvailable, errors.QueryCanceled)
"""Errors of a lock or a time-out. The same statement may succeed later."""
_OF_ONE_STATEMENT = (errors.ProgramLimitExceeded, errors.StatementTooComplex, *_OF_A_MOMENT)
"""Errors of one statement: a limit, a lock or a time-out. The next statement may succeed on the same connection."""
_OF_THE_DATABASE = (errors.ReadOnlySqlTransaction, errors.UndefinedTable, errors.InsufficientPrivilege)
"""Errors that no row causes. A former primary is read-only after a fail-over. Tables are invisible in a database that
is still being restored, and on a pooler's connection whose `search_path` another program changed.
"""


def is_outage(error: BaseException) -> bool:
    """Whether the database is unreachable, read-only, or shows no tables. The only test for it: a caller catches every
    exception, and raises those that are no outage.
    """
    return isinstance(error, _UNAVAILABLE) or isinstance(error.__cause__, _OF_THE_DATABASE)


def concerns_all(error: BaseException) -> bool:
    """Whether an error would affect the next row too, because the database is unavailable. Other errors do not end a
    loop over rows.
    """
    return is_outage(error) and not isinstance(_of_driver(error), _OF_ONE_STATEMENT)


def may_pass(error: BaseException) -> bool:
    """Whether the same statement may succeed later: the database is unavailable, or a lock or a time-out ended it."""
    return concerns_all(error) or isinstance(_of_driver(error), _OF_A_MOMENT)


def is_lock_limit(error: BaseException) -> bool:
    """Whether a statement gave up waiting for a row that another transaction holds."""
    return isinstance(_of_driver(error), errors.LockNotAvailable)


def error_fields(error: BaseException) -> dict[str, str]:
    """The fields of a log line about an error of the database: its class, its SQLSTATE, and the server's
    function that raised the error.

    The message is left out, because it can contain values of rows. Citus raises `XX000` for many different reasons, so
    only the function distinguishes them.
    """
    raised = _of_driver(error) or error
    fields = {"error": type(raised).__name__}
    if isinstance(raised, DriverError):
        reported = {"sqlstate": raised.sqlstate, "raised_by": raised.diag.source_function}
        fields |= {name: value for name, value in reported.items() if value}
    return fields


def _of_driver(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, Error) else error
