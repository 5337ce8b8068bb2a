"""Measures the CPU that the database uses for each event: `python -m tests.citus.cost plain 1+0 1+2`.

`plain` is one Postgres, `1+2` a coordinator with two workers, and `1+0` a coordinator that holds all shards. Events are
published, claimed and recorded as delivered in groups of 16 of one tenant. The output is the CPU time of an event in
milliseconds, by step and node. In production, an event is not claimed if its publisher hands it over to a dispatcher.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup
from tests.citus.cluster import PROGRAMS, ROOT, Cluster

TENANTS, GROUPS, TOGETHER = 20, 10, 16
_TICKS = os.sysconf("SC_CLK_TCK")


def main(names: list[str]) -> None:
    """Measure each kind of database in a separate process."""
    for name in names:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.citus.cost", "--one", name], cwd=ROOT, check=True
        )


def _measure(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="gateway-cost-") as directory:
        home = Path(directory)
        home.chmod(0o755)
        group = ProcessGroup()
        if name == "plain":
            postgres = embedded_servers.start_postgres(
                home / "plain", process_group=group.id, binaries=PROGRAMS
            )
            url, nodes = embedded_addresses.database_url(home / "plain"), {"postgres": postgres.pid}
        else:
            cluster = Cluster(home, workers=int(name.partition("+")[2]))
            url = cluster.url
            nodes = {"coordinator": cluster.coordinator.process.pid} | {
                f"worker {place}": worker.process.pid for place, worker in enumerate(cluster.workers, 1)
            }
        embedded_servers.start_valkey(home / "valkey", process_group=group.id)
        os.environ |= {
            "DATABASE_URL": url,
            "REDIS_URL": embedded_addresses.valkey_url(home / "valkey"),
            "DATABASE_IS_DISTRIBUTED": str(name != "plain").lower(),
            "DATA_DIR": str(home / "data"),
            "LOG_LEVEL": "WARNING",
        }
        for command in ("migrate", "distribute") if name != "plain" else ("migrate",):
            subprocess.run(
                [sys.executable, "-W", "ignore", "manage.py", command, "-v0"], cwd=ROOT, check=True
            )
        used = _deliver(nodes)
        events = TENANTS * GROUPS * TOGETHER
        sys.stdout.write(f"{name}: ms an event, of {events}\n")
        for step, seconds in {**used, "all": sum(used.values(), Counter())}.items():
            parts = ", ".join(f"{node} {1000 * seconds[node] / events:.3f}" for node in nodes)
            sys.stdout.write(f"  {step}: {parts}, all {1000 * seconds.total() / events:.3f}\n")
        if name != "plain":
            cluster.close()
        group.close()


def _deliver(nodes: dict[str, int]) -> dict[str, "Counter[str]"]:
    """Publish, claim and record events in rounds. The first round does not count.

    Returns the CPU seconds that each node used for each step.
    """
    import django

    django.setup()
    from django.db import transaction

    from gateway.outbound.client import Answer
    from tenants.models import Tenant
    from webhooks.delivery.caps import Room
    from webhooks.delivery.claim_statements import claim
    from webhooks.delivery.recorder import Outcome, record
    from webhooks.delivery.retries_and_attempt_log import Decision
    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish
    from webhooks.tests.publishing import endpoint_of

    tenants = [Tenant.objects.create(name=f"Tenant {place}", status="active") for place in range(TENANTS)]
    for tenant in tenants:
        endpoint_of(tenant)
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @contextmanager
    def measured(step: str) -> Iterator[None]:
        before = {node: _cpu_seconds(pid) for node, pid in nodes.items()}
        yield
        used[step].update({node: _cpu_seconds(pid) - before[node] for node, pid in nodes.items()})

    answer = Answer(200, None, 3, b"", None)
    for place in range(1 + GROUPS):
        if place == 1:
            used.clear()
        with measured("published"):
            for tenant in tenants:
                events = [
                    NewEvent(type="meta.other", environment="live", dedupe_key=str(uuid4()), data=b"{}")
                    for _ in range(TOGETHER)
                ]
                with transaction.atomic():
                    publish(tenant_id=tenant.id, events=events)
        with measured("claimed"):
            claimed = claim(Room(500, 500))
        with measured("recorded"):
            record(
                [
                    Outcome(each.id, each.tenant_id, each.endpoint_id, 0, Decision("delivered"), answer)
                    for each in claimed
                ]
            )
    return used


def _cpu_seconds(postmaster: int) -> float:
    """Return the CPU seconds that all running and ended processes of a Postgres have used."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(entry.name) == postmaster:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == postmaster:
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICKS


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        _measure(sys.argv[2])
    else:
        main(sys.argv[1:])
