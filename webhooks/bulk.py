"""A cursor for statements that carry hundreds of ids and bodies: parameters and results travel in binary.

Django's own cursors write each parameter into the statement's text and read results as text: at thousands of
deliveries a second that is most of the engine's time with the database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper


@contextmanager
def bulk_cursor() -> Iterator[CursorWrapper]:
    """A cursor on Django's connection, inside its transaction; raises Django's database errors."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as binary:
        binary.format = psycopg.pq.Format.BINARY
        cursor: Any = binary  # typed by Django as its own wrapper, which is what it becomes here
        yield (
            connection.make_debug_cursor(cursor)
            if connection.queries_logged
            else connection.make_cursor(cursor)
        )
