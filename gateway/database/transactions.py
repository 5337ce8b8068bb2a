"""Guard of network calls: none is made inside a database transaction.

A call to the outside can take many seconds; a transaction held open meanwhile keeps locks and a connection
that everybody else waits for. Every synchronous door to the network (upstream client, pings, website checks)
asks here first, so a flow that gets it wrong fails in its first test instead of under load.
"""

from collections.abc import Callable
from typing import Any

import structlog
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

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
