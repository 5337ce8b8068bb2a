"""Run the command line in this process. Its calls go to Django's client, so the service needs no server."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from django.test import Client, TestCase

from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.api_contract.contract import assert_in_contract
from tests.front import running
from tests.pages import ROOT
from tests.sdk_import import sdk_from
from tests.simulated import RunningSimulator

BASE_URL = "http://gateway.test"


class DjangoTransport(httpx.BaseTransport):
    """An httpx transport. Requests for the event stream go over HTTP, all others to Django's client."""

    def __init__(self) -> None:
        self._http = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        if request.url.path == "/v1/events/stream":
            host, port = running.start()
            url = request.url.copy_with(scheme="http", host=host, port=port)
            return self._http.handle_request(httpx.Request(request.method, url, headers=request.headers))
        sent = {name: value for name, value in request.headers.items() if name != "content-type"}
        # A test's transaction never commits, so the `on_commit` callbacks run after the request.
        with TestCase.captureOnCommitCallbacks(execute=True):
            answer = Client(raise_request_exception=False).generic(
                request.method,
                path,
                request.read(),
                content_type=request.headers.get("content-type", "application/json"),
                headers={**sent, "host": "testserver"},
            )
        assert_in_contract(request.method, path, answer)
        return httpx.Response(answer.status_code, headers=dict(answer.items()), content=answer.getvalue())


@dataclass
class Answered:
    """The output and the exit status of a command."""

    status: int
    output: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    @property
    def lines(self) -> list[Any]:
        """The JSON values in the output, one for each line."""
        return [json.loads(line) for line in self.output.splitlines()]


@dataclass
class CommandLine:
    """The `whabuzz` command of a user, whose profiles are in a folder."""

    home: Path
    transport: httpx.BaseTransport
    slept: list[float] = field(default_factory=list)
    on_terminal: bool = False

    def __call__(self, *arguments: str, stdin: str | None = None) -> Answered:
        main, session, profiles = (
            importlib.import_module(f"whabuzz.cli.{name}") for name in ("main", "session", "profiles")
        )
        shared = session.Session(
            profiles=profiles.Profiles(self.home), transport=self.transport, sleep=self.sleep
        )
        done = CliRunner().invoke(main.whabuzz, arguments, obj=shared, input=stdin, color=self.on_terminal)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        # The service answers in this process and logs to the same standard error.
        lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith('{"')]
        return Answered(done.exit_code, done.stdout, "".join(lines))

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 1_000, "the command waits for ever"


@pytest.fixture(autouse=True, scope="module")
def _sdk() -> Iterator[None]:
    """Import the SDK from its source, so that the tests need no built wheel."""
    with sdk_from(ROOT / "sdks/python/src"):
        yield


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line of a user who is not logged in."""
    for name in ("WHABUZZ_API_KEY", "WHABUZZ_BASE_URL", "WHABUZZ_CONFIG_DIR", "WHABUZZ_WEBHOOK_SECRET"):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(tmp_path / "profiles", DjangoTransport())


@pytest.fixture
def whabuzz(stranger: CommandLine, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line with a test key of `tenant`."""
    key = api_keys.create(name="laptop", environment="test", tenant=tenant).key
    monkeypatch.setenv("WHABUZZ_API_KEY", key)
    monkeypatch.setenv("WHABUZZ_BASE_URL", BASE_URL)
    return stranger


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    """A connected test number of `tenant`."""
    return connected_number(tenant, simulator.account(), environment="test")
