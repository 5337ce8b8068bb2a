"""Move of a tenant from another cell to this one: freeze, copy, switch. Every step can be repeated after a crash.

While it moves the tenant is active in neither cell: its calls and its notifications are answered 503, which clients
and the upstream repeat, its deliveries and batches wait. The former cell says `moving`, this one `arriving`; first the
former one becomes `moved`, then this one `active`, so at no moment would both send.

All rows are copied in one transaction of each side: the copy is whole or not there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import structlog
from django.conf import settings
from django.db import connection
from psycopg import sql

from gateway.database import partitions
from messaging.cells.tenant_rows import TenantRows, rows_of
from tenants import audit
from tenants.credentials import key_cache
from tenants.models import Tenant

log = structlog.get_logger(__name__)

Status = Tenant.Status
SETTLE_SECONDS = 60.0
"""From the freeze to the copy: longer than a process remembers a tenant (9 s) and a send takes until its event is
written (15 s for the upstream, 15 s for a database that is away)."""
LOOK_SECONDS = 0.2
DRAIN_SECONDS = 600.0

# What began before the freeze and is not yet written.
_UNDER_WAY = """
SELECT (SELECT count(*) FROM webhook_deliveries
        WHERE tenant_id = %(tenant)s AND status IN ('pending', 'failed') AND leased_until > now()),
       (SELECT count(*) FROM messaging_batch WHERE tenant_id = %(tenant)s AND lease_until > now()),
       (SELECT count(*) FROM messaging_idempotencyrecord
        WHERE tenant_id = %(tenant)s AND status IS NULL
          AND started_at > now() - make_interval(secs => %(send_seconds)s))
"""
_COUNTS = """
SELECT (SELECT count(*) FROM events WHERE tenant_id = %(tenant)s),
       (SELECT count(*) FROM webhook_deliveries WHERE tenant_id = %(tenant)s),
       (SELECT count(*) FROM messaging_batchitem i JOIN messaging_batch b ON b.id = i.batch_id
        WHERE b.tenant_id = %(tenant)s)
"""


class MoveError(Exception):
    """Why a tenant cannot be moved; nothing was changed by the step that says so."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The rows that a move copied, by table."""

    rows: Mapping[str, int]


def take(
    tenant_id: UUID,
    *,
    former: str,
    after: Callable[[str], None] = lambda step: None,
) -> Moved:
    """Move a tenant here from the cell whose database `former` names. `after` is told each step that is done.

    Raises MoveError. Repeat it with the same arguments after a crash or an error.
    """
    with psycopg.connect(former, autocommit=True) as source:
        _check_schema(source)
        here = _status_here(tenant_id)
        there = _status(source, tenant_id)
        if here is None and there in {Status.ACTIVE, Status.MOVING}:
            _check_movable(source, tenant_id)
            _freeze(source, tenant_id)
            after("frozen")
            time.sleep(SETTLE_SECONDS)
            _drain(source, tenant_id)
            rows = _copy(former, tenant_id)
            after("copied")
        elif here == Status.ARRIVING and there in {Status.MOVING, Status.MOVED}:
            rows = {}
        elif here == Status.ACTIVE and there == Status.MOVED:
            return Moved({})
        else:
            raise MoveError(
                f"The tenant is {there or 'unknown'} in the former cell and {here or 'unknown'} here."
            )
        _set_status(source, tenant_id, Status.MOVED)
        after("left")
        _activate(tenant_id)
        log.info("tenant_moved", tenant_id=str(tenant_id))
    return Moved(rows)


def give_up(tenant_id: UUID, *, former: str) -> None:
    """Thaw a tenant in its former cell before it has left it, and delete what was copied. Raises MoveError."""
    with psycopg.connect(former, autocommit=True) as source:
        if _status(source, tenant_id) != Status.MOVING or _status_here(tenant_id) is not None:
            raise MoveError("Only a tenant that is frozen and not yet copied can be thawed: finish the move.")
        _set_status(source, tenant_id, Status.ACTIVE)


def _check_schema(source: psycopg.Connection[Any]) -> None:
    migrations = "SELECT app, name FROM django_migrations ORDER BY 1, 2"
    with connection.cursor() as cursor:
        cursor.execute(migrations)
        if cursor.fetchall() != source.execute(migrations).fetchall():
            raise MoveError("The cells run different versions: migrate both first.")


def _check_movable(source: psycopg.Connection[Any], tenant_id: UUID) -> None:
    """A platform's tenants are reached by the platform's keys, and a mandate's notices come to where it was made."""
    row = source.execute(
        "SELECT app_id IS NOT NULL, EXISTS (SELECT FROM billing_mandate WHERE tenant_id = t.id) "
        "FROM tenants_tenant t WHERE id = %s",
        [tenant_id],
    ).fetchone()
    if row and row[0]:
        raise MoveError("The tenant belongs to a platform app, whose keys are of one cell.")
    if row and row[1]:
        raise MoveError("The tenant has a payment mandate, whose notices come to its cell.")


def _status_here(tenant_id: UUID) -> str | None:
    return Tenant.objects.filter(pk=tenant_id).values_list("status", flat=True).first()


def _status(source: psycopg.Connection[Any], tenant_id: UUID) -> str | None:
    row = source.execute("SELECT status FROM tenants_tenant WHERE id = %s", [tenant_id]).fetchone()
    return row[0] if row else None


def _set_status(source: psycopg.Connection[Any], tenant_id: UUID, status: str) -> None:
    source.execute("UPDATE tenants_tenant SET status = %s WHERE id = %s", [status, tenant_id])


def _freeze(source: psycopg.Connection[Any], tenant_id: UUID) -> None:
    _set_status(source, tenant_id, Status.MOVING)


def _drain(source: psycopg.Connection[Any], tenant_id: UUID) -> None:
    """Wait for deliveries, batches and sends that were under way at the freeze."""
    parameters = {"tenant": tenant_id, "send_seconds": 2 * settings.UPSTREAM_TIMEOUT_MS / 1000}
    deadline = time.monotonic() + DRAIN_SECONDS
    while any(under_way := source.execute(_UNDER_WAY, parameters).fetchone() or ()):
        if time.monotonic() > deadline:
            raise MoveError(f"Still under way: deliveries, batches, sends: {under_way}.")
        time.sleep(LOOK_SECONDS)


def _copy(former: str, tenant_id: UUID) -> dict[str, int]:
    """Copy all rows in one snapshot of the former cell and one transaction here."""
    tables = rows_of(tenant_id)
    target_parameters = connection.get_connection_params()
    with (
        psycopg.connect(former) as source,
        psycopg.connect(
            **{name: target_parameters[name] for name in target_parameters.keys() & _ADDRESS}
        ) as target,
    ):
        source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        _make_partitions(source, tenant_id)
        try:
            copied = {rows.table: _copy_table(source, target, rows) for rows in tables}
        except psycopg.errors.UniqueViolation as error:
            raise MoveError(
                f"A row exists here already ({error.diag.constraint_name}). Ids of cells overlap unless each was "
                "numbered (manage.py number_cell); people and accounts exist in one cell only."
            ) from error
        target.execute("UPDATE tenants_tenant SET status = %s WHERE id = %s", [Status.ARRIVING, tenant_id])
        counted = target.execute(_COUNTS, {"tenant": tenant_id}).fetchone()
        source.rollback()
        # A new snapshot: what was written after the first one would be lost.
        if counted != source.execute(_COUNTS, {"tenant": tenant_id}).fetchone():
            target.rollback()
            raise MoveError("Events came in while the rows were copied: repeat the move.")
    return copied


_ADDRESS = {"host", "port", "dbname", "user", "password", "sslmode", "options"}


# All that the table has, also what its model does not know.
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


def _copy_table(source: psycopg.Connection[Any], target: psycopg.Connection[Any], rows: TenantRows) -> int:
    names = target.execute(_COLUMNS, [rows.table]).fetchall()
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in names)
    read = sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT (FORMAT BINARY)").format(
        columns, sql.Identifier(rows.table), rows.condition
    )
    write = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(rows.table), columns)
    with source.cursor() as reading, target.cursor() as writing:
        with reading.copy(read) as out, writing.copy(write) as into:
            for block in out:
                into.write(block)
        return writing.rowcount


def _make_partitions(source: psycopg.Connection[Any], tenant_id: UUID) -> None:
    """The partitions for all the tenant's time: rows without one would never leave again."""
    row = source.execute("SELECT created_at::date FROM tenants_tenant WHERE id = %s", [tenant_id]).fetchone()
    if row is not None:
        partitions.make_all_from(row[0])


def _activate(tenant_id: UUID) -> None:
    tenant = Tenant.objects.get(pk=tenant_id)
    tenant.status = Status.ACTIVE
    audit.record(
        action="tenant.move",
        target_type="tenant",
        target_id=tenant.id,
        tenant_id=tenant.id,
        details={"before": {"status": Status.MOVING}, "after": {"status": Status.ACTIVE}},
    )
    tenant.save(update_fields=["status"])
    key_cache.write_tenant(tenant)
