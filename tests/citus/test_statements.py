"""Checks the text of the SQL for a cluster, but runs no cluster. `make citus` runs the SQL on a cluster."""

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
    "messaging.message_log.staff_message_search._BY_NODE",
    "messaging.message_log.staff_message_search._BY_TENANT",
    "webhooks.delivery.claim_statements.BUSY",
    "webhooks.delivery.claim_statements.HOLDERS",
    "webhooks.delivery.claim_statements._LEASED",
    "webhooks.delivery.claim_statements._LEASES_OF",
    "webhooks.delivery.claim_statements._READY",
    "webhooks.delivery.monitoring._BUSY",
    "webhooks.delivery.monitoring._DEAD",
    "webhooks.delivery.monitoring._NOT_HELD_BACK",
    "webhooks.open_deliveries._BY_INDEX",
    "messaging.message_log.staff_message_search._EVERYWHERE",
    "messaging.message_log.staff_message_search._FIND_EVERYWHERE",
    "messaging.message_log.staff_message_search._OF_CUSTOMER_EVERYWHERE",
    "webhooks.admin.cards_and_charts._BUSIEST",
    "webhooks.admin.cards_and_charts._COUNTED",
    "webhooks.admin.cards_and_charts._DELIVERIES",
    "webhooks.admin.cards_and_charts._EVENTS",
    "webhooks.admin.cards_and_charts._FAILING",
}
"""The SQL of polls and staff pages, which covers all tenants and runs on all nodes."""
_READS = re.compile(rf"\b(?:FROM|JOIN|UPDATE|USING) (?:{'|'.join(TABLES)})\b")
_NAMES_TENANT = re.compile(r"\btenant_id = (?:ANY\()?%")


@pytest.fixture(scope="module")
def statements() -> dict[str, str]:
    """The SQL that a process with a distributed database uses, by module and name."""
    environment = {**os.environ, "DATABASE_IS_DISTRIBUTED": "true", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.citus.statements"]
    printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True).stdout
    found: dict[str, str] = json.loads(printed)
    return found


def test_statements_on_distributed_tables_name_the_tenant(statements: dict[str, str]) -> None:
    """A statement without the tenant runs on all nodes, and Citus rejects it if it locks rows."""
    without = {
        name
        for name, text in statements.items()
        if len(_READS.findall(text)) > len(_NAMES_TENANT.findall(text))
    }
    assert without == OF_ALL_TENANTS


@pytest.mark.django_db(transaction=True)
def test_an_event_is_not_settled_before_each_node_has_committed_it(statements: dict[str, str]) -> None:
    """Citus keeps a row in `pg_dist_transaction` for each part of a transaction until the part is committed."""
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
