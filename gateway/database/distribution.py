"""Citus: the large tables are distributed by tenant over the nodes of a cluster (docs/capacity.md).

Every other table stays on the coordinator, which `DATABASE_URL` names. A statement about one tenant goes unchanged to
the node that has the tenant's rows. Citus supports only some statements about many tenants, so `together` groups the
rows that one statement may name.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg import sql

Item = TypeVar("Item")

TABLES = (
    "event_keys",
    "events",
    "event_payloads",
    "webhook_deliveries",
    "messages",
    "figures",
    "api_requests",
    "messaging_idempotencyrecord",
)
"""Tables that grow with the messages. Each has a `tenant_id` and no foreign key."""
_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_IS_DISTRIBUTED = "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass)"
_PRIMARY_KEY = """
SELECT c.conname, array_agg(a.attname::text ORDER BY k.place)
FROM pg_constraint c
CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number
WHERE c.conrelid = %s::regclass AND c.contype = 'p'
GROUP BY c.conname
"""


class NoCitusError(Exception):
    """The database does not have the Citus extension."""


def of_tenant(row: str) -> str:
    """The SQL condition by which Citus finds the node of a table's `row`. `tenant_id` is that of a group from
    `together`.

    On a single Postgres the ids suffice, so the condition is left out. It would make the planner also try the indexes
    by tenant.
    """
    return f"{row}.tenant_id = %(tenant_id)s" if settings.DATABASE_IS_DISTRIBUTED else "true"


def together(
    items: Iterable[Item], tenant_of: Callable[[Item], UUID]
) -> Collection[tuple[UUID | None, list[Item]]]:
    """Group items so that one statement may name all items of a group. On Citus, each tenant's items are a group with
    the tenant's id. Elsewhere, all items are one group with None.

    The statement must have the condition `of_tenant` on each table.
    """
    groups: defaultdict[UUID | None, list[Item]] = defaultdict(list)
    for item in items:
        groups[tenant_of(item) if settings.DATABASE_IS_DISTRIBUTED else None].append(item)
    return groups.items()


def is_distributed(table: str) -> bool:
    """Whether a table's rows are on the nodes of a cluster."""
    return settings.DATABASE_IS_DISTRIBUTED and table in TABLES


def distribute() -> list[str]:
    """Distribute the remaining tables with their rows, each table in its own transaction.

    Returns the names of these tables. Raises NoCitusError. A table is locked while it is distributed.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HAS_CITUS)
        if not cursor.fetchone()[0]:
            raise NoCitusError
    return [table for table in TABLES if _distribute(table)]


def _distribute(table: str) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_IS_DISTRIBUTED, [table])
        if cursor.fetchone()[0]:
            return False
        # The shards of partitions are created after the shards of their parents, on the same connections. This requires
        # the sequential mode.
        cursor.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        _add_tenant_to_key(cursor, table)
        # All shards of a tenant are on one node: each table's shards are put beside those of the first table.
        beside = "default" if table == TABLES[0] else TABLES[0]
        cursor.execute(
            "SELECT create_distributed_table(%s, 'tenant_id', colocate_with => %s)", [table, beside]
        )
    return True


def _add_tenant_to_key(cursor: Any, table: str) -> None:
    """Add `tenant_id` to a table's primary key, because Citus requires the column by which it distributes in the key.
    `tenant_id` becomes the last column, so that the key still serves its look-ups.
    """
    cursor.execute(_PRIMARY_KEY, [table])
    name, columns = cursor.fetchone()
    if "tenant_id" not in columns:
        cursor.execute(
            sql.SQL(
                "ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} PRIMARY KEY ({key})"
            ).format(
                table=sql.Identifier(table),
                name=sql.Identifier(name),
                key=sql.SQL(", ").join(map(sql.Identifier, [*columns, "tenant_id"])),
            )
        )
