"""The upgrade from the last release and back, under load: two checkouts, one database, one Valkey and one DATA_DIR.

`make upgrade` runs it. The last release is the commit that `docs/releases.md` names, with the requirements of that
commit. Clients and the simulator call the service throughout, and a batch is under way in each step. At the end, the
simulator and the tenant's receiver show whether each message and event arrived.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psycopg
import pytest
import requests
from django.conf import settings

from gateway import process_limits
from tests.faults.callers import Callers
from tests.faults.service import Postgres, Service, Valkey, Web, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator

ROOT = Path(__file__).resolve().parents[2]


BATCH = 300
COMMIT = re.compile(r"^## \S+, \d{4}-\d{2}-\d{2}\n\nCommit `([0-9a-f]{40})`", re.MULTILINE)
SEED = """
import django, json, sys
django.setup()
from messaging.tests.conftest import connected_number
from phone_numbers.tokens import graph_of
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.simulated import SimulatedAccount
tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
for account in json.loads(sys.argv[1]):
    number = connected_number(tenant, SimulatedAccount(**account), throughput_level="HIGH")
    assert graph_of(number.account).subscribe(number.account.waba_id).ok
print(api_keys.create(name="server", environment="live", tenant=tenant).key)
"""
LATEST = "SELECT DISTINCT ON (app) app, name FROM django_migrations ORDER BY app, name DESC"


class Checkout(Service):
    """The processes of a checkout. They run with the Python that has the checkout's requirements."""

    def __init__(self, root: Path, python: str, directory: Path, **environment: str) -> None:
        directory.mkdir()
        super().__init__(directory, **environment)
        self.root, self.python = root, python
        self._logs = itertools.count()

    def start(self, *command: str, **environment: str) -> Any:
        """Start a Python module of the checkout with its arguments."""
        with (self.directory / f"{next(self._logs)}-{command[0]}.log").open("wb") as log:
            process: Any = subprocess.Popen(
                [self.python, "-m", *command],
                cwd=self.root,
                env=self.all_environment(**environment),
                stdout=log,
                stderr=log,
                process_group=self.group.id,
            )
        self.processes.append(process)
        return process

    def all_environment(self, **others: str) -> dict[str, str]:
        """The environment of the checkout's processes."""
        own = {"DJANGO_SETTINGS_MODULE": "gateway.settings", "LOG_LEVEL": "WARNING"}
        return {**os.environ, **own, **self.environment, **others}


class Version:
    """A version of the service with its processes."""

    def __init__(self, service: Checkout) -> None:
        self.service = service
        self.webs: list[Web] = []

    def manage(self, *command: str) -> None:
        """Run a command of `manage.py`."""
        process = self.service.start("django", *command)
        assert process.wait(300) == 0, self.service.logs()
        self.service.processes.remove(process)

    def start(self) -> None:
        """Start all roles. Returns once the web processes answer and the others have started."""
        self.webs = self.service.webs(2)
        for role in ("deliveries", "batches", "tasks"):
            self.service.worker(role)
        self.service.beat()

    def stop(self) -> None:
        """Send SIGTERM to one process after another. Each must end in time."""
        for process in list(self.service.processes):
            process.terminate()
            assert process.wait(40) in {0, -15}, process.args
            self.service.processes.remove(process)


@pytest.fixture
def former_checkout(tmp_path: Path) -> tuple[Path, str]:
    """The last release: its files, and a Python with its requirements."""
    found = COMMIT.search((ROOT / "docs/releases.md").read_text())
    assert found, "docs/releases.md names the commit of each release"
    archived = subprocess.run(["git", "archive", found[1]], cwd=ROOT, capture_output=True, check=False)
    assert archived.returncode == 0, "The commit of the last release is missing: git fetch --unshallow"
    root, python = tmp_path / "former", tmp_path / "former-python"
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(root, filter="data")
    uv = str(Path(sys.executable).with_name("uv"))
    sources = [
        option
        for name, variable in (("--default-index", "PIP_INDEX_URL"), ("--find-links", "PIP_FIND_LINKS"))
        if (value := os.environ.get(variable))
        for option in (name, value)
    ]
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(python)], check=True)
    install = [uv, "pip", "install", "--quiet", "--require-hashes", *sources]
    wanted = ["-r", str(root / "requirements-dev.txt"), "-r", str(root / "requirements.txt")]
    subprocess.run([*install, "--python", str(python / "bin/python"), *wanted], check=True)
    return root, str(python / "bin/python")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Postgres, Valkey]]:
    for name in ("postgres-server", "valkey-server"):
        (tmp_path / name).mkdir()
    postgres, valkey = Postgres(tmp_path / "postgres-server"), Valkey(tmp_path / "valkey-server")
    yield postgres, valkey
    valkey.close()
    postgres.close()


def test_an_upgrade_and_its_way_back_lose_and_double_nothing(
    former_checkout: tuple[Path, str],
    servers: tuple[Postgres, Valkey],
    receiver: Receiver,
    simulator: RunningSimulator,
    tmp_path: Path,
) -> None:
    postgres, valkey = servers
    (tmp_path / "data").mkdir()
    environment = {
        "DATABASE_URL": postgres.url,
        "REDIS_URL": valkey.url,
        "META_GRAPH_URL": simulator.url,
        "META_APP_SECRET": settings.META_APP_SECRET,
        "DATA_DIR": str(tmp_path / "data"),
    }
    process_limits.raise_open_files()
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    root, python = former_checkout
    former = Version(Checkout(root, python, tmp_path / "former-run", **environment))
    new = Version(Checkout(ROOT, sys.executable, tmp_path / "new-run", **environment))
    try:
        former.manage("migrate", "--verbosity=0")
        before = latest_migrations(postgres.url)
        accounts = [simulator.account([{"throughput": "HIGH"}]) for _ in range(2)]
        seeded = subprocess.run(
            [python, "-c", SEED, json.dumps([vars(account) for account in accounts])],
            cwd=root,
            env=former.service.all_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert seeded.returncode == 0, seeded.stderr
        number, batch_number = (
            SimpleNamespace(phone_number_id=each.phone_number_id, account=each) for each in accounts
        )
        rehearsal = Rehearsal(seeded.stdout.strip(), number, batch_number, simulator, receiver)
        former.start()
        rehearsal.begin(former)
        rehearsal.batch()
        new.manage("migrate", "--verbosity=0")
        changed = before - latest_migrations(postgres.url)
        rehearsal.goes_on("the former version on the new schema")
        rehearsal.replace(former, by=new)
        rehearsal.replace(new, by=former)
        for app, name in sorted(changed):
            new.manage("migrate", "--verbosity=0", app, name)
        rehearsal.goes_on("the former version after migrating back")
        rehearsal.finish(postgres.url)
    finally:
        former.service.close()
        new.service.close()


def latest_migrations(url: str) -> set[tuple[Any, ...]]:
    """The last migration of each app."""
    with psycopg.connect(url) as database:
        return set(database.execute(LATEST).fetchall())


class Rehearsal:
    """The callers during the upgrade, and the responses that they got."""

    def __init__(
        self, token: str, number: Any, batch_number: Any, simulator: RunningSimulator, receiver: Receiver
    ) -> None:
        self.token, self.number, self.batch_number = token, number, batch_number
        self.simulator, self.receiver = simulator, receiver
        self.batches: list[str] = []
        self.callers: Callers

    def begin(self, version: Version) -> None:
        self.callers = Callers([web.url for web in version.webs], self.token, self.number)
        self._post("/v1/webhooks", {"url": self.receiver.url})
        self.callers.start("/v1/numbers", "/v1/events?limit=1")
        self.goes_on("the former version")

    def batch(self) -> None:
        """Start another batch."""
        place = len(self.batches)
        messages = [
            {"to": f"+91{9000000000 + n}", "type": "text", "text": {"body": f"Batch {place} message {n}"}}
            for n in range(BATCH)
        ]
        body = {"from": self.batch_number.phone_number_id, "messages": messages}
        self.batches.append(self._post("/v1/messages/batch", body)["id"])

    def replace(self, former: Version, *, by: Version) -> None:
        """Start version `by` beside `former`, switch the callers to `by`, and stop `former`."""
        self.batch()
        by.start()
        self.goes_on("both versions")
        self.callers.urls = [web.url for web in by.webs]
        self.goes_on("both versions, the callers at one")
        former.stop()
        self.goes_on("the other version alone")

    def goes_on(self, when: str) -> None:
        """Wait until, from now on, every kind of call has been answered 200 and events have arrived."""
        now, arrived = time.monotonic(), len(self.receiver.received)
        every_kind = set(self.callers.answered)
        wait_until(lambda: self.callers.kinds(200, since=now) == every_kind, f"calls are answered: {when}")
        wait_until(lambda: len(self.receiver.received) > arrived + 20, f"deliveries go on: {when}")

    def finish(self, database_url: str) -> None:
        """Wait for the end of all work, and check that nothing is lost or sent twice."""
        wait_until(lambda: all(map(self._is_over, self.batches)), "the batches end")
        self.callers.stop()

        def delivered() -> bool:
            with psycopg.connect(database_url) as database:
                left = database.execute("SELECT count(*) FROM webhook_deliveries WHERE status <> 'delivered'")
                return left.fetchone() == (0,)

        wait_until(delivered, "every event is delivered")
        sent = Counter(
            orjson.loads(row["body"])["text"]["body"]
            for each in (self.number, self.batch_number)
            for row in received(self.simulator, each)
        )
        assert max(sent.values()) == 1, "a message went out twice"
        events = [got.json for got in self.receiver.received]
        self.callers.assert_sends(sent)
        self.callers.assert_outbound_events(events)
        self.callers.assert_notifications(events)
        arrived = {event["dedupe_key"] for event in events}
        for place, batch_id in enumerate(self.batches):
            assert {f"out:{batch_id}:{n}" for n in range(BATCH)} | {f"batch:{batch_id}"} <= arrived
            assert all(sent[f"Batch {place} message {n}"] == 1 for n in range(BATCH))
        for kind, answered in self.callers.answered.items():
            counted = Counter(each.status for each in answered)
            sys.stdout.write(f"{kind}: {dict(counted)}\n")
            assert set(counted) == {200}, kind
        sys.stdout.write(f"events {len(arrived)}, batches {len(self.batches)} of {BATCH}\n")

    def _is_over(self, batch_id: str) -> bool:
        answer = requests.get(
            f"{self.callers.urls[0]}/v1/messages/batch/{batch_id}",
            headers=self.callers.authorised,
            timeout=30,
        )
        return bool(answer.json()["status"] == "completed")

    def _post(self, path: str, body: Any) -> Any:
        answer = requests.post(
            self.callers.urls[0] + path, json=body, headers=self.callers.authorised, timeout=30
        )
        assert answer.ok, answer.text
        return answer.json()
