"""The service's processes for tests that kill the processes or stop their servers."""

import atexit
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from django.db import connection

from gateway import embedded_addresses
from gateway.database.transactions import is_outage
from gateway.local_run import embedded_servers, processes
from gateway.local_run.process_group import ProcessGroup
from phone_numbers.models import PhoneNumber
from tests.faults.forked import ForkedProcess, Template
from tests.free_ports import free_port
from tests.simulated import RunningSimulator

READY_SECONDS = 180.0
"""How long a process may take to answer while other tests load the machine."""
LONG = os.environ.get("FAULTS") == "long"
"""Whether the long form of the fault tests runs (`make faults`)."""
BESIDE_WEB = ("deliveries", "batches", "tasks", "beat")
"""The roles of the small host besides `web`."""


KEPT_TEMPLATES = 2
"""The maximum number of templates that stay for later tests. Each takes 0.7 s of CPU to start, and memory."""


class _Templates:
    """The processes that fork the processes of all services, by environment."""

    def __init__(self) -> None:
        self._group = ProcessGroup(grace_seconds=0.2)
        self._by_environment: dict[frozenset[tuple[str, str]], Template] = {}

    def of(self, environment: Mapping[str, str], log: Path) -> Template:
        """The template of an environment. A new template writes its output to `log`."""
        key = frozenset(environment.items())
        template = self._by_environment.pop(key, None)
        if template is None:
            template = Template(environment, log=log, process_group=self._group.id)
        self._by_environment[key] = template
        return template

    def close_oldest(self) -> None:
        """End the templates that were not used for longest. Their processes must have ended."""
        for key in list(self._by_environment)[:-KEPT_TEMPLATES]:
            self._by_environment.pop(key).close()

    def close(self) -> None:
        """End all templates."""
        for template in self._by_environment.values():
            template.close()
        self._group.close()


@cache
def _templates() -> _Templates:
    templates = _Templates()
    atexit.register(templates.close)
    return templates


@cache
def _common_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="gateway-faults-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def same_directory(name: str) -> Path:
    """A directory with the same path in every test, and empty. With it, the tests have the same environment."""
    directory = _common_directory() / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


class Service:
    """Processes with a common environment. They end with `close`, or with the process that started them."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory, self.environment = directory, environment
        self.group = ProcessGroup(grace_seconds=0.2)
        self.processes: list[ForkedProcess] = []
        self._data = same_directory("data")
        self._started, self._names, self._beats = itertools.count(), itertools.count(), itertools.count()

    def start(self, *command: str, **environment: str) -> ForkedProcess:
        """Start a Python module with its arguments. `logs` returns the output."""
        log = self.directory / f"{next(self._started)}-{command[0]}.log"
        template = self._template(**environment)
        process = ForkedProcess(command, template=template, log=log, process_group=self.group.id)
        self.processes.append(process)
        return process

    def _template(self, **environment: str) -> Template:
        """The process that forks all processes with this environment."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        whole = {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "tests.time_limits",
            "LOG_LEVEL": "WARNING",
            "DATA_DIR": str(self._data / "common"),
            **self.environment,
            **environment,
        }
        return _templates().of(whole, self.directory / "templates.log")

    def worker(self, role: str, **environment: str) -> ForkedProcess:
        """Start a process with a role that takes tasks."""
        return self.start("gateway", role, f"--name={role}-{next(self._names)}", **environment)

    def beat(self) -> ForkedProcess:
        """Start a process that queues the periodic tasks, with its own schedule."""
        place = next(self._beats)
        # The first beat keeps its schedule in the common directory. A directory of its own would mean another
        # environment, and so one more template process.
        return self.start(
            "gateway", "beat", **({"DATA_DIR": str(self._data / f"beat-{place}")} if place else {})
        )

    def web(self, *beside: str, **environment: str) -> "Web":
        """Start a web process that also has the roles `beside`. Returns once the process answers."""
        [web] = self.webs(1, *beside, **environment)
        return web

    def small_host(self, **environment: str) -> "Web":
        """Start one process with all roles. Returns once the process answers."""
        return self.web(*BESIDE_WEB, **environment)

    def webs(self, count: int, *beside: str, **environment: str) -> "list[Web]":
        """Start web processes, each at its own address. Returns once they answer."""
        webs = [Web(self, *beside, **environment) for _ in range(count)]
        for web in webs:
            web.wait()
        return webs

    def assert_well(self) -> None:
        """Check that every process is alive and that none has logged a fatal error. Celery keeps running for a while
        after such an error.
        """
        assert [process.args for process in self.processes if process.poll() is not None] == []
        assert "Unrecoverable" not in self.logs()

    def logs(self) -> str:
        """The output of all processes."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        """End all remaining processes. A failed test shows their output."""
        for process in self.processes:
            process.kill()
            process.wait(10)
        self.group.close()
        _templates().close_oldest()
        sys.stdout.write(self.logs())


class Web:
    """A process with the web role. After a kill or stop, it can restart at the same address."""

    def __init__(self, service: Service, *beside: str, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._service, self._beside, self._environment = service, beside, environment
        self.start()

    def start(self) -> None:
        """Start or restart the process."""
        roles = ("web", *self._beside)
        self.process = self._service.start("gateway", *roles, f"--port={self.port}", **self._environment)

    def wait(self) -> None:
        """Wait until the process answers."""

        def check_alive() -> None:
            assert self.process.poll() is None, self._service.logs()

        processes.wait_for_answer(self.port, "/v1/health", seconds=READY_SECONDS, check_alive=check_alive)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(10)
        self._service.processes.remove(self.process)

    def stop(self) -> int:
        """Stop the process with SIGTERM. Returns the exit code."""
        self.process.terminate()
        code: int = self.process.wait(40)
        self._service.processes.remove(self.process)
        return code


class _Server:
    """A separate server that a test can stop, kill and start again."""

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
        """Restart the server. Returns when it answers."""
        self.process = self._start(self.directory, process_group=self.group.id)

    def stop(self) -> None:
        """Shut the server down like an operator does, which ends every session."""
        self._stop(self.process)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """Stop the server permanently."""
        self.stop()
        self.group.close()


class Postgres(_Server):
    """A durable Postgres, as in `make run`. After a kill, a restart recovers its data."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            embedded_addresses.database_url(directory),
            embedded_servers.start_postgres,
            embedded_servers.stop_postgres,
        )


class Valkey(_Server):
    """A Valkey, which starts empty. A test can flush and freeze it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            embedded_addresses.valkey_url(directory),
            embedded_servers.start_valkey,
            embedded_servers.stop_valkey,
        )

    def flush(self) -> None:
        """Delete everything."""
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            client.flushall()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process, so that it accepts connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def database_url() -> str:
    """The database of the tests as a URL, for other processes."""
    url = urlsplit(os.environ["DATABASE_URL"])
    return url._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def wait_until(holds: Callable[[], Any], what: str, *, seconds: float = READY_SECONDS) -> None:
    """Wait for a condition. Fails with `what`. The condition does not hold while the database is unavailable."""
    began = time.monotonic()
    deadline = began + seconds
    while True:
        try:
            if holds():
                return
        except Exception as error:
            if not is_outage(error):
                raise
            connection.close()
        assert time.monotonic() < deadline, what
        time.sleep(0.02 if time.monotonic() < began + 0.5 else 0.1)


def registered() -> int:
    """The number of workers that hold their registrations."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return int(cursor.fetchone()[0])


def both_registered(service: Service, role: str) -> list[ForkedProcess]:
    """Start two workers of a role. Returns once they hold their registrations."""
    workers = [service.worker(role) for _ in range(2)]
    wait_until(lambda: registered() == 2, "both workers have started")
    return workers


def received(simulator: RunningSimulator, number: PhoneNumber, *, since: int = 0) -> list[dict[str, Any]]:
    """The requests for messages that Meta received from a number, oldest first. `since` limits them to those after an
    earlier `total`.
    """
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=20000&since={since}")[
        "data"
    ]
    return [row for row in reversed(rows) if row["path"].endswith("/messages")]


def busiest(simulator: RunningSimulator, number: PhoneNumber) -> int:
    """The maximum number of messages that Meta received from a number in 5 seconds. Tests compare it with the pace."""
    times = [row["at"] for row in received(simulator, number)]
    return max(sum(at <= other < at + 5 for other in times) for at in times)
