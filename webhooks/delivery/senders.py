"""Senders of a dispatcher: they send claimed deliveries, and a slow receiver does not delay the others.

An attempt is a signed request and the outcomes that its answer gives. If an endpoint asks for several events in one
request, its deliveries are collected first.

A request that waits long for its answer costs memory and little else. So another sender replaces the waiting sender.
Otherwise a few hundred hanging endpoints would hold every sender of a worker until the time-out, and all other tenants'
deliveries would wait.

While this process itself is the bottleneck, more concurrent requests would not send deliveries sooner, and a crash
would repeat each of these requests. So there are few senders during this time. Their number grows as soon as the
process waits for receivers.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

import structlog

from gateway import ids
from gateway.clock import isoformat_of
from gateway.outbound.client import Answer, Outbound
from webhooks.delivery.caps import SLOW_MS, BodyMemory, InFlight, InFlightCaps, fit_in_batch
from webhooks.delivery.claim_statements import Claimed
from webhooks.delivery.recorder import Outcome
from webhooks.delivery.retries_and_attempt_log import (
    AnswerAllowance,
    Decision,
    decide,
    log_entry,
    put_off,
    schedule,
    spread,
)
from webhooks.events.envelope import Envelope
from webhooks.requests.credentials import EndpointCaller
from webhooks.requests.signed_request import body_of, delivery_headers, delivery_span, note_answer

BEFORE_SECONDS = 60.0
MOST_REMEMBERED = 50_000
"""The maximum number of endpoints whose circuits a dispatcher remembers."""


class FirstAttempts:
    """The ages of deliveries at their first attempts, as a measure of the dispatchers. Deliveries that waited for their
    endpoint have none: for its rate, its order or its batch, or for the end of a pause or of an open circuit.

    `began` is the dispatcher's start in Unix time. Deliveries that are more than BEFORE_SECONDS older have no age.
    """

    def __init__(self, began: float) -> None:
        self._oldest = began - BEFORE_SECONDS
        self._endpoints: dict[UUID, tuple[int, float]] = {}
        """For each endpoint, the generation of its circuit, and the Unix time before which its deliveries waited."""

    def age(self, delivery: Claimed, at: float) -> float | None:
        """The age of a delivery that is attempted `at` this Unix time, in seconds. None if it says nothing about the
        dispatchers.
        """
        generation, released_at = self._endpoints.get(
            delivery.endpoint_id, (delivery.circuit_generation, self._oldest)
        )
        if delivery.probe:
            released_at = math.inf
        elif delivery.circuit_generation > generation or released_at == math.inf:
            released_at = at
        if len(self._endpoints) >= MOST_REMEMBERED:
            self._endpoints.clear()
        self._endpoints[delivery.endpoint_id] = max(generation, delivery.circuit_generation), released_at
        if delivery.attempts or delivery.is_held or delivery.target.takes_several:
            return None
        created = ids.milliseconds(delivery.id) / 1000
        return None if created < released_at else max(0.0, at - created)


class Attempts:
    """Makes the attempts of one dispatcher.

    `on_answer` is called with each answer, even if the egress proxy failed. `on_first` is called for each first attempt
    that reached the receiver, with the delivery's age in seconds, unless the delivery waited on purpose.
    """

    def __init__(
        self, outbound: Outbound, *, on_answer: Callable[[Answer], None], on_first: Callable[[float], None]
    ) -> None:
        self._caller = EndpointCaller(outbound)
        self._on_answer, self._on_first = on_answer, on_first
        self._first_attempts = FirstAttempts(time.time())
        self._schedule = schedule()
        self._bodies = BodyMemory()
        """Memory for the bodies that are assembled for requests."""
        self._body_freed = asyncio.Event()

    async def aclose(self) -> None:
        """Close the open destinations."""
        await self._caller.aclose()

    async def attempt(
        self, deliveries: Sequence[Claimed], answers: AnswerAllowance, *, until: float
    ) -> list[Outcome]:
        """Send deliveries to one endpoint in one request, as soon as there is memory for the body.

        `answers` limits how many answers of the endpoint are stored. After `until`, on the monotonic clock, nothing is
        sent: there are no outcomes.
        """
        tenant_id, size = deliveries[0].tenant_id, deliveries[0].size
        for each in deliveries[1:]:
            size += each.size
        while not self._bodies.fits(tenant_id, size):
            self._body_freed.clear()
            await self._body_freed.wait()
        if time.monotonic() >= until:
            return []
        self._bodies.add(tenant_id, size)
        try:
            return await self._attempt(deliveries, answers)
        finally:
            self._bodies.remove(tenant_id, size)
            self._body_freed.set()

    async def _attempt(self, deliveries: Sequence[Claimed], answers: AnswerAllowance) -> list[Outcome]:
        outcomes: list[Outcome] = []
        sent: list[Claimed] = []
        events: list[Envelope] = []
        # In the order of the events: a repetition then has the same bytes and the same webhook-id.
        for each in sorted(deliveries, key=attrgetter("event_id")) if len(deliveries) > 1 else deliveries:
            if each.envelope is None:
                outcomes.append(_without_answer(each, Decision("dead"), "payload_expired"))
            else:
                sent.append(each)
                events.append(each.envelope)
        if not sent:
            return outcomes
        first = sent[0]
        timestamp = first.claimed_at.timestamp() + time.monotonic() - first.claimed_monotonic
        answer = await self._post(first, events, int(timestamp))
        self._on_answer(answer)
        if not answer.concerns_receiver:
            return outcomes + [_without_answer(each, put_off(each.attempts), answer.error) for each in sent]
        at = isoformat_of(int(timestamp * 1000))
        factor = spread() if len(sent) > 1 else None
        for delivery in sent:
            if (age := self._first_attempts.age(delivery, timestamp)) is not None:
                self._on_first(age)
            outcomes.append(
                Outcome(
                    delivery_id=delivery.id,
                    tenant_id=delivery.tenant_id,
                    endpoint_id=delivery.endpoint_id,
                    attempts_before=delivery.attempts,
                    decision=decide(
                        answer,
                        attempt=delivery.attempts + 1,
                        steps=delivery.target.steps or self._schedule,
                        factor=factor,
                    ),
                    answer=answer,
                    log_entry=log_entry(answer, at),
                    kept=answers.kept(answer, at, keeps_success=delivery.target.keeps_answers),
                    probe=delivery.probe,
                    circuit_generation=delivery.circuit_generation,
                    shares_answer=delivery is not first,
                )
            )
        return outcomes

    async def _post(self, first: Claimed, events: Sequence[Envelope], timestamp: int) -> Answer:
        """Sign and send a request. `timestamp` is Unix time. The first delivery determines the headers and the span."""
        event = events[0]
        body = body_of(events, first.target)
        with delivery_span(
            event,
            delivery_id=first.id,
            endpoint_id=first.endpoint_id,
            tenant_id=first.tenant_id,
            event_type=first.event_type,
            attempt=first.attempts + 1,
        ) as span:
            answer = await self._caller.call(
                first.target.endpoint_id,
                first.target.credentials,
                first.target.url,
                body,
                delivery_headers(
                    first.target,
                    delivery_id=first.id,
                    message_id=event.id,
                    event_type=first.event_type,
                    attempt=first.attempts + 1,
                    timestamp=timestamp,
                    body=body,
                    traceparent=span.traceparent,
                ),
                order_key=None if first.customer_key is None else str(first.customer_key),
                total_timeout=first.target.timeout,
            )
            note_answer(span, answer)
        return answer


def _without_answer(delivery: Claimed, decision: Decision, error: str | None) -> Outcome:
    return Outcome(
        delivery_id=delivery.id,
        tenant_id=delivery.tenant_id,
        endpoint_id=delivery.endpoint_id,
        attempts_before=delivery.attempts,
        decision=decision,
        error=error,
        probe=delivery.probe,
        circuit_generation=delivery.circuit_generation,
    )


class EventBatches:
    """Claimed deliveries that wait until their request is full or has waited long enough.

    Waiting deliveries occupy no sender. The answer to a request counts for each of its deliveries, and each has its own
    outcome. Failed deliveries are retried together while their attempt numbers are equal. `send` is called with the
    deliveries of one request.
    """

    def __init__(self, send: Callable[[list[Claimed]], None]) -> None:
        self._send = send
        self._waiting: dict[UUID, list[Claimed]] = {}
        """Waiting deliveries by endpoint."""
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Claimed) -> None:
        """Send a delivery, with others if its endpoint asks for batches. Probes and calls are sent alone."""
        shape = delivery.target.batch
        if shape is None or delivery.probe or delivery.is_urgent:
            self._send([delivery])
            return
        key = delivery.endpoint_id
        waiting = self._waiting.get(key)
        if waiting and fit_in_batch([each.size for each in (*waiting, delivery)]) <= len(waiting):
            self._send(self._waiting.pop(key))
            waiting = None
        if waiting is None:
            waiting = self._waiting[key] = []
            self._loop.call_later(shape.seconds, self._send_old, key, waiting)
        waiting.append(delivery)
        if len(waiting) >= shape.events:
            self._send(self._waiting.pop(key))

    def take_back(self) -> list[Claimed]:
        """Remove and return all waiting deliveries."""
        waiting = [delivery for each in self._waiting.values() for delivery in each]
        self._waiting.clear()
        return waiting

    def _send_old(self, key: UUID, waiting: list[Claimed]) -> None:
        if self._waiting.get(key) is waiting:
            self._send(self._waiting.pop(key))


log = structlog.get_logger(__name__)

SLOW_SECONDS = SLOW_MS / 1000
"""A request is slow if it has no answer after this time."""
FEW_SENDERS = 24
ADAPT_SECONDS = 0.02
"""How often the number of senders is adapted while deliveries wait for a sender."""
BUSY_CPU = 0.8
"""A share of a core. A loop that used more was itself busy, and did not wait for receivers."""
LATE_SECONDS = 2 * ADAPT_SECONDS
"""A loop whose timer is this late counts as busy too, because other processes may have used its core."""


@dataclass(slots=True, eq=False)
class Sending:
    """The claimed deliveries of one request, waiting or under way, and the counts that include them."""

    deliveries: Sequence[Claimed]
    """The deliveries of the request, all to one endpoint."""
    endpoint: InFlight
    tenant: InFlight
    since: float = 0.0
    """When a sender took the request from the queue, on the event loop's clock."""
    is_slow: bool = False
    line_goes_on: bool = False
    """Whether the delivery arrived and the next event of its customer may be sent."""


class Senders:
    """The senders of one dispatcher: up to `count` for quick requests, and one more for each slow request.

    `send` sends a request, and `on_end` is called at its end. `on_room` is called when the capacity no longer counts
    some requests because they became slow.
    """

    def __init__(
        self,
        caps: InFlightCaps,
        *,
        count: int,
        send: Callable[[Sending], Awaitable[None]],
        on_end: Callable[[Sending], None],
        on_room: Callable[[], None],
    ) -> None:
        self._caps = caps
        self._send, self._on_end, self._on_room = send, on_end, on_room
        self.open = 0
        """Waiting and current requests, without slow ones and calls."""
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Sending] = asyncio.Queue()
        self._quick: dict[Sending, None] = {}
        """Current requests that are not slow, oldest first."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._most = count
        self._places = self._wanted = min(count, FEW_SENDERS)
        """The number of senders for requests that are not slow: how many there are, and how many there should be."""
        self._adapt_timer: asyncio.TimerHandle | None = None
        self._measured_at = self._cpu_seconds = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()
        """Tasks that send the calls in the lane of calls."""

    @property
    def in_flight(self) -> int:
        """Requests that were given to `put` or `send_call` and have not ended."""
        return self.open + self._caps.slow + len(self._calls)

    def start(self) -> None:
        """Start the senders."""
        for _ in range(self._places):
            self._add_sender()

    def put(self, deliveries: Sequence[Claimed], endpoint: InFlight, tenant: InFlight) -> None:
        """Queue deliveries for one request. The next free sender sends it."""
        self.open += 1
        self._waiting.put_nowait(Sending(deliveries, endpoint, tenant))
        if self._adapt_timer is None and self.open > self._places:
            self._measured_at, self._cpu_seconds = self._loop.time(), time.thread_time()
            self._adapt_timer = self._loop.call_later(ADAPT_SECONDS, self._adapt)

    def send_call(self, delivery: Claimed, endpoint: InFlight, tenant: InFlight) -> None:
        """Send a call's delivery now, without a sender and without the queue."""
        self._caps.count_call(endpoint, tenant, change=1)
        task = self._loop.create_task(self._send_call(Sending([delivery], endpoint, tenant)))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _send_call(self, sending: Sending) -> None:
        try:
            await self._send(sending)
        except Exception:
            # The lease will run out, and the delivery will be claimed again.
            log.exception("delivery_crashed")
        finally:
            self._caps.count_call(sending.endpoint, sending.tenant, change=-1)
            self._on_end(sending)

    def take_back(self) -> list[Claimed]:
        """Remove and return the deliveries that no sender has taken."""
        waiting: list[Claimed] = []
        while not self._waiting.empty():
            waiting += self._waiting.get_nowait().deliveries
            self.open -= 1
            self._waiting.task_done()
        return waiting

    async def finish(self) -> None:
        """Wait until everything is sent, then end the senders."""
        await self._waiting.join()
        if self._calls:
            await asyncio.wait(list(self._calls))
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._adapt_timer is not None:
            self._adapt_timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _add_sender(self) -> None:
        task = self._loop.create_task(self._send_in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_in_turn(self) -> None:
        """Send one request after another. Ends after a slow request, because another sender has replaced this one.

        Also ends if there are more senders than wanted.
        """
        is_replaced = False
        while not is_replaced:
            if self._places > self._wanted:
                self._places -= 1
                return
            sending = await self._waiting.get()
            sending.since = self._loop.time()
            self._quick[sending] = None
            self._look_for_slow_within(SLOW_SECONDS)
            try:
                await self._send(sending)
            except Exception:
                # The lease will run out, and the delivery is claimed again. An error must not end the other senders.
                log.exception("delivery_crashed")
            finally:
                is_replaced = sending.is_slow
                if is_replaced:
                    self._caps.end_slow(sending.endpoint)
                else:
                    del self._quick[sending]
                    self.open -= 1
                self._on_end(sending)
                self._waiting.task_done()

    def _adapt(self) -> None:
        """Halve the number of senders while the loop is the bottleneck. Otherwise double it while requests wait."""
        moment, cpu_seconds = self._loop.time(), time.thread_time()
        took, spent = moment - self._measured_at, cpu_seconds - self._cpu_seconds
        self._measured_at, self._cpu_seconds = moment, cpu_seconds
        if took >= LATE_SECONDS or spent >= BUSY_CPU * took:
            self._wanted = max(self._wanted // 2, min(self._most, FEW_SENDERS))
        elif not self._waiting.empty():
            self._wanted = min(self._wanted * 2, self._most)
        while self._places < self._wanted:
            self._places += 1
            self._add_sender()
        self._adapt_timer = None
        if not self._waiting.empty() or self._places > self._wanted:
            self._adapt_timer = self._loop.call_later(ADAPT_SECONDS, self._adapt)

    def _look_for_slow_within(self, seconds: float) -> None:
        # One timer for all requests, because a timer for each would slow down every quick delivery.
        if self._look_timer is None:
            self._look_timer = self._loop.call_later(seconds, self._look_for_slow)

    def _look_for_slow(self) -> None:
        """Count requests that have become slow, and add a sender for each. Stops at the limit of slow requests."""
        self._look_timer = None
        moment, has_made_room = self._loop.time(), False
        for sending in list(self._quick):
            left = sending.since + SLOW_SECONDS - moment
            if left > 0 or not self._caps.begin_slow(sending.endpoint):
                self._look_for_slow_within(left if left > 0 else SLOW_SECONDS)
                break
            del self._quick[sending]
            sending.is_slow = has_made_room = True
            self.open -= 1
            self._add_sender()
        if has_made_room:
            self._on_room()
