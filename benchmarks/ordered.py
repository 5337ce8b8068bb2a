"""Ordered endpoints beside unordered ones: the same events of the same customers, delivered by one worker process.

Every event must arrive exactly once, and at the ordered endpoints each customer's events in the order in which they
were published.
"""

import time
from collections import defaultdict
from datetime import timedelta
from uuid import UUID

from benchmarks.delivery import open_deliveries, wake, warm_up
from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

BUSINESSES = 20
CUSTOMERS = 100
"""Of each business."""
EVENTS_EACH = 5
"""Of each customer."""
COUNT = BUSINESSES * CUSTOMERS * EVENTS_EACH
_BODY = b'{"messaging_product":"whatsapp","message":{"text":{"body":"Is my order on its way?"}}}'


def run(harness: Harness) -> list[Result]:
    """The unordered endpoints first, then the ordered ones, in one worker."""
    tenants = [business(number).tenant_id for number in range(1, BUSINESSES + 1)]
    with Sink() as plain, Sink() as ordered:
        harness.worker()
        results = [_round(harness, tenants, plain, is_ordered=False)]
        results.append(_round(harness, tenants, ordered, is_ordered=True, floor=results[0].rate))
        harness.stop("worker")
    return results


def _round(
    harness: Harness, tenants: list[UUID], sink: Sink, *, is_ordered: bool, floor: float | None = None
) -> Result:
    from gateway.clock import now
    from webhooks.models import Endpoint

    Endpoint.objects.all().delete()
    for number, tenant_id in enumerate(tenants):
        endpoint(tenant_id, f"{sink.url}/ok/{number}")
    with cursor() as database:
        database.execute("DELETE FROM event_keys")
    warm_up(harness, sink, tenants)
    # Behind open circuits nothing is sent while the events are stored.
    Endpoint.objects.update(ordered=is_ordered, circuit_open_until=now() + timedelta(hours=1))
    before = sink.count
    customers = _store(tenants)
    with harness.measure() as measured:
        began = time.perf_counter()
        Endpoint.objects.update(circuit_open_until=None)
        wake()
        harness.wait_until(lambda: sink.count >= before + COUNT, harness.log("worker"), seconds=180)
        seconds = time.perf_counter() - began
        harness.wait_until(lambda: open_deliveries() == 0, "not all results were recorded", seconds=30)
    noted = sink.finish()[before:]
    result = Result(
        f"{COUNT:,} events of {BUSINESSES * CUSTOMERS:,} customers, {'ordered' if is_ordered else 'unordered'}",
        COUNT,
        COUNT / seconds,
        unit="deliveries",
        cpu={name: spent for name, spent in measured.cpu_per(COUNT).items() if name != "client"},
        floor=floor,
    )
    ids = [delivery for delivery, _, _ in noted]
    result.expect(len(set(ids)) == len(ids) == COUNT, f"{len(ids):,} arrived, {len(set(ids)):,} of them once")
    if is_ordered:
        arrived: defaultdict[str, list[str]] = defaultdict(list)
        for _, event_id, _ in noted:
            arrived[customers[event_id]].append(event_id)
        wrong = sum(events != sorted(events) for events in arrived.values())
        result.expect(wrong == 0, f"{wrong:,} customers got their events in another order")
    return result


def _store(tenants: list[UUID]) -> dict[str, str]:
    """Publish the events, customers in turn; returns each event's customer by its id."""
    from django.db import transaction

    from gateway import ids
    from webhooks.events.new_event import NewEvent
    from webhooks.events.publish import publish

    customers: dict[str, str] = {}
    for _ in range(EVENTS_EACH):
        for tenant_id in tenants:
            events = []
            for number in range(CUSTOMERS):
                event_id = ids.uuid7()
                customers[ids.encode(ids.EVENT, event_id)] = f"{tenant_id}:{number}"
                events.append(
                    NewEvent(
                        id=event_id,
                        type="message.inbound",
                        environment="live",
                        dedupe_key=f"msg:{event_id}",
                        data=_BODY,
                        raw_path="entry[0].changes[0].value.messages[0]",
                        phone_number_id="10",
                        wa_id=f"9198{number:08}",
                    )
                )
            with transaction.atomic():
                publish(tenant_id=tenant_id, raw=b"{}", events=events)
    return customers
