"""Suspension, approval and revocation reach every web process at once, and within 10 seconds without Valkey.

Two real web processes share the tests' database and a Valkey. A change in one of them takes effect in the other: with
Valkey available, flushed right after the change, and stopped.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import redis
import requests
from django.db import connection

from gateway import embedded_addresses
from gateway.local_run import embedded_servers, processes
from gateway.local_run.process_group import ProcessGroup
from tenants.credentials import api_keys, authentication
from tenants.models import Tenant, User
from tests.free_ports import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

SECONDS = 10.0
AT_ONCE_SECONDS = 1.5
"""Less than the time for which a process caches a key."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Web:
    """Two web processes and their Valkey."""

    urls: list[str]
    valkey_url: str
    stop_valkey: Callable[[], None]

    def ask(self, process: int, method: str, path: str, token: str, body: object = None) -> int:
        """The status of a response of one of the processes."""
        answer = requests.request(
            method,
            self.urls[process] + path,
            headers={"Authorization": f"Bearer {token}"},
            json=body,
            timeout=15,
        )
        return answer.status_code


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    group = ProcessGroup()
    valkey = embedded_servers.start_valkey(tmp_path, process_group=group.id)
    parts = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": urlunsplit(parts._replace(path="/" + quote(str(connection.settings_dict["NAME"])))),
        "REDIS_URL": embedded_addresses.valkey_url(tmp_path),
    }
    ports = [free_port(), free_port()]
    started = [
        processes.start(
            f"web-{port}",
            processes.service_command("web", port=port),
            data_dir=tmp_path,
            process_group=group.id,
            environment=environment,
            directory=ROOT,
        )
        for port in ports
    ]
    running = Web(
        urls=[f"http://127.0.0.1:{port}" for port in ports],
        valkey_url=embedded_addresses.valkey_url(tmp_path),
        stop_valkey=lambda: embedded_servers.stop_valkey(valkey),
    )
    try:
        for url, process in zip(running.urls, started, strict=True):
            _until_it_answers(url, process)
        yield running
    finally:
        for process in started:
            processes.stop(process, seconds=15)
        embedded_servers.stop_valkey(valkey)
        group.close()


def _until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the web process ended: see its log in the test's directory"
        try:
            if requests.get(f"{url}/v1/health", timeout=2).ok:
                return
        except requests.RequestException:
            assert time.monotonic() < deadline, f"{url} does not answer"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("valkey", "seconds"), [("well", AT_ONCE_SECONDS), ("flushed", SECONDS), ("stopped", SECONDS)]
)
def test_what_one_process_is_told_reaches_the_other(web: Web, valkey: str, seconds: float) -> None:
    staff = authentication.open_session(User.objects.create_superuser("staff@service.example", "pw")).token
    active = Tenant.objects.create(name="Will be suspended", status=Tenant.Status.ACTIVE)
    waiting = Tenant.objects.create(name="Will be approved")
    other = Tenant.objects.create(name="Loses a key", status=Tenant.Status.ACTIVE)
    suspended_key, approved_key, revoked_key = (
        api_keys.create(name="server", environment="live", tenant=tenant)
        for tenant in (active, waiting, other)
    )
    if valkey == "stopped":
        web.stop_valkey()

    def statuses(process: int) -> list[int]:
        tokens = [key.key for key in (suspended_key, approved_key, revoked_key)]
        return [web.ask(process, "GET", "/v1/api-keys", token) for token in tokens]

    assert statuses(0) == statuses(1) == [200, 403, 200]
    changed = [
        web.ask(0, "POST", f"/v1/admin/tenants/{active.id}/suspend", staff, {"reason": "abuse"}),
        web.ask(0, "POST", f"/v1/admin/tenants/{waiting.id}/approve", staff),
        web.ask(0, "DELETE", f"/v1/api-keys/{revoked_key.row.id}", revoked_key.key),
    ]
    assert changed == [200, 200, 200]
    if valkey == "flushed":
        redis.Redis.from_url(web.valkey_url).flushall()
    deadline = time.monotonic() + seconds
    while [statuses(0), statuses(1)] != [[403, 200, 401]] * 2:
        assert time.monotonic() < deadline, (statuses(0), statuses(1))
        time.sleep(0.2)
