"""Cells: several installations, each serving some of the tenants. Moves a tenant from one cell to another."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import structlog
from django.apps import apps
from django.conf import settings
from django.db import OperationalError, connection, models
from django.db.models import Q
from psycopg import sql

from gateway.clock import now
from gateway.database import partitions
from phone_numbers.models import BusinessAccount
from tenants import audit
from tenants.credentials import key_cache
from tenants.models import ApiKey, Tenant
from webhooks import stream

# --- Routing table of a cell: the prefixes of its keys, and its accounts (WABAs).
#
# Each cell writes its own part, and the router in front reads all parts (`deploy/cells/`). During a move a tenant is
# still listed by its former cell, which answers 503 for it. From the switch on, its new cell lists it.

_ELSEWHERE = (Tenant.Status.ARRIVING, Tenant.Status.MOVED)


def key_prefixes() -> Iterator[str]:
    """The prefixes of all keys that are still valid here, of tenants and of platform apps."""
    usable = ApiKey.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now()))
    found = usable.exclude(tenant__status__in=_ELSEWHERE)
    return found.order_by("prefix").values_list("prefix", flat=True).iterator()


def waba_ids() -> Iterator[str]:
    """The waba_ids of all accounts here."""
    found = BusinessAccount.objects.exclude(tenant__status__in=_ELSEWHERE)
    return found.order_by("waba_id").values_list("waba_id", flat=True).iterator()


# --- Sequences of a new cell: rows with integer ids must not clash when a tenant moves between cells.
#
# Each cell starts at a range of its own. UUIDs need nothing.

RANGE = 50_000_000
"""Ids for a cell in one table. 40 cells fit into the 32 bits of the smallest key."""
MOST_CELLS = 40


def number(cell: int) -> None:
    """Start every sequence at the cell's range that is not in it yet: in a new cell all, later those of new tables.

    Raises ValueError if the number is too high, or a table has other ids.
    """
    if not 0 <= cell < MOST_CELLS:
        raise ValueError(f"Cells are numbered from 0 to {MOST_CELLS - 1}.")
    start = cell * RANGE + 1
    with connection.cursor() as cursor:
        for table, column in _numbered():
            sequence, last = _sequence(cursor, table, column)
            if _cell_of(last) == cell:
                continue
            cursor.execute(
                sql.SQL("SELECT coalesce(max({}), 0) FROM {}").format(
                    sql.Identifier(column), sql.Identifier(table)
                )
            )
            (highest,) = cursor.fetchone()
            if highest >= start + RANGE:
                raise ValueError(f"{table} has ids beyond the cell's range.")
            cursor.execute("SELECT setval(%s, %s, false)", [sequence, max(start, highest + 1)])


def _cell_of(number: int) -> int:
    return (number - 1) // RANGE


def _sequence(database: Any, table: str, column: str) -> tuple[str, int]:
    """The name of a table's sequence, and its last id: one that was given, or is the next."""
    (name,) = _row(database, "SELECT pg_get_serial_sequence(%s, %s)", table, column)
    (last,) = _row(database, sql.SQL("SELECT last_value FROM {}").format(sql.SQL(name)))
    return name, last


def _row(database: Any, statement: Any, *parameters: object) -> Any:
    return database.execute(statement, parameters).fetchone()


def _numbered() -> list[tuple[str, str]]:
    return [
        (model._meta.db_table, model._meta.pk.column)
        for model in apps.get_models()
        if isinstance(model._meta.pk, models.AutoField) and model._meta.pk.column
    ]


# --- The rows of one tenant in every table, for its move to another cell.
#
# The list is derived from the models: tables with a `tenant_id`, and tables whose rows each belong to a row of such a
# table. Tables that stay behind are listed with the reason. A new table that is in neither list makes every move
# fail, and a test.

LEFT_BEHIND: Mapping[str, str] = {
    "account_emailconfirmation": "links of sign-ups that are over",
    "auth_group": "the staff's",
    "auth_permission": "the staff's",
    "django_admin_log": "what staff did in the admin of this cell",
    "django_content_type": "each cell has its own",
    "django_session": "people log in again",
    "messaging_keptnotification": "notifications of nobody",
    "tenants_appconnection": "its client is registered in this cell: members connect their apps again",
    "tenants_connectedappclient": "clients register themselves in each cell",
    "tenants_emaildomainrule": "rules of this cell's staff",
    "tenants_export": "files of a week: they are asked for again",
    "tenants_exportpart": "pieces of those files",
    "tenants_mailattachment": "mails are sent by the cell that wrote them",
    "tenants_outboundmail": "mails are sent by the cell that wrote them",
    "tenants_platformapp": "a platform's tenants do not move",
    "webhooks_exhausteddelivery": "reported within half a minute",
    "tenants_tenantnote": "what this cell's staff noted, by name",
}


def left_behind() -> dict[str, str]:
    """Tables that stay behind in a move, with the reason. Apps above this one name theirs in `left_behind`."""
    added = [getattr(config, "left_behind", {}) for config in apps.get_app_configs()]
    return {table: why for tables in (LEFT_BEHIND, *added) for table, why in tables.items()}


@dataclass(frozen=True, slots=True)
class TenantRows:
    """A table, and the condition for its rows of a tenant."""

    table: str
    condition: sql.Composable


def rows_of(tenant_id: UUID) -> list[TenantRows]:
    """All tables with rows of a tenant. Each comes after those that its condition refers to."""
    found: dict[type[models.Model], TenantRows] = {}
    behind = left_behind()
    waiting = [model for model in apps.get_models() if model._meta.db_table not in behind]
    while waiting:
        conditions = {model: _condition(model, tenant_id, found) for model in waiting}
        ready = {model: condition for model, condition in conditions.items() if condition is not None}
        if not ready:
            raise LookupError(f"Nothing leads from a tenant to {waiting[0]._meta.db_table}.")
        found |= {model: TenantRows(model._meta.db_table, condition) for model, condition in ready.items()}
        waiting = [model for model in waiting if model not in found]
    return list(found.values())


def _condition(
    model: type[models.Model], tenant_id: UUID, found: Mapping[type[models.Model], TenantRows]
) -> sql.Composable | None:
    if model._meta.label == "tenants.Tenant":
        return sql.SQL("id = {}").format(sql.Literal(tenant_id))
    columns = {field.column for field in model._meta.concrete_fields}
    if "tenant_id" in columns:
        return sql.SQL("tenant_id = {}").format(sql.Literal(tenant_id))
    for field in model._meta.concrete_fields:
        parent = found.get(field.related_model) if isinstance(field.related_model, type) else None
        if parent is not None and isinstance(field, models.ForeignKey) and not field.null:
            return sql.SQL("{} IN (SELECT {} FROM {} WHERE {})").format(
                sql.Identifier(field.column),
                sql.Identifier(str(field.target_field.column)),
                sql.Identifier(parent.table),
                parent.condition,
            )
    return None


# --- Move of a tenant from another cell to this one: freeze, copy, switch. After a crash every step can be repeated.
#
# During the move the tenant is active in neither cell. Its calls and notifications are answered 503, which clients
# and Meta repeat; its deliveries and batches wait. In the former cell its status is `moving`, in this one `arriving`.
# First the former becomes `moved`, then this one becomes `active`, so the two never both send.
#
# One transaction on each side copies all rows, so the copy is complete or absent.

log = structlog.get_logger(__name__)

Status = Tenant.Status
SETTLE_SECONDS = 60.0
"""The wait between freeze and copy. It is longer than a process caches a tenant (9 s), and longer than a send takes
until its event is written (15 s for Meta, 15 s for an unavailable database).
"""
LOOK_SECONDS = 0.2
DRAIN_SECONDS = 600.0

# Deliveries, batches and sends that began before the freeze and are not recorded yet.
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
    """The tenant cannot be moved. The step that raises it has changed nothing."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows a move copied, by table."""

    rows: Mapping[str, int]


def take(
    tenant_id: UUID,
    *,
    former: str,
    after: Callable[[str], None] = lambda step: None,
) -> Moved:
    """Move a tenant here from the cell whose database `former` names. Calls `after` with each finished step.

    Raises MoveError. After a crash or an error, call it again with the same arguments.
    """
    with psycopg.connect(former, autocommit=True) as source:
        _check_schema(source)
        here = _status_here(tenant_id)
        there = _status(source, tenant_id)
        if here is None and there in {Status.ACTIVE, Status.MOVING}:
            _check_movable(source, tenant_id)
            _check_numbers(source, tenant_id)
            _freeze(source, tenant_id)
            after("frozen")
            time.sleep(SETTLE_SECONDS)
            _drain(source, tenant_id)
            _begin_epoch(source)
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
    """Undo the freeze of a tenant that is not copied yet: reactivate it in its former cell. Raises MoveError."""
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
    """Reject tenants of a platform, whose keys must reach all of its tenants."""
    row = source.execute(
        "SELECT app_id IS NOT NULL FROM tenants_tenant WHERE id = %s", [tenant_id]
    ).fetchone()
    if row and row[0]:
        raise MoveError("The tenant belongs to a platform app, whose keys are of one cell.")


def _check_numbers(source: psycopg.Connection[Any], tenant_id: UUID) -> None:
    """Reject a move if this cell would give ids that the former cell gives too, or that the tenant's rows have."""
    condition = {rows.table: rows.condition for rows in rows_of(tenant_id)}
    with connection.cursor() as cursor:
        for table, column in _numbered():
            if table not in condition:
                continue
            _, here = _sequence(cursor, table, column)
            _, there = _sequence(source, table, column)
            own = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} AND {} BETWEEN %s AND %s)").format(
                sql.Identifier(table), condition[table], sql.Identifier(column)
            )
            (clash,) = _row(source, own, here, (_cell_of(here) + 1) * RANGE)
            if clash or _cell_of(here) == _cell_of(there):
                raise MoveError(
                    f"{table} would get ids here that are taken: manage.py number_cell comes first."
                )


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
    """Wait for the deliveries, batches and sends that were under way at the freeze."""
    parameters = {"tenant": tenant_id, "send_seconds": 2 * settings.UPSTREAM_TIMEOUT_MS / 1000}
    deadline = time.monotonic() + DRAIN_SECONDS
    while any(under_way := source.execute(_UNDER_WAY, parameters).fetchone() or ()):
        if time.monotonic() > deadline:
            raise MoveError(f"Still under way: deliveries, batches, sends: {under_way}.")
        time.sleep(LOOK_SECONDS)


def _begin_epoch(source: psycopg.Connection[Any]) -> None:
    """Let positions in the event stream here come after all of the former cell's, which the rows keep."""
    row = source.execute(stream.CURRENT_EPOCH).fetchone()
    try:
        stream.begin_epoch(above=row[0] if row else 0)
    except OperationalError as error:
        raise MoveError("A transaction that writes events here does not end: repeat the move.") from error


def _copy(former: str, tenant_id: UUID) -> dict[str, int]:
    """Copy all rows from one snapshot of the former cell, in one transaction here."""
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
        # A new snapshot, because rows written after the first one would be lost.
        if counted != source.execute(_COUNTS, {"tenant": tenant_id}).fetchone():
            target.rollback()
            raise MoveError("Events came in while the rows were copied: repeat the move.")
    return copied


_ADDRESS = {"host", "port", "dbname", "user", "password", "sslmode", "options"}


# All columns of the table, including those that its model does not know.
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
    """Create the partitions for the tenant's whole time range. Rows outside of any partition would never be dropped."""
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
