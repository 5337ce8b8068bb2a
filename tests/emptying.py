"""Empties the database after a test that commits, by deleting rows where there are any.

Django's `flush` truncates every table instead, and each truncation makes new files for the table, its partitions and
its indexes: some hundred relations for a few rows. What `migrate` made stays: content types, permissions, staff roles
and partitions.
"""

from collections.abc import Iterable
from typing import Any

from django.db import connection, transaction
from django.test import TransactionTestCase
from psycopg import sql

from gateway.database import partitions

MADE_BY_MIGRATE = {"django_content_type", "auth_permission", "auth_group", "auth_group_permissions"}


def delete_instead_of_truncating() -> None:
    """Replace `flush`; called once, when the database has been migrated.

    Triggers that keep history from being deleted fire for all but a superuser, who alone can switch them off: another
    user's tests go on with `flush`.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            return
        deleted = _tables()
        made = _partitions(cursor)

    def teardown(self: TransactionTestCase) -> None:
        # A test may have ended its own connection, which would fail every test after it.
        if connection.connection is not None and not connection.is_usable():
            connection.close()
        if _empty(deleted) < made:
            partitions.maintain()

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[attr-defined]


def delete_all_rows() -> None:
    """Delete the rows of every table now, but for what `migrate` made."""
    _empty(_tables())


def _tables() -> list[str]:
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return sorted(set(tables) - MADE_BY_MIGRATE)


def _empty(tables: Iterable[str]) -> int:
    """Delete all rows; returns how many partitions there are."""
    names = [sql.Identifier(table) for table in tables]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        has_rows = [sql.SQL("EXISTS (SELECT FROM {})").format(name) for name in names]
        cursor.execute(sql.SQL("SELECT ") + sql.SQL(", ").join(has_rows))
        for name, found in zip(names, cursor.fetchone(), strict=True):
            if found:
                cursor.execute(sql.SQL("DELETE FROM {}").format(name))
        return _partitions(cursor)


def _partitions(cursor: Any) -> int:
    cursor.execute("SELECT count(*) FROM pg_inherits")
    return int(cursor.fetchone()[0])
