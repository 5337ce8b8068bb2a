"""`manage.py migrate --wait`: waits for a database that is starting, and fails if the database stays unavailable. It
does not wait long for locks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate as django_migrate
from django.db import OperationalError, connection, connections, transaction

from gateway.database.transactions import is_lock_limit
from gateway.management.commands import migrate

pytestmark = pytest.mark.django_db


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' database under the alias `late`, at an address without a server."""
    settings = connection.settings_dict
    options = {**settings["OPTIONS"], "host": str(tmp_path), "pool": None}
    connections.databases["late"] = {**settings, "HOST": str(tmp_path), "OPTIONS": options}
    made = connections["late"] = connections.create_connection("late")

    def connect() -> None:
        """Connect as Django's own method does. In tests, Django replaces that method with one that refuses databases
        which the test's class does not name.
        """
        with made.wrap_database_errors:
            if made.connection is None:
                made.connect()

    monkeypatch.setattr(made, "ensure_connection", connect)
    yield
    made.close()
    del connections["late"], connections.databases["late"]


def test_migrate_waits_for_a_database_that_is_starting(
    late: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited = []

    def starts_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        own = connection.settings_dict
        connections["late"].settings_dict |= {
            "HOST": own["HOST"],
            "OPTIONS": own["OPTIONS"] | {"pool": None},
        }

    monkeypatch.setattr("gateway.management.commands.migrate.time.sleep", starts_meanwhile)
    call_command("migrate", "--plan", database="late", wait=30)
    assert waited == [migrate.LOOK_SECONDS]
    assert "No planned migration operations" in capsys.readouterr().out


def test_migrate_ends_when_the_database_stays_away(late: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.management.commands.migrate.time.sleep", lambda _: None)
    with pytest.raises(CommandError, match=r"did not answer within 0\.1 seconds"):
        call_command("migrate", "--plan", database="late", wait=0.1)


@pytest.mark.django_db(transaction=True)
def test_a_migration_does_not_wait_for_a_table_that_a_dump_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all traffic of the table waits behind it until the dump ends."""

    def add_column(*_: Any, **__: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE tenants_tenant ADD COLUMN added integer")
            transaction.set_rollback(True)

    monkeypatch.setattr(django_migrate.Command, "handle", add_column)
    monkeypatch.setattr(migrate, "LOCK_WAIT", "50ms")
    call_command("migrate")
    with psycopg.connect(**{**connection.get_connection_params(), "autocommit": False}) as dump:
        dump.execute("SET LOCAL idle_in_transaction_session_timeout = '5s'")
        dump.execute("LOCK TABLE tenants_tenant IN ACCESS SHARE MODE")
        with pytest.raises(OperationalError) as raised:
            call_command("migrate")
        assert is_lock_limit(raised.value)
        dump.execute("SELECT")
