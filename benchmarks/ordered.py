"""Ordered endpoints, compared with unordered endpoints, with a slow receiver, and during a burst of one customer.

One worker process delivers the same events to unordered and to ordered endpoints. Every event must arrive exactly once.
At ordered endpoints, the events of each customer must arrive in the order of publication. Then one customer's events go
to a receiver that takes 30 ms for each, and the floor is the receiver's highest rate. Finally, a burst of one
customer's events must not delay another customer's single events at the same endpoint.
"""

import statistics
import time
from collections import defaultdict
from datetime import timedelta
from typing import Any
from uuid import UUID

from benchmarks.delivery import open_deliveries, wake, warm_up
from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import LATER_SECONDS, Sink

BUSINESSES = 20
CUSTOMERS = 100
"""Customers of each business."""
EVENTS_EACH = 5
"""Events of each customer."""
COUNT = BUSINESSES * CUSTOMERS * EVENTS_EACH
_BODY = b'{"messaging_product":"whatsapp","message":{"text":{"body":"Is my order on its way?"}}}'


ONE_CUSTOMERS = 300
"""Events of the one customer whose delivery rate is measured."""
PACE_OF_RECEIVER = 0.80
BURST = 100_000
BESIDE_BURST = 1.5
ONE_AT_A_TIME = 60


def run(harness: Harness) -> list[Result]:
    """Measure unordered endpoints, then ordered ones, with one worker."""
    tenants = [business(number).tenant_id for number in range(1, BUSINESSES + 1)]
    with Sink() as plain, Sink() as ordered, Sink() as slow, Sink() as burst:
        harness.worker()
        results = [_round(harness, tenants, plain, is_ordered=False)]
        results.append(_round(harness, tenants, ordered, is_ordered=True, floor=results[0].rate))
        results.append(_pace(harness, tenants[0], slow))
        results += _beside_burst(harness, tenants[0], burst)
        harness.stop("worker")
    return results


def _only_endpoint(tenant_id: UUID, sink: Sink) -> None:
    """Replace all endpoints by one ordered endpoint with a slow receiver."""
    from webhooks.models import Endpoint

    Endpoint.objects.all().delete()
    endpoint(tenant_id, f"{sink.url}/ok/later")
    Endpoint.objects.update(ordered=True)
    with cursor() as database:
        database.execute("DELETE FROM event_keys")


def _pace(harness: Harness, tenant_id: UUID, sink: Sink) -> Result:
    """Measure the delivery rate of events of one customer that were published together."""
    _only_endpoint(tenant_id, sink)
    warm_up(harness, sink, [tenant_id])
    before = sink.count
    ids = _publish(tenant_id, customer=1, count=ONE_CUSTOMERS)
    harness.wait_until(lambda: sink.count >= before + ONE_CUSTOMERS, harness.log("worker"), seconds=120)
    noted = sink.finish()[before:]
    times = [at for _, _, at in noted]
    result = Result(
        f"{ONE_CUSTOMERS:,} events of one customer, {LATER_SECONDS * 1000:.0f} ms each",
        ONE_CUSTOMERS,
        (ONE_CUSTOMERS - 1) / (times[-1] - times[0]),
        unit="deliveries",
        floor=1 / LATER_SECONDS,
        target=f"≥ {PACE_OF_RECEIVER:.2f} of the receiver's pace",
    )
    result.expect([event for _, event, _ in noted] == ids, "they came in another order, or not once each")
    result.expect((result.ratio or 0) >= PACE_OF_RECEIVER, f"{result.ratio:.2f}, not {PACE_OF_RECEIVER:.2f}")
    return result


def _beside_burst(harness: Harness, tenant_id: UUID, sink: Sink) -> list[Result]:
    """Measure single events of a customer, alone and while a burst of another customer waits."""
    _only_endpoint(tenant_id, sink)
    warm_up(harness, sink, [tenant_id])
    published: list[dict[str, float]] = []
    for has_burst in (False, True):
        if has_burst:
            for _ in range(BURST // 1_000):
                _publish(tenant_id, customer=1, count=1_000)
            with cursor() as database:
                # The measurement must not include maintenance of the stored rows.
                database.execute("VACUUM ANALYZE webhook_deliveries, events, event_payloads")
                database.execute("CHECKPOINT")
        published.append({})
        for _ in range(ONE_AT_A_TIME):
            (event_id,) = _publish(tenant_id, customer=2, count=1)
            published[-1][event_id] = time.time()
            time.sleep(0.1)
    time.sleep(1)
    arrived = {event: at for _, event, at in sink.finish()}
    results: list[Result] = []
    for what, of in zip(("alone", f"beside {BURST:,} of one customer"), published, strict=True):
        lost = [event for event in of if event not in arrived]
        milliseconds = [(arrived.get(event, time.time()) - at) * 1000 for event, at in of.items()]
        result = Result(
            f"another customer, {what}",
            ONE_AT_A_TIME,
            1000 / statistics.median(milliseconds),
            unit="deliveries",
            percentiles=percentiles(milliseconds),
            floor=results[0].rate if results else None,
            target=f"p50 ≤ {BESIDE_BURST} × alone" if results else "",
        )
        result.expect(not lost, f"{len(lost)} did not arrive")
        if results:
            slower = results[0].rate / result.rate
            result.expect(slower <= BESIDE_BURST, f"{slower:.2f} × alone, not {BESIDE_BURST}")
        results.append(result)
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
    # With open circuits, nothing is sent while the events are stored.
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


def _publish(tenant_id: UUID, *, customer: int, count: int) -> list[str]:
    """Publish events of one customer together. Returns their ids."""
    from django.db import transaction

    from gateway import ids
    from webhooks.events.publish import publish

    events = [_event(ids.uuid7(), customer) for _ in range(count)]
    with transaction.atomic():
        publish(tenant_id=tenant_id, raw=b"{}", events=events)
    return [ids.encode(ids.EVENT, event.id) for event in events]


def _event(event_id: UUID, customer: int) -> Any:
    from webhooks.events.envelope import NewEvent

    return NewEvent(
        id=event_id,
        type="message.inbound",
        environment="live",
        dedupe_key=f"msg:{event_id}",
        data=_BODY,
        raw_path="entry[0].changes[0].value.messages[0]",
        phone_number_id="10",
        wa_id=f"9198{customer:08}",
    )


def _store(tenants: list[UUID]) -> dict[str, str]:
    """Publish events of the customers in turn. Returns the customer of each event, by event id."""
    from django.db import transaction

    from gateway import ids
    from webhooks.events.publish import publish

    customers: dict[str, str] = {}
    for _ in range(EVENTS_EACH):
        for tenant_id in tenants:
            events = []
            for number in range(CUSTOMERS):
                event_id = ids.uuid7()
                customers[ids.encode(ids.EVENT, event_id)] = f"{tenant_id}:{number}"
                events.append(_event(event_id, number))
            with transaction.atomic():
                publish(tenant_id=tenant_id, raw=b"{}", events=events)
    return customers
