"""The dispatcher: claim → prepare → post → record, thousands of signed deliveries a second from one process.

One runs in each worker process of the queue `deliveries`, inside the Celery task `deliver_due`. It claims what is
due, sends many requests at once, writes results in bulk, lingers for the next wake-up and ends when idle or told
to stop. A crash loses nothing: leases run out and the deliveries are claimed again (architecture.md).
"""

import asyncio
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import close_old_connections, connection

from gateway import ids, metrics
from gateway.api.errors import UNAVAILABLE as DATABASE_UNAVAILABLE
from gateway.clock import isoformat
from gateway.outbound import Answer, Outbound
from gateway.valkey import UNAVAILABLE as VALKEY_UNAVAILABLE
from gateway.valkey import valkey
from webhooks import measures, wake
from webhooks.attempt import delivery_headers, log_entry
from webhooks.claim import Claimed, Room, claim
from webhooks.record import Outcome, record
from webhooks.schedule import Decision, decide

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.02
FLUSH_ROWS = 500
LINGER_SECONDS = 5.0
POLL_SECONDS = 0.5
"""How long an idle dispatcher waits for a signal before it looks at the clock: retries become due silently."""
LONGEST_RUN_SECONDS = 600.0
ALIVE_MILLISECONDS = 3_000

FIRST_CAP = 16
SLOW_MS = 1_000

MOST_BODY_BYTES = 128 * 1024 * 1024
"""Bodies in memory at once: a notification of megabytes makes one for each of its events."""

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
    """Ask the dispatcher to end: nothing more is claimed, what is in flight finishes and is recorded."""
    _stopping.set()


class _Dispatcher:
    def __init__(self) -> None:
        self.capacity: int = settings.DELIVERY_CONCURRENCY
        self.slots = asyncio.Semaphore(self.capacity)
        self.tasks: set[asyncio.Task[None]] = set()
        self.taken: Counter[UUID] = Counter()
        self.taken_by_tenant: Counter[UUID] = Counter()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.caps: dict[UUID, int] = {}
        self.outcomes: list[Outcome] = []
        self.freed = asyncio.Event()
        self.body_bytes = 0
        self.body_freed = asyncio.Event()
        self.listening: asyncio.Future[None] | None = None
        self.done = False
        self.to_record = asyncio.Event()
        # A thread each for claiming and recording: the loop never waits for the database.
        self.claimer = ThreadPoolExecutor(1, thread_name_prefix="claim")
        self.recorder = ThreadPoolExecutor(1, thread_name_prefix="record")
        self.listener = ThreadPoolExecutor(1, thread_name_prefix="wake")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        recording = asyncio.create_task(self._record_until_done())
        try:
            async with Outbound(
                allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS, limit=self.capacity
            ) as self.outbound:
                await self._claim_until_idle()
                if self.tasks:
                    await asyncio.wait(self.tasks)
        finally:
            self.done = True
            self.to_record.set()
            await recording
            metrics.flush()
            for executor in (self.claimer, self.recorder):
                await loop.run_in_executor(executor, _close_connection)
            for executor in (self.claimer, self.recorder, self.listener):
                executor.shutdown(wait=False)

    async def _claim_until_idle(self) -> None:
        loop = asyncio.get_running_loop()
        ends_at = time.monotonic() + LONGEST_RUN_SECONDS
        idle_since = time.monotonic()
        while not _stopping.is_set() and time.monotonic() < ends_at:
            self._listen()
            room = 2 * self.capacity - len(self.tasks)
            if room < self.capacity // 4:
                await self._until_freed()
                continue
            claimed = await loop.run_in_executor(self.claimer, self._claim, room)
            for delivery in claimed:
                self.taken[delivery.endpoint_id] += 1
                self.taken_by_tenant[delivery.tenant_id] += 1
                task = asyncio.create_task(self._deliver(delivery))
                self.tasks.add(task)
                task.add_done_callback(self._finished)
            if claimed:
                idle_since = time.monotonic()
                # Let the new tasks reach the network before the next claim competes for the processor.
                await asyncio.sleep(0)
                continue
            if self.tasks:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > LINGER_SECONDS:
                return
            await self._until_woken()

    async def _until_freed(self) -> None:
        self.freed.clear()
        await self.freed.wait()

    async def _until_woken(self) -> None:
        """Until a signal comes, or a request has ended and its endpoint may take another."""
        self.freed.clear()
        assert self.listening is not None  # noqa: S101 - the loop listens before it claims
        freed = asyncio.ensure_future(self.freed.wait())
        either: set[asyncio.Future[Any]] = {freed, self.listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        freed.cancel()
        if not self.listening.done():
            # Requests end in swarms: one claim for all that end within a flush.
            await asyncio.sleep(FLUSH_SECONDS)

    def _listen(self) -> None:
        """Have a wait for a wake-up running. Called before a claim: what an ended wait heard, the claim sees."""
        if self.listening is None or self.listening.done():
            self.listening = asyncio.get_running_loop().run_in_executor(
                self.listener, _wait_for_signal, self.name, len(self.tasks)
            )

    def _claim(self, room: int) -> list[Claimed]:
        try:
            close_old_connections()
            return claim(
                Room(
                    room,
                    FIRST_CAP,
                    dict(self.taken),
                    dict(self.caps),
                    settings.DELIVERY_TENANT_CONCURRENCY,
                    dict(self.taken_by_tenant),
                )
            )
        except DATABASE_UNAVAILABLE as error:
            log.warning("claim_failed", error=type(error).__name__)
            connection.close()
            _stopping.wait(POLL_SECONDS)  # in the claiming thread: the loop goes on
            return []

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease runs out and the delivery is claimed again: an error here must not end the others.
            log.error("delivery_crashed", exc_info=error)

    async def _deliver(self, delivery: Claimed) -> None:
        try:
            size = delivery.envelope.size if delivery.envelope else 0
            async with self.slots:
                while self.body_bytes and self.body_bytes + size > MOST_BODY_BYTES:
                    self.body_freed.clear()
                    await self.body_freed.wait()
                self.body_bytes += size
                try:
                    outcome = await self._attempt(delivery)
                finally:
                    self.body_bytes -= size
                    self.body_freed.set()
        finally:
            _less(self.taken, delivery.endpoint_id)
            _less(self.taken_by_tenant, delivery.tenant_id)
        self.outcomes.append(outcome)
        self.to_record.set()

    async def _attempt(self, delivery: Claimed) -> Outcome:
        if delivery.envelope is None:
            return Outcome(
                delivery.id,
                delivery.endpoint_id,
                delivery.attempts,
                Decision("dead"),
                error="payload_expired",
            )
        body = delivery.envelope.body()
        waited = time.monotonic() - delivery.claimed_monotonic
        at = delivery.claimed_at + timedelta(seconds=waited)
        answer = await self.outbound.post(
            delivery.target.url,
            body,
            delivery_headers(
                delivery.target,
                delivery_id=delivery.id,
                event_id=delivery.event_id,
                event_type=delivery.event_type,
                attempt=delivery.attempts + 1,
                timestamp=int(at.timestamp()),
                body=body,
            ),
        )
        self._adapt(delivery.endpoint_id, answer)
        if delivery.attempts == 0:
            measures.AGE.observe(max(0.0, (at - ids.created_at(delivery.id)).total_seconds()))
        if answer.ok:
            measures.SENT.add()
        else:
            measures.FAILED.add(label=answer.error or "")
        return Outcome(
            delivery.id,
            delivery.endpoint_id,
            delivery.attempts,
            decide(answer, attempt=delivery.attempts + 1, steps=settings.WEBHOOK_RETRY_SCHEDULE),
            answer,
            log_entry(answer, isoformat(at)),
            probe=delivery.probe,
        )

    def _adapt(self, endpoint_id: UUID, answer: Answer) -> None:
        """An endpoint's share of the slots: grows with each quick success, halves with each failure or slow answer."""
        cap = self.caps.get(endpoint_id, FIRST_CAP)
        if answer.ok and answer.ms < SLOW_MS:
            self.caps[endpoint_id] = min(cap + 1, self.capacity // 2)
        else:
            self.caps[endpoint_id] = max(cap // 2, 1)

    async def _record_until_done(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self.done and not self.outcomes):
            await self.to_record.wait()
            self.to_record.clear()
            if not self.done and len(self.outcomes) < FLUSH_ROWS:
                await asyncio.sleep(FLUSH_SECONDS)
            batch, self.outcomes = self.outcomes[:FLUSH_ROWS], self.outcomes[FLUSH_ROWS:]
            if self.outcomes:
                self.to_record.set()
            if batch:
                await loop.run_in_executor(self.recorder, _record, batch)


def _less(taken: Counter[UUID], key: UUID) -> None:
    taken[key] -= 1
    if taken[key] <= 0:
        del taken[key]


def _close_connection() -> None:
    """Give back the calling thread's database connection."""
    connection.close()


def _record(batch: list[Outcome]) -> None:
    """Write a batch; what cannot be written is delivered again when its lease runs out (at least once)."""
    try:
        close_old_connections()
        record(batch)
    except DATABASE_UNAVAILABLE as error:
        log.warning("record_failed", error=type(error).__name__, rows=len(batch))
        connection.close()


def _wait_for_signal(name: str, in_flight: int) -> None:
    """Wait for a wake-up, at most half a second; says meanwhile that a dispatcher is alive, and what it counted."""
    measures.report_in_flight(name, in_flight)
    metrics.flush()
    try:
        valkey().set(wake.ALIVE, 1, px=ALIVE_MILLISECONDS)
        valkey().blpop([wake.SIGNAL], timeout=POLL_SECONDS)
    except VALKEY_UNAVAILABLE:
        _stopping.wait(POLL_SECONDS)  # in the listening thread
