"""Indexes of partitioned tables, built beside the traffic: `CREATE INDEX` on the parent would lock all writes out.

For migrations with `atomic = False`. Each partition's index is built concurrently and then attached. Partitions that
are made meanwhile get the index from their parent.
"""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
_HAS_INDEX = """
SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
               WHERE i.inhparent = %s::regclass AND x.indrelid = %s::regclass)
"""


def build(editor: BaseDatabaseSchemaEditor, *, table: str, index: str, on: str) -> None:
    """Build an index on every partition of a table. `on` is its columns and condition. Safe to run again."""
    with editor.connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX IF NOT EXISTS {index} ON ONLY {table} {on}")
        cursor.execute(_PARTITIONS, [table])
        for (partition,) in cursor.fetchall():
            cursor.execute(_HAS_INDEX, [index, partition])
            if cursor.fetchone()[0]:
                continue
            own = f"{partition}_{index.partition('_')[2]}"
            # An interrupted run leaves an invalid index behind.
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {own}")
            cursor.execute(f"CREATE INDEX CONCURRENTLY {own} ON {partition} {on}")
            cursor.execute(f"ALTER INDEX {index} ATTACH PARTITION {own}")
