"""Connection pool of a web or edge process: its threads borrow connections instead of keeping one each."""

from typing import Any

from django.conf import settings

from gateway.database.replica import REPLICA


def begin() -> None:
    """Take connections from a pool in this process, from its next connection on."""
    if not settings.DATABASE_POOL_SIZE:
        return
    databases: dict[str, dict[str, Any]] = settings.DATABASES
    for alias, database in databases.items():
        # The primary serves what the replica cannot: nobody waits long for one that is away.
        _pool(database, seconds=1 if alias == REPLICA else 5)


def _pool(database: dict[str, Any], *, seconds: int) -> None:
    database["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": settings.DATABASE_POOL_SIZE,
        "timeout": seconds,
        "max_lifetime": 1800,
        # Its waits between attempts to connect double: it gives up instead, and the next request begins anew.
        "reconnect_timeout": 1,
    }
    database["CONN_MAX_AGE"] = 0
    database["CONN_HEALTH_CHECKS"] = False
