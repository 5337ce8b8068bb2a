"""What the statements of a cluster say, without a cluster: `make citus` runs them on one."""

import json
import os
import re
import subprocess
import sys

import pytest
from django.db import connection, transaction

from gateway.database.distribution import TABLES
from tests.citus.cluster import ROOT

OF_ALL_TENANTS = {
    "webhooks.events.staff_message_search._BY_NODE",
    "webhooks.events.staff_message_search._BY_TENANT",
    "webhooks.delivery.claim_statements.BUSY",
    "webhooks.delivery.claim_statements.HOLDERS",
    "webhooks.delivery.claim_statements._LEASED",
    "webhooks.delivery.claim_statements._LEASES_OF",
    "webhooks.delivery.claim_statements._READY",
    "webhooks.delivery.monitoring._BUSY",
    "webhooks.delivery.monitoring._DEAD",
    "webhooks.delivery_rows._BY_INDEX",
    "webhooks.events.staff_message_search._EVERYWHERE",
    "webhooks.events.staff_message_search._FIND_EVERYWHERE",
    "webhooks.events.staff_message_search._OF_CUSTOMER_EVERYWHERE",
    "webhooks.admin.dashboard._BUSIEST",
    "webhooks.admin.dashboard._COUNTED",
    "webhooks.admin.dashboard._DELIVERIES",
    "webhooks.admin.dashboard._EVENTS",
    "webhooks.admin.dashboard._FAILING",
}
"""Polls and pages of staff: all nodes answer them."""
_READS = re.compile(rf"\b(?:FROM|JOIN|UPDATE|USING) (?:{'|'.join(TABLES)})\b")
_NAMES_TENANT = re.compile(r"\btenant_id = (?:ANY\()?%")


@pytest.fixture(scope="module")
def statements() -> dict[str, str]:
    """The SQL of a process whose database is distributed, by its names."""
    environment = {**os.environ, "DATABASE_IS_DISTRIBUTED": "true", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.citus.statements"]
    printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True).stdout
    found: dict[str, str] = json.loads(printed)
    return found


def test_statements_on_distributed_tables_name_the_tenant(statements: dict[str, str]) -> None:
    """Otherwise all nodes execute them, and Citus rejects those that lock rows."""
    without = {
        name
        for name, text in statements.items()
        if len(_READS.findall(text)) > len(_NAMES_TENANT.findall(text))
    }
    assert without == OF_ALL_TENANTS


_LOCKS = re.compile(r"\bFOR (?:NO KEY )?UPDATE\b")
_CHANGES = re.compile(r"\bUPDATE \w+\b.*\bSET\b|\bDELETE FROM\b", re.DOTALL)


def _openings(text: str) -> list[int]:
    """Where the parentheses begin that are still open at the end of a text."""
    found: list[int] = []
    for place, character in enumerate(text):
        if character == "(":
            found.append(place)
        elif character == ")":
            found.pop()
    return found


def _may_repeat(statement: str) -> bool:
    """Whether it changes the rows of a subquery that locks a limited number, and that a join may execute again."""
    if not _CHANGES.search(statement):
        return False
    for lock in _LOCKS.finditer(statement):
        for opening in reversed(_openings(statement[: lock.start()])):
            before = statement[:opening].rstrip()
            if before.endswith(("ARRAY", " AS MATERIALIZED", " AS")):
                break
            if not before.endswith("LATERAL") and "LIMIT" in statement[opening : lock.start()]:
                return True
    return False


def test_rows_that_a_statement_locks_up_to_a_limit_are_found_once(statements: dict[str, str]) -> None:
    """A subquery after FROM, USING or IN is executed again for each row when the planner joins it from the inside. Each
    time it locks more rows, because it passes over those that the statement has changed.
    """
    assert _may_repeat("UPDATE t SET a = 1 WHERE id IN (SELECT id FROM t LIMIT 5 FOR UPDATE SKIP LOCKED)")
    assert _may_repeat("DELETE FROM t USING (SELECT id FROM t LIMIT 5 FOR NO KEY UPDATE) AS o WHERE true")
    assert not [name for name, text in statements.items() if _may_repeat(text)]
    assert len([text for text in statements.values() if _LOCKS.search(text) and "LIMIT" in text]) > 8


@pytest.mark.django_db(transaction=True)
def test_an_event_is_not_settled_before_each_node_has_committed_it(statements: dict[str, str]) -> None:
    """Citus has a row for each part of a transaction until the part is surely committed."""
    with connection.cursor() as cursor:

        def settled() -> int:
            cursor.execute(statements["webhooks.stream._HORIZON"])
            return int(cursor.fetchone()[0])

        cursor.execute("CREATE TABLE pg_dist_transaction (groupid int)")
        try:
            with transaction.atomic():
                cursor.execute("INSERT INTO pg_dist_transaction VALUES (1)")
                cursor.execute("SELECT event_position(pg_current_xact_id())::text")
                position = int(cursor.fetchone()[0])
            assert settled() == position
            cursor.execute("DELETE FROM pg_dist_transaction")
            assert settled() > position
        finally:
            cursor.execute("DROP TABLE pg_dist_transaction")
