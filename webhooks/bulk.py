"""A cursor for statements that carry hundreds of ids and bodies: parameters and results travel in binary.

Django's own cursors write each parameter into the statement's text and read results as text: at thousands of
deliveries a second that is most of the engine's time with the database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

ONLY_WHEN_ASKED = 2**31
"""A count of executions that no statement reaches: psycopg prepares only what asks for it."""


class _PreparingCursor(psycopg.Cursor[Any]):
    """Prepares each statement at its first execution on a connection: the next ones are parsed and planned already."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(query, params, **{**options, "prepare": True})


@contextmanager
def bulk_cursor(*, prepared: bool = False) -> Iterator[CursorWrapper]:
    """A cursor on Django's connection, inside its transaction; raises Django's database errors.

    `prepared` is for the few statements that every event takes, in which parsing and planning cost more than the
    work, and whose plan does not depend on the parameters. `DATABASE_PREPARED_STATEMENTS` switches it off.
    """
    connection.ensure_connection()
    kind: type[psycopg.Cursor[Any]] = psycopg.Cursor
    if prepared and settings.DATABASE_PREPARED_STATEMENTS:
        kind = _PreparingCursor
        connection.connection.prepare_threshold = ONLY_WHEN_ASKED
    with connection.wrap_database_errors, kind(connection.connection) as binary:
        binary.format = psycopg.pq.Format.BINARY
        cursor: Any = binary  # typed by Django as its own wrapper, which is what it becomes here
        yield (
            connection.make_debug_cursor(cursor)
            if connection.queries_logged
            else connection.make_cursor(cursor)
        )
