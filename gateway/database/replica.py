"""The read replica of Postgres (`DATABASE_REPLICA_URL`).

Long lists and analytics are read from the replica, everything else from the primary. The replica's rows may be a few
seconds old. The primary serves all reads while the replica lags more, does not answer, fails, or has been promoted.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError
from psycopg.errors import QueryCanceled
from psycopg_pool import PoolTimeout

from gateway.database.transactions import is_outage

log = structlog.get_logger(__name__)

REPLICA = "replica"
MOST_LAG_SECONDS = 5.0
LAG_CHECK_SECONDS = 2.0
"""How long a measurement of the replica's lag stays valid."""

# A replica that is receiving and has replayed everything is up to date, even if its last transaction is old. A replica
# that lost its primary receives nothing, and is as old as its last transaction. A promoted replica follows no primary.
_LAG = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN 1e9
    WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0
    ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 1e9) END
"""

_Result = TypeVar("_Result")
_lock = threading.Lock()
_looked_at = float("-inf")
_is_fit = False


def read(query: Callable[[str], _Result]) -> _Result:
    """Run a read whose rows may be a few seconds old. `query` receives the alias of the database.

    If the replica cancels the read, because it shuts down or must replay changes, the read is repeated on the primary.
    """
    chosen = _alias()
    try:
        return query(chosen)
    except (DatabaseError, PoolTimeout) as error:
        # A read that is too slow for the replica would be too slow for the primary, and would slow the primary down.
        if chosen == DEFAULT_DB_ALIAS or not is_outage(error) or isinstance(error.__cause__, QueryCanceled):
            raise
        _leave(error)
    return query(DEFAULT_DB_ALIAS)


def _alias() -> str:
    """The database for reads now: the replica if there is one and it is up to date."""
    global _looked_at, _is_fit
    if REPLICA not in settings.DATABASES:
        return DEFAULT_DB_ALIAS
    # One thread refreshes the value. The other threads use the cached value.
    if time.monotonic() - _looked_at > LAG_CHECK_SECONDS and _lock.acquire(blocking=False):
        try:
            _is_fit = _keeps_up()
            _looked_at = time.monotonic()
        finally:
            _lock.release()
    return REPLICA if _is_fit else DEFAULT_DB_ALIAS


def _leave(error: Exception) -> None:
    """Stop reading from the replica until the next check."""
    global _looked_at, _is_fit
    connections[REPLICA].close()
    log.warning("replica_away", error=type(error).__name__)
    with _lock:
        _looked_at, _is_fit = time.monotonic(), False


def _keeps_up() -> bool:
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(_LAG)
            lag = float(cursor.fetchone()[0])
    except (DatabaseError, PoolTimeout) as error:
        connections[REPLICA].close()
        log.warning("replica_away", error=type(error).__name__)
        return False
    if lag > MOST_LAG_SECONDS:
        log.warning("replica_behind", seconds=round(lag, 1))
    return lag <= MOST_LAG_SECONDS
