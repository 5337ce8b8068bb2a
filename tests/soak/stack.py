"""The service of a soak on one machine: two processes of each role, and a small host. Ended processes restart."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.equipment.harness import children_by_parent, memory_of
from gateway import embedded_addresses
from gateway.local_run import embedded_servers, processes
from gateway.local_run.process_group import ProcessGroup
from gateway.local_run.processes import Child, Process
from tests.free_ports import free_port

TWICE = ("web", "deliveries", "batches", "beat")
LOOK_SECONDS = 0.05
READY_SECONDS = 120.0


class Stack:
    """The processes by name (`web0`, `web1`, `host`, …, `postgres`); a context manager."""

    def __init__(self) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="gateway-soak-"))
        self.group = ProcessGroup()
        self.children: dict[str, Child] = {}
        self.processes: dict[str, Process] = {}
        self.ports: dict[str, int] = {}
        self.keeps_files = False
        """Whether the logs are kept after the run."""
        self._away: set[str] = set()

    def __enter__(self) -> Self:
        self._add(
            "postgres",
            partial(embedded_servers.start_postgres, self.data_dir),
            embedded_servers.stop_postgres,
        )
        self._add(
            "valkey", partial(embedded_servers.start_valkey, self.data_dir), embedded_servers.stop_valkey
        )
        try:
            for name in ("postgres", "valkey"):
                self.children[name].start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name, process in self.processes.items():
            if name not in {"postgres", "valkey"} and process.poll() is None:
                process.kill()
        for name in ("valkey", "postgres"):
            self.children[name].stop()
        self.group.close()
        if not self.keeps_files:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            shutil.rmtree(embedded_addresses.socket_dir(self.data_dir), ignore_errors=True)

    def start(self) -> None:
        """Migrate and start everything. Returns when all servers answer."""
        migrate = self._start("migrate", [sys.executable, "-m", "django", "migrate", "--verbosity=0"])
        if migrate.wait():
            raise processes.StartError(processes.log_tail(self.data_dir, "migrate"))
        self.ports = {name: free_port() for name in ("web0", "web1", "host")}
        for kind in ("web", "host", "deliveries", "batches", "tasks", "beat"):
            for name in [f"{kind}{place}" for place in range(2)] if kind in TWICE else [kind]:
                command = processes.service_command(
                    *([] if kind == "host" else [kind]), port=self.ports.get(name)
                )
                start = partial(self._start, name, [*command, f"--name={name}"])
                self._add(name, start, partial(processes.stop, seconds=12))
                self.children[name].start()
        for name, port in self.ports.items():
            processes.wait_for_answer(
                port, "/v1/health", seconds=READY_SECONDS, check_alive=self.children[name].check_alive
            )

    def run(self, module: str, *arguments: object) -> Process:
        """Start a module of this package beside the service. The log file has the module's name."""
        name = module.rpartition(".")[2]
        self.processes[name] = self._start(name, [sys.executable, "-m", module, *map(str, arguments)])
        return self.processes[name]

    def named(self, kind: str) -> list[str]:
        """The names of the processes of a kind."""
        return [name for name in self.children if name.rstrip("0123456789") == kind]

    def tend(self) -> None:
        """Restart ended processes. Call it a few times a second."""
        for name, child in self.children.items():
            if name not in self._away:
                child.tend()

    def pause(self, seconds: float) -> None:
        """Wait, and meanwhile restart ended processes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tend()
            time.sleep(LOOK_SECONDS)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL. `tend` restarts it."""
        self.processes[name].kill()

    def freeze(self, name: str, seconds: float) -> None:
        """Freeze a process for some seconds, as if the machine had stalled."""
        frozen = self.processes[name]
        frozen.send_signal(signal.SIGSTOP)
        self.pause(seconds)
        frozen.send_signal(signal.SIGCONT)

    def take_away(self, name: str, seconds: float) -> None:
        """Shut a server down, and start it again after some seconds."""
        self._away.add(name)
        self.children[name].stop()
        self.pause(seconds)
        self.children[name].start()
        self._away.remove(name)

    def megabytes(self) -> dict[str, float]:
        """The memory in MB of the largest process of each kind. Shared pages count in proportion."""
        parents = children_by_parent()
        found: dict[str, float] = {}
        for name in self.children:
            process = self.processes[name]
            if process.poll() is None:
                kind = name.rstrip("0123456789")
                found[kind] = max(found.get(kind, 0.0), memory_of(process.pid, parents))
        return found

    def _start(self, name: str, command: list[str], *, process_group: int | None = None) -> Process:
        own = self.data_dir
        if name.startswith(("host", "beat")):
            # Each beat has its own schedule.
            own /= name
            own.mkdir(exist_ok=True)
        return processes.start(
            name,
            command,
            data_dir=self.data_dir,
            process_group=process_group or self.group.id,
            environment={**os.environ, "DATA_DIR": str(own)},
        )

    def _add(self, name: str, start: Callable[..., Process], stop: Callable[[Any], None]) -> None:
        def noted() -> Process:
            self.processes[name] = process = start(process_group=self.group.id)
            return process

        self.children[name] = Child(name, data_dir=self.data_dir, start=noted, stop=stop)
