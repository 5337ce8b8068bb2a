"""Read replica (`DATABASE_REPLICA_URL`): long lists and analytics are read from it, everything else from the primary.

What is read there may be a few seconds old. A replica that does not answer, or is further behind than that, is left
alone until it has caught up: its reads go to the primary.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError
from django.db.backends.utils import CursorWrapper
from psycopg_pool import PoolTimeout

log = structlog.get_logger(__name__)

REPLICA = "replica"
MOST_LAG_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""How long one look at the replica's lag counts."""

# A replica that receives and has replayed all of it is up to date, however long ago the last transaction was. One that
# lost its primary receives nothing, and is as old as its last transaction.
_LAG = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN 0
    WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0
    ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 1e9) END
"""

_lock = threading.Lock()
_looked_at = float("-inf")
_is_fit = False


def alias() -> str:
    """The database that lists and analytics are read from now: the replica if there is one and it keeps up."""
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


@contextmanager
def reading_cursor() -> Iterator[CursorWrapper]:
    """A cursor for reads that may be a few seconds old."""
    with connections[alias()].cursor() as cursor:
        yield cursor


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
