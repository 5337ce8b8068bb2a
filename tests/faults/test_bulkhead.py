"""Bulkheads under load. No other call fails because of a hanging number, replays to a silent endpoint, or slow bodies.

The benchmark `bulkhead` measures the same load.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import bulkhead
from benchmarks.equipment.seed import business
from tests.faults.service import LONG, Service, database_url
from webhooks.models import Event

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]

SECONDS, HANGING, DRIPPING = (30, 500, 200) if LONG else (3, 100, 60)
SENDS = 5
"""The number of sends per second."""
SEND_CONNECTIONS = 2
"""The connections that a tenant may have beside the other load, even on a slow machine."""
SLOWEST_MS = 10_000
"""The limit of a call: far above the benchmark's limit, and far below the 15 seconds of a hanging call."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        API_RATE_PER_SECOND="100000",
        API_RATE_BURST="100000",
        WEBHOOK_ALLOW_HTTP="true",
        WEBHOOK_ALLOW_PRIVATE_NETWORKS="true",
    )
    yield service
    service.close()


def test_what_hangs_for_one_tenant_takes_nothing_from_the_others(service: Service) -> None:
    hanging, replaying, other = (business(number) for number in (1, 2, 3))
    with (
        bulkhead.partly_hanging_upstream(hanging.phone_number_id) as upstream,
        bulkhead.silent_endpoint() as silent,
    ):
        service.environment["META_GRAPH_URL"] = upstream
        web = service.web().url
        sends = [bulkhead.send_request(other, number) for number in range(SENDS * SECONDS)]
        delivery = bulkhead.dead_delivery(replaying, silent)
        loads = asyncio.run(
            bulkhead.beside(
                web,
                hanging,
                replaying,
                delivery,
                other,
                sends,
                seconds=SECONDS,
                send_rate=SENDS,
                send_connections=SEND_CONNECTIONS,
                hanging_sends=HANGING,
                dripping=DRIPPING,
            )
        )
    for what, load in zip(("notifications", "health", "sends"), loads, strict=True):
        assert dict(load.statuses) == {200: len(load.milliseconds)}, what
        assert max(load.milliseconds) < SLOWEST_MS, what
    of_other = Event.objects.filter(tenant_id=other.tenant_id)
    assert of_other.filter(type="message.outbound").count() == len(sends)
    assert of_other.filter(type="message.inbound").count() == bulkhead.NOTIFICATIONS * SECONDS
    service.assert_well()
