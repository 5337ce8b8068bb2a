"""The dispatcher: claim → prepare → post → record, thousands of signed deliveries a second from one process.

One runs in each worker process of the queue `deliveries`, inside the Celery task `deliver_due`. It claims what is
due, sends many requests at once, writes results in bulk, lingers for the next wake-up and ends when idle or told
to stop. A crash loses nothing: leases run out and the deliveries are claimed again (docs/architecture.md).
"""

import asyncio
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection

from gateway import ids, metrics
from gateway.clock import isoformat_of
from gateway.database.outage import DATABASE_UNAVAILABLE
from gateway.database.statements import LoopConnection
from gateway.outbound.client import Outbound
from gateway.valkey import VALKEY_UNAVAILABLE, valkey
from webhooks.delivery import monitoring, wake_up
from webhooks.delivery.claim import Claimed, Room, claiming, giving_back
from webhooks.delivery.record import Outcome, disable, recording
from webhooks.delivery.retry import Decision, decide
from webhooks.delivery.signed_request import delivery_headers, log_entry

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.04
FLUSH_ROWS = 500
SWARM_SECONDS = 0.02
"""Requests end in swarms: one claim for all that end within so long."""
PACE_SECONDS = 0.1
LINGER_SECONDS = 5.0
POLL_SECONDS = 0.5
"""How long an idle dispatcher waits for a signal before it looks at the clock: retries become due silently."""
LONGEST_RUN_SECONDS = 600.0
ALIVE_MILLISECONDS = 3_000

AHEAD_SECONDS = 0.25
"""Claimed at the most: what is sent in so long at the present pace, beside what is being sent. Those wait here while
the next claim is under way; when receivers are slow, few do."""
RECORD_PATIENCE_SECONDS = 15.0
"""How long results wait for a database that is away; well within the lease."""

FIRST_CAP = 16
SLOW_MS = 1_000

MOST_BODY_BYTES = 128 * 1024 * 1024
"""Bodies in memory at once: a notification of megabytes makes one for each of its events. Beyond it nothing more is
claimed, and what is claimed waits to be put together."""

_stopping = threading.Event()
_running = threading.Lock()


def run() -> None:
    """Run the dispatcher of this process until idle; returns at once when one is running already."""
    if not _running.acquire(blocking=False):
        return
    try:
        asyncio.run(_Dispatcher().run())
    finally:
        _running.release()


def stop() -> None:
    """Ask the dispatcher to end: nothing more is claimed, what waits is given back, what is in flight finishes."""
    _stopping.set()


@dataclass(slots=True)
class _Share:
    """What an endpoint, or a tenant, has in flight here. An endpoint's share of the senders is its `cap`: it grows
    with each quick success and halves with each failure or slow answer."""

    taken: int = 0
    cap: int = FIRST_CAP


class _Pace:
    """How many deliveries ended a second, of late."""

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


class _Dispatcher:
    def __init__(self) -> None:
        self.capacity: int = settings.DELIVERY_CONCURRENCY
        self.of_tenant: int = settings.DELIVERY_TENANT_CONCURRENCY
        self.schedule: Sequence[float] = settings.WEBHOOK_RETRY_SCHEDULE
        self.longest_wait: float = settings.DELIVERY_LEASE_SECONDS / 2
        self.claimed: asyncio.Queue[tuple[Claimed, _Share, _Share]] = asyncio.Queue()
        self.open = 0
        self.held_bytes = 0
        self.endpoints: defaultdict[UUID, _Share] = defaultdict(_Share)
        self.tenants: defaultdict[UUID, _Share] = defaultdict(_Share)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.outcomes: list[Outcome] = []
        self.ages: list[float] = []
        self.freed = asyncio.Event()
        self.pace = _Pace()
        self.body_bytes = 0
        self.body_freed = asyncio.Event()
        self.listening: asyncio.Future[None] | None = None
        self.done = False
        self.to_record = asyncio.Event()
        self.claiming = LoopConnection()
        self.recording = LoopConnection()
        self.listener = ThreadPoolExecutor(1, thread_name_prefix="wake")

    async def run(self) -> None:
        recording = asyncio.create_task(self._record_until_done())
        try:
            async with Outbound(allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS) as self.outbound:
                senders = [asyncio.create_task(self._send_in_turn()) for _ in range(self.capacity)]
                await self._claim_until_idle()
                if _stopping.is_set():
                    await self._give_back()
                await self.claimed.join()
                for sender in senders:
                    sender.cancel()
        finally:
            self.done = True
            self.to_record.set()
            await recording
            metrics.flush()
            await self.claiming.close()
            await self.recording.close()
            self.listener.shutdown(wait=False)

    async def _claim_until_idle(self) -> None:
        ends_at = time.monotonic() + LONGEST_RUN_SECONDS
        idle_since = time.monotonic()
        while not _stopping.is_set() and time.monotonic() < ends_at:
            self._listen()
            self.freed.clear()
            was_idle = not self.open
            room = self.capacity + int(self.pace.a_second() * AHEAD_SECONDS) - self.open
            if room < self.capacity // 2 or self.held_bytes > MOST_BODY_BYTES:
                await self.freed.wait()
                continue
            deliveries = await self._claim(room)
            for delivery in deliveries:
                endpoint, tenant = self.endpoints[delivery.endpoint_id], self.tenants[delivery.tenant_id]
                endpoint.taken += 1
                tenant.taken += 1
                self.open += 1
                self.held_bytes += delivery.size
                self.claimed.put_nowait((delivery, endpoint, tenant))
            if deliveries:
                idle_since = time.monotonic()
                # Let them reach the network before the next claim competes for the processor.
                await asyncio.sleep(0)
                continue
            if not was_idle:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > LINGER_SECONDS:
                return
            await self._until_woken()

    async def _until_woken(self) -> None:
        """Until a signal comes, or a request has ended since the last claim was asked for: another may go there."""
        assert self.listening is not None  # noqa: S101 - the loop listens before it claims
        freed = asyncio.ensure_future(self.freed.wait())
        either: set[asyncio.Future[Any]] = {freed, self.listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        freed.cancel()
        if not self.listening.done():
            await asyncio.sleep(SWARM_SECONDS)

    def _listen(self) -> None:
        """Have a wait for a wake-up running. Called before a claim: what an ended wait heard, the claim sees."""
        if self.listening is None or self.listening.done():
            self.listening = asyncio.get_running_loop().run_in_executor(
                self.listener, _wait_for_signal, self.name, self.open
            )

    async def _claim(self, room: int) -> list[Claimed]:
        shares = Room(
            room,
            FIRST_CAP,
            {endpoint_id: share.taken for endpoint_id, share in self.endpoints.items()},
            {endpoint_id: share.cap for endpoint_id, share in self.endpoints.items()},
            self.of_tenant,
            {tenant_id: share.taken for tenant_id, share in self.tenants.items()},
        )
        try:
            return await self.claiming.run(claiming(shares))
        except DATABASE_UNAVAILABLE as error:
            log.warning("claim_failed", error=type(error).__name__)
        except Exception:
            # What cannot be claimed must not end the recording of what was sent.
            log.exception("claim_crashed")
        await asyncio.sleep(POLL_SECONDS)
        return []

    async def _give_back(self) -> None:
        """End the leases of what waits for a sender; if that fails, they run out."""
        waiting = []
        while not self.claimed.empty():
            delivery, _, _ = self.claimed.get_nowait()
            self.claimed.task_done()
            waiting.append(delivery)
        if waiting:
            try:
                await self.claiming.run(giving_back(waiting))
            except DATABASE_UNAVAILABLE as error:
                log.warning("give_back_failed", error=type(error).__name__, rows=len(waiting))

    async def _send_in_turn(self) -> None:
        """One of as many senders as there may be requests at once: takes what is claimed, one after another."""
        while True:
            delivery, endpoint, tenant = await self.claimed.get()
            try:
                # One that waited too long for its sender is left to its lease, which could end while it is under way.
                if time.monotonic() - delivery.claimed_monotonic < self.longest_wait:
                    outcome = await self._deliver(delivery, endpoint)
                    self.outcomes.append(outcome)
                    self.to_record.set()
            except Exception:
                # The lease runs out and the delivery is claimed again: an error here must not end the others.
                log.exception("delivery_crashed")
            finally:
                self.open -= 1
                self.pace.ended += 1
                self.held_bytes -= delivery.size
                endpoint.taken -= 1
                tenant.taken -= 1
                self.freed.set()
                self.claimed.task_done()

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
        body = delivery.envelope.body()
        timestamp = delivery.claimed_at.timestamp() + time.monotonic() - delivery.claimed_monotonic
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
            ),
        )
        if answer.ok and answer.ms < SLOW_MS:
            endpoint.cap = min(endpoint.cap + 1, self.capacity // 2)
        else:
            endpoint.cap = max(endpoint.cap // 2, 1)
        if delivery.attempts == 0:
            self.ages.append(max(0.0, timestamp - ids.milliseconds(delivery.id) / 1000))
        return Outcome(
            delivery.id,
            delivery.endpoint_id,
            delivery.attempts,
            decide(answer, attempt=delivery.attempts + 1, steps=self.schedule),
            answer,
            log_entry(answer, isoformat_of(int(timestamp * 1000))),
            probe=delivery.probe,
        )

    async def _record_until_done(self) -> None:
        while not (self.done and not self.outcomes):
            await self.to_record.wait()
            self.to_record.clear()
            if not self.done and len(self.outcomes) < FLUSH_ROWS:
                await asyncio.sleep(FLUSH_SECONDS)
            if self.ages:
                monitoring.AGE.observe(*self.ages)
                self.ages.clear()
            batch, self.outcomes = self.outcomes[:FLUSH_ROWS], self.outcomes[FLUSH_ROWS:]
            if self.outcomes:
                self.to_record.set()
            if batch:
                await self._record(batch)

    async def _record(self, batch: list[Outcome]) -> None:
        """Write a batch, again and again while the database is away: what was written twice counts once (record.py).

        What cannot be written in the end is delivered again when its lease runs out (at least once).
        """
        _count(batch)
        gives_up_at = time.monotonic() + RECORD_PATIENCE_SECONDS
        while True:
            try:
                recorded = await self.recording.run(recording(batch))
                break
            except DATABASE_UNAVAILABLE as error:
                log.warning("record_failed", error=type(error).__name__, rows=len(batch))
                if time.monotonic() > gives_up_at:
                    return
                await asyncio.sleep(POLL_SECONDS)
            except Exception as error:
                # The database refuses one of the outcomes: the others must not be lost with it.
                log.exception("outcomes_refused", error=type(error).__name__, rows=len(batch))
                await self._record_one_by_one(batch)
                return
        if recorded.to_disable:
            await asyncio.to_thread(_disable, recorded.to_disable)

    async def _record_one_by_one(self, batch: list[Outcome]) -> None:
        """Write each outcome of a refused batch alone; one that is refused again is written without its log entry."""
        for outcome in batch:
            for attempt in (outcome, replace(outcome, log_entry=None)):
                try:
                    recorded = await self.recording.run(recording([attempt]))
                except DATABASE_UNAVAILABLE as error:
                    log.warning("record_failed", error=type(error).__name__, rows=1)
                    break
                except Exception:
                    log.exception("outcome_refused", delivery_id=str(outcome.delivery_id))
                else:
                    if recorded.to_disable:
                        await asyncio.to_thread(_disable, recorded.to_disable)
                    break


def _count(batch: Sequence[Outcome]) -> None:
    answers = [outcome.answer for outcome in batch if outcome.answer is not None]
    monitoring.SENT.add(sum(answer.ok for answer in answers))
    for answer in answers:
        if not answer.ok:
            monitoring.FAILED.add(label=answer.error or "")


def _disable(endpoints: Mapping[UUID, str]) -> None:
    try:
        disable(endpoints)
    except DATABASE_UNAVAILABLE as error:
        log.warning("disable_failed", error=type(error).__name__)
    finally:
        connection.close()


def _wait_for_signal(name: str, in_flight: int) -> None:
    """Wait for a wake-up, at most half a second; says meanwhile that a dispatcher is alive, and what it counted."""
    monitoring.report_in_flight(name, in_flight)
    metrics.flush()
    try:
        valkey().set(wake_up.ALIVE, 1, px=ALIVE_MILLISECONDS)
        valkey().blpop([wake_up.SIGNAL], timeout=POLL_SECONDS)
    except VALKEY_UNAVAILABLE:
        _stopping.wait(POLL_SECONDS)  # in the listening thread
    except Exception:
        # A wait that ends at once would have the dispatcher claim without a pause.
        log.exception("wake_up_crashed")
        _stopping.wait(POLL_SECONDS)
