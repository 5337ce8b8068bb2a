"""`python -m tests.operating.other_servers PYTEST-ARGUMENTS`: tests on Debian's Postgres and Redis, behind PgBouncer.

PgBouncer pools by transaction: each transaction may use another connection. The servers are the oldest that the service
supports (docs/operations.md), from the Debian packages postgresql-15, pgbouncer and redis-server.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import redis

from gateway.local_run.process_group import ProcessGroup
from tests.free_ports import free_port

POSTGRES = Path("/usr/lib/postgresql/15/bin")
NOT_BEHIND_A_POOLER = [
    # This test kills a server process by id. A client behind a pooler does not know that id.
    "messaging/tests/test_incoming.py::TestRaces::test_no_200_when_the_database_ends_before_it_has_stored"
]
START_SECONDS = 20.0
PGBOUNCER = """
[databases]
* = host=127.0.0.1 port={postgres}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


def main() -> int | str:
    """Start the servers, run pytest with them, end them. Returns pytest's exit code, or a message about what is
    missing.
    """
    for program in (str(POSTGRES / "postgres"), "pgbouncer", "redis-server"):
        if _path_of(program) is None:
            return f"{program} is missing (Debian: apt-get install postgresql-15 pgbouncer redis-server)."
    group = ProcessGroup(grace_seconds=1)
    with tempfile.TemporaryDirectory(prefix="gateway-servers-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        try:
            environment = {**os.environ, **_start(directory, group.id)}
            left_out = [f"--deselect={test}" for test in NOT_BEHIND_A_POOLER]
            environment.pop("DJANGO_SETTINGS_MODULE", None)
            return subprocess.run(
                [sys.executable, "-m", "pytest", "-n", "0", "--reuse-db", *left_out, *sys.argv[1:]],
                env=environment,
                check=False,
            ).returncode
        except (psycopg.OperationalError, redis.ConnectionError):
            return (directory / "servers.log").read_text()
        finally:
            group.close()


def _start(directory: Path, group: int) -> dict[str, str]:
    """Start Postgres, PgBouncer and Redis. Returns the environment for the service."""
    cluster, postgres, pgbouncer, valkey = directory / "cluster", free_port(), free_port(), free_port()
    cluster.mkdir()
    (directory / "users").write_text('"gateway" ""\n')
    (directory / "pgbouncer.ini").write_text(
        PGBOUNCER.format(postgres=postgres, port=pgbouncer, directory=directory)
    )
    if os.geteuid() == 0:
        shutil.chown(cluster, "postgres", "postgres")
    make = [
        str(POSTGRES / "initdb"),
        "-D",
        str(cluster),
        "-U",
        "gateway",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    subprocess.run([*_as_postgres(), *make], cwd="/", check=True, stdout=subprocess.DEVNULL)
    options = [
        f"-cport={postgres}",
        "-clisten_addresses=127.0.0.1",
        f"-cunix_socket_directories={cluster}",
        "-cfsync=off",
        "-csynchronous_commit=off",
        "-cfull_page_writes=off",
    ]
    commands = [
        [
            *_as_postgres(),
            str(POSTGRES / "postgres"),
            "-D",
            str(cluster),
            *options,
            "-cmax_connections=200",
        ],
        [*_as_postgres(), str(_path_of("pgbouncer")), str(directory / "pgbouncer.ini")],
        [
            str(_path_of("redis-server")),
            "--port",
            str(valkey),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(directory),
        ],
    ]
    with (directory / "servers.log").open("wb") as log:
        for command in commands:
            subprocess.Popen(command, cwd="/", stdout=log, stderr=log, process_group=group)
    direct = f"postgresql://gateway@127.0.0.1:{postgres}"
    _wait(lambda: psycopg.connect(f"{direct}/postgres").close())
    with psycopg.connect(f"{direct}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE gateway")
    pooled = f"postgresql://gateway@127.0.0.1:{pgbouncer}/gateway"
    _wait(lambda: psycopg.connect(pooled).close())
    redis_url = f"redis://127.0.0.1:{valkey}/0"
    _wait(lambda: redis.Redis.from_url(redis_url).ping())
    return {
        "DATABASE_URL": pooled,
        "DIRECT_DATABASE_URL": f"{direct}/gateway",
        "REDIS_URL": redis_url,
        "DATABASE_PREPARED_STATEMENTS": "false",
    }


def _path_of(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")


def _as_postgres() -> list[str]:
    """The prefix of a command line of Postgres or PgBouncer. Neither server starts as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def _wait(answers: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            answers()
            return
        except (psycopg.OperationalError, redis.ConnectionError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
