"""Probes behind the health routes: does the database answer, and is it prepared for this build."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from psycopg_pool import PoolTimeout

from gateway.clock import now
from gateway.database import partitions

DATABASE_DEADLINE_SECONDS = 1.0
READINESS_DEADLINE_SECONDS = 3.0

_prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")
_migrated = False


def database_answers() -> bool:
    """Whether the database answers a query within a second, however it fails: refused, hanging, exhausted."""
    future = _prober.submit(_query)
    try:
        return future.result(DATABASE_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return False


def readiness() -> dict[str, bool]:
    """What a process needs before it may take requests: the database, every migration, partitions for today."""
    future = _prober.submit(_readiness)
    try:
        return future.result(READINESS_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return {"db": False, "migrations": False, "partitions": False}


def _query() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, PoolTimeout):
        return False
    finally:
        connection.close()
    return True


def _readiness() -> dict[str, bool]:
    try:
        return {"db": True, "migrations": _is_migrated(), "partitions": partitions.covers(now().date())}
    except (DatabaseError, PoolTimeout):
        return {"db": False, "migrations": False, "partitions": False}
    finally:
        connection.close()


def _is_migrated() -> bool:
    """Whether no migration of this build is missing; remembered once it is true, because it takes 50 ms to find out."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated
