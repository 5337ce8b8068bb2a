"""Two cells behind one nginx and one notification router: a tenant moves while clients and Meta call.

Run by `make faults`. The former cell is a copy of the tests' database, made before its processes start. The new cell is
the tests' database itself, emptied. Reconciled at the simulator and at the tenant's receiver.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from psycopg import sql

from gateway.local_run import processes
from messaging import tenant_moves
from messaging.tests.conftest import connected_number
from tenants.credentials import key_cache
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests import emptying
from tests.faults.callers import Callers
from tests.faults.service import Service, Valkey, database_url, received, wait_until
from tests.fixtures import Api
from tests.free_ports import free_port
from tests.operating.cell_front import Front
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Event

pytestmark = pytest.mark.django_db(transaction=True)

FORMER = "former_cell"
SETTLE_SECONDS = 30.0
"""Twice the time for which a process caches a tenant plus that of a send to this simulator."""


@contextmanager
def former_database() -> Iterator[str]:
    """A copy of the tests' database, which is empty afterwards. Returns its URL."""
    name = connection.settings_dict["NAME"]
    connection.close()
    emptying.close()
    server = urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(server._replace(path="/postgres").geturl(), autocommit=True) as operator:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(FORMER))
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        operator.execute(drop)
        operator.execute(copy.format(sql.Identifier(FORMER), sql.Identifier(name)))
        emptying.delete_all_rows()
        key_cache.clear_process_cache()
        yield server._replace(path=f"/{FORMER}").geturl()
        operator.execute(drop)


def test_a_tenant_moves_between_two_cells_under_calls(
    tenant: Tenant, key: NewKey, receiver: Receiver, simulator: RunningSimulator, tmp_path: Path
) -> None:
    number = connected_number(tenant, simulator.account([{"throughput": "HIGH"}]), throughput_level="HIGH")
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    assert Api(key.key).post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    routes = tmp_path / "routes"
    routes.mkdir()
    running: list[Service] = []
    valkeys = []
    try:
        with former_database() as former:
            tenant_moves.number(1)
            cells = {}
            for name, database in (("cell_a", former), ("cell_b", database_url())):
                directory = tmp_path / name
                directory.mkdir()
                valkeys.append(Valkey(directory))
                service = Service(
                    directory,
                    DATABASE_URL=database,
                    REDIS_URL=valkeys[-1].url,
                    META_GRAPH_URL=simulator.url,
                    DATA_DIR=str(directory),
                )
                running.append(service)
                service.worker("deliveries")
                service.beat()
                cells[name] = service.web().url
                assert service.start("django", "cell_routes", name, str(routes)).wait(60) == 0
            router = free_port()
            running[0].start(
                "web.notification_router",
                f"--port={router}",
                "--default=cell_a",
                *(f"--cell={name}={url}" for name, url in cells.items()),
                str(routes),
            )
            processes.wait_for_answer(
                router,
                "/v1/health/live",
                seconds=60,
                check_alive=lambda: None,
            )
            front = Front(tmp_path, cells, router)
            callers = Callers(front.url, key.key, number)
            try:
                callers.start("/v1/numbers")
                calls = {"sends with a key", "sends without a key", "notifications", "reads"}
                all_answered(callers, calls, 200)
                frozen = time.monotonic()
                tenant_moves.SETTLE_SECONDS = SETTLE_SECONDS
                moved = tenant_moves.take(tenant.id, former=former)
                assert callers.kinds(503, since=frozen) >= calls
                call_command("cell_routes", "cell_b", str(routes))
                assert running[0].start("django", "cell_routes", "cell_a", str(routes)).wait(60) == 0
                front.reload()
                all_answered(callers, calls, 200)
            finally:
                callers.stop()
                front.close()
            everything = lambda: not Delivery.objects.exclude(status="delivered").exists()  # noqa: E731
            wait_until(everything, "every event is delivered")
            with psycopg.connect(former) as there:
                left = there.execute("SELECT status FROM tenants_tenant").fetchall()
            assert left == [("moved",)]
    finally:
        for service in running:
            service.close()
        for valkey in valkeys:
            valkey.close()
    assert moved.rows["events"] > 0
    statuses = {kind: {each.status for each in callers.answered[kind]} for kind in calls}
    assert all(found <= {200, 503} for found in statuses.values()), statuses
    sent = Counter(orjson.loads(row["body"])["text"]["body"] for row in received(simulator, number))
    assert max(sent.values()) == 1, "a message went out twice"
    events = [got.json for got in receiver.received]
    callers.assert_sends(sent)
    callers.assert_outbound_events(events)
    callers.assert_notifications(events)
    assert Event.objects.count() == len({event["id"] for event in events})


def all_answered(callers: Callers, kinds: set[str], status: int) -> None:
    """Whether every kind of call has this status from now on."""
    now = time.monotonic()
    wait_until(lambda: callers.kinds(status, since=now) >= kinds, f"every call is answered {status}")
