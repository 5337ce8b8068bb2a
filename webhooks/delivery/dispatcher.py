"""The dispatcher: claim → prepare → post → record, thousands of signed deliveries a second from one process.

One runs in each worker process of the queue `deliveries`, inside the Celery task `deliver_due`. It claims what is
due, sends many requests at once, writes results in bulk, lingers for the next wake-up and ends when idle or told
to stop. A crash loses nothing: leases run out and the deliveries are claimed again (docs/architecture.md).
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import structlog
from django.conf import settings

from gateway import ids
from gateway.clock import isoformat_of
from gateway.database.outage import DATABASE_UNAVAILABLE
from gateway.database.statements import LoopConnection, Statements
from gateway.monitoring import metrics
from gateway.outbound.client import TOTAL_TIMEOUT, Outbound
from webhooks.delivery.claim import (
    Claimed,
    DatabaseClock,
    claiming,
    finding_ready,
    taking_over,
)
from webhooks.delivery.egress_pause import EgressPause
from webhooks.delivery.kept_answers import AnswerAllowance
from webhooks.delivery.listener import WakeUpListener
from webhooks.delivery.record import Outcome
from webhooks.delivery.recorder import Recorder
from webhooks.delivery.retry import Decision, decide, put_off
from webhooks.delivery.room import RESERVE, Room
from webhooks.events.hand_over import HandedOver
from webhooks.lease import giving_back
from webhooks.requests.delivery_span import delivery_span, note_answer
from webhooks.requests.signed_request import body_of, delivery_headers, log_entry

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

SWARM_SECONDS = 0.02
"""Wait this long after a request ends, so that one claim refills all slots that are freed together."""
PACE_SECONDS = 0.1
LINGER_SECONDS = 300.0
POLL_SECONDS = 0.5
"""How often a dispatcher looks for what is due without a signal: nothing signals that a retry becomes due."""
QUIET_POLL_SECONDS = 5.0
"""The same while no delivery at all is open, and signals can be heard: only a lost one is found so."""
METRICS_SECONDS = 1.0
LONGEST_RUN_SECONDS = 600.0

AHEAD_SECONDS = 0.25
"""How far claims run ahead of the senders: by what is sent in this time at the present pace. Claimed deliveries wait
here while the next claim is under way; when receivers are slow, few do."""

FIRST_CAP = 16
SLOW_MS = 1_000

MOST_BODY_BYTES = 128 * 1024 * 1024
"""Bodies in memory at once: a notification of megabytes makes one for each of its events. Beyond it nothing more is
claimed, and the bodies of claimed deliveries are assembled later."""

_stopping = threading.Event()
_running = threading.Lock()
_dispatcher: "_Dispatcher | None" = None
"""The dispatcher of this process, while it runs."""


def run() -> None:
    """Run the dispatcher of this process until idle; returns at once when one is running already."""
    if not _running.acquire(blocking=False):
        return
    try:
        asyncio.run(_run())
    finally:
        _running.release()


async def _run() -> None:
    global _dispatcher
    _dispatcher = _Dispatcher()
    try:
        await _dispatcher.run()
    finally:
        _dispatcher = None


def stop() -> None:
    """Ask the dispatcher to end: nothing more is claimed, what waits is given back, what is in flight finishes."""
    _stopping.set()
    if _dispatcher is not None:
        _dispatcher.wake()


@dataclass(slots=True)
class _Share:
    """What an endpoint, or a tenant, has in flight here. An endpoint's share of the senders is its `cap`: it grows
    with each quick success and halves with each failure or slow answer."""

    taken: int = 0
    cap: int = FIRST_CAP
    answers: AnswerAllowance = field(default_factory=AnswerAllowance)
    closed_until: float = 0.0
    """Until when its rate allows nothing more, on the monotonic clock."""
    has_more: bool = False
    """Whether more is due than its cap allows: the end of one of its requests is a reason to look."""


class _Pace:
    """Deliveries finished per second, smoothed."""

    def __init__(self) -> None:
        self.ended = 0
        self._since = time.monotonic()
        self._rate = 0.0

    def a_second(self) -> float:
        passed = time.monotonic() - self._since
        if passed >= PACE_SECONDS:
            self._rate = (self._rate + self.ended / passed) / 2
            self.ended = 0
            self._since += passed
        return self._rate


async def _flush_metrics() -> None:
    while True:
        await asyncio.sleep(METRICS_SECONDS)
        await asyncio.to_thread(metrics.flush)


class _Dispatcher:
    def __init__(self) -> None:
        self.capacity: int = settings.DELIVERY_CONCURRENCY
        self.of_tenant: int = settings.DELIVERY_TENANT_CONCURRENCY
        self.schedule: Sequence[float] = settings.WEBHOOK_RETRY_SCHEDULE
        self.longest_wait: float = settings.DELIVERY_LEASE_SECONDS / 2
        self.claimed: asyncio.Queue[tuple[Claimed, _Share, _Share]] = asyncio.Queue()
        self.paced: dict[UUID, Claimed] = {}
        """Deliveries that wait for their slots; they take no sender."""
        self.open = 0
        self.held_bytes = 0
        self.endpoints: defaultdict[UUID, _Share] = defaultdict(_Share)
        self.tenants: defaultdict[UUID, _Share] = defaultdict(lambda: _Share(cap=self.of_tenant))
        self.freed = asyncio.Event()
        """A request has ended since the last claim."""
        self.awaits_freed = False
        self.woken = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.look_timer: asyncio.TimerHandle | None = None
        self.pace = _Pace()
        self.body_bytes = 0
        self.body_freed = asyncio.Event()
        self.must_look = True
        """Whether more may be due than was handed over: then it looks as soon as there is room."""
        self.looked_at = 0.0
        self.is_quiet = False
        self.clock: DatabaseClock | None = None
        self.egress = EgressPause()
        self.recorder = Recorder(on_awaited=self._look_soon)
        # A lease that a crash of Postgres forgets is claimed again: at least once.
        self.claiming = LoopConnection(durable=False)
        self.listener = WakeUpListener(
            in_flight=lambda: self.open,
            has_room=self._has_room,
            on_signal=self.woken.set,
        )

    def wake(self) -> None:
        """Have it look whether there is something to do. Called from any thread, also when it has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.woken.set)

    async def run(self) -> None:
        recording = asyncio.create_task(self.recorder.run())
        flushing = asyncio.create_task(_flush_metrics())
        self.listener.start()
        try:
            async with Outbound(allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS) as self.outbound:
                senders = [asyncio.create_task(self._send_in_turn()) for _ in range(self.capacity)]
                await self._claim_until_idle()
                if _stopping.is_set() or self.paced:
                    await self._give_back()
                await self.claimed.join()
                for sender in senders:
                    sender.cancel()
        finally:
            self.recorder.finish()
            await recording
            flushing.cancel()
            await asyncio.to_thread(metrics.flush)
            await self.listener.close()
            await self.claiming.close()

    async def _claim_until_idle(self) -> None:
        ends_at = time.monotonic() + LONGEST_RUN_SECONDS
        idle_since = time.monotonic()
        while not _stopping.is_set() and time.monotonic() < ends_at:
            self.woken.clear()
            self.freed.clear()
            handed_over, looks = self.listener.heard()
            self.must_look |= looks
            was_idle = not (self.open or self.paced)
            deliveries = await self._claim(handed_over)
            if deliveries is None:
                await self.freed.wait()
                continue
            for delivery in deliveries:
                endpoint, tenant = self.endpoints[delivery.endpoint_id], self.tenants[delivery.tenant_id]
                endpoint.taken += 1
                tenant.taken += 1
                self.held_bytes += delivery.size
                if (wait := delivery.send_at - time.monotonic()) > 0:
                    self.paced[delivery.id] = delivery
                    self.loop.call_later(wait, self._begin_slot, delivery.id)
                else:
                    self._put(delivery)
            if deliveries:
                idle_since = time.monotonic()
                if not _stopping.is_set():
                    # Let them reach the network before the next claim competes for the processor.
                    await asyncio.sleep(0)
                continue
            if not was_idle:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > LINGER_SECONDS:
                return
            await self._until_woken()

    async def _claim(self, handed_over: list[HandedOver]) -> list[Claimed] | None:
        """Take what was handed over, as far as there is room, and look for other deliveries when that is due.

        None when nothing may be claimed before a request ends.
        """
        if self.egress.is_on:
            if handed_over:
                await self._take_over(handed_over, 0)
            self.must_look = False
            return []
        room = self.capacity + int(self.pace.a_second() * AHEAD_SECONDS) - self.open
        deliveries = await self._take_over(handed_over, room) if handed_over else []
        if not self.must_look and self._until_look() > 0:
            return deliveries
        if room - len(deliveries) < self.capacity // RESERVE or self.held_bytes > MOST_BODY_BYTES:
            self.must_look = True
            return deliveries or None
        return deliveries or await self._look(room)

    def _begin_slot(self, delivery_id: UUID) -> None:
        if (delivery := self.paced.pop(delivery_id, None)) is not None:
            self._put(delivery)

    def _put(self, delivery: Claimed) -> None:
        """Let the next free sender have a delivery."""
        self.open += 1
        self.claimed.put_nowait(
            (delivery, self.endpoints[delivery.endpoint_id], self.tenants[delivery.tenant_id])
        )

    def _look_soon(self) -> None:
        """Customers' next events may go out, or requests of those that were at their caps have ended."""
        self.look_timer = None
        self.must_look = True
        self.freed.set()
        self.woken.set()

    def _look_after_swarm(self) -> None:
        if self.look_timer is None:
            self.look_timer = self.loop.call_later(SWARM_SECONDS, self._look_soon)

    async def _take_over(self, handed_over: list[HandedOver], room: int) -> list[Claimed]:
        """The deliveries that can be sent now; the leases of the others end, so that a look finds them."""
        within_caps = self._within_caps(handed_over)
        fitting = within_caps[: max(0, room)] if self.held_bytes <= MOST_BODY_BYTES else []
        taken: list[Claimed] = []
        if fitting and self.clock is not None:
            taken = await self._run(self.claiming.run_each, taking_over(fitting, self.clock)) or []
        taken_ids = {each.id for each in taken}
        left = {each.id: each.claimed_at for each in handed_over if each.id not in taken_ids}
        if left:
            self.must_look |= len(taken) < len(within_caps)
            await self._run(self.claiming.run_each, giving_back(left))
        return taken

    async def _look(self, room: int) -> list[Claimed]:
        """Claim what is due; a lone statement finds that nothing is."""
        self.must_look = False
        ready = await self._run(self.claiming.run_each, finding_ready())
        self.looked_at = time.monotonic()
        if ready is None:
            return []
        self.clock = DatabaseClock.at(ready.at)
        self.is_quiet = ready.is_quiet
        if not ready.endpoints:
            return []
        asked = self._room(room)
        found = await self._run(self.claiming.run, claiming(ready, asked))
        if found is None:
            return []
        for endpoint_id, seconds in found.closed.items():
            self.endpoints[endpoint_id].closed_until = time.monotonic() + seconds
        self.must_look |= found.unserved.lacks_room
        for shares, at_cap, taken in (
            (self.endpoints, found.unserved.endpoints, asked.taken),
            (self.tenants, found.unserved.tenants, asked.taken_by_tenant),
        ):
            for id_ in at_cap:
                # One of its requests may have ended during the claim.
                self.must_look |= shares[id_].taken < taken.get(id_, 0)
                shares[id_].has_more = True
        return found.deliveries

    def _has_room(self) -> bool:
        """Whether fresh deliveries may be handed over: what waits for the caps of others keeps none of them back."""
        return (
            self.clock is not None
            and not self.egress.is_on
            and self.open * 2 < self.capacity
            and self.held_bytes < MOST_BODY_BYTES
        )

    def _room(self, total: int) -> Room:
        moment = time.monotonic()
        return Room(
            total,
            FIRST_CAP,
            {endpoint_id: share.taken for endpoint_id, share in self.endpoints.items()},
            {
                endpoint_id: 0 if share.closed_until > moment else share.cap
                for endpoint_id, share in self.endpoints.items()
            },
            self.of_tenant,
            {tenant_id: share.taken for tenant_id, share in self.tenants.items()},
        )

    def _within_caps(self, handed_over: list[HandedOver]) -> list[HandedOver]:
        """Those deliveries for which their endpoints' and tenants' caps leave room."""
        fitting: list[HandedOver] = []
        endpoints: Counter[UUID] = Counter()
        tenants: Counter[UUID] = Counter()
        for each in handed_over:
            endpoint, tenant = self.endpoints[each.endpoint_id], self.tenants[each.tenant_id]
            endpoints[each.endpoint_id] += 1
            tenants[each.tenant_id] += 1
            if endpoint.taken + endpoints[each.endpoint_id] > endpoint.cap:
                endpoint.has_more = True
            elif tenant.taken + tenants[each.tenant_id] > tenant.cap:
                tenant.has_more = True
            else:
                fitting.append(each)
        return fitting

    async def _run(
        self, run: Callable[[Statements[Result]], Awaitable[Result]], statements: Statements[Result]
    ) -> Result | None:
        """Run a claim; None when it failed, after a pause."""
        try:
            return await run(statements)
        except DATABASE_UNAVAILABLE as error:
            log.warning("claim_failed", error=type(error).__name__)
        except Exception:
            # What cannot be claimed must not end the recording of what was sent.
            log.exception("claim_crashed")
        self.must_look = True
        await asyncio.sleep(POLL_SECONDS)
        return None

    async def _until_woken(self) -> None:
        """Until a signal comes or, when more may be due than there was room for, a request ends; otherwise until the
        next look is due, or a customer's next event may go out."""
        is_full = self.awaits_freed = self.must_look
        if not (is_full and self.freed.is_set()):
            await self._woken_within(POLL_SECONDS if is_full else self._until_look())
        self.awaits_freed = False
        if is_full and not self.listener.has_heard:
            self.woken.clear()
            await self._woken_within(SWARM_SECONDS)

    async def _woken_within(self, seconds: float) -> None:
        # asyncio.timeout costs several times as much.
        timer = self.loop.call_later(seconds, self.woken.set)
        await self.woken.wait()
        timer.cancel()

    def _until_look(self) -> float:
        """Seconds until the next look that no signal asks for."""
        poll = QUIET_POLL_SECONDS if self.is_quiet and self.listener.is_connected else POLL_SECONDS
        return self.looked_at + poll - time.monotonic()

    async def _give_back(self) -> None:
        """End the leases of what waits for a sender; if that fails, they run out."""
        waiting = list(self.paced.values())
        self.paced.clear()
        while not self.claimed.empty():
            delivery, _, _ = self.claimed.get_nowait()
            self.claimed.task_done()
            waiting.append(delivery)
        if waiting:
            try:
                await self.claiming.run(giving_back({each.id: each.claimed_at for each in waiting}))
            except DATABASE_UNAVAILABLE as error:
                log.warning("give_back_failed", error=type(error).__name__, rows=len(waiting))

    async def _send_in_turn(self) -> None:
        """One of as many senders as there may be requests at once: takes what is claimed, one after another."""
        while True:
            delivery, endpoint, tenant = await self.claimed.get()
            try:
                # One that waited too long for its sender is left to its lease, which could end while it is under way.
                if time.monotonic() - delivery.claimed_monotonic < self._longest_wait(delivery):
                    self.recorder.add(await self._deliver(delivery, endpoint))
            except Exception:
                # The lease runs out and the delivery is claimed again: an error here must not end the others.
                log.exception("delivery_crashed")
            finally:
                self.open -= 1
                self.pace.ended += 1
                self.held_bytes -= delivery.size
                for share in (endpoint, tenant):
                    share.taken -= 1
                    if share.has_more and share.taken < share.cap:
                        share.has_more = False
                        self._look_after_swarm()
                self.freed.set()
                if self.awaits_freed:
                    self.woken.set()
                self.claimed.task_done()

    def _longest_wait(self, delivery: Claimed) -> float:
        """Seconds that a delivery may wait for its sender and still end within its lease."""
        return self.longest_wait - max(0.0, delivery.target.timeout - TOTAL_TIMEOUT)

    async def _deliver(self, delivery: Claimed, endpoint: _Share) -> Outcome:
        size = delivery.size
        while self.body_bytes and self.body_bytes + size > MOST_BODY_BYTES:
            self.body_freed.clear()
            await self.body_freed.wait()
        self.body_bytes += size
        try:
            return await self._attempt(delivery, endpoint)
        finally:
            self.body_bytes -= size
            self.body_freed.set()

    async def _attempt(self, delivery: Claimed, endpoint: _Share) -> Outcome:
        if delivery.envelope is None:
            return Outcome(
                delivery.id,
                delivery.endpoint_id,
                delivery.attempts,
                Decision("dead"),
                error="payload_expired",
            )
        body = body_of(delivery.envelope, delivery.target)
        timestamp = delivery.claimed_at.timestamp() + time.monotonic() - delivery.claimed_monotonic
        with delivery_span(
            delivery.envelope,
            delivery_id=delivery.id,
            endpoint_id=delivery.endpoint_id,
            tenant_id=delivery.tenant_id,
            event_type=delivery.event_type,
            attempt=delivery.attempts + 1,
        ) as span:
            answer = await self.outbound.post(
                delivery.target.url,
                body,
                delivery_headers(
                    delivery.target,
                    delivery_id=delivery.id,
                    message_id=delivery.envelope.id,
                    event_type=delivery.event_type,
                    attempt=delivery.attempts + 1,
                    timestamp=int(timestamp),
                    body=body,
                    traceparent=span.traceparent,
                ),
                total_timeout=delivery.target.timeout,
            )
            note_answer(span, answer)
        self.egress.note(answer)
        if not answer.concerns_receiver:
            return Outcome(
                delivery.id,
                delivery.endpoint_id,
                delivery.attempts,
                put_off(delivery.attempts),
                error=answer.error,
                is_awaited=delivery.is_ordered,
            )
        if answer.ok and answer.ms < SLOW_MS:
            endpoint.cap = min(endpoint.cap + 1, self.capacity - self.capacity // RESERVE)
        else:
            endpoint.cap = max(endpoint.cap // 2, 1)
        if delivery.attempts == 0:
            self.recorder.observe_age(max(0.0, timestamp - ids.milliseconds(delivery.id) / 1000))
        at = isoformat_of(int(timestamp * 1000))
        return Outcome(
            delivery.id,
            delivery.endpoint_id,
            delivery.attempts,
            decide(answer, attempt=delivery.attempts + 1, steps=self.schedule),
            answer,
            log_entry(answer, at),
            endpoint.answers.kept(answer, at),
            probe=delivery.probe,
            is_awaited=delivery.is_ordered,
        )
