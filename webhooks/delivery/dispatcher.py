"""The dispatcher: claim → prepare → post → record, thousands of signed deliveries a second from one process.

Each process with the role `deliveries` has one dispatcher from its start on (`gateway/__main__.py`). The dispatcher
claims due deliveries, sends many requests at once and writes results in bulk. At rest it waits for the next wake-up. It
ends when it is stopped, or after a long time without work. `gateway/role_loop.py` then starts the next one. A crash
loses nothing: the leases end with the registration, and the deliveries are claimed again (docs/architecture.md).
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog
from django.conf import settings

from gateway.database.live_workers import Registration
from gateway.monitoring import metrics
from gateway.outbound.client import TOTAL_TIMEOUT, Answer, Outbound
from webhooks import wake_up
from webhooks.delivery.caps import RESERVE, BodyMemory, InFlight, InFlightCaps, fit_in_batch
from webhooks.delivery.claim_statements import Claimed
from webhooks.delivery.claimer import Claimer, DeliveryRate, WakeUpListener
from webhooks.delivery.ordering import LINE_SECONDS, Lines
from webhooks.delivery.recorder import Recorder
from webhooks.delivery.senders import Attempts, EventBatches, Senders, Sending
from webhooks.events.publish import HandedOver
from webhooks.wake_up import Packed

log = structlog.get_logger(__name__)

SWARM_SECONDS = 0.02
"""How long to wait after a request ends, so that one claim fills all slots that become free together."""
LINGER_SECONDS = 300.0
"""How long a dispatcher without work keeps running."""
POLL_SECONDS = 0.5
"""How often a dispatcher polls without a signal. No signal announces a due retry."""
QUIET_POLL_SECONDS = 5.0
"""The poll interval while no delivery is open and the listener is connected. Such polls only make up for lost
signals.
"""
EGRESS_FAILURES = 3
"""The number of consecutive failures that starts a pause. A single connection to the proxy may fail by chance."""
EGRESS_PAUSE_SECONDS = 5.0
"""How long nothing is claimed after failures of the service's egress proxy."""
METRICS_SECONDS = 5.0

_stopping = threading.Event()
_running = threading.Lock()
_dispatcher: "_Dispatcher | None" = None
"""The running dispatcher of this process, if any."""


def run() -> bool:
    """Run `work` on a new event loop."""
    return asyncio.run(work())


async def work() -> bool:
    """Run the dispatcher of this process until it ends. Returns at once if one is running already.

    Returns whether to start another dispatcher. True after a run, unless the process is stopping. False if one was
    running already.
    """
    if not _running.acquire(blocking=False):
        return False
    try:
        await _run()
    finally:
        _running.release()
    return not _stopping.is_set()


async def _run() -> None:
    global _dispatcher
    _dispatcher = _Dispatcher()
    try:
        await _dispatcher.run()
    finally:
        _dispatcher = None


def stop() -> None:
    """Stop the dispatcher: it claims no more, releases waiting deliveries, and finishes those in flight."""
    _stopping.set()
    if _dispatcher is not None:
        _dispatcher.wake()


async def _flush_metrics() -> None:
    while True:
        await asyncio.sleep(METRICS_SECONDS)
        if metrics.is_pending():
            await asyncio.to_thread(metrics.flush)


TENANT_SHARE = 0.5
"""The share of a dispatcher's capacity that one tenant may hold."""


class EgressPause:
    """Pauses claims while the egress proxy is down. Call `note` with every answer. `is_on` says whether to pause.

    After a pause, a few deliveries try the proxy again.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def note(self, answer: Answer) -> None:
        """Count an answer as a failure or a success of the proxy."""
        if answer.concerns_receiver:
            self._failures = 0
            return
        self._failures += 1
        if self._failures >= EGRESS_FAILURES:
            self._until = time.monotonic() + EGRESS_PAUSE_SECONDS

    @property
    def is_on(self) -> bool:
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the end of the pause. Negative without a pause."""
        return self._until - time.monotonic()


class _Dispatcher:
    def __init__(self) -> None:
        self.capacity: int = settings.DELIVERY_CONCURRENCY
        self.longest_wait: float = settings.DELIVERY_LEASE_SECONDS / 2
        self.paced: dict[UUID, Claimed] = {}
        """Deliveries that wait for their slots, without a sender."""
        self.batches = EventBatches(self._put)
        self.lines = Lines()
        self.broken_off: list[Claimed] = []
        """Deliveries from lines that ended early. The next claim releases them."""
        self.bodies = BodyMemory()
        """The memory of the claimed deliveries' bodies."""
        self.caps = InFlightCaps(
            capacity=self.capacity, of_tenant=max(1, int(self.capacity * TENANT_SHARE)), bodies=self.bodies
        )
        self.registration = Registration()
        self.claimer = Claimer(self.caps, self.registration)
        self.freed = asyncio.Event()
        """Set when a request has ended since the last claim."""
        self.awaits_freed = False
        self.woken = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.look_timer: asyncio.TimerHandle | None = None
        self.delivery_rate = DeliveryRate()
        self.handed_over: list[HandedOver] = []
        """Deliveries that were handed over and wait for the next claim."""
        self.is_at_rest = False
        """Whether no claim is under way and nothing waits for room."""
        self.looked_for: int | None = None
        """The room that the current poll may fill. None without a poll."""
        self.idle_since = time.monotonic()
        self.egress = EgressPause()
        self.attempts: Attempts
        self.recorder = Recorder(on_awaited=self._look_soon)
        self.senders = Senders(
            self.caps,
            count=self.capacity,
            send=self._send,
            on_end=self._end,
            on_room=self._free,
        )
        self.listener = WakeUpListener(
            worker_id=self.registration.id,
            in_flight=lambda: self.senders.in_flight,
            has_room=self._has_room,
            on_signal=self._receive,
        )

    @property
    def worker_id(self) -> int:
        """The worker that is named as the holder of the dispatcher's leases."""
        return self.registration.id

    @property
    def has_room(self) -> bool:
        """Whether fresh deliveries may be handed over. Callable from any thread. The answer may change at once."""
        return self._has_room()

    def hand_over(self, deliveries: Sequence[Packed], *, looks: bool) -> bool:
        """Give the dispatcher deliveries that this process has published. Returns False if it has ended.

        Callable from any thread.
        """
        try:
            self.loop.call_soon_threadsafe(self.listener.take_in, deliveries, looks)
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Wake the claim loop. Callable from any thread. No effect once the dispatcher has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.woken.set)

    async def run(self) -> None:
        recording = asyncio.create_task(self.recorder.run())
        flushing = asyncio.create_task(_flush_metrics())
        await self.registration.start()
        try:
            async with Outbound(allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS) as outbound:
                self.attempts = Attempts(
                    outbound, on_answer=self.egress.note, on_first=self.recorder.observe_age
                )
                async with contextlib.aclosing(self.attempts):
                    await self._run_senders()
        finally:
            self.recorder.finish()
            await recording
            flushing.cancel()
            await asyncio.to_thread(metrics.flush)
            await self.claimer.close()
            await self.registration.close()

    async def _run_senders(self) -> None:
        self.senders.start()
        self.listener.start()
        wake_up.attach(self)
        try:
            await self._claim_until_idle()
        finally:
            wake_up.attach(None)
            # Before the wait for the requests in flight, because signals that arrive meanwhile would wait with it. When
            # this has ended, hand-overs of this process have reached the loop.
            await self.listener.close()
        self._listen()
        await self._release()
        await self.senders.finish()

    async def _claim_until_idle(self) -> None:
        while not _stopping.is_set():
            self.woken.clear()
            self.freed.clear()
            self._listen()
            if self.broken_off:
                broken_off, self.broken_off = self.broken_off, []
                await self.claimer.release(broken_off)
            if (seconds := await self.claimer.take_over_from_dead()) is not None:
                self.loop.call_later(seconds, self.woken.set)
            was_idle = not (self.senders.in_flight or self.paced or self.batches)
            handed_over, self.handed_over = self.handed_over, []
            deliveries = await self._claim(handed_over)
            if deliveries is None:
                await self.freed.wait()
                continue
            if _stopping.is_set():
                self.broken_off += deliveries
                return
            self._begin(deliveries)
            if deliveries:
                # Lets the requests reach the network before the next claim competes for the processor.
                await asyncio.sleep(0)
                continue
            if not was_idle:
                self.idle_since = time.monotonic()
            elif time.monotonic() - self.idle_since > LINGER_SECONDS:
                return
            await self._until_woken()

    async def _claim(self, handed_over: list[HandedOver]) -> list[Claimed] | None:
        """Claim the hand-overs for which there is room, and if a poll is due, poll for due deliveries.

        None when nothing may be claimed before a request ends.
        """
        if self.egress.is_on:
            if handed_over:
                await self.claimer.take_over(handed_over, 0)
            self.claimer.must_look = False
            return []
        room = self._room()
        may_take = room if self.bodies.has_room else 0
        deliveries = await self.claimer.take_over(handed_over, may_take) if handed_over else []
        if not self.claimer.must_look and self._until_look() > 0:
            return deliveries
        if room - len(deliveries) < self.capacity // RESERVE or not self.bodies.has_room:
            self.claimer.must_look = True
            return deliveries or None
        if deliveries:
            return deliveries
        self.looked_for = room
        try:
            return await self.claimer.look(room)
        finally:
            self.looked_for = None

    def _listen(self) -> None:
        """Receive the signals that have arrived, and let the listener wait for more."""
        handed_over, looks = self.listener.receive()
        self.handed_over += self._begin_calls(handed_over)
        self.claimer.must_look |= looks

    def _begin_calls(self, handed_over: list[HandedOver]) -> list[HandedOver]:
        """Begin the calls' deliveries among the hand-overs, even without room. Returns the other deliveries."""
        began = set()
        for each in handed_over:
            if not each.is_urgent or self.egress.is_on or not self.caps.takes_call(*self._caps_of(each)):
                continue
            self._begin(taken := self.claimer.take_call(each))
            began |= {call.id for call in taken}
        return [each for each in handed_over if each.id not in began] if began else handed_over

    def _receive(self) -> None:
        """Handle a signal. At rest or during a poll, begin its deliveries now. Otherwise leave them to the next claim.

        The claim loop is woken only when needed, because waking it costs a fifth of a single delivery. Hand-overs do
        not wait for a poll, because a poll walks through all endpoints with open deliveries.
        """
        takes = self.is_at_rest or self.looked_for is not None
        if takes or self.listener.has_calls:
            self._listen()
        if not (takes and self._take_at_once()) or self.claimer.must_look:
            self.woken.set()

    def _take_at_once(self) -> bool:
        """Begin all hand-overs, if they need no statement and fit all caps. False if some are left."""
        given = self.handed_over
        if self.egress.is_on or len(given) > self._room_beside_look() or not self.bodies.has_room:
            return False
        taken = self.claimer.take_at_once(given)
        if taken is None:
            return False
        self._begin(taken)
        if len(taken) == len(given):
            self.handed_over = []
            return True
        taken_ids = {each.id for each in taken}
        self.handed_over = [each for each in given if each.id not in taken_ids]
        return False

    def _room(self) -> int:
        return self.capacity + self.delivery_rate.ahead() - self.senders.open

    def _room_beside_look(self) -> int:
        """Room for hand-overs. During a poll, the room that the poll does not fill, plus a reserve."""
        if self.looked_for is None:
            return self._room()
        return self._room() - self.looked_for + self.capacity // RESERVE

    def _begin(self, deliveries: Sequence[Claimed]) -> None:
        """Begin claimed deliveries, each now, at its slot, or after the delivery before it in its line."""
        for delivery in deliveries:
            self.bodies.add(delivery.tenant_id, delivery.size)
        collected = [each for each in deliveries if each.target.collects]
        for line in self.lines.together(collected) if collected else ():
            count = fit_in_batch([each.size for each in line])
            together, others = line[:count], line[count:]
            self._break_off(others)
            endpoint, tenant = self._caps_of(line[0])
            endpoint.taken += len(together)
            tenant.taken += len(together)
            self._put(together)
        if collected:
            deliveries = [each for each in deliveries if not each.target.collects]
        for delivery in self.lines.heads(deliveries):
            self._begin_one(delivery)

    def _begin_one(self, delivery: Claimed) -> None:
        endpoint, tenant = self._caps_of(delivery)
        endpoint.taken += 1
        tenant.taken += 1
        if (wait := delivery.send_at - time.monotonic()) > 0:
            self.paced[delivery.id] = delivery
            self.loop.call_later(wait, self._begin_slot, delivery.id)
        elif delivery.is_urgent and self.caps.takes_call(endpoint, tenant):
            self.senders.send_call(delivery, endpoint, tenant)
        elif delivery.target.batch is None:
            self.senders.put((delivery,), endpoint, tenant)
        else:
            self.batches.add(delivery)
        self.idle_since = time.monotonic()

    def _begin_slot(self, delivery_id: UUID) -> None:
        if (delivery := self.paced.pop(delivery_id, None)) is not None:
            self.batches.add(delivery)

    def _put(self, deliveries: list[Claimed]) -> None:
        self.senders.put(deliveries, *self._caps_of(deliveries[0]))

    def _caps_of(self, delivery: Claimed | HandedOver) -> tuple[InFlight, InFlight]:
        return self.caps.of(endpoint_id=delivery.endpoint_id, tenant_id=delivery.tenant_id)

    def _look_soon(self) -> None:
        """Poll soon. A customer's next event may be ready, or an endpoint at its cap may have room again."""
        self.look_timer = None
        self.claimer.must_look = True
        self.freed.set()
        self.woken.set()

    def _look_after_swarm(self) -> None:
        if self.look_timer is None:
            self.look_timer = self.loop.call_later(SWARM_SECONDS, self._look_soon)

    def _has_room(self) -> bool:
        """Whether fresh deliveries may be handed over. Unclaimed deliveries that wait for a cap do not count."""
        return (
            self.claimer.clock is not None
            and not self.egress.is_on
            and self.senders.open * 2 < self.capacity
            and self.bodies.has_room
        )

    async def _until_woken(self) -> None:
        """Wait for a signal, or until the next poll is due. While due deliveries wait for room, the end of a
        request also ends the wait.
        """
        is_full = self.awaits_freed = self.claimer.must_look
        self.is_at_rest = not is_full
        if not (is_full and self.freed.is_set()):
            await self._woken_within(POLL_SECONDS if is_full else self._until_look())
        self.awaits_freed = self.is_at_rest = False
        if is_full and not self.listener.has_signals:
            self.woken.clear()
            await self._woken_within(SWARM_SECONDS)

    async def _woken_within(self, seconds: float) -> None:
        # A timer of the loop costs much less than asyncio.timeout.
        timer = self.loop.call_later(seconds, self.woken.set)
        await self.woken.wait()
        timer.cancel()

    def _until_look(self) -> float:
        """Seconds until the next poll without a signal. A pause for the egress proxy delays the poll."""
        poll = QUIET_POLL_SECONDS if self.claimer.is_quiet and self.listener.is_connected else POLL_SECONDS
        return max(self.claimer.looked_at + poll - time.monotonic(), self.egress.seconds_left)

    async def _release(self) -> None:
        """End the leases of deliveries that wait for a claim or a sender. If this fails, the leases run out."""
        waiting: list[Claimed | HandedOver] = [
            *self.handed_over,
            *self.paced.values(),
            *self.batches.take_back(),
            *self.lines.break_all(),
            *self.broken_off,
        ]
        self.handed_over.clear()
        self.paced.clear()
        self.broken_off.clear()
        waiting += self.senders.take_back()
        if waiting:
            await self.claimer.release(waiting)

    async def _send(self, sending: Sending) -> None:
        delivery, endpoint = sending.deliveries[0], sending.endpoint
        # A delivery that waited too long for a sender or for memory is not sent, because its lease could end during the
        # request.
        until = delivery.claimed_monotonic + self._longest_wait(delivery)
        for outcome in await self.attempts.attempt(sending.deliveries, endpoint.answers, until=until):
            has_weight = not outcome.shares_answer or outcome.is_success
            if outcome.answer is not None and has_weight and not sending.is_slow:
                self.caps.adapt(endpoint, ok=outcome.answer.ok, ms=outcome.answer.ms)
            if delivery.customer_key is not None:
                sending.line_goes_on = outcome.is_success and self._may_go_on(delivery)
                outcome = msgspec.structs.replace(outcome, is_awaited=not sending.line_goes_on)
            self.recorder.add(outcome)

    def _may_go_on(self, delivery: Claimed) -> bool:
        """Whether to send the next delivery of the line. Otherwise the line is released."""
        return (
            self.lines.has_next(delivery)
            and time.monotonic() - delivery.claimed_monotonic < LINE_SECONDS
            and not self.egress.is_on
            and not _stopping.is_set()
        )

    def _end(self, sending: Sending) -> None:
        for delivery in sending.deliveries:
            self.delivery_rate.ended += 1
            self.bodies.remove(delivery.tenant_id, delivery.size)
            if self.lines.has_next(delivery):
                self._end_in_line(delivery, goes_on=sending.line_goes_on)
            for share in (sending.endpoint, sending.tenant):
                if share.release():
                    self._look_after_swarm()
        self._free()

    def _end_in_line(self, head: Claimed, *, goes_on: bool) -> None:
        if goes_on:
            self._begin_one(self.lines.take_next(head))
            return
        self._break_off(self.lines.break_off(head))
        self.woken.set()

    def _break_off(self, deliveries: Sequence[Claimed]) -> None:
        """Let the next claim release these deliveries."""
        for delivery in deliveries:
            self.bodies.remove(delivery.tenant_id, delivery.size)
            self.broken_off.append(delivery)

    def _free(self) -> None:
        """Signal that a request has ended, or that the capacity no longer counts it."""
        self.freed.set()
        if self.awaits_freed:
            self.woken.set()

    def _longest_wait(self, delivery: Claimed) -> float:
        """How many seconds a delivery may wait for a sender and memory, and still end within its lease."""
        return self.longest_wait - max(0.0, delivery.target.timeout - TOTAL_TIMEOUT)
