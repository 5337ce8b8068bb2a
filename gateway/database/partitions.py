"""Retention of rows: time-partitioned tables, and old rows of plain tables (docs/architecture.md).

Partitions are created ahead of time and dropped after their retention. Each app registers its tables. `maintain` runs
after every `migrate`, and every hour as a task. Two runs may overlap. If a partition is missing, a default partition
catches its rows. They move when the partition is created, and are deleted after their retention.

Old rows of plain tables are deleted in small transactions by the hourly tasks of the apps, so that no lock is held long
and a crash loses nothing.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import structlog
from django.db import connection, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from psycopg import sql
from rest_framework import serializers

from gateway import ids
from gateway.clock import isoformat
from gateway.database import distribution
from gateway.monitoring import admin_health, metrics

# --- Indexes of partitioned tables, built without blocking writes. `CREATE INDEX` on the parent would block them.
#
# For migrations with `atomic = False`. The index of each partition is built concurrently and then attached. Partitions
# that are created meanwhile get the index from their parent.
_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
_HAS_INDEX = """
SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
               WHERE i.inhparent = %s::regclass AND x.indrelid = %s::regclass)
"""


def build(editor: BaseDatabaseSchemaEditor, *, table: str, index: str, on: str) -> None:
    """Build an index on every partition of a table. `on` is the index's columns and condition. Safe to repeat."""
    with editor.connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX IF NOT EXISTS {index} ON ONLY {table} {on}")
        cursor.execute(_PARTITIONS, [table])
        for (partition,) in cursor.fetchall():
            cursor.execute(_HAS_INDEX, [index, partition])
            if cursor.fetchone()[0]:
                continue
            own = f"{partition}_{index.partition('_')[2]}"
            # An interrupted run leaves an invalid index.
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {own}")
            cursor.execute(f"CREATE INDEX CONCURRENTLY {own} ON {partition} {on}")
            cursor.execute(f"ALTER INDEX {index} ATTACH PARTITION {own}")


log = structlog.get_logger(__name__)

ADVISORY_LOCK = 0x7061_7274
LOCK_WAIT = "2s"


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A table partitioned by ranges of a UUIDv7 id or of a date.

    Partitions exist for `ahead_days` after today and `behind_days` before it. A partition is dropped when its end is
    more than `keep_days()` days ago. `date_column` is the key of a table partitioned by date. A `fillfactor` below 100
    leaves room on each page for new versions of updated rows.
    """

    name: str
    interval: Literal["month", "week", "day"]
    key: Literal["id", "date"]
    ahead_days: int
    keep_days: Callable[[], int]
    date_column: str = "expires_on"
    fillfactor: int = 100
    behind_days: int = 0

    def start_of(self, day: date) -> date:
        """The first day of the partition that contains this day."""
        match self.interval:
            case "month":
                return day.replace(day=1)
            case "week":
                return day - timedelta(days=day.weekday())
        return day

    def after(self, start: date) -> date:
        """The first day of the partition after the one that starts on `start`."""
        match self.interval:
            case "month":
                return self.start_of(start + timedelta(days=32))
            case "week":
                return start + timedelta(days=7)
        return start + timedelta(days=1)

    def bound(self, day: date) -> str:
        """The partition bound at the beginning of a day, as text."""
        if self.key == "date":
            return day.isoformat()
        return str(ids.first_at(datetime(day.year, day.month, day.day, tzinfo=UTC)))

    @property
    def key_column(self) -> str:
        """The column by whose ranges the table is partitioned."""
        return "id" if self.key == "id" else self.date_column

    def partition_name(self, start: date) -> str:
        return f"{self.name}_p{start:%Y_%m}" if self.interval == "month" else f"{self.name}_p{start:%Y_%m_%d}"

    def start_from_name(self, partition: str) -> date | None:
        """The first day of a partition, by its name. None for the default partition."""
        suffix = partition.removeprefix(f"{self.name}_p")
        try:
            parts = [int(part) for part in suffix.split("_")]
            return date(parts[0], parts[1], parts[2] if len(parts) > 2 else 1)
        except (ValueError, IndexError):
            return None


_tables: dict[str, PartitionedTable] = {}


def register(table: PartitionedTable) -> PartitionedTable:
    """Add a table to the maintenance."""
    _tables[table.name] = table
    return table


def maintain(today: date | None = None) -> None:
    """Create the partitions from today on, and drop the partitions and the rows of default partitions past retention.

    If one table fails, the others are still maintained. The error is raised at the end.
    """
    today = today or _today()
    failures: list[Exception] = []
    for table in _tables.values():
        try:
            if _exists(table.name):
                _maintain_one(table, today)
        except Exception as error:
            log.exception("partition_maintenance_failed", table=table.name)
            failures.append(error)
    if failures:
        raise failures[0]


def _today() -> date:
    """The day by the clock of the database. With the clock of this host, a wrong date would drop rows."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
        day: date = cursor.fetchone()[0]
    return day


def _maintain_one(table: PartitionedTable, today: date) -> None:
    _make(table, today - timedelta(days=min(table.behind_days, table.keep_days())), today)
    for name, start in sorted(_partitions(table).items()):
        if table.after(start) <= today - timedelta(days=table.keep_days()):
            drop(name)
    _empty_default(table, before=table.start_of(today - timedelta(days=table.keep_days())))


def _empty_default(table: PartitionedTable, *, before: date) -> None:
    """Delete the rows past retention that the default partition caught."""
    with connection.cursor() as cursor:
        cursor.execute(
            sql.SQL("DELETE FROM {} WHERE {} < {}").format(
                sql.Identifier(f"{table.name}_default"),
                sql.Identifier(table.key_column),
                sql.Literal(table.bound(before)),
            )
        )


def make_from(table_name: str, first_day: date) -> None:
    """Create the partitions from a past day on, for bulk loads and tests."""
    _make(_tables[table_name], first_day, _today())


def drop(partition: str) -> None:
    """Drop one partition."""
    with _ddl() as cursor:
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(partition)))


def through() -> dict[str, str | None]:
    """The end of the last partition of each table."""
    moments: dict[str, str | None] = {}
    for name, starts in _attached(_tables.values()).items():
        end = _tables[name].after(max(starts.values())) if starts else None
        moments[name] = isoformat(datetime(end.year, end.month, end.day, tzinfo=UTC)) if end else None
    return moments


def covers(day: date) -> bool:
    """Whether every table has a partition for this day. Reads only the catalogue."""
    return all(
        _tables[name].start_of(day) in starts.values() for name, starts in _attached(_tables.values()).items()
    )


def missing() -> dict[str, int]:
    """How many partitions are missing ahead of today, by table."""
    today = _today()
    return {
        name: sum(start not in starts.values() for start in _starts(_tables[name], today, today))
        for name, starts in _attached(_tables.values()).items()
    }


def rows_in_default() -> dict[str, int]:
    """The number of rows in each table's default partition. Any row needs attention: the docs describe an alarm."""
    counts = {}
    with connection.cursor() as cursor:
        for table in _tables.values():
            cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(f"{table.name}_default")))
            counts[table.name] = cursor.fetchone()[0]
    return counts


metrics.labelled_gauge(
    "gateway_default_partition_rows", "Rows in the default partition.", "table", lambda: {**rows_in_default()}
)
metrics.labelled_gauge(
    "gateway_partitions_missing",
    "Partitions from today on that are missing although the maintenance should have created them.",
    "table",
    lambda: {**missing()},
)


class PartitionsThroughOut(serializers.Serializer[Any]):
    """The end of each table's last partition: the first moment without a partition."""

    def get_fields(self) -> dict[str, Any]:
        return {name: serializers.DateTimeField(allow_null=True) for name in _tables}


@admin_health.register(partitions_through=PartitionsThroughOut())
def _health() -> dict[str, Any]:
    return {"partitions_through": through()}


def _exists(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table])
        return bool(cursor.fetchone()[0])


def _partitions(table: PartitionedTable) -> dict[str, date]:
    return _attached([table])[table.name]


def _attached(tables: Collection[PartitionedTable]) -> dict[str, dict[str, date]]:
    """The attached partitions of each table: name and first day."""
    found: dict[str, dict[str, date]] = {table.name: {} for table in tables}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, inhrelid::regclass::text FROM unnest(%s::text[]) AS name "
            "JOIN pg_inherits ON inhparent = to_regclass(name)",
            [list(found)],
        )
        for table_name, partition in cursor.fetchall():
            start = _tables[table_name].start_from_name(partition)
            if start is not None:
                found[table_name][partition] = start
    return found


def _starts(table: PartitionedTable, first_day: date, today: date) -> Iterator[date]:
    """The first days of all partitions that the table must have from a day on."""
    last = max(first_day, today) + timedelta(days=table.ahead_days)
    start = table.start_of(first_day)
    while start <= last:
        yield start
        start = table.after(start)


def _make(table: PartitionedTable, first_day: date, today: date) -> None:
    existing = _partitions(table).values()
    for start in _starts(table, first_day, today):
        if start not in existing:
            _make_one(table, start)


def _make_one(table: PartitionedTable, start: date) -> None:
    """Create one partition: build it detached, move the rows of the default partition into it, then attach it.

    A partition that an operator detached is attached again with its rows.
    """
    name, end = table.partition_name(start), table.after(start)
    parent, child = sql.Identifier(table.name), sql.Identifier(name)
    default = sql.Identifier(f"{table.name}_default")
    key = sql.Identifier(table.key_column)
    low, high = sql.Literal(table.bound(start)), sql.Literal(table.bound(end))
    with _ddl() as cursor:
        if name in _partitions(table):
            return
        cursor.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {} INCLUDING ALL) WITH (fillfactor = {})").format(
                child, parent, sql.Literal(table.fillfactor)
            )
        )
        cursor.execute(
            sql.SQL(
                "WITH moved AS (DELETE FROM {} WHERE {} >= {} AND {} < {} RETURNING *) "
                "INSERT INTO {} SELECT * FROM moved"
            ).format(default, key, low, key, high, child)
        )
        cursor.execute(
            sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                parent, child, low, high
            )
        )


@contextmanager
def _ddl() -> Iterator[Any]:
    """A transaction that only one process at a time can enter.

    Its wait for an exclusive lock ends after `LOCK_WAIT`, for example during a dump, so that traffic queues behind it
    only briefly.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        yield cursor


BATCH_ROWS = 5_000


def delete_free(rows: models.QuerySet[Any]) -> int:
    """Delete rows and their dependent rows, except rows that another transaction has locked. Returns how many were
    deleted, at most `BATCH_ROWS`.

    For tables of which few rows are deleted at a time.
    """
    with transaction.atomic():
        free = rows.select_for_update(of=("self",), skip_locked=True).values_list("pk", flat=True)
        deleted = list(free[:BATCH_ROWS])
        rows.model._default_manager.filter(pk__in=deleted).delete()
    return len(deleted)


def delete_before(
    model: type[models.Model], column: str, limit: timedelta | int, *, batch: int = BATCH_ROWS
) -> int:
    """Delete rows whose `column`, which has an index, is below a number, or further in the past than an age. Returns
    how many were deleted.

    Only the clock of the database counts, because rows that are deleted too early are missed by other processes.
    """
    table, name = model._meta.db_table, sql.Identifier(column)
    is_age = isinstance(limit, timedelta)
    least = sql.SQL("now() - make_interval(secs => %s)" if is_age else "%s")
    value = limit.total_seconds() if isinstance(limit, timedelta) else limit
    if distribution.is_distributed(table):
        with connection.cursor() as cursor:
            cursor.execute(
                sql.SQL("DELETE FROM {} WHERE {} < {}").format(sql.Identifier(table), name, least), [value]
            )
            return int(cursor.rowcount)
    # Rows that another run is deleting are skipped.
    statement = sql.SQL(
        "DELETE FROM {table} WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM {table} WHERE {column} < {least} ORDER BY {column} LIMIT %s FOR UPDATE SKIP LOCKED))"
    ).format(table=sql.Identifier(table), column=name, least=least)
    deleted: int = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [value, batch])
            count: int = cursor.rowcount
        deleted += count
        if count < batch:
            return deleted
