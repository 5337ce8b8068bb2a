"""The watches over all tests: what they refuse, and the lists of exceptions in `owned_rows.py` and `locked_rows.py`."""

import ast
import logging
from typing import Any

import pytest
import structlog
from django.db import connection, transaction

from tenants.models import Tenant
from tests.locked_rows import WITHOUT_ITS_LOCK
from tests.owned_rows import EVERYWHERE, missing
from tests.watched import HERE, ROOT, found
from webhooks.models import Endpoint

OF_TENANT = "SELECT id FROM events WHERE tenant_id = %s"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (OF_TENANT, "environment"),
        (f"{OF_TENANT} AND environment = %s", ""),
        ("SELECT id FROM events WHERE environment = %s AND wa_id = %s", "tenant"),
        ("SELECT tenant_id FROM events e JOIN e.tenant_id = t.id", "tenant"),
        ("SELECT url FROM webhooks_endpoint WHERE id = ANY(%s)", ""),
        ("UPDATE webhook_deliveries SET status = 'dead' WHERE endpoint_id = %s", ""),
        ('DELETE FROM "messaging_optout" WHERE "messaging_optout"."user_id" = %s', "tenant"),
        ("UPDATE webhooks_endpoint SET tenant_id = %s", "tenant"),
        ("SELECT id FROM tenants_user WHERE is_active AND NOT (id = %s)", "tenant"),
        (
            "SELECT m.id FROM messages m JOIN events e ON e.id = m.event_id WHERE m.tenant_id = %s",
            "environment",
        ),
        ("SELECT 1", ""),
    ],
)
def test_a_statement_names_the_owner_of_rows(statement: str, what: str) -> None:
    assert missing(statement) == what


def ours(file: str, text: str) -> Any:
    """A function that seems to be in a file of ours."""
    made: dict[str, Any] = {}
    exec(compile(text, f"{HERE}{file}", "exec"), made)  # noqa: S102
    return made["ours"]


@pytest.mark.django_db
def test_code_that_reads_objects_names_their_owner(tenant: Tenant) -> None:
    read = ours("webhooks/reading.py", "def ours(rows): return list(rows)")
    endpoints = Endpoint.objects.filter(tenant=tenant)
    read(endpoints.filter(environment="live"))
    list(endpoints)
    assert found == []
    read(endpoints.all())
    assert [each.partition(":")[0] for each in found] == ["webhooks/reading.py"]
    found.clear()


@pytest.mark.django_db
def test_a_row_is_saved_under_a_lock(tenant: Tenant) -> None:
    rename = ours("tenants/renaming.py", "def ours(row): row.save()")
    rename(Tenant.objects.create(name="New", status="active"))
    rename(Tenant.objects.select_for_update().get(pk=tenant.pk))
    assert found == []
    row = Tenant.objects.get(pk=tenant.pk)
    row.save()
    assert found == [], "a test saves what it likes"
    rename(row)
    assert found == ["tenants/renaming.py:ours saves a Tenant that it read without a lock"]
    found.clear()


def test_each_exception_is_code_that_exists() -> None:
    for each in EVERYWHERE | WITHOUT_ITS_LOCK:
        file, _, function = each.partition(":")
        names = {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert set(function.replace(".<locals>.<lambda>", "").split(".")) - {""} <= names, each


@pytest.mark.parametrize(
    ("private", "is_found"),
    [("wb_live_a1B2a1B2a1B2", True), ("919812345678", True), ("106540352242922", False), ("asha", False)],
)
def test_a_line_has_no_credential_and_no_phone_number(private: str, is_found: bool) -> None:
    structlog.get_logger("gateway.sending").info("sent", to=private)
    assert bool(found) is is_found
    found.clear()
    logging.getLogger("urllib4").warning("no route to %s", private)
    assert bool(found) is is_found
    found.clear()


@pytest.mark.django_db
@pytest.mark.parametrize("statement", ["SET LOCAL lock_timeout = '1s'", "SELECT pg_advisory_xact_lock(1)"])
def test_a_setting_or_lock_of_a_transaction_needs_one(statement: str) -> None:
    run = ours(
        "webhooks/setting.py",
        "def ours(connection, statement):\n with connection.cursor() as cursor: cursor.execute(statement)",
    )
    with transaction.atomic():
        run(connection, statement)
    assert found == []
    run(connection, statement)
    assert found == [f"webhooks/setting.py:ours begins no transaction for: {statement}"]
    found.clear()
