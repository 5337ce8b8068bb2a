"""Nodes of a Citus cluster are restarted, killed, and give their shards away, while everything is under way.

Clients, Meta, a batch and deliveries are under way all the time. They are reconciled at the simulator, at the receiver
and at the event stream. Runs with `make citus`.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from django.db import connection

from messaging.models import Batch, BatchItem
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from phone_numbers.tokens import graph_of
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.citus.cluster import Cluster
from tests.faults.callers import Callers
from tests.faults.service import Service, Valkey, database_url, received, wait_until
from tests.receiver import Receiver
from tests.simulated import RunningSimulator
from webhooks.models import Delivery
from webhooks.tests.stream_reading import StreamReader

PLUGIN = "tests.citus.plugin"
pytestmark = pytest.mark.django_db(transaction=True)

BATCH = 1_000
# By the names of the nodes: the shards of the tenant, which are placed together, move to the other worker.
_MOVE = """
SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('event_keys', %(tenant)s),
    from_node.nodename, from_node.nodeport, to_node.nodename, to_node.nodeport, 'block_writes')
FROM pg_dist_placement p
JOIN pg_dist_node from_node USING (groupid)
JOIN pg_dist_node to_node ON to_node.groupid <> p.groupid AND to_node.shouldhaveshards
WHERE p.shardid = get_shard_id_for_distribution_column('event_keys', %(tenant)s)
"""
_NODE = """
SELECT nodename FROM pg_dist_placement JOIN pg_dist_node USING (groupid)
WHERE shardid = get_shard_id_for_distribution_column('event_keys', %s)
"""


@pytest.fixture
def cluster() -> Cluster:
    running: Cluster = sys.modules[PLUGIN].running
    return running


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path)
    yield server
    server.close()


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey, simulator: RunningSimulator) -> Iterator[Service]:
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        DATABASE_IS_DISTRIBUTED="true",
        REDIS_URL=valkey.url,
        META_GRAPH_URL=simulator.url,
        DATA_DIR=str(tmp_path / "data"),
        WEBHOOK_RETRY_SCHEDULE="0.5,0.5,1,1,1,1,1,1,1,1",
    )
    yield running
    running.close()
    Callers.end_all()


def _number(tenant: Tenant, simulator: RunningSimulator, level: str) -> PhoneNumber:
    account = simulator.account([{"throughput": level}])
    number = connected_number(tenant, account, throughput_level=level)
    assert graph_of(number.account).subscribe(number.account.waba_id).ok
    return number


def _node_of(tenant: Tenant) -> str:
    with connection.cursor() as cursor:
        cursor.execute(_NODE, [tenant.id])
        return str(cursor.fetchone()[0])


def test_nodes_restart_and_shards_move_and_nothing_is_lost_or_sent_twice(
    cluster: Cluster,
    tenant: Tenant,
    key: NewKey,
    service: Service,
    simulator: RunningSimulator,
    receiver: Receiver,
) -> None:
    simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
    number, batch_number = (_number(tenant, simulator, level) for level in ("HIGH", "STANDARD"))
    host = service.small_host()
    callers = Callers(host.url, key.key, number)

    callers.start_batch(batch_number, BATCH, receiver.url)
    callers.start("/v1/events?limit=1")
    listener = StreamReader(tenant.id)

    def goes_on() -> None:
        """Whether calls, deliveries and the stream work, or work again, from now on."""
        now, arrived, heard = time.monotonic(), len(receiver.received), len(listener.got)
        wait_until(lambda: callers.kinds(200, since=now) == set(callers.answered), "every call is answered")
        wait_until(lambda: len(receiver.received) > arrived, "deliveries go on")

        def hears() -> bool:
            listener.read_on()
            return len(listener.got) > heard

        wait_until(hears, "the stream goes on")

    goes_on()
    for end in ("stop", "kill"):
        for worker in cluster.workers:
            getattr(worker, end)()
            worker.start()
            goes_on()
    for _ in range(2):
        before = _node_of(tenant)
        with connection.cursor() as cursor:
            cursor.execute(_MOVE, {"tenant": tenant.id})
        assert _node_of(tenant) != before
        goes_on()
    callers.stop()
    wait_until(lambda: not Batch.objects.filter(completed_at=None).exists(), "the batch ends")
    wait_until(lambda: not Delivery.objects.exclude(status="delivered").exists(), "every event is delivered")
    service.assert_well()

    sent = Counter(
        orjson.loads(row["body"])["text"]["body"]
        for each in (number, batch_number)
        for row in received(simulator, each)
    )
    assert max(sent.values()) == 1, "a message went out twice"
    callers.assert_sends(sent)
    wait_until(
        lambda: callers.have_outbound_events([got.json for got in receiver.received]),
        "every send that was answered has its event",
    )
    events = {got.json["id"]: got.json for got in receiver.received}
    callers.assert_notifications(list(events.values()))
    for item in BatchItem.objects.filter(status="accepted"):
        assert sent[f"Message {item.idx}"] == 1

    def has_heard_all() -> bool:
        listener.read_on()
        return set(listener.got) >= set(events)

    wait_until(has_heard_all, "the stream has every event")
    assert max(Counter(listener.got).values()) == 1, "the stream has an event twice"
