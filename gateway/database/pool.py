"""A web process's pool of connections to Postgres."""

from typing import Any

from django.conf import settings
from django.db import connections

from gateway.database.replica import REPLICA

POOL_SIZE = 4
"""Connections of a web process for the threads of known callers."""
STRANGERS_CONNECTIONS = 2
"""Connections of a web process for all threads that serve strangers."""

_strangers_pools: dict[str, Any] = {}
"""The pools for strangers by alias. All other threads use Django's own pools."""


def begin(*, beside_web: int = 0) -> None:
    """Configure the connections that this process opens from now on: borrow them from a pool, and plan statements once.

    `beside_web` is the number of roles besides `web` that borrow from the pool.
    """
    databases: dict[str, dict[str, Any]] = settings.DATABASES
    for alias, database in databases.items():
        # Citus needs the parameters to plan, because they decide which node has the rows.
        if settings.DATABASE_PREPARED_STATEMENTS and not settings.DATABASE_IS_DISTRIBUTED:
            _plan_once(database)
        # The primary can serve the replica's reads, so a read waits only briefly for an unavailable replica.
        _pool(database, beside_web, seconds=1 if alias == REPLICA else 5)


def _plan_once(database: dict[str, Any]) -> None:
    """Make each prepared statement use one plan for all parameters.

    By default Postgres plans a statement on a partitioned table at every execution, because a plan for known parameters
    excludes partitions and so looks cheaper. Planning takes much longer than executing. The generic plan excludes
    partitions during execution, by ranges of the partition key. Django's own cursors prepare nothing, so this does not
    affect them.
    """
    options = database["OPTIONS"]
    options["options"] = f"{options.get('options', '')} -c plan_cache_mode=force_generic_plan".strip()


def _pool(database: dict[str, Any], beside_web: int, *, seconds: int) -> None:
    database["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": POOL_SIZE + 2 * beside_web,
        "timeout": seconds,
        "max_lifetime": 1800,
        # The pool doubles the wait between attempts to connect. After this time it gives up. The next request retries.
        "reconnect_timeout": 1,
    }
    database["CONN_MAX_AGE"] = 0
    database["CONN_HEALTH_CHECKS"] = False


def use_strangers_pool() -> None:
    """Let the calling thread borrow connections from the strangers' pool. Called when the thread starts."""
    for database in connections.all():
        options = database.settings_dict["OPTIONS"]
        if own := options.get("pool"):
            own = {**own, "min_size": 0, "max_size": STRANGERS_CONNECTIONS}
            database.settings_dict = {**database.settings_dict, "OPTIONS": {**options, "pool": own}}
        # Django stores its pools on the class, one for each alias.
        database._connection_pools = _strangers_pools  # type: ignore[attr-defined]
