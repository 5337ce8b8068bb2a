"""Forgetting old rows of plain tables, in small transactions, so that no lock is held long and a crash loses nothing.

Called by the hourly tasks of the apps. The big tables leave by whole partitions instead
(`partitions.py`).
"""

from datetime import datetime

from django.db import connection, models
from psycopg import sql

BATCH_ROWS = 5_000


def delete_before(
    model: type[models.Model], column: str, moment: datetime | int, *, batch: int = BATCH_ROWS
) -> int:
    """Delete a table's rows whose `column` is before a moment or number; the column has an index. Returns how many."""
    # Rows that another run is deleting are passed over.
    statement = sql.SQL(
        "DELETE FROM {table} WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM {table} WHERE {column} < %s ORDER BY {column} LIMIT %s FOR UPDATE SKIP LOCKED))"
    ).format(table=sql.Identifier(model._meta.db_table), column=sql.Identifier(column))
    deleted: int = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [moment, batch])
            count: int = cursor.rowcount
        deleted += count
        if count < batch:
            return deleted
