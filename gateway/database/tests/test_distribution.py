"""Which rows one statement may name, and which tables Citus distributes. `tests/citus` runs the flows on a cluster."""

from uuid import UUID

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from pytest_django import Settings

from gateway.database.distribution import TABLES, of_tenant, together

FIRST, SECOND = UUID(int=1), UUID(int=2)
ROWS = [(FIRST, "a"), (SECOND, "b"), (FIRST, "c")]


def tenant_of(row: tuple[UUID, str]) -> UUID:
    return row[0]


def test_one_statement_names_what_is_of_all_tenants() -> None:
    assert [*together(ROWS, tenant_of)] == [(None, ROWS)]
    assert [*together([], tenant_of)] == []


def test_on_citus_each_statement_names_one_tenant(settings: Settings) -> None:
    settings.DATABASE_IS_DISTRIBUTED = True
    assert [*together(iter(ROWS), tenant_of)] == [(FIRST, [ROWS[0], ROWS[2]]), (SECOND, [ROWS[1]])]


def test_only_on_citus_a_statement_has_the_condition_on_the_tenant(settings: Settings) -> None:
    assert of_tenant("d") == "true"
    settings.DATABASE_IS_DISTRIBUTED = True
    assert of_tenant("d") == "d.tenant_id = %(tenant_id)s"


@pytest.mark.parametrize("table", TABLES)
def test_a_distributed_table_has_a_tenant_and_no_foreign_key(table: str) -> None:
    (model,) = (model for model in apps.get_models() if model._meta.db_table == table)
    assert "tenant_id" in {field.column for field in model._meta.concrete_fields}
    assert not [field for field in model._meta.get_fields() if field.is_relation]


@pytest.mark.django_db
def test_distributing_needs_the_setting_and_the_extension(settings: Settings) -> None:
    with pytest.raises(CommandError, match="DATABASE_IS_DISTRIBUTED=true"):
        call_command("distribute")
    settings.DATABASE_IS_DISTRIBUTED = True
    with pytest.raises(CommandError, match="no Citus"):
        call_command("distribute")
