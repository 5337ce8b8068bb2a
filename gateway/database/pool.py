"""Connection pool of a web or edge process: its threads borrow connections instead of keeping one each."""

from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS


def begin() -> None:
    """Take connections from a pool in this process, from its next connection on."""
    if not settings.DATABASE_POOL_SIZE:
        return
    database: dict[str, Any] = settings.DATABASES[DEFAULT_DB_ALIAS]
    database["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": settings.DATABASE_POOL_SIZE,
        "timeout": 5,
        "max_lifetime": 1800,
        # Its waits between attempts to connect double: it gives up instead, and the next request begins anew.
        "reconnect_timeout": 1,
    }
    database["CONN_MAX_AGE"] = 0
    database["CONN_HEALTH_CHECKS"] = False
