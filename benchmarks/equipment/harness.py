"""The environment of a benchmark: fresh embedded servers in a temporary directory, and processes on free ports.

`with Harness() as harness:` starts Postgres (durable, as in `make run`) and Valkey, sets Django up in this process and
migrates. Then the benchmark starts what it needs: `web`, `worker`, `simulator`, or any command. `measure` takes the
time and the CPU seconds of every process around a piece of work. Everything is gone at the end, however it ends.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from gateway import embedded_addresses
from gateway.local_run import embedded_servers, local_ports, processes
from gateway.local_run.process_group import ProcessGroup

_PYTHON = [sys.executable, "-m"]
_TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 60.0
ROUNDS, WARM_UP = 8, 5


@dataclass
class Measured:
    """What `Harness.measure` found: wall seconds, and CPU seconds by process (`client` is this one)."""

    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)

    def cpu_per(self, units: int) -> dict[str, float]:
        """CPU microseconds a unit by process, those that did nothing left out."""
        return _per_unit(self.cpu, units)


def _per_unit(cpu: Mapping[str, float], units: int) -> dict[str, float]:
    return {name: spent / units * 1e6 for name, spent in cpu.items() if spent / units * 1e6 >= 0.5}


class Harness:
    """See the module. Use it as a context manager, once a process."""

    def __init__(self) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="gateway-bench-"))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
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
                "LOG_LEVEL": "WARNING",
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
        """Start a command under a name; its output is in `log(name)`, its CPU in `measure`."""
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
        """End a process that `start` began."""
        self._end(self.running.pop(name))

    def web(
        self,
        workers: int = processes.WEB_PROCESSES,
        /,
        *,
        name: str = "web",
        ready: str = "/v1/health",
        **environment: str,
    ) -> str:
        """Start web processes as `make run` does; returns their base URL when they answer."""
        port = free_port()
        process = self.start(
            name, processes.web_command(port=port, workers=workers), PORT=str(port), **environment
        )
        self._until_ready(name, process, port, ready)
        return f"http://127.0.0.1:{port}"

    def edge(self, *, name: str = "edge", module: str = "edge", **environment: str) -> str:
        """Start an edge process as `make run` does; returns its base URL when it answers. `module` is what runs it."""
        port = free_port()
        command = [*_PYTHON, module, f"--port={port}"]
        process = self.start(name, command, **{"DATABASE_POOL_SIZE": "4", **environment})
        self._until_ready(name, process, port, "/v1/health")
        return f"http://127.0.0.1:{port}"

    def worker(
        self,
        *,
        name: str = "worker",
        queue: str = "deliveries",
        **environment: str,
    ) -> None:
        """Start a worker; returns once it has taken part in the queue (it answers a ping)."""
        from gateway.celery import app

        self.start(name, [*processes.worker_command(queue), f"--name={name}"], **environment)
        self.wait_until(
            lambda: bool(app.control.ping(destination=[f"{name}@{os.uname().nodename}"], timeout=0.5)),
            f"worker {name} did not start",
        )

    def beat(self) -> None:
        """Start Celery beat."""
        schedule = self.data_dir / "beat-schedule"
        self.start(
            "beat", [*_PYTHON, "celery", "--app=gateway", "beat", f"--schedule={schedule}", "--pidfile="]
        )

    def simulator(self, *, name: str = "simulator", callback_url: str = "", **environment: str) -> str:
        """Start a simulator (upstream and webhook inboxes); returns its base URL when it answers."""
        port = free_port()
        process = self.start(
            name,
            [*_PYTHON, "simulator", "--port", str(port)],
            GATEWAY_CALLBACK_URL=callback_url or "http://127.0.0.1:9/upstream/webhook",
            **environment,
        )
        self._until_ready(name, process, port, "/sim/health")
        return f"http://127.0.0.1:{port}"

    def bare_upstream(self, *, name: str = "upstream") -> str:
        """Start an upstream that takes every message at once; returns its base URL when it answers."""
        port = free_port()
        command = [
            "uvicorn",
            "benchmarks.equipment.bare_upstream:application",
            "--port",
            str(port),
            "--no-access-log",
        ]
        process = self.start(name, [*_PYTHON, *command])
        self._until_ready(name, process, port, "/ready")
        return f"http://127.0.0.1:{port}"

    def log(self, name: str) -> str:
        """The end of a process's output."""
        return processes.log_tail(self.data_dir, name)

    def memory(self, name: str) -> float:
        """Megabytes of a process and its children: shared pages count in proportion."""
        return memory_of(self.running[name].pid, children_by_parent())

    def process_ids(self, name: str) -> list[int]:
        """A process and its children."""
        own = self.running[name].pid
        return [own, *children_by_parent().get(own, [])]

    @contextlib.contextmanager
    def measure(self) -> Iterator[Measured]:
        """Wall time and CPU of the block; the figures are there when the block ends."""
        measured = Measured()
        before, began = self._cpu(), time.perf_counter()
        yield measured
        measured.seconds = time.perf_counter() - began
        after = self._cpu()
        measured.cpu = {name: spent - before.get(name, 0.0) for name, spent in after.items()}

    def in_turns(
        self,
        floor_url: str,
        url: str,
        requests: Callable[[int], list["Request"]],
        *,
        count: int,
        concurrency: int,
    ) -> tuple["Side", "Side"]:
        """POST `count` new requests to a floor and to the service, in turns.

        Whatever else the machine does meets both; what came before has warmed both.
        """
        sides = Side(), Side()
        for each in (floor_url, url):
            post_all(each, requests(count // WARM_UP), concurrency=concurrency)
        for _ in range(ROUNDS):
            for side, each in zip(sides, (floor_url, url), strict=True):
                prepared = requests(count // ROUNDS)
                with self.measure() as measured:
                    load = post_all(each, prepared, concurrency=concurrency)
                side.add(load, measured)
        return sides

    def wait_until(
        self, holds: Callable[[], bool], otherwise: str, *, seconds: float = READY_SECONDS
    ) -> None:
        """Ask every 20 ms until a condition holds; raises TimeoutError with `otherwise`."""
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

    def _until_ready(self, name: str, process: subprocess.Popen[bytes], port: int, path: str) -> None:
        def check_alive() -> None:
            if process.poll() is not None:
                raise processes.StartError(f"{name} ended while starting; {self.log(name)}")

        local_ports.wait_for_answer(port, path, seconds=READY_SECONDS, check_alive=check_alive)

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
    """What came of a load: milliseconds of each answer, and how often each status came (0: no answer)."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)


@dataclass
class Side:
    """The rounds of one side of a comparison as one."""

    load: Load = field(default_factory=Load)
    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)

    def add(self, load: Load, measured: Measured) -> None:
        """Add a round."""
        self.load.milliseconds += load.milliseconds
        self.load.statuses = dict(Counter(self.load.statuses) + Counter(load.statuses))
        self.seconds += measured.seconds
        self.cpu.update(measured.cpu)

    def cpu_per(self, units: int) -> dict[str, float]:
        """CPU microseconds a unit by process, those that did nothing left out."""
        return _per_unit(self.cpu, units)


def post_all(url: str, requests: Iterable[Request], *, concurrency: int) -> Load:
    """POST each request once, `concurrency` at a time over kept-alive connections."""
    return asyncio.run(_post_all(url, iter(requests), concurrency))


async def _post_all(url: str, requests: Iterator[Request], concurrency: int) -> Load:
    load = Load()

    async def one_after_another(session: aiohttp.ClientSession) -> None:
        for request in requests:
            began = time.perf_counter()
            try:
                async with session.post(url, data=request.body, headers=request.headers) as answer:
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError):
                status = 0
            load.milliseconds.append((time.perf_counter() - began) * 1000)
            load.statuses[status] = load.statuses.get(status, 0) + 1

    async with _session(concurrency) as session:
        await asyncio.gather(*(one_after_another(session) for _ in range(concurrency)))
    return load


@contextlib.asynccontextmanager
async def _session(concurrency: int) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


def free_port() -> int:
    """A TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


def children_by_parent() -> dict[int, list[int]]:
    """Process ids by that of their parent."""
    by_parent: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                by_parent.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    return by_parent


def cpu_of(process_id: int, children: Mapping[int, list[int]]) -> float:
    """CPU seconds of a process, its living children, and the ended ones it waited for."""
    with contextlib.suppress(OSError):
        own = sum(int(ticks) for ticks in _stat(process_id)[11:15]) / _TICKS
        return own + sum(cpu_of(child, children) for child in children.get(process_id, []))
    return 0.0


def memory_of(process_id: int, children: Mapping[int, list[int]]) -> float:
    """The proportional set size of a process and its living children, in megabytes."""
    own = 0.0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                own = int(line.split()[1]) / 1024
    return own + sum(memory_of(child, children) for child in children.get(process_id, []))


def _stat(process_id: int) -> list[str]:
    """The fields of /proc/<pid>/stat from `state` on; `utime` to `cstime` are 11 to 14."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()


def cursor() -> Any:
    """A cursor of this process's own database connection."""
    from django.db import connection

    return connection.cursor()
