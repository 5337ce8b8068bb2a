"""Nodes of a Citus cluster restart, are killed, move shards, fail over to a standby, and are restored from a backup.

Meanwhile, sends, notifications, a batch and deliveries go on. The tests compare what was sent with what arrived at the
simulator, at the receiver and on the event stream. `make citus` runs them.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import QuerySet

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
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Delivery, Event
from webhooks.tests.stream_reading import StreamReader

PLUGIN = "tests.citus.plugin"
pytestmark = pytest.mark.django_db(transaction=True)

BATCH = 1_000
# Moves the shards of a tenant, which are placed together, to the other worker.
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
_REPLACE = "SELECT citus_update_node(nodeid, %s, nodeport) FROM pg_dist_node WHERE nodename = %s"


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


class Flows:
    """Sends, notifications, reads, a batch, deliveries and an event stream of a tenant, all at the same time."""

    def __init__(
        self,
        tenant: Tenant,
        key: NewKey,
        service: Service,
        simulator: RunningSimulator,
        receiver: Receiver,
        batch: int,
    ) -> None:
        """Begin the flows. `batch` is the number of messages in the batch."""
        self._service, self._simulator, self._receiver = service, simulator, receiver
        simulator.control("PUT", "settings", {"recipients": {"magic": False}, "statuses": {"enabled": False}})
        number, batch_number = self._numbers = [
            _number(tenant, simulator, level) for level in ("HIGH", "STANDARD")
        ]
        self._callers = Callers(service.small_host().url, key.key, number)
        self._callers.start_batch(batch_number, batch, receiver.url)
        self._callers.start("/v1/events?limit=1")
        self._listener = StreamReader(tenant.id)

    def assert_going_on(self) -> None:
        """Wait until each kind of call succeeds again, and a new delivery and a new event on the stream arrive."""
        now = time.monotonic()
        arrived, streamed = len(self._receiver.received), len(self._listener.got)
        every = set(self._callers.answered)
        wait_until(lambda: self._callers.kinds(200, since=now) == every, "every call is answered")
        wait_until(lambda: len(self._receiver.received) > arrived, "deliveries go on")

        def has_new_event() -> bool:
            self._listener.read_on()
            return len(self._listener.got) > streamed

        wait_until(has_new_event, "the stream goes on")

    def end(self) -> None:
        """End the flows. Check that nothing was lost, and that nothing was sent or received twice."""
        callers, listener, received_by = self._callers, self._listener, self._receiver.received
        callers.stop()
        wait_until(lambda: not Batch.objects.filter(completed_at=None).exists(), "the batch ends")
        wait_until(
            lambda: not Delivery.objects.exclude(status="delivered").exists(), "every event is delivered"
        )
        sent = Counter(
            orjson.loads(row["body"])["text"]["body"]
            for number in self._numbers
            for row in received(self._simulator, number)
        )
        assert max(sent.values()) == 1, "a message went out twice"
        callers.assert_sends(sent)
        wait_until(
            lambda: callers.have_outbound_events([got.json for got in received_by]),
            "every send that was answered has its event",
        )
        events = {got.json["id"]: got.json for got in received_by}
        callers.assert_notifications(list(events.values()))
        for item in BatchItem.objects.filter(status="accepted"):
            assert sent[f"Message {item.idx}"] == 1

        def has_all_events() -> bool:
            listener.read_on()
            return set(listener.got) >= set(events)

        wait_until(has_all_events, "the stream has every event")
        assert max(Counter(listener.got).values()) == 1, "the stream has an event twice"
        self._service.assert_well()


Begin = Callable[[int], Flows]


@pytest.fixture
def begin(
    tenant: Tenant, key: NewKey, service: Service, simulator: RunningSimulator, receiver: Receiver
) -> Begin:
    """A function that begins the flows, with the number of messages in the batch."""
    return partial(Flows, tenant, key, service, simulator, receiver)


def test_nodes_restart_and_shards_move_and_nothing_is_lost_or_sent_twice(
    cluster: Cluster, tenant: Tenant, begin: Begin
) -> None:
    flows = begin(BATCH)
    flows.assert_going_on()
    for end in ("stop", "kill"):
        for worker in cluster.workers:
            getattr(worker, end)()
            worker.start()
            flows.assert_going_on()
    for _ in range(2):
        before = _node_of(tenant)
        with connection.cursor() as cursor:
            cursor.execute(_MOVE, {"tenant": tenant.id})
        assert _node_of(tenant) != before
        flows.assert_going_on()
    flows.end()


def test_a_standby_takes_a_workers_place_and_nothing_is_lost_or_sent_twice(
    cluster: Cluster, tenant: Tenant, begin: Begin
) -> None:
    flows = begin(BATCH)
    (place,) = (place for place, worker in enumerate(cluster.workers) if worker.host == _node_of(tenant))
    primary, standby = cluster.workers[place], cluster.workers[place].start_standby()
    flows.assert_going_on()
    primary.kill()
    cluster.workers[place] = standby
    standby.execute("SELECT pg_promote()")
    cluster.coordinator.execute(_REPLACE, standby.host, primary.host)
    assert _node_of(tenant) == standby.host
    flows.assert_going_on()
    flows.end()


def test_after_a_restore_each_transaction_is_on_all_nodes_or_on_none_and_the_flows_go_on(
    cluster: Cluster, begin: Begin
) -> None:
    pair = _tenants_of_both_nodes()
    late, ahead = StreamReader(pair[0].id), StreamReader(pair[0].id)
    with _publishing_together(pair):
        late.read_on()
        for node in cluster.nodes:
            node.back_up()
        _wait_for_events(pair, 30)
        cluster.coordinator.execute("SELECT citus_create_restore_point('chosen')")
        _wait_for_events(pair, 30)
    for node in cluster.nodes:
        node.finish_archive()
    ahead.read_on()
    connection.close()
    for node in cluster.nodes:
        node.stop()
    for node in (*cluster.workers, cluster.coordinator):
        node.restore("chosen")
    cluster.coordinator.execute("SELECT recover_prepared_transactions()")
    restored, other = ([*_keys_of(each)] for each in pair)
    assert restored == other
    assert 30 <= len(restored) <= len(ahead.got) - 30
    assert [node.execute("SELECT count(*) FROM pg_prepared_xacts") for node in cluster.nodes] == [0, 0, 0]

    call_command("begin_stream_epoch")
    call_command("cancel_open_batches")
    with _publishing_together(pair):
        _wait_for_events(pair, 10)
    for listener in (late, ahead):
        listener.read_on()
        assert max(Counter(listener.got).values()) == 1, "the stream has an event twice"
    assert {*late.got} == {*_ids_of(pair[0])} <= {*ahead.got}

    flows = begin(100)
    flows.assert_going_on()
    flows.end()


def _tenants_of_both_nodes() -> list[Tenant]:
    """Create two tenants whose rows are on different workers."""
    found: dict[str, Tenant] = {}
    while len(found) < 2:
        tenant = Tenant.objects.create(name=f"Tenant {len(found)}", status="active")
        found.setdefault(_node_of(tenant), tenant)
    return list(found.values())


@contextmanager
def _publishing_together(tenants: Sequence[Tenant]) -> Iterator[None]:
    """Until the block ends, keep publishing an event for each tenant, all of them in one transaction."""
    stopped = threading.Event()

    def publish_all() -> None:
        try:
            while not stopped.is_set():
                name = str(uuid4())
                with transaction.atomic():
                    for tenant in tenants:
                        event = NewEvent(type="meta.other", environment="live", dedupe_key=name, data=b"{}")
                        publish(tenant_id=tenant.id, events=[event])
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        publishing = thread.submit(publish_all)
        try:
            yield
        finally:
            stopped.set()
        publishing.result()


def _keys_of(tenant: Tenant) -> "QuerySet[Event, str]":
    return (
        Event.objects.filter(tenant_id=tenant.id).order_by("dedupe_key").values_list("dedupe_key", flat=True)
    )


def _ids_of(tenant: Tenant) -> list[str]:
    return [event.public_id for event in Event.objects.filter(tenant_id=tenant.id)]


def _wait_for_events(tenants: Sequence[Tenant], count: int) -> None:
    """Wait until each tenant has `count` more events."""
    before = [_keys_of(tenant).count() for tenant in tenants]
    wait_until(
        lambda: all(_keys_of(each).count() >= had + count for each, had in zip(tenants, before, strict=True)),
        "events are published",
    )
