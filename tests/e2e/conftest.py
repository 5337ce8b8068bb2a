"""The whole service as `make run` starts it, on free ports in a temporary directory; and a browser."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
import requests
from playwright.sync_api import Browser, sync_playwright

from tests import migrated_cluster
from tests.accessibility import launched
from tests.e2e.sdks.homes import node_home, packages, python_home
from tests.free_ports import free_port

__all__ = ["node_home", "packages", "python_home"]

ROOT = Path(__file__).resolve().parents[2]

Found = TypeVar("Found")


def until(look: Callable[[], Found | None], what: str, *, seconds: float = 60) -> Found:
    """Call `look` until it returns a true result, and return the result. Fails after `seconds`.

    Every call costs CPU in the service too, so the pauses grow: a wait ends at most a tenth later than it could.
    """
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"{what} did not come within {seconds} s"
        time.sleep(max(0.05, waited / 10))
    return found


@dataclass
class Stack:
    """A run of the service."""

    data_dir: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    ready: dict[str, str] = field(default_factory=dict)
    printed: str = ""

    def start(self) -> None:
        """Start the service and wait until it has printed its addresses."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.local_run.supervisor", "run"],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.lstrip().startswith("-d "):
                break
        self.printed = "".join(lines)
        ready = self.data_dir / "ready.json"
        assert ready.exists(), self.printed
        assert self.process.poll() is None, self.printed
        self.ready = json.loads(ready.read_text())

    def stop(self) -> None:
        """Send Ctrl-C. Fails when a process of the run still runs afterwards."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=90)
        assert self.processes() == {}, "a process was left behind"

    def processes(self) -> dict[int, list[str]]:
        """The command lines of this run's processes, by id. Their environment contains the directory of the run."""
        marker = f"DATA_DIR={self.data_dir}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if marker in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
                except OSError:
                    continue
        return found

    @cached_property
    def staff_token(self) -> str:
        """A console token of the run's staff member."""
        login = {"email": self.ready["staff_email"], "password": self.ready["staff_password"]}
        return str(self.made("/v1/console/sessions", login)["token"])

    def platform_key(self, name: str) -> str:
        """A test key of a new platform app. A `manage.py` command would take seconds of CPU to start."""
        app = self.made("/v1/admin/apps", {"name": name}, key=self.staff_token)
        body = {"name": name, "environment": "test"}
        return str(self.made(f"/v1/admin/apps/{app['id']}/keys", body, key=self.staff_token)["key"])

    def made(self, path: str, body: Any, **by: str) -> Any:
        """Create an object by a call. Returns the object."""
        answer = self.api("POST", path, body, **by)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def api(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """Call the gateway, as the demo tenant unless `key` is given."""
        return requests.request(
            method,
            self.ready["base_url"] + path,
            json=body,
            headers={"Authorization": f"Bearer {key or self.ready['api_key']}", **headers},
            timeout=30,
        )

    def simulator(self, method: str, path: str, body: Any = None) -> Any:
        """Call the simulator's control API."""
        answer = requests.request(method, self.ready["simulator_url"] + path, json=body, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def manage(self, *command: str) -> str:
        """Run a `manage.py` command beside the service. Returns the output."""
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def messages(count: int) -> list[dict[str, Any]]:
    """Texts for a batch, each to a different customer, because Meta accepts only a few messages at a time to one
    customer.
    """
    return [
        {"to": f"+917000{place:04d}11", "type": "text", "text": {"body": "Hello"}} for place in range(count)
    ]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One run for all end-to-end tests. It finds a database that is migrated, because initdb and all migrations take
    ten seconds of CPU.
    """
    data_dir = tmp_path_factory.mktemp("run")
    migrated_cluster.copy_to(data_dir)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "MAKELEVEL"}
    }
    running = Stack(
        data_dir,
        {
            **inherited,
            "DATA_DIR": str(data_dir),
            "PORT": str(free_port()),
            "SIMULATOR_PORT": str(free_port()),
        },
    )
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium for one module. Its driver runs an event loop in this thread."""
    with sync_playwright() as playwright:
        chromium = launched(playwright)
        yield chromium
        chromium.close()
