"""Deliveries, searches and lists with few and with many stored events, which are bulk-loaded over the past weeks.

GROWTH_EVENTS sets the largest size (default 10,000,000). The smaller sizes are 10,000 and 1,000,000. The time of each
operation is compared with its time at the smallest size.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

LARGEST = int(os.environ.get("GROWTH_EVENTS", "10000000"))
SIZES = [size for size in (10_000, 1_000_000) if size < LARGEST] + [LARGEST]
WEEKS = 12
TENANTS = 20
REPEATS = 40
SLOWER = 1.3
LEAST_MS = 5.0
"""Smaller times count as this time, because their differences are noise of the machine."""
DROP_SECONDS = 1.0

# UUIDv7s over the past weeks: the first 48 bits are the millisecond, the other bits are random.
_ID = """
(lpad(to_hex((extract(epoch FROM now() - interval '{weeks} weeks') * 1000
    + ({weeks} * 604800000.0 - 60000) * n / {size})::bigint), 12, '0')
 || '7' || substr(md5(n::text || '{salt}'), 1, 3) || '8' || substr(md5(n::text || '{salt}'), 4, 15))::uuid
"""


def run(harness: Harness) -> list[Result]:
    """Measure each size in turn. The rows of the smaller sizes stay."""
    from gateway.clock import now
    from gateway.database import partitions

    first_day = now().date()
    for table in ("events", "webhook_deliveries", "messages"):
        partitions.make_from(table, first_day.fromordinal(first_day.toordinal() - 7 * (WEEKS + 1)))
    with Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, TENANTS + 1)]
        targets = [endpoint(tenant_id, f"{sink.url}/ok")[0] for tenant_id in tenants]
        harness.worker()
        measured: list[dict[str, float]] = []
        loaded = 0
        for size in SIZES:
            _load(tenants, targets, size - loaded, salt=str(size))
            loaded = size
            measured.append(_measure(harness, sink, tenants))
        dropped = _drop_a_week()
    results = []
    for name in measured[0]:
        for size, times in zip(SIZES, measured, strict=True):
            result = Result(f"{name}, {size:,} stored", REPEATS, 1000 / times[name])
            result.percentiles = {"p50": times[name]}
            least = max(measured[0][name], LEAST_MS)
            result.target = f"p50 ≤ {SLOWER} × smallest"
            result.expect(
                times[name] <= SLOWER * least,
                f"{times[name]:.1f} ms, {times[name] / least:.2f} × {least:.1f}",
            )
            results.append(result)
    drop = Result("drop a week of bodies", 1, 1 / dropped, target=f"≤ {DROP_SECONDS:.0f} s")
    drop.percentiles = {"p50": dropped * 1000}
    drop.expect(dropped <= DROP_SECONDS, f"{dropped:.2f} s")
    return [*results, drop]


def _load(tenants: list[UUID], targets: list[UUID], count: int, *, salt: str) -> None:
    """Load delivered events with bodies, for all tenants in turn."""
    place = {"weeks": WEEKS, "size": count, "salt": salt}
    with cursor() as database:
        database.execute(
            f"CREATE TEMP TABLE loaded AS SELECT n, {_ID.format(**place)} AS id,"  # noqa: S608 - own numbers
            " (%s::uuid[])[n %% %s + 1] AS tenant_id, (%s::uuid[])[n %% %s + 1] AS endpoint_id"
            " FROM generate_series(0, %s) AS n",
            [tenants, TENANTS, targets, TENANTS, count - 1],
        )
        database.execute(
            "INSERT INTO events (id, tenant_id, type, wamid, dedupe_key, payload_expires_on)"
            " SELECT id, tenant_id, 'message.inbound', 'wamid.' || n, 'msg:' || id, current_date + 60 + n %% 7"
            " FROM loaded",
            [],
        )
        database.execute(
            "INSERT INTO event_payloads (expires_on, id, tenant_id, body)"
            " SELECT current_date + 60 + n %% 7, id, tenant_id, decode(repeat('7b7d', 40), 'hex') FROM loaded",
            [],
        )
        database.execute(
            "INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, event_type, status, attempts,"
            " attempt_log, is_replay) SELECT id, tenant_id, endpoint_id, id, 'message.inbound', 'delivered', 1,"
            " '[]', false FROM loaded"
        )
        database.execute(
            "INSERT INTO messages (tenant_id, environment, key, month, id, direction, event_id, wa_id, sent_at)"
            " SELECT tenant_id, 'live', 'wamid.' || n, date_trunc('month', to_timestamp((('x' || substr("
            "replace(id::text, '-', ''), 1, 12))::bit(48)::bigint) / 1000.0) AT TIME ZONE 'UTC')::date, id, 'inbound',"
            " id, '9198' || n %% 100000, now() FROM loaded ON CONFLICT DO NOTHING",
            [],
        )
        database.execute("DROP TABLE loaded")
        database.execute("VACUUM ANALYZE events, event_payloads, webhook_deliveries, messages")


def _measure(harness: Harness, sink: Sink, tenants: list[UUID]) -> dict[str, float]:
    """The median milliseconds of each operation."""
    from django.db import transaction

    from gateway.monitoring import admin_health
    from messaging.message_log import message_search
    from webhooks import replay
    from webhooks.delivery.caps import Room
    from webhooks.delivery.claim_statements import claim
    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish
    from webhooks.models import Delivery, Event

    def deliver() -> None:
        before = sink.count
        event = NewEvent(type="meta.other", environment="live", dedupe_key=f"g{time.time_ns()}", data=b"{}")
        with transaction.atomic():
            publish(tenant_id=tenants[0], events=[event])
        deadline = time.monotonic() + 20
        while sink.count == before:
            if time.monotonic() > deadline:
                raise TimeoutError(harness.log("worker"))
            time.sleep(0.0005)

    def events() -> Any:
        return list(Event.objects.for_tenant(tenants[1]).order_by("-id")[:50])

    def search() -> Any:
        return list(Event.objects.for_tenant(tenants[1]).filter(wamid="wamid.5001").order_by("-id")[:50])

    def message() -> Any:
        found = message_search.find(tenant_id=tenants[1], environment="live", key="wamid.5001")
        return message_search.contents_and_deliveries(found.tenant_id, message_search.events_of(found))

    def messages() -> Any:
        return message_search.search(tenant_id=tenants[1], environment="live", equal={}, limit=50)

    def deliveries() -> Any:
        return list(Delivery.objects.for_tenant(tenants[1]).order_by("-id")[:50])

    operations: dict[str, Callable[[], Any]] = {
        "publish to first byte": deliver,
        "list events": events,
        "search by wamid": search,
        "look up a message": message,
        "list messages": messages,
        "list deliveries": deliveries,
        "claim, nothing due": lambda: claim(Room(500, 16)),
        "health": admin_health.report,
        "release replays": replay.release_due,
    }
    return {name: _median(operation) for name, operation in operations.items()}


def _median(operation: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS + 5):
        began = time.perf_counter()
        operation()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[5:])


def _drop_a_week() -> float:
    """The seconds that it takes to drop the partition with the bodies."""
    from gateway.database import partitions

    with cursor() as database:
        database.execute("SELECT tableoid::regclass::text FROM event_payloads LIMIT 1")
        (name,) = database.fetchone()
    began = time.perf_counter()
    partitions.drop(name)
    return time.perf_counter() - began
