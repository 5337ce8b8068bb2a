"""Changes the settings of the database for all threads of this process, such as to stop it."""

from collections.abc import Iterator
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
