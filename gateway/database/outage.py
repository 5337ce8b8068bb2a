"""Which exceptions of a statement tell that the database is away, and which concern one row alone."""

from django.db import Error, InterfaceError, OperationalError
from psycopg import errors
from psycopg_pool import PoolTimeout

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
