"""The exceptions by which a statement tells that the database is away."""

from django.db import InterfaceError, OperationalError
from psycopg_pool import PoolTimeout

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)
"""Unreachable, restarting, or no pooled connection free in time."""
