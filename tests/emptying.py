"""Empties the database after a test that commits, by deleting rows from the tables that have any.

Django's `flush` truncates every table instead. Each truncation creates new files for the table, its partitions and its
indexes: some hundred relations for a few rows. The rows of `migrate` stay: content types, permissions, staff roles and
partitions.

A single separate connection does this for all tests, in a function of its session, so the plans over all partitions are
made once. The tests' connection stays open too, with the catalogue that its session has read. Where
`DATABASE_URL` names a pooler, which keeps no session, `DIRECT_DATABASE_URL` names Postgres.
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
"""Triggers protect history from deletion. A test that left a transaction open fails instead of hanging."""
_session: "psycopg.Connection[Any] | None" = None


def delete_instead_of_truncating() -> None:
    """Replace `flush`. Called once, when the database has been migrated.

    Only a superuser can disable the triggers that protect history. For another user, tests continue with `flush`.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            return
        cursor.execute("SELECT count(*) FROM pg_inherits")
        made = cursor.fetchone()[0]

    def teardown(self: TransactionTestCase) -> None:
        # A test may have ended its own connection, which would fail every later test.
        if connection.connection is not None and not connection.is_usable():
            connection.close()
        if delete_all_rows() < made:
            partitions.maintain()

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[attr-defined]
    TransactionTestCase._should_reload_connections = lambda _: False  # type: ignore[attr-defined]


def delete_all_rows() -> int:
    """Delete the rows of every table now, except those of `migrate`. Returns how many partitions there are."""
    global _session
    if _session is None:
        _session = _connected()
    try:
        return int(_session.execute("SELECT pg_temp.delete_all_rows()").fetchone()[0])  # type: ignore[index]
    except psycopg.OperationalError:
        if not _session.closed:
            raise
    # A test has ended the sessions of the database.
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
