"""Read replica (`DATABASE_REPLICA_URL`): long lists and analytics are read from it, everything else from the primary.

What is read there may be a few seconds old. A replica that does not answer, fails while it reads, is further behind
than that, or has been promoted is left alone until it keeps up again: its reads go to the primary.
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

from gateway.database.outage import is_outage

log = structlog.get_logger(__name__)

REPLICA = "replica"
MOST_LAG_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""How long one look at the replica's lag counts."""

# A replica that receives and has replayed all of it is up to date, however long ago the last transaction was. One that
# lost its primary receives nothing, and is as old as its last transaction. One that was promoted follows nobody.
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
    """The result of a read that may be a few seconds old; `query` gets the alias of the database to ask.

    Reads that the replica breaks off, because it ends or must replay what they look at, are repeated on the primary.
    """
    chosen = _alias()
    try:
        return query(chosen)
    except (DatabaseError, PoolTimeout) as error:
        # What is too slow there would be too slow here, and hold up the primary as well.
        if chosen == DEFAULT_DB_ALIAS or not is_outage(error) or isinstance(error.__cause__, QueryCanceled):
            raise
        _leave(error)
    return query(DEFAULT_DB_ALIAS)


def _alias() -> str:
    """The database to read from now: the replica if there is one and it keeps up."""
    global _looked_at, _is_fit
    if REPLICA not in settings.DATABASES:
        return DEFAULT_DB_ALIAS
    # One thread looks; the others go by what was seen before.
    if time.monotonic() - _looked_at > LOOK_SECONDS and _lock.acquire(blocking=False):
        try:
            _is_fit = _keeps_up()
            _looked_at = time.monotonic()
        finally:
            _lock.release()
    return REPLICA if _is_fit else DEFAULT_DB_ALIAS


def _leave(error: Exception) -> None:
    """Read nothing from the replica until the next look."""
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
