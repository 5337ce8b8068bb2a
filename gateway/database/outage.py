"""The exceptions by which a statement tells that the database is away."""

from django.db import InterfaceError, OperationalError
from psycopg.errors import ReadOnlySqlTransaction
from psycopg_pool import PoolTimeout

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)
"""Unreachable, restarting, out of disk, or no pooled connection free in time."""


def is_outage(error: BaseException) -> bool:
    """Whether the database is away, or takes no writes: a former primary after a failover is read-only."""
    return isinstance(error, DATABASE_UNAVAILABLE) or isinstance(error.__cause__, ReadOnlySqlTransaction)
