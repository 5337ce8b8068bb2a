"""Sends one batch: claim → wait for the turn → send → record. Hundreds of messages are under way at once, at the
number's pace.

A message is sent only while this process certainly holds the lease. So its item must be claimed in the database, and
by this process's own clock the last renewal must be recent. Items are claimed ahead of their turn, while earlier items
are sent. Results are written in bulk, and kept in memory until the database accepts them.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, connection

from gateway.api.errors import MetaUnreachable
from gateway.clock import now
from gateway.database.transactions import error_fields, is_outage
from gateway.meta_errors import THROUGHPUT
from gateway.upstream.calls import (
    AppSecretRefused,
    AsyncPool,
    GraphAnswer,
    UpstreamUnreachable,
    classify,
    meta_unreachable,
)
from messaging.batches import held_batch
from messaging.batches.held_batch import BatchLeaseLost, ClaimedItem, Held, Outcome, Result
from messaging.pacing import Pacer
from messaging.sending import outbound
from messaging.sending.customer_hours import closed_until, country_code, restored
from messaging.sending.outbound import not_sent, outcome_unknown
from phone_numbers import tokens
from phone_numbers.senders_and_owners import Sender

CLAIM_SECONDS = 0.25
"""How long it takes to send the items of one claim. The time is short, because claimed items without a result are
reported as unknown after a crash.
"""


def items_ahead(per_second: float) -> int:
    """How many items one claim takes at a given pace."""
    return max(1, int(per_second * CLAIM_SECONDS))


async def claimed_ahead(
    claim: Callable[[], Awaitable[list[ClaimedItem]]],
) -> AsyncGenerator[list[ClaimedItem], None]:
    """Yield the claims of a batch until a claim is empty. The next claim runs while the items of the current claim are
    sent, so no gaps arise.
    """
    upcoming = asyncio.ensure_future(claim())
    try:
        while items := await upcoming:
            upcoming = asyncio.ensure_future(claim())
            yield items
    finally:
        upcoming.cancel()


log = structlog.get_logger(__name__)

SAFE_PART = 0.75
"""The fraction of the lease time, counted from a renewal, for which this process certainly holds the lease, even if the
process was stalled.
"""
HEARTBEAT_PART = 0.25
FACTS_SECONDS = 1.0
"""The maximum age of the facts about the number: its token, its connection and its throughput level."""
UNDER_WAY_SECONDS = 2.0
"""As many messages as the batch sends in this many seconds may wait for the upstream's answer. If the upstream is
slower than this, the batch slows down.
"""
MOST_UNDER_WAY = 500
REACH_SECONDS = 30.0
"""How long a message is retried while the upstream cannot be reached."""
FLUSH_SECONDS = 0.05
FLUSH_ROWS = 500
RETRY_SECONDS = 0.5
MOST_PAUSE_SECONDS = 4.0

Value = TypeVar("Value")


class NotNow(Exception):
    """Raised when a claimed message was not sent and may not be sent now. Its claim must be released."""


async def send_once(
    attempt: Callable[[], Awaitable[GraphAnswer]], *, longest_pause: float = MOST_PAUSE_SECONDS
) -> Outcome:
    """Make a message's call and return its outcome. Raises the errors of `attempt`, except those of the upstream.

    A call is repeated, for REACH_SECONDS, only if it could not connect, because the upstream then certainly did not
    receive it. Meanwhile the message counts as under way, so an unreachable upstream also delays the other messages.
    """
    until, pause = time.monotonic() + REACH_SECONDS, RETRY_SECONDS
    while True:
        sent_at = now()
        try:
            answer = await attempt()
            verdict = classify(answer)
        except UpstreamUnreachable as error:
            details = meta_unreachable(error).details or {}
            if not error.is_unsent:
                return Outcome(outcome_unknown(details), sent_at=sent_at)
            if time.monotonic() >= until:
                return Outcome(not_sent(details), sent_at=sent_at, retryable=True)
        except AppSecretRefused:
            return Outcome(
                answer.body,
                http_status=answer.status,
                sent_at=sent_at,
                retryable=True,
                upstream_ms=answer.ms,
            )
        except MetaUnreachable as error:
            details = {**(error.details or {}), "reason": "unusable_answer"}
            return Outcome(outcome_unknown(details), False, details.get("upstream_status"), sent_at)
        else:
            return Outcome(
                answer.body,
                accepted=verdict.ok,
                http_status=answer.status,
                sent_at=sent_at,
                retryable=verdict.is_unsent,
                retry_after=verdict.retry_after,
                upstream_ms=answer.ms,
                is_throttled=verdict.code == THROUGHPUT or answer.status == 429,
                token_problem=verdict.token_problem,
            )
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest_pause)


class ProcessResources(Protocol):
    """The resources that the batches and scheduled messages of one process share."""

    woken: asyncio.Event
    """Set to make the runner poll at once."""

    slots: asyncio.Semaphore
    """One slot for each message that the process may have under way."""
    turns: ThreadPoolExecutor
    """Threads that wait for Valkey."""

    @property
    def stopping(self) -> bool:
        """Whether the process was asked to end."""
        ...

    async def in_database(self, lane: int, call: Callable[..., Value], *values: Any) -> Value:
        """Run a call in the database thread of the lane."""
        ...


class BatchRun:
    """The run of one batch under its lease, from the first claim to the end."""

    def __init__(self, process: ProcessResources, pool: AsyncPool, held: Held) -> None:
        self.process, self.pool, self.held = process, pool, held
        self.pacer = Pacer(phone_number_id=held.phone_number_id, rate=held.rate_per_sec)
        self.room = asyncio.Semaphore(min(int(held.rate_per_sec * UNDER_WAY_SECONDS), MOST_UNDER_WAY))
        self.lane = held.id.int
        self.hours = restored(held.customer_hours)
        self.number: Sender
        self.facts_at = -FACTS_SECONDS
        self.certain_until = 0.0
        self.next_idx = 0
        self.turns: deque[float] = deque()
        self.further_turns: asyncio.Future[list[float]] | None = None
        self.sends: set[asyncio.Task[None]] = set()
        self.results: list[Result] = []
        self.to_record = asyncio.Event()
        self.sent_all = False
        self.unsent: list[ClaimedItem] = []
        self.is_released = False
        self.token_question: asyncio.Task[None] | None = None
        self.token_asked_at = -tokens.QUESTION_INTERVAL.total_seconds()
        self.recording: asyncio.Task[None]

    async def run(self) -> None:
        """Send the rest of the batch. Returns when the batch has ended, was released, or has another holder."""
        structlog.contextvars.bind_contextvars(batch_id=self.held.public_id)
        recording = self.recording = asyncio.create_task(self._record_until_done())
        heart = asyncio.create_task(self._beat())
        try:
            await self._look_at_number()
            await self._settle_interrupted()
            if not self.held.given_up:
                await self._send_all()
        except BatchLeaseLost:
            log.warning("batch_lease_lost")
            return
        finally:
            try:
                if self.sends:
                    await asyncio.wait(self.sends)
                self.sent_all = True
                self.to_record.set()
                await recording
            finally:
                # If the recording failed, the lease must end, so that another runner continues.
                heart.cancel()
        if self.is_released:
            await self._until_done(held_batch.release, self.held, self.unsent)
            return
        try:
            await self._settle_interrupted()
        except BatchLeaseLost:
            log.warning("batch_lease_lost")
            return
        await self._until_done(held_batch.finish, self.held)

    async def _settle_interrupted(self) -> None:
        """Report claimed items without a result. Called before this run's first claim and after its last result."""
        if items := await self._until_done(held_batch.take_over, self.held):
            results = [(item, _unknown("interrupted")) for item in items]
            await self._until_done(held_batch.record, self.held, self.number, results)

    async def _send_all(self) -> None:
        async with aclosing(claimed_ahead(self._take)) as claims:
            async for items in claims:
                await self._send_paced(items)

    async def _take(self) -> list[ClaimedItem]:
        self.is_released = self.is_released or self.process.stopping
        if self.is_released:
            return []
        await self._look_at_number()
        count = items_ahead(self.pacer.pace())
        asked_at = time.monotonic()
        taken = await self._until_done(_take_next, self.held, self.number, self.next_idx, count)
        self.certain_until = asked_at + SAFE_PART * settings.BATCH_LEASE_SECONDS
        self.is_released = self.is_released or taken.suspended
        if taken.items:
            self.next_idx = taken.items[-1].idx + 1
        return taken.items

    async def _send_paced(self, items: list[ClaimedItem]) -> None:
        for place, item in enumerate(items):
            if self.recording.done():
                # The recording failed. This raises its error, because further messages could not be recorded.
                await self.recording
            await self._token_answer()
            if not self.number.is_connected:
                self.is_released = True
            if self.is_released or self.process.stopping:
                self.unsent += items[place:]
                return
            if (wait := await self._next_turn() - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            await self._acquire_places()
            if closed_until(self.hours, now()):
                self._release_places()
                self.is_released = True
                self.unsent += items[place:]
                return
            task = asyncio.create_task(self._send(item))
            self.sends.add(task)
            task.add_done_callback(self._sent)

    async def _acquire_places(self) -> None:
        """Acquire a place of the batch and one of the process, then check the lease. Raises BatchLeaseLost."""
        await self.room.acquire()
        await self.process.slots.acquire()
        try:
            await self._until_certain()
        except BaseException:
            self._release_places()
            raise

    def _release_places(self) -> None:
        self.room.release()
        self.process.slots.release()

    async def _next_turn(self) -> float:
        """The time at which the next message may be sent. Further turns are requested before the current turns are used
        up, so the pace has no gaps.
        """
        if not self.turns:
            self.turns.extend(await (self.further_turns or self._ask_for_turns()))
            self.further_turns = None
        if self.further_turns is None:
            self.further_turns = self._ask_for_turns()
        return self.turns.popleft()

    def _ask_for_turns(self) -> asyncio.Future[list[float]]:
        return asyncio.get_running_loop().run_in_executor(self.process.turns, self.pacer.turns)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self.sends.discard(task)
        self._release_places()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The item stays claimed without a result. The batch's next holder reports it as unknown.
            log.error("batch_send_crashed", exc_info=error)

    async def _send(self, item: ClaimedItem) -> None:
        number = self.number
        try:
            outcome = await send_once(partial(self._attempt, item))
        except BatchLeaseLost:
            return  # the batch's next holder reports the item
        except NotNow:
            self.is_released = True
            self.unsent.append(item)
            return
        if outcome.is_throttled:
            self.pacer.throttled()
        self.results.append((item, outcome))
        self.to_record.set()
        if outcome.token_problem:
            self._question_token(number)

    async def _attempt(self, item: ClaimedItem) -> GraphAnswer:
        if self.process.stopping:
            raise NotNow
        await self._until_certain()
        return await self.pool.send(outbound.message_call(self.number, item.body))

    def _question_token(self, number: Sender) -> None:
        """Start a check of the token, because a single rejection may be about the recipient and not the token."""
        moment = time.monotonic()
        if moment - self.token_asked_at >= tokens.QUESTION_INTERVAL.total_seconds():
            self.token_asked_at = moment
            self.token_question = asyncio.create_task(asyncio.to_thread(question_token, number))

    async def _token_answer(self) -> None:
        """If a check of the token is running, wait for its end and read the number's state again. Nothing is sent
        before that.
        """
        if self.token_question is not None:
            await self.token_question
            self.token_question, self.facts_at = None, -FACTS_SECONDS
            await self._look_at_number()

    async def _record_until_done(self) -> None:
        while not (self.sent_all and not self.results):
            await self.to_record.wait()
            self.to_record.clear()
            if not self.sent_all and len(self.results) < FLUSH_ROWS:
                await asyncio.sleep(FLUSH_SECONDS)
            some, self.results = self.results[:FLUSH_ROWS], self.results[FLUSH_ROWS:]
            if self.results:
                self.to_record.set()
            if some:
                await self._record(some)

    async def _record(self, results: list[Result]) -> None:
        """Record results together. If the database rejects them, record each result alone, so that only the invalid one
        fails.
        """
        try:
            await self._until_done(held_batch.record, self.held, self.number, results)
        except DatabaseError:
            log.exception("batch_results_refused", count=len(results))
            if len(results) > 1:
                for result in results:
                    await self._record([result])
                return
            # The database rejects this answer. So the record only says, without the answer, that the message may have
            # been sent.
            ((item, refused),) = results
            replaced = _unknown("unusable_answer", sent_at=refused.sent_at)
            await self._until_done(held_batch.record, self.held, self.number, [(item, replaced)])

    async def _look_at_number(self) -> None:
        if time.monotonic() - self.facts_at >= FACTS_SECONDS:
            self.facts_at = time.monotonic()
            owner = self.held.tenant_id, self.held.environment, self.held.phone_number_id
            self.number = await self._until_done(held_batch.number_of, *owner)
            self.pacer.rate = held_batch.rate_now(self.held, self.number)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_PART * settings.BATCH_LEASE_SECONDS)
            try:
                await self._renew()
            except BatchLeaseLost:
                return  # the next send detects the lost lease

    async def _renew(self) -> None:
        asked_at = time.monotonic()
        await self._until_done(held_batch.renew, self.held)
        self.certain_until = asked_at + SAFE_PART * settings.BATCH_LEASE_SECONDS

    async def _until_certain(self) -> None:
        """Wait until this process certainly holds the lease, renewing it if needed. Raises BatchLeaseLost."""
        while time.monotonic() > self.certain_until:
            await self._renew()

    async def _until_done(self, call: Callable[..., Value], *values: Any) -> Value:
        return await until_done(self.process, self.lane, call, *values)


async def until_done(process: ProcessResources, lane: int, call: Callable[..., Value], *values: Any) -> Value:
    """Run a database call. Repeats the call while the database is unavailable. Raises all other errors."""
    while True:
        try:
            return await process.in_database(lane, call, *values)
        except Exception as error:
            if not is_outage(error):
                raise
            log.warning("batch_waits_for_database", **error_fields(error))
            await asyncio.sleep(RETRY_SECONDS)


def _take_next(held: Held, number: Sender, first: int, count: int) -> held_batch.Taken:
    return held_batch.take(held, first=first, count=count, country_code=country_code(number.digits))


def question_token(number: Sender) -> None:
    """Schedule a check of a token that the upstream rejected. Runs in its own thread."""
    try:
        tokens.question(waba_id=number.waba_id, token=number.token)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("token_not_questioned", **error_fields(error))
    finally:
        connection.close()


def _unknown(reason: str, *, sent_at: datetime | None = None) -> Outcome:
    """The unknown outcome of a message that may have been sent. It is never sent again (decision "Batches")."""
    details = {"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": reason}
    return Outcome(outcome_unknown(details), sent_at=sent_at)
