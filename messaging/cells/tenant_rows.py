"""The rows of one tenant in every table, for its move to another cell.

Derived from the models: a table with a `tenant_id`, and a table whose rows each belong to a row of such a one. What is
left behind is listed with its reason; a new table that is neither makes each move fail, and a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.apps import apps
from django.db import models
from psycopg import sql

LEFT_BEHIND: Mapping[str, str] = {
    "account_emailconfirmation": "links of sign-ups that are over",
    "auth_group": "the staff's",
    "auth_permission": "the staff's",
    "billing_invoiceseries": "each cell has series of its own",
    "billing_providerevent": "notices of the payment provider to this cell",
    "billing_providertrouble": "this cell's connection to the payment provider",
    "django_admin_log": "what staff did in the admin of this cell",
    "django_content_type": "each cell has its own",
    "django_session": "people log in again",
    "messaging_keptnotification": "notifications of nobody",
    "tenants_emaildomainrule": "rules of this cell's staff",
    "tenants_mailattachment": "mails are sent by the cell that wrote them",
    "tenants_outboundmail": "mails are sent by the cell that wrote them",
    "tenants_platformapp": "a platform's tenants do not move",
}


@dataclass(frozen=True, slots=True)
class TenantRows:
    """A table, and the condition that its rows of a tenant meet."""

    table: str
    condition: sql.Composable


def rows_of(tenant_id: UUID) -> list[TenantRows]:
    """All tables with rows of a tenant, each behind those that its condition asks."""
    found: dict[type[models.Model], TenantRows] = {}
    waiting = [model for model in apps.get_models() if model._meta.db_table not in LEFT_BEHIND]
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
