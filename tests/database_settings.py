"""Changes the settings of the database for all threads of this process, such as to stop it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from django.db import connection

from gateway.database import pool


def close_pools() -> None:
    """Close the connections of this thread and of the pools. Borrowed connections are closed when they are returned."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined] # of the backend of Postgres
    while pool._strangers_pools:
        pool._strangers_pools.popitem()[1].close()


@contextmanager
def connected_with(**others: Any) -> Iterator[None]:
    """Open new connections with other settings inside the block."""
    own = dict(connection.settings_dict)
    close_pools()
    connection.settings_dict |= others
    try:
        yield
    finally:
        close_pools()
        connection.settings_dict |= own


def connected_to(url: str) -> AbstractContextManager[None]:
    """Open new connections to another database inside the block."""
    parameters = psycopg.conninfo.conninfo_to_dict(url)
    return connected_with(NAME=parameters["dbname"], HOST=parameters.get("host", ""))


@contextmanager
def without_database() -> Iterator[None]:
    """Refuse all new connections inside the block."""
    options = connection.settings_dict["OPTIONS"]
    soon = options["pool"] | {"timeout": 0.2, "reconnect_timeout": 0.1}
    with connected_with(HOST="/nonexistent", OPTIONS=options | {"pool": soon}):
        yield


@contextmanager
def read_only_for(times: int, writes: str, *, when: str = "") -> Iterator[Callable[[], int]]:
    """Reject the first statements that write, as a former primary does after a fail-over.

    `writes` names the statements, such as `UPDATE ON tenants_tenant`. With `when`, only those count that write a row
    with this condition. Yields a function that counts the rejected and accepted statements.
    """
    for_each = f"FOR EACH ROW WHEN ({when})" if when else "FOR EACH STATEMENT"
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE SEQUENCE refusals; CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('refusals') <= {times} THEN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END IF;"
            " RETURN coalesce(NEW, OLD); END $$;"
            f"CREATE TRIGGER refuse BEFORE {writes} {for_each} EXECUTE FUNCTION refuse()"
        )

    def counted() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value * is_called::int FROM refusals")
            return int(cursor.fetchone()[0])

    try:
        yield counted
        assert counted(), "nothing was rejected"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse CASCADE; DROP SEQUENCE refusals")
