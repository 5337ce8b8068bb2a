"""20,000 stored events of 20 businesses with one endpoint each, delivered by one worker process.

The floor is a bare aiohttp loop in a separate process that posts the same signed bytes to the same kind of receiver,
without a database. At the end, every event must have arrived exactly once, and be recorded as delivered.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import aiohttp

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import business, endpoint
from benchmarks.equipment.sink import Sink

COUNT = 20_000
BUSINESSES = 20
FLOOR_CONCURRENCY = 100
OF_FLOOR, CPU_OF_FLOOR = 0.50, 2.5
"""Required share of the bare loop's rate, and highest multiple of its CPU."""
_PAD = b"Is my order on its way? I would like to have it by Friday, if that can be done. " * 4

Signed = tuple[str, bytes, dict[str, str]]


def run(harness: Harness) -> list[Result]:
    """Measure the bare loop, then a worker, then the bare loop again."""
    with Sink() as floor_sink, Sink() as sink:
        tenants = [business(number).tenant_id for number in range(1, BUSINESSES + 1)]
        for number, tenant_id in enumerate(tenants):
            endpoint(tenant_id, f"{sink.url}/ok/{number}")
        store(tenants, COUNT)
        what = f"{COUNT:,} events, {BUSINESSES} endpoints, 1 worker"
        result = drained(harness, sink, floor_sink, tenants, what=what, count=COUNT)
    result.expect_rate(OF_FLOOR)
    result.expect_cpu(("worker",), CPU_OF_FLOOR, floor=("loop",))
    return [result]


def drained(
    harness: Harness,
    sink: Sink,
    floor_sink: Sink,
    tenants: Sequence[Any],
    *,
    what: str,
    count: int,
) -> Result:
    """Measure the bare loop, and one worker that sends the stored deliveries of these tenants once."""
    signed = signed_requests(tenants, sink.url, floor_sink.url)
    floor = bare_loop(signed)
    harness.worker()
    warm_up(harness, sink, tenants)
    before = sink.count
    with harness.measure() as measured:
        make_due()
        began = time.perf_counter()
        wake()
        harness.wait_until(lambda: sink.count >= before + count, harness.log("worker"), seconds=120)
        sent_in = time.perf_counter() - began
        harness.wait_until(lambda: open_deliveries() == 0, "not all results were recorded", seconds=30)
    harness.stop("worker")
    # The bare loop runs before and after the worker, so other load of the machine affects both.
    again = bare_loop(signed)
    ids = [delivery for delivery, _, _ in sink.finish()]
    floor_sink.finish()
    cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name != "client"}
    result = Result(
        what,
        count,
        count / sent_in,
        unit="deliveries",
        cpu=cpu,
        floor=2 * count / (floor.seconds + again.seconds),
        floor_cpu={"loop": (floor.cpu_seconds + again.cpu_seconds) / (2 * count) * 1e6},
    )
    result.expect(len(ids) == count + before, f"{len(ids) - before:,} arrived")
    result.expect(len(set(ids)) == len(ids), f"{len(ids) - len(set(ids)):,} arrived twice")
    return result


def store(tenants: Sequence[Any], count: int, *, a_time: int = 100) -> None:
    """Publish `count` inbound texts, to the tenants in turn. Each transaction publishes `a_time` texts."""
    from django.db import transaction

    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish

    for first in range(0, count, a_time):
        tenant_id = tenants[first // a_time % len(tenants)]
        with transaction.atomic():
            publish(
                tenant_id=tenant_id,
                raw=b'{"object":"whatsapp_business_account","entry":[{"text":"%b"}]}' % _PAD,
                events=[
                    NewEvent(
                        type="message.inbound",
                        environment="live",
                        dedupe_key=f"msg:{tenant_id}:{time.time_ns()}:{number}",
                        data=b'{"messaging_product":"whatsapp","message":{"text":{"body":"%b"}}}' % _PAD,
                        raw_path="entry[0].changes[0].value.messages[0]",
                        wamid=f"wamid.{number}",
                    )
                    for number in range(first, min(first + a_time, count))
                ],
            )
    with cursor() as database:
        database.execute("UPDATE webhook_deliveries SET next_attempt_at = now() + interval '1 hour'")
        database.execute("VACUUM ANALYZE webhook_deliveries, events, event_payloads")


def signed_requests(tenants: Sequence[Any], url: str, instead: str) -> list[Signed]:
    """The requests that the worker will make for these tenants, with `url` replaced by the receiver's URL `instead`."""
    from gateway.database.statements import run
    from webhooks.events import envelope
    from webhooks.models import Delivery, Endpoint
    from webhooks.requests.signed_request import Target, delivery_headers, key_of

    targets = {
        row.id: Target(row.id, row.url.replace(url, instead), (key_of(row.secret),))
        for row in Endpoint.objects.all()
    }
    deliveries = list(Delivery.objects.filter(status="pending", tenant_id__in=tenants))
    envelopes = run(envelope.loading({delivery.event_id: delivery.tenant_id for delivery in deliveries}))
    requests = []
    for delivery in deliveries:
        found, target = envelopes[delivery.event_id], targets[delivery.endpoint_id]
        assert found is not None
        body = found.body()
        headers = delivery_headers(
            target,
            delivery_id=delivery.id,
            message_id=found.id,
            event_type=delivery.event_type,
            attempt=1,
            timestamp=int(time.time()),
            body=body,
            traceparent=None,
        )
        requests.append((target.url, body, headers))
    return requests


class Spent(NamedTuple):
    """The time and the CPU of the bare loop."""

    seconds: float
    cpu_seconds: float


def bare_loop(requests: list[Signed]) -> Spent:
    """POST the requests with a bare loop in a separate process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_post_all, args=(theirs,))
    process.start()
    ours.send(requests)
    spent = Spent(*ours.recv())
    process.join()
    return spent


def _post_all(end: Any) -> None:
    requests = end.recv()

    async def post_all() -> None:
        pending = iter(requests)
        connector = aiohttp.TCPConnector(limit=FLOOR_CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def one_after_another() -> None:
                for url, body, headers in pending:
                    async with session.post(url, data=body, headers=headers) as answer:
                        await answer.read()

            await asyncio.gather(*(one_after_another() for _ in range(FLOOR_CONCURRENCY)))

    began, used = time.perf_counter(), time.process_time()
    asyncio.run(post_all())
    end.send((time.perf_counter() - began, time.process_time() - used))


def warm_up(harness: Harness, sink: Sink, tenants: Sequence[Any]) -> None:
    """Publish an event for each tenant, so that the worker's connections are open before the measurement.

    Returns when the events are recorded as delivered. Otherwise `make_due` would let the worker send them again.
    """
    from django.db import transaction

    from webhooks.events.envelope import NewEvent
    from webhooks.events.publish import publish
    from webhooks.models import Delivery, Endpoint

    for tenant_id in tenants:
        with transaction.atomic():
            publish(
                tenant_id=tenant_id,
                events=[NewEvent(type="meta.other", environment="live", dedupe_key="warm-up", data=b"{}")],
            )
    arrivals = Endpoint.objects.filter(tenant_id__in=tenants).count()
    harness.wait_until(lambda: sink.count >= arrivals, harness.log("worker"))
    under_way = Delivery.objects.filter(event_type="meta.other", status__in=Delivery.OPEN)
    harness.wait_until(lambda: not under_way.exists(), "the first results were not recorded", seconds=30)


def make_due() -> None:
    """Make all stored deliveries due."""
    with cursor() as database:
        database.execute("UPDATE webhook_deliveries SET next_attempt_at = now() WHERE status = 'pending'")


def wake() -> None:
    """Signal the worker."""
    from webhooks import wake_up

    wake_up.wake()


def open_deliveries() -> int:
    """The number of deliveries that have not ended."""
    from webhooks.models import Delivery

    return Delivery.objects.filter(status__in=Delivery.OPEN).count()
