"""Rare faults: a frozen database, a full disk, a clock that jumps, and silent name servers.

Clients and the upstream call the small host during the fault. The simulator and the receiver then show what arrived.
Only `make faults` runs these tests, because they take minutes and one of them mounts a disk.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import requests

from gateway.local_run import embedded_servers
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from phone_numbers.tokens import graph_of
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests import migrated_cluster
from tests.database_settings import connected_to
from tests.faults.callers import Callers
from tests.faults.service import Postgres, Service, Web, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery

pytestmark = pytest.mark.faults

BOUND_SECONDS = 10.0
"""The time limit of a 503. A send that the upstream accepted waits longer for its record."""
ON_THE_WAY_SECONDS = 3.0
"""The delay that a busy machine adds to `BOUND_SECONDS`."""
STILL_SECONDS = 30.0
BALLAST = "ballast"


class World:
    """The small host, its callers, a number and an endpoint."""

    def __init__(self, directory: Path, postgres: Postgres, simulator: RunningSimulator) -> None:
        self.simulator, self.postgres = simulator, postgres
        simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
        self.tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        self.number: PhoneNumber = connected_number(
            self.tenant, simulator.account([{"throughput": "HIGH"}]), throughput_level="HIGH"
        )
        # The small host soon checks the subscription at the upstream.
        assert graph_of(self.number.account).subscribe(self.number.account.waba_id).ok
        (directory / "host").mkdir()
        self.service = Service(
            directory / "host",
            DATABASE_URL=postgres.url,
            META_GRAPH_URL=simulator.url,
            DATA_DIR=str(directory / "host"),
            DELIVERY_LEASE_SECONDS="5",
            WEBHOOK_RETRY_SCHEDULE=",".join(["1"] * 60),
        )
        self.host: Web
        self.callers: Callers
        self.arrived: Callable[[], int]

    def begin(self, receiver: Receiver, *, endpoint: str | None = None) -> None:
        """Start the host and the callers. Returns once every kind of call is answered."""
        self.receiver = receiver
        self.host = self.service.small_host()
        token = api_keys.create(name="server", environment="live", tenant=self.tenant).key
        self.callers = Callers(self.host.url, token, self.number)
        answer = requests.post(
            f"{self.host.url}/v1/webhooks",
            json={"url": endpoint or receiver.url},
            headers=self.callers.authorised,
            timeout=30,
        )
        assert answer.ok, answer.text
        self.callers.start("/v1/numbers", "/v1/events?limit=1")
        self.goes_on()

    def goes_on(self) -> None:
        """Wait until every kind of call gets a 200 and events arrive. Earlier answers and events do not count."""
        now, arrived = time.monotonic(), len(self.receiver.received)
        every_kind = set(self.callers.answered)
        wait_until(lambda: self.callers.kinds(200, since=now) == every_kind, "every kind is answered 200")
        wait_until(lambda: len(self.receiver.received) > arrived, "deliveries go on")

    def finish(self, *, reasons: Set[str] = frozenset({"interrupted"})) -> None:
        """Wait for the end of all work. Check that nothing is lost or sent twice. `reasons` is for
        `Callers.assert_sends`.
        """
        self.callers.stop()
        wait_until(
            lambda: self.callers.have_outbound_events([got.json for got in self.receiver.received]),
            "every send answered 200 has its event",
        )
        wait_until(lambda: not Delivery.objects.exclude(status="delivered").exists(), "all is delivered")
        self.service.assert_well()
        sent = Counter(
            orjson.loads(row["body"])["text"]["body"] for row in received(self.simulator, self.number)
        )
        assert max(sent.values()) == 1, "a message went out twice"
        events = [got.json for got in self.receiver.received]
        self.callers.assert_sends(sent, reasons=reasons)
        self.callers.assert_notifications(events)


@pytest.fixture
def world(tmp_path: Path, simulator: RunningSimulator, django_db_blocker: Any) -> Iterator[World]:
    migrated_cluster.copy_to(tmp_path)
    server = Postgres(tmp_path)
    with connected_to(server.url), django_db_blocker.unblock():
        made = World(tmp_path, server, simulator)
        try:
            yield made
        finally:
            Callers.end_all()
            made.service.close()
    server.close()


def test_a_postgres_that_stands_still_is_answered_for_within_the_bound(
    world: World, receiver: Receiver
) -> None:
    world.begin(receiver)
    servers = embedded_servers._servers_in(world.postgres.directory / "postgres")
    stopped = time.monotonic()
    for server in servers:
        os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(STILL_SECONDS)
        during = time.monotonic()
    finally:
        for server in servers:
            os.kill(server, signal.SIGCONT)
    world.goes_on()
    world.finish()
    for kind, answered in world.callers.answered.items():
        assert {each.status for each in answered} <= {200, 503, 409, 502}, kind
        if kind == "reads":
            # Once Postgres has begun a read, the read waits until Postgres continues.
            continue
        refused = [each for each in answered if stopped < each.at < during and each.status == 503]
        assert refused, f"{kind}: nobody was answered while Postgres stood still"
        slowest = max(each.response.elapsed.total_seconds() for each in refused)
        assert slowest < BOUND_SECONDS + ON_THE_WAY_SECONDS, f"{kind}: {slowest}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small separate disk with a migrated Postgres cluster."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk of its own can be mounted here")
    try:
        disk.chmod(0o755)
        migrated_cluster.copy_to(disk)
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_of_postgres_loses_nothing(
    small_disk: Path, tmp_path: Path, simulator: RunningSimulator, receiver: Receiver, django_db_blocker: Any
) -> None:
    server = Postgres(small_disk)
    with connected_to(server.url), django_db_blocker.unblock():
        world = World(tmp_path, server, simulator)
        try:
            world.begin(receiver)
            full = time.monotonic()
            with (small_disk / BALLAST).open("wb") as ballast:
                while shutil.disk_usage(small_disk).free:
                    try:
                        ballast.write(bytes(min(1 << 16, shutil.disk_usage(small_disk).free)))
                        ballast.flush()
                    except OSError:
                        break
            wait_until(
                lambda: world.callers.kinds(503, since=full) >= {"notifications", "sends with a key"},
                "what writes is answered 503",
            )
            (small_disk / BALLAST).unlink()
            if server.process.poll() is not None:
                server.start()
            world.goes_on()
            world.finish()
        finally:
            Callers.end_all()
            world.service.close()
    server.close()


class NameServer:
    """A name server that answers 127.0.0.1 for every name, or does not answer."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.is_silent = False
        self.asked = 0
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            try:
                query, sender = self._socket.recvfrom(512)
            except OSError:
                return
            self.asked += 1
            if not self.is_silent:
                self._socket.sendto(self._known(query), sender)

    def _known(self, query: bytes) -> bytes:
        """The response to a query: an address for A, none for AAAA."""
        end = query.find(b"\x00", 12) + 5 if len(query) > 12 else 12
        is_address = query[end - 4 : end - 2] == b"\x00\x01"
        counts = b"\x00\x01" + (b"\x00\x01" if is_address else b"\x00\x00") + bytes(4)
        answer = b"\xc0\x0c\x00\x01\x00\x01" + bytes(4) + b"\x00\x04\x7f\x00\x00\x01"
        return query[:2] + b"\x81\x80" + counts + query[12:end] + (answer if is_address else b"")

    def close(self) -> None:
        self._socket.close()


def shift_clock(folder: Path, seconds: int) -> None:
    """Shift the clock of a surrounded service. The service may read the file at any time, so a rename replaces it."""
    (folder / "next").write_text(str(seconds))
    (folder / "next").replace(folder / "shift")


@pytest.fixture
def names(tmp_path: Path) -> Iterator[NameServer]:
    server = NameServer()
    shift_clock(tmp_path, 0)
    (tmp_path / "port").write_text(str(server.port))
    yield server
    server.close()


class SurroundedService(Service):
    """The service with the test's clock and name server."""

    def start(self, *command: str, **environment: str) -> Any:
        return super().start("tests.faults.surroundings", *command, **environment)


def surround(world: World, folder: Path) -> None:
    """Make the world's service use the clock and the name server that a folder describes."""
    world.service.__class__ = SurroundedService
    world.service.environment["SURROUNDINGS"] = str(folder)


@pytest.mark.parametrize("jump", [7_200, -7_200], ids=["forward", "back"])
def test_a_clock_that_jumps_between_claim_and_record_loses_and_doubles_nothing(
    world: World, receiver: Receiver, names: NameServer, tmp_path: Path, jump: int
) -> None:
    """Sends and deliveries are slow, so that the clock jumps while many of them are claimed but not yet recorded."""
    surround(world, tmp_path)
    world.simulator.faults(
        {"match": {"phone_number_id": world.number.phone_number_id}, "action": "slow", "ms": 300}
    )
    world.begin(receiver)
    for shift in (jump, 0, jump):
        shift_clock(tmp_path, shift)
        world.goes_on()
    world.finish()
    came = Counter(got.headers["webhook-id"] for got in receiver.received)
    assert max(came.values()) == 1, "a lease ran out by the clock of a host"
    assert [
        (kind, each.status, each.response.text)
        for kind, answered in world.callers.answered.items()
        for each in answered
        if each.status != 200
    ] == []


def test_silent_name_servers_hold_up_no_one_else_and_lose_nothing(
    world: World, receiver: Receiver, names: NameServer, tmp_path: Path
) -> None:
    surround(world, tmp_path)
    port, path = urlsplit(receiver.url).port, urlsplit(receiver.url).path
    graph = urlsplit(world.simulator.url)
    world.service.environment["META_GRAPH_URL"] = f"http://graph.example:{graph.port}{graph.path}"
    world.begin(receiver, endpoint=f"http://customer.example:{port}{path}")
    silent = time.monotonic()
    names.is_silent = True
    wait_until(lambda: Delivery.objects.filter(last_error="timeout").exists(), "deliveries fail")
    wait_until(lambda: world.callers.kinds(502, since=silent) >= {"sends without a key"}, "sends fail")
    now = time.monotonic()
    others = {"notifications", "reads", "health"}
    wait_until(lambda: world.callers.kinds(200, since=now) >= others, "all others go on")
    slow = [
        each.response.elapsed.total_seconds()
        for kind in others
        for each in world.callers.answered[kind]
        if each.at > silent
    ]
    names.is_silent = False
    world.goes_on()
    world.finish(reasons={"timeout"})
    assert max(slow) < 2, "others wait for the names of some"
