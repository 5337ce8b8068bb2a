"""The service's processes as a run has them, for tests that kill them and take their servers away."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from django.db import OperationalError, connection

from gateway import embedded_addresses
from gateway.local_run import embedded_servers, local_ports
from gateway.local_run.process_group import ProcessGroup
from phone_numbers.models import PhoneNumber
from tests.simulated import RunningSimulator

LONG = os.environ.get("FAULTS") == "long"
"""Whether the long form of the fault tests runs (`make faults`)."""
ROOT = Path(__file__).resolve().parents[2]
_CELERY = ("celery", "--app=gateway")


class Service:
    """Processes with an environment in common. They end with `close`, or with the process that started them."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory, self.environment = directory, environment
        self.group = ProcessGroup(grace_seconds=0.2)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a Python module with its arguments; its output is in `logs`."""
        with (self.directory / f"{len(self.processes)}-{command[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**os.environ, "LOG_LEVEL": "WARNING", **self.environment, **environment},
                stdout=log,
                stderr=log,
                process_group=self.group.id,
            )
        self.processes.append(process)
        return process

    def worker(self, queue: str, **environment: str) -> "subprocess.Popen[bytes]":
        """A worker of a queue."""
        return self.start("gateway.worker", queue, f"--name=w{len(self.processes)}", **environment)

    def beat(self) -> "subprocess.Popen[bytes]":
        """Celery beat."""
        schedule = self.directory / f"beat-{len(self.processes)}"
        return self.start(*_CELERY, "beat", f"--schedule={schedule}", "--pidfile=")

    def web(
        self, *, workers: int = 2, threads: int = 16, **environment: str
    ) -> tuple[str, "subprocess.Popen[bytes]"]:
        """Web processes under one gunicorn: their URL, as soon as they answer, and gunicorn itself."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = self.start(
            "gunicorn",
            "gateway.wsgi",
            f"--bind=127.0.0.1:{port}",
            "--worker-class=gateway.web_worker.Worker",
            f"--workers={workers}",
            f"--threads={threads}",
            "--no-control-socket",
            "--preload",
            **environment,
        )
        local_ports.wait_for_answer(port, "/v1/health", seconds=60, check_alive=lambda: None)
        return f"http://127.0.0.1:{port}", process

    def edge(self) -> str:
        """An edge process: its URL, as soon as it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.start("edge", f"--port={port}")
        local_ports.wait_for_answer(port, "/v1/health", seconds=60, check_alive=lambda: None)
        return f"http://127.0.0.1:{port}"

    def assert_well(self) -> None:
        """Every process is alive and none is about to end: Celery goes on for a while after what it cannot bear."""
        assert [process.args for process in self.processes if process.poll() is not None] == []
        assert "Unrecoverable" not in self.logs()

    def logs(self) -> str:
        """What all processes wrote."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        """End every process that is left. What they wrote is shown with a test that fails."""
        for process in self.processes:
            process.kill()
            process.wait(10)
        self.group.close()
        sys.stdout.write(self.logs())


class _Server:
    """A server of a test's own that can be stopped, killed and started again."""

    def __init__(
        self,
        directory: Path,
        url: str,
        start: Callable[..., "subprocess.Popen[bytes]"],
        stop: Callable[["subprocess.Popen[bytes]"], None],
    ) -> None:
        self.directory, self.url = directory, url
        self._start, self._stop = start, stop
        self.group = ProcessGroup(grace_seconds=0.2)
        self.start()

    def start(self) -> None:
        """Start it again; returns when it answers."""
        self.process = self._start(self.directory, process_group=self.group.id)

    def stop(self) -> None:
        """Stop it as an operator does: in order, every session is ended."""
        self._stop(self.process)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        self.group.close()


class Postgres(_Server):
    """A Postgres, durable as in `make run`; killed, it comes back by crash recovery."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            embedded_addresses.database_url(directory),
            embedded_servers.start_postgres,
            embedded_servers.stop_postgres,
        )


class Valkey(_Server):
    """A Valkey, which always starts empty and can be emptied."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            embedded_addresses.valkey_url(directory),
            embedded_servers.start_valkey,
            embedded_servers.stop_valkey,
        )

    def flush(self) -> None:
        """Forget everything."""
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            client.flushall()


def database_url() -> str:
    """The database of the tests as a URL, for other processes."""
    url = urlsplit(os.environ["DATABASE_URL"])
    return url._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def children(process_id: int) -> list[int]:
    """The processes that a process started, such as those of gunicorn that answer requests."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process_id)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def wait_until(holds: Callable[[], Any], what: str, *, seconds: float = 60) -> None:
    """Wait for a condition; fails with what did not come. A database that is away does not hold it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except OperationalError:
            connection.close()
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def received(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    """The messages of a number that the upstream received, oldest first."""
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=20000")["data"]
    return [row for row in reversed(rows) if row["path"].endswith("/messages")]


def busiest(simulator: RunningSimulator, number: PhoneNumber) -> int:
    """The most messages of a number that the upstream received in any 5 seconds: how the pace is measured."""
    times = [row["at"] for row in received(simulator, number)]
    return max(sum(at <= other < at + 5 for other in times) for at in times)
