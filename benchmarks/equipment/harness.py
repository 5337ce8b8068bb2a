"""The environment of a benchmark: fresh embedded servers in a temporary directory, and processes on free ports.

`with Harness() as harness:` starts Postgres (durable, as in `make run`) and Valkey, sets up Django in this process and
migrates. Then the benchmark starts the processes that it needs: `web`, `worker`, `simulator`, or any command. `measure`
measures the time and the CPU seconds of every process during a block. At the end, all processes are stopped and all
files deleted, even after an error.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gateway import embedded_addresses
from gateway.local_run import embedded_servers, processes
from gateway.local_run.process_group import ProcessGroup
from tests.free_ports import free_port

_PYTHON = [sys.executable, "-m"]
_TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 60.0


@dataclass
class Measured:
    """The result of `Harness.measure`: wall seconds, and CPU seconds by process (`client` is this process)."""

    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)

    def cpu_per(self, units: int) -> dict[str, float]:
        """CPU microseconds per unit, by process. Processes that used no CPU are left out."""
        return _per_unit(self.cpu, units)


def _per_unit(cpu: Mapping[str, float], units: int) -> dict[str, float]:
    return {name: spent / units * 1e6 for name, spent in cpu.items() if spent / units * 1e6 >= 0.5}


class Harness:
    """The environment of a benchmark. Use it as a context manager, only once in a process."""

    def __init__(self) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="gateway-bench-"))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: dict[str, str] = {}
        """The base URL of each process that `listen` started."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.data_dir, ignore_errors=True)
            stack.callback(shutil.rmtree, embedded_addresses.socket_dir(self.data_dir), ignore_errors=True)
            self._group = ProcessGroup()
            stack.callback(self._group.close)
            self.running["postgres"] = embedded_servers.start_postgres(
                self.data_dir, process_group=self._group.id
            )
            stack.callback(embedded_servers.stop_postgres, self.running["postgres"])
            self.running["valkey"] = embedded_servers.start_valkey(
                self.data_dir, process_group=self._group.id
            )
            stack.callback(embedded_servers.stop_valkey, self.running["valkey"])
            self.environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("SIMULATOR_")},
                "DATA_DIR": str(self.data_dir),
                "DATABASE_URL": embedded_addresses.database_url(self.data_dir),
                "REDIS_URL": embedded_addresses.valkey_url(self.data_dir),
                "DJANGO_SETTINGS_MODULE": "gateway.settings",
                "WEBHOOK_ALLOW_HTTP": "true",
                "WEBHOOK_ALLOW_PRIVATE_NETWORKS": "true",
            }
            os.environ.update(self.environment)
            _set_up_django()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a command under a name. `log(name)` returns its output, and `measure` its CPU by the name."""
        process = processes.start(
            name,
            command,
            data_dir=self.data_dir,
            process_group=self._group.id,
            environment={**self.environment, **environment},
        )
        self.running[name] = process
        self._stack.callback(self._end, process)
        return process

    def stop(self, name: str) -> None:
        """Stop a process that `start` has started."""
        self._end(self.running.pop(name))

    def listen(
        self, name: str, command: Callable[[int], list[str]], *, ready: str, **environment: str
    ) -> str:
        """Start a command that listens on a given port. Returns its base URL when the path `ready` answers 200."""
        port = free_port()
        process = self.start(name, command(port), PORT=str(port), **environment)

        def check_alive() -> None:
            if process.poll() is not None:
                raise processes.StartError(f"{name} ended while starting; {self.log(name)}")

        processes.wait_for_answer(port, ready, seconds=READY_SECONDS, check_alive=check_alive)
        self.urls[name] = f"http://127.0.0.1:{port}"
        return self.urls[name]

    def web(
        self, *roles: str, name: str = "web", ready: str = "/v1/health", module: str = "", **environment: str
    ) -> str:
        """Start a web process, which also has the roles `roles`. Returns its base URL as soon as it answers.

        With `module`, this Python module is started in place of the service.
        """
        return self.listen(
            name,
            lambda port: (
                [*_PYTHON, module, f"--port={port}"]
                if module
                else processes.service_command("web", *roles, port=port)
            ),
            ready=ready,
            **environment,
        )

    def small_host(self, *, name: str = "gateway", **environment: str) -> str:
        """Start the small host, one process with every role. Returns its base URL as soon as it answers."""
        return self.web("deliveries", "batches", "tasks", "beat", name=name, **environment)

    def worker(
        self,
        *,
        name: str = "worker",
        role: str = "deliveries",
        **environment: str,
    ) -> None:
        """Start a process with a role that runs tasks. Returns as soon as it answers a ping, because it then reads its
        queue.
        """
        from gateway.celery import app

        self.start(name, [*processes.service_command(role), f"--name={name}"], **environment)
        self.wait_until(
            lambda: bool(app.control.ping(destination=[f"{name}@{os.uname().nodename}"], timeout=0.5)),
            f"worker {name} did not start",
        )

    def beat(self) -> None:
        """Start Celery beat."""
        self.start("beat", processes.service_command("beat"))

    def simulator(self, *, name: str = "simulator", callback_url: str = "", **environment: str) -> str:
        """Start a simulator (upstream and webhook inboxes). Returns its base URL as soon as it answers."""
        return self.listen(
            name,
            lambda port: [*_PYTHON, "simulator", "--port", str(port)],
            ready="/sim/health",
            GATEWAY_CALLBACK_URL=callback_url or "http://127.0.0.1:9/upstream/webhook",
            **environment,
        )

    def bare(self, program: str, *, name: str, **environment: str) -> str:
        """Start a bare application of `equipment`, such as `bare_upstream`. Returns its base URL when it answers."""
        application = f"benchmarks.equipment.{program}:application"
        return self.listen(
            name,
            lambda port: [*_PYTHON, "uvicorn", application, "--port", str(port), "--no-access-log"],
            ready="/ready",
            **environment,
        )

    def bare_upstream(self) -> str:
        """Start an upstream that accepts every message at once. Returns its base URL as soon as it answers."""
        return self.bare("bare_upstream", name="upstream")

    def log(self, name: str) -> str:
        """The end of a process's output."""
        return processes.log_tail(self.data_dir, name)

    def memory(self, name: str) -> float:
        """The memory of a process and its children in megabytes. Shared pages count in proportion."""
        return memory_of(self.running[name].pid, children_by_parent())

    def process_ids(self, name: str) -> list[int]:
        """The ids of a process and its children."""
        own = self.running[name].pid
        return [own, *children_by_parent().get(own, [])]

    @contextlib.contextmanager
    def measure(self) -> Iterator[Measured]:
        """Measure wall time and CPU of the block. The result is complete after the block."""
        measured = Measured()
        before, began = self._cpu(), time.perf_counter()
        yield measured
        measured.seconds = time.perf_counter() - began
        after = self._cpu()
        measured.cpu = {name: spent - before.get(name, 0.0) for name, spent in after.items()}

    def wait_until(
        self, holds: Callable[[], bool], otherwise: str, *, seconds: float = READY_SECONDS
    ) -> None:
        """Check a condition every 20 ms until it holds. Raises TimeoutError with the text `otherwise`."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            time.sleep(0.02)

    def _cpu(self) -> dict[str, float]:
        children = children_by_parent()
        spent = {
            name: cpu_of(process.pid, children)
            for name, process in self.running.items()
            if process.poll() is None
        }
        return {**spent, "client": time.process_time()}

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            processes.stop(process, seconds=10)


@dataclass(frozen=True)
class Request:
    """One request of a load."""

    body: bytes
    headers: Mapping[str, str]


@dataclass
class Load:
    """The result of a load: the milliseconds of each answer, and the count of each status (0: no answer)."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def add(self, other: "Load") -> None:
        """Add the result of another round."""
        self.milliseconds += other.milliseconds
        self.statuses = dict(Counter(self.statuses) + Counter(other.statuses))


@dataclass
class Side:
    """The summed rounds of one side of a comparison."""

    load: Load = field(default_factory=Load)
    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)

    def add(self, load: Load, measured: Measured) -> None:
        """Add a round."""
        self.load.add(load)
        self.seconds += measured.seconds
        self.cpu.update(measured.cpu)

    def cpu_per(self, units: int) -> dict[str, float]:
        """CPU microseconds per unit, by process. Processes that used no CPU are left out."""
        return _per_unit(self.cpu, units)


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


def children_by_parent() -> dict[int, list[int]]:
    """The ids of child processes, by the id of the parent process."""
    by_parent: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                by_parent.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    return by_parent


def cpu_of(process_id: int, children: Mapping[int, list[int]]) -> float:
    """CPU seconds of a process, of its running children, and of the ended children that it has waited for."""
    with contextlib.suppress(OSError):
        own = sum(int(ticks) for ticks in _stat(process_id)[11:15]) / _TICKS
        return own + sum(cpu_of(child, children) for child in children.get(process_id, []))
    return 0.0


def memory_of(process_id: int, children: Mapping[int, list[int]]) -> float:
    """The proportional set size of a process and its running children, in megabytes."""
    own = 0.0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                own = int(line.split()[1]) / 1024
    return own + sum(memory_of(child, children) for child in children.get(process_id, []))


def _stat(process_id: int) -> list[str]:
    """The fields of /proc/<pid>/stat from `state` on. The indexes 11 to 14 are `utime` to `cstime`."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()


def cursor() -> Any:
    """A cursor of this process's own database connection."""
    from django.db import connection

    return connection.cursor()
