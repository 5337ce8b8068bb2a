"""Sequences of a new cell: rows with numbers as ids must not clash when a tenant moves between cells.

Each cell numbers from the beginning of a range of its own. UUIDs need nothing.
"""

from django.apps import apps
from django.db import connection, models
from psycopg import sql

RANGE = 50_000_000
"""Ids of a cell in one table: 40 cells fit into the 32 bits of the smallest key."""
MOST_CELLS = 40


def number(cell: int) -> None:
    """Begin every sequence at the cell's range. Raises ValueError for a number beyond the cells, or a table in use."""
    if not 0 <= cell < MOST_CELLS:
        raise ValueError(f"Cells are numbered from 0 to {MOST_CELLS - 1}.")
    start = cell * RANGE + 1
    with connection.cursor() as cursor:
        for table, column in _numbered():
            cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [table, column])
            (sequence,) = cursor.fetchone()
            cursor.execute(
                sql.SQL("SELECT coalesce(max({}), 0) FROM {}").format(
                    sql.Identifier(column), sql.Identifier(table)
                )
            )
            (highest,) = cursor.fetchone()
            if highest >= start + RANGE:
                raise ValueError(f"{table} has ids beyond the cell's range.")
            cursor.execute("SELECT setval(%s, %s, false)", [sequence, max(start, highest + 1)])


def _numbered() -> list[tuple[str, str]]:
    return [
        (model._meta.db_table, model._meta.pk.column)
        for model in apps.get_models()
        if isinstance(model._meta.pk, models.AutoField) and model._meta.pk.column
    ]
