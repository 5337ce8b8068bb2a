"""No network call inside a database transaction.

A call to the outside can take many seconds; a transaction held open meanwhile keeps locks and a connection
that everybody else waits for. Every synchronous door to the network (upstream client, pings, website checks)
asks here first, so a flow that gets it wrong fails in its first test instead of under load.
"""

from django.conf import settings
from django.db import connections


class NetworkInTransactionError(RuntimeError):
    """A network call was about to be made while a database transaction was open."""


def assert_no_transaction() -> None:
    """Raise `NetworkInTransactionError` when a database connection of this thread is in an atomic block.

    The block that a test case wraps around each test does not count; one opened inside it does.
    """
    for connection in connections.all(initialized_only=True):
        if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
            raise NetworkInTransactionError(
                f"Network call inside a transaction on database {connection.alias!r}: commit first."
            )


def leave_database() -> None:
    """Before a network call: no transaction may be open, and a pooled connection goes back to serve others meanwhile.

    A process without a pool keeps its one connection: nobody else waits for it.
    """
    assert_no_transaction()
    if settings.DATABASE_POOL_SIZE:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
