"""Forgetting old rows of plain tables, in small transactions, so that no lock is held long and a crash loses nothing.

Called by the hourly tasks of the apps. The big tables leave by whole partitions instead
(`partitions.py`).
"""

from datetime import datetime
from typing import Any

from django.db import connection, models, transaction
from psycopg import sql

BATCH_ROWS = 5_000


def delete_free(rows: models.QuerySet[Any]) -> int:
    """Delete rows with what hangs on them, but for those that another transaction holds. Returns how many.

    For tables of which few rows are deleted at a time.
    """
    with transaction.atomic():
        free = rows.select_for_update(of=("self",), skip_locked=True).values_list("pk", flat=True)
        deleted = list(free[:BATCH_ROWS])
        rows.model._default_manager.filter(pk__in=deleted).delete()
    return len(deleted)


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
