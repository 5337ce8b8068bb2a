"""Runs the simulator as a separate process, for flows that need the Graph API.

Each test process has one simulator. Each test creates its own accounts, so tests share no data. Faults and settings
are reset after each test.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_django import Settings

from tests.free_ports import free_port

_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class SimulatedAccount:
    """A business account of the simulator with a fresh code and a token."""

    waba_id: str
    phone_number_ids: list[str]
    display_phone_numbers: list[str]
    access_token: str
    code: str

    @property
    def phone_number_id(self) -> str:
        return self.phone_number_ids[0]


class RunningSimulator:
    """The simulator's control API (docs/simulator.md)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._changed: set[str] = set()
        """The paths of the settings that a test has changed: `faults`, `settings`."""

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Call `/sim/…`. Fails the test if the call is rejected."""
        if path in {"faults", "settings"}:
            self._changed.add(path)
        # A session of `requests` would take half of the time of this call.
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        with closing(connection):
            connection.request(method, f"/sim/{path}", None if body is None else json.dumps(body), _JSON)
            answer = connection.getresponse()
            text = answer.read()
        assert answer.status < 400, text.decode()
        return json.loads(text)

    def reset(self) -> None:
        """Undo a test's changes of the faults and settings."""
        if "faults" in self._changed:
            self.faults()
        if "settings" in self._changed:
            self.control("PUT", "settings", {"preset": "default"})
        self._changed.clear()

    def account(self, numbers: Any = 1, *, variant: str = "default", **values: Any) -> SimulatedAccount:
        """Create an account. `numbers` is the count of its numbers, or a list of numbers. The account's code and token
        have the given variant.
        """
        made = self.control("POST", "accounts", {"numbers": numbers, "variant": variant, **values})
        return SimulatedAccount(
            waba_id=made["waba_id"],
            phone_number_ids=[number["id"] for number in made["phone_numbers"]],
            display_phone_numbers=[number["display_phone_number"] for number in made["phone_numbers"]],
            access_token=made["access_token"],
            code=made["code"],
        )

    def code(self, waba_id: str, **values: Any) -> str:
        """Create another code for an account."""
        return str(self.control("POST", "codes", {"waba_id": waba_id, **values})["code"])

    def change_number(self, phone_number_id: str, **values: Any) -> None:
        """Change those fields of a number that only Meta can change."""
        self.control("PATCH", f"phone_numbers/{phone_number_id}", values)

    def change_account(self, waba_id: str, **values: Any) -> None:
        """Change those fields of an account that only Meta can change."""
        self.control("PATCH", f"accounts/{waba_id}", values)

    def number(self, waba_id: str, phone_number_id: str) -> dict[str, Any]:
        """Return all fields of a number, including its PIN and its verification code."""
        rows = self.control("GET", f"accounts/{waba_id}")["phone_numbers"]
        return next(row for row in rows if row["id"] == phone_number_id)

    def faults(self, *rules: dict[str, Any]) -> None:
        """Replace the rules for faults. Without rules, there are no faults."""
        self.control("PUT", "faults", list(rules))

    def total(self) -> int:
        """Return the number of Graph calls that all tests of this process have made so far."""
        return int(self.control("GET", "requests?limit=0")["total"])

    def calls_since(self, total: int, path: str) -> int:
        """Return how many Graph calls since `total` had a path that contains `path`."""
        return len(self.control("GET", f"requests?since={total}&path={path}&limit=1000")["data"])

    def calls(self, node: str) -> list[str]:
        """Return the Graph calls about an account or a number so far, oldest first.

        A call is written as `METHOD edge`, or as `METHOD node` if its path has no edge.
        """
        rows = self.control("GET", f"requests?node={node}&limit=1000")["data"]
        edges = (row["path"].partition(f"/{node}")[2].strip("/") or "node" for row in reversed(rows))
        return [f"{row['method']} {edge}" for row, edge in zip(reversed(rows), edges, strict=True)]


@pytest.fixture(scope="session")
def _simulator_process() -> Iterator[RunningSimulator]:
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SIMULATOR_")},
        "GATEWAY_CALLBACK_URL": "http://127.0.0.1:9/upstream/webhook",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "simulator", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    running = RunningSimulator(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the simulator ended"
        assert time.monotonic() < deadline, "the simulator did not start"
        try:
            running.control("GET", "health")
            break
        except ConnectionError:
            time.sleep(0.05)
    yield running
    process.terminate()
    process.wait(10)


@pytest.fixture
def simulator(_simulator_process: RunningSimulator, settings: Settings) -> Iterator[RunningSimulator]:
    """The running simulator, as the Graph API of both environments."""
    settings.SANDBOX_GRAPH_URL = settings.META_GRAPH_URL = _simulator_process.url
    yield _simulator_process
    _simulator_process.reset()
