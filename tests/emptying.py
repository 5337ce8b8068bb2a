"""Empties the database after a test that commits, by deleting rows from the tables that have any.

Django's `flush` would truncate every table. A truncation creates new files for the table, its partitions and its
indexes: hundreds of files, only to remove a few rows. The rows and partitions that `migrate` created stay: content
types, permissions and staff roles.

One separate connection empties the database for all tests. It calls a temporary function, so Postgres plans the
statements over all partitions only once. The tests' own connection stays open too, because its session has cached the
catalogue. If `DATABASE_URL` names a pooler, which keeps no session, set `DIRECT_DATABASE_URL` to Postgres itself.
"""

import os
from typing import Any

import psycopg
from django.db import connection
from django.test import TransactionTestCase
from psycopg import sql

from gateway.database import partitions

MADE_BY_MIGRATE = {"django_content_type", "auth_permission", "auth_group", "auth_group_permissions"}
_NO_TRIGGERS = "-c session_replication_role=replica -c lock_timeout=60s"
"""Disables the triggers that protect history from deletion. Because of the timeout, a transaction that a test left open
makes the deletion fail instead of hang."""
_session: "psycopg.Connection[Any] | None" = None


def delete_instead_of_truncating() -> None:
    """Replace `flush`. Call this once, after the database was migrated.

    Only a superuser can disable the triggers that protect history. For any other user, `flush` stays in use.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            return
        cursor.execute("SELECT count(*) FROM pg_inherits")
        made = cursor.fetchone()[0]

    def teardown(self: TransactionTestCase) -> None:
        # A test may have broken its connection, which would fail every later test.
        if connection.connection is not None and not connection.is_usable():
            connection.close()
        if delete_all_rows() < made:
            partitions.maintain()

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[attr-defined]
    TransactionTestCase._should_reload_connections = lambda _: False  # type: ignore[attr-defined]


def delete_all_rows() -> int:
    """Delete the rows of every table, except those that `migrate` created. Returns the number of partitions."""
    global _session
    if _session is None:
        _session = _connected()
    try:
        return int(_session.execute("SELECT pg_temp.delete_all_rows()").fetchone()[0])  # type: ignore[index]
    except psycopg.OperationalError:
        if not _session.closed:
            raise
    # A test has terminated all sessions of the database, so connect again.
    _session = None
    return delete_all_rows()


def close() -> None:
    """End the session, because a database with a session can be neither copied nor dropped."""
    global _session
    if _session is not None:
        _session.close()
        _session = None


def _connected() -> "psycopg.Connection[Any]":
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    names = [sql.Identifier(table) for table in sorted(set(tables) - MADE_BY_MIGRATE)]
    has_rows = [sql.SQL("EXISTS (SELECT 1 FROM {})").format(name) for name in names]
    deletes = [
        sql.SQL("IF has_rows[{}] THEN DELETE FROM {}; END IF;").format(sql.Literal(place), name)
        for place, name in enumerate(names, 1)
    ]
    session = psycopg.connect(
        os.environ.get("DIRECT_DATABASE_URL", os.environ["DATABASE_URL"]),
        dbname=connection.settings_dict["NAME"],
        options=_NO_TRIGGERS,
        autocommit=True,
    )
    session.execute(
        sql.SQL(
            "CREATE FUNCTION pg_temp.delete_all_rows() RETURNS bigint LANGUAGE plpgsql AS $$"
            " DECLARE has_rows boolean[];"
            " BEGIN SELECT ARRAY[{}] INTO has_rows; {} RETURN (SELECT count(*) FROM pg_inherits); END $$"
        ).format(sql.SQL(", ").join(has_rows), sql.SQL(" ").join(deletes))
    )
    return session
