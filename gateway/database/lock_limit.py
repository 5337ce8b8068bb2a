"""Lock limit of tasks: a row that a hung transaction keeps costs a task seconds, not the time until that one ends.

A task walks over the rows of many tenants. Without a limit the first row that another transaction holds would stop the
rest, and a worker has few threads. With it the statement raises `LockNotAvailable`, which `outage.concerns_all` tells
from an outage: the walk goes on with the next row, and the next run tries again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from psycopg import Connection
from psycopg.pq import TransactionStatus

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
