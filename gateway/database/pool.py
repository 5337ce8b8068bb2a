"""Database connections of a web or edge process: borrowed from a pool, with prepared statements planned once."""

from typing import Any

from django.conf import settings

from gateway.database.replica import REPLICA


def begin() -> None:
    """Configure the connections that this process opens from now on: borrowed from a pool, statements planned once."""
    databases: dict[str, dict[str, Any]] = settings.DATABASES
    for alias, database in databases.items():
        if settings.DATABASE_PREPARED_STATEMENTS:
            _plan_once(database)
        if settings.DATABASE_POOL_SIZE:
            # The primary serves what the replica cannot: nobody waits long for one that is away.
            _pool(database, seconds=1 if alias == REPLICA else 5)


def _plan_once(database: dict[str, Any]) -> None:
    """Let each prepared statement have one plan for all parameters.

    Postgres would plan a statement on a partitioned table anew at every execution, because a plan for known parameters
    leaves partitions out and so looks cheaper: 1 to 5 ms for what takes 0.1 ms to run. The one plan leaves them out
    when it runs, by ranges of the partitions' key. Statements of Django's own cursors are not prepared, so nothing
    changes for them.
    """
    options = database["OPTIONS"]
    options["options"] = f"{options.get('options', '')} -c plan_cache_mode=force_generic_plan".strip()


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
