"""Reads of the API on one keep-alive connection: CPU of the web processes for each list and for one message.

The floor is a bare listener that receives notifications, also one after another. The partitioned tables have the
partitions of two years, as in a two-year-old installation.
"""

import http.client
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint
from benchmarks.incoming import notification

READS, WARM_UP = 1_000, 100
STORED = 200
OF_FLOOR = 6.0
"""Limit for the CPU of the web processes for a read, as a multiple of a bare listener's CPU for a notification."""
YEARS = timedelta(days=730)
PATHS = (
    "/v1/numbers",
    "/v1/events?limit=10",
    "/v1/messages?limit=10",
    "/v1/webhook-deliveries?limit=10",
    # Lists the calls made by the rows above.
    "/v1/requests?limit=10",
    "/v1/messages/wamid.7",
)


def run(harness: Harness) -> list[Result]:
    """Store some events, deliveries and messages, and make one read after another."""
    from gateway.clock import now
    from gateway.database import partitions

    owner = business()
    for table in ("events", "webhook_deliveries", "messages"):
        partitions.make_from(table, (now() - YEARS).date())
    store(owner)
    url = harness.web(API_RATE_PER_SECOND="100000", API_RATE_BURST="100000")
    floor_url = floors.listener(harness)
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    results = []
    for path in PATHS:
        floor = _floor(harness, floor_url, owner)
        _read(connection, path, owner.api_key, WARM_UP)
        with harness.measure() as measured:
            waits, refused = _read(connection, path, owner.api_key, READS)
        cpu = {name: spent for name, spent in measured.cpu_per(READS).items() if name != "client"}
        result = Result(
            f"GET {path}",
            READS,
            READS / measured.seconds,
            unit="reads",
            percentiles=percentiles(waits),
            cpu=cpu,
            floor_cpu={floors.LISTENER: floor},
        )
        result.expect(not refused, f"{refused:,} were not answered 200")
        result.expect_cpu(("web",), OF_FLOOR, floor=(floors.LISTENER,))
        results.append(result)
    connection.close()
    return results


def store(owner: Business) -> None:
    """Store inbound messages of a business, each with an event and a delivery. No worker sends the deliveries."""
    from gateway.database.statements import run as run_statements
    from gateway.upstream.notifications.change import MessageFacts
    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import Publication, publishing

    endpoint(owner.tenant_id, "http://127.0.0.1:9/nobody")
    events: list[Any] = [
        NewEvent(
            type="message.inbound",
            environment="live",
            waba_id=owner.waba_id,
            phone_number_id=owner.phone_number_id,
            display_phone_number=owner.display_phone_number,
            wamid=f"wamid.{number}",
            wa_id=f"9198{number:08d}",
            dedupe_key=f"wamid.{number}",
            data=b'{"text":"Is my order on its way?"}',
            message=MessageFacts("inbound", "received", is_message=True, type="text"),
        )
        for number in range(STORED)
    ]
    run_statements(publishing([Publication(owner.tenant_id, [event], b"{}") for event in events]))


def _floor(harness: Harness, url: str, owner: Business) -> float:
    """The CPU microseconds of a bare listener for each notification, sent one after another."""
    notifications = [notification(owner, 1) for _ in range(READS)]
    with harness.measure() as measured:
        load = raw_client.post_all(f"{url}/", notifications, concurrency=1)
    assert load.statuses == {200: READS}
    return measured.cpu_per(READS)[floors.LISTENER]


def _read(connection: http.client.HTTPConnection, path: str, key: str, count: int) -> tuple[list[float], int]:
    """The milliseconds of each read, and the number of reads that were not answered with 200."""
    waits, refused = [], 0
    for _ in range(count):
        began = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        answer.read()
        refused += answer.status != 200
        waits.append((time.perf_counter() - began) * 1000)
    return waits, refused
