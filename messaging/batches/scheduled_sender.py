"""Sends scheduled messages when they are due: claim → wait for the number's turn → send → record.

Part of the batch runner (`messaging/batches/runner.py`), which polls for due messages every second. A message is
claimed before it is sent. It is claimed for sending a second time only if WhatsApp certainly did not take it, so it is
sent at most once. If a claim expires without a result, the message ends with an unknown outcome. A message that cannot
be sent at its time waits for PATIENCE, then it fails. With customer's hours it waits for a day for its number or its
tenant, and as long as its number is throttled. Each number has its own task and a limited number of claims, so no
number delays another.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet

from gateway import ids
from gateway.clock import now
from gateway.database.transactions import error_fields, is_outage
from gateway.upstream.calls import AsyncPool, GraphAnswer
from messaging.batches import held_batch
from messaging.batches.held_batch import Outcome
from messaging.batches.sender import NotNow, ProcessResources, question_token, send_once, until_done
from messaging.models import ScheduledMessage
from messaging.pacing import Pacer, rate_of
from messaging.sending import outbound
from messaging.sending.customer_hours import CustomerHours, closed_until, restored
from messaging.sending.outbound import outbound_event, outcome_unknown, service_error
from phone_numbers.senders_and_owners import Sender
from tenants import checklist
from tenants.tenant_status import SERVED
from webhooks.events.publish import publish

log = structlog.get_logger(__name__)

PATIENCE = timedelta(minutes=15)
"""How long after its time a message can still be sent, if its number, its tenant or WhatsApp prevented that before."""
AGAIN_SECONDS = 10.0
"""The shortest wait before a message is sent again that WhatsApp did not take, for example while it is unreachable."""
CLAIM_SECONDS = 300.0
"""How long a claim lasts. A send takes far less time, even with all its waits."""
SAFE_SECONDS = 200.0
"""A message that was claimed longer ago than this is released instead of sent."""
CLAIMED_AT_ONCE = 64
"""How many messages one claim takes."""
RETRY_SECONDS = 0.5
RECOVERY_SECONDS = 30.0
"""How long after an outage of the database no interrupted messages are claimed. Claims expire during a long outage, and
the processes that sent the messages record their results first.
"""

_LANE = 1

Status = ScheduledMessage.Status

Value = TypeVar("Value")

_DUE = """
SELECT EXISTS (SELECT FROM messaging_scheduledmessage
               WHERE status = 'scheduled' AND send_at <= now() AND (claimed_until IS NULL OR claimed_until <= now())),
       EXISTS (SELECT FROM messaging_scheduledmessage WHERE status = 'sending' AND claimed_until < now()),
       EXISTS (SELECT FROM messaging_batch WHERE waiting_for = 'scheduled' AND send_at <= now())
"""
# Claims messages in the order of their times. `hindrance` is the reason why a message that waited too long is not sent.
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT s.id, h.hindrance
    FROM messaging_scheduledmessage s
        JOIN tenants_tenant t ON t.id = s.tenant_id
        LEFT JOIN numbers_phonenumber n
            ON n.phone_number_id = s.phone_number_id AND n.tenant_id = s.tenant_id AND n.environment = s.environment,
        LATERAL (SELECT CASE WHEN NOT {SERVED.format(row="s")} THEN 'tenant_suspended'
                             WHEN n.id IS NULL THEN 'number_released'
                             WHEN n.connection_state <> 'connected' THEN 'number_not_connected' END,
                        CASE WHEN s.customer_hours IS NULL OR n.id IS NULL THEN %(patience)s
                             ELSE %(patience_with_hours)s END) AS h (hindrance, patience)
    WHERE s.status = 'scheduled' AND s.send_at <= now() AND (s.claimed_until IS NULL OR s.claimed_until <= now())
      AND s.phone_number_id <> ALL(%(busy)s::text[])
      AND (h.hindrance IS NULL OR s.send_at < now() - make_interval(secs => h.patience))
    ORDER BY s.send_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE messaging_scheduledmessage m
SET status = 'sending', claim = %(claim)s, claimed_until = now() + make_interval(secs => %(seconds)s)
FROM due
WHERE m.id = due.id
RETURNING m.id, m.tenant_id, m.environment, m.phone_number_id, m.body, m.claim, m.customer_hours::text, due.hindrance,
    m.send_at < now() - make_interval(secs => %(patience)s)
"""  # noqa: S608 - only a condition is formatted in
_CLAIM_INTERRUPTED = """
WITH interrupted AS MATERIALIZED (
    SELECT id FROM messaging_scheduledmessage WHERE status = 'sending' AND claimed_until < now()
    LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE messaging_scheduledmessage m
SET claim = %(claim)s, claimed_until = now() + make_interval(secs => %(seconds)s)
FROM interrupted
WHERE m.id = interrupted.id
RETURNING m.id, m.tenant_id, m.environment, m.phone_number_id, m.body, m.claim, NULL, 'interrupted', true
"""
_HINDRANCES = {
    "tenant_suspended": "The business could not send at this message's time.",
    "number_released": "The number was released before this message's time.",
    "number_not_connected": "The number was not connected at this message's time.",
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed message. `hindrance` is the reason why it is not sent, or None if it can be sent."""

    id: UUID
    tenant_id: UUID
    environment: str
    phone_number_id: str
    body: bytes = field(repr=False)
    claim: UUID
    hours: CustomerHours | None
    """The customer's hours in which the message may be sent. None means at any time."""
    hindrance: str | None
    is_late: bool
    """Whether the message is more than PATIENCE late."""

    @property
    def public_id(self) -> str:
        return ids.encode(ids.SCHEDULED, self.id)

    def may_wait_after(self, outcome: Outcome) -> bool:
        """Whether the message is sent again after an outcome. The pace of its number never makes a message with
        customer's hours fail.
        """
        is_in_time = not self.is_late or (outcome.is_throttled and self.hours is not None)
        return outcome.retryable and is_in_time and _wait(outcome) < PATIENCE


class ScheduledSends:
    """The scheduled messages that one process sends."""

    def __init__(self, process: ProcessResources, pool: AsyncPool) -> None:
        self._process, self._pool = process, pool
        self._of_number: dict[str, asyncio.Task[None]] = {}
        self._pacers: dict[str, Pacer] = {}
        self._recovered_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether messages are being sent."""
        return bool(self._of_number)

    async def look(self) -> bool:
        """Start to send the messages that are due. Returns whether a batch is due."""
        if self._process.stopping:
            return False
        try:
            is_due, is_interrupted, batch_is_due = await self._process.in_database(_LANE, due)
            claimed: list[Claimed] = []
            if is_interrupted and time.monotonic() >= self._recovered_at:
                claimed += await self._process.in_database(_LANE, claim_interrupted)
            while is_due:
                more = await self._process.in_database(_LANE, claim, [*self._of_number])
                self._start(more)
                is_due = bool(more)
            self._start(claimed)
        except Exception as error:
            if not is_outage(error):
                raise
            log.warning("scheduled_not_claimed", **error_fields(error))
            self._recovered_at = time.monotonic() + RECOVERY_SECONDS
            return False
        return batch_is_due

    def _start(self, claimed: list[Claimed]) -> None:
        # A number that moved to another tenant may have messages of both tenants. Each message needs its own tenant's
        # token.
        groups: dict[tuple[UUID, str, str], list[Claimed]] = {}
        for message in claimed:
            owner = message.tenant_id, message.environment, message.phone_number_id
            groups.setdefault(owner, []).append(message)
        for owner, messages in groups.items():
            phone_number_id = owner[2]
            before = self._of_number.get(phone_number_id)
            task = asyncio.create_task(self._send_all(owner, messages, before))
            self._of_number[phone_number_id] = task
            task.add_done_callback(partial(self._ended, phone_number_id))

    def _ended(self, phone_number_id: str, task: "asyncio.Task[None]") -> None:
        if self._of_number.get(phone_number_id) is task:
            del self._of_number[phone_number_id]
        if (pacer := self._pacers.get(phone_number_id)) is not None and pacer.share() == 1.0:
            del self._pacers[phone_number_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # The task's messages stay claimed. When their claims expire, they end as interrupted.
            log.error("scheduled_send_crashed", exc_info=error)
        self._process.woken.set()

    async def _send_all(
        self, owner: tuple[UUID, str, str], messages: list[Claimed], before: "asyncio.Task[None] | None"
    ) -> None:
        """Send messages of one number at its pace, in the order of their ids."""
        safe_until = time.monotonic() + SAFE_SECONDS
        if before is not None:
            await asyncio.wait([before])
        number: Sender = await self._until_done(held_batch.number_of, *owner)
        pacer = self._pacers.setdefault(
            number.phone_number_id, Pacer(phone_number_id=number.phone_number_id, rate=1)
        )
        pacer.rate = rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence)
        turns: list[float] = []
        sends: list[asyncio.Task[None]] = []
        try:
            for message in messages:
                if message.hindrance is None:
                    if not turns:
                        loop = asyncio.get_running_loop()
                        turns = await loop.run_in_executor(self._process.turns, pacer.turns)
                    await asyncio.sleep(max(0.0, turns.pop(0) - time.monotonic()))
                    await self._process.slots.acquire()
                sends.append(asyncio.create_task(self._send(message, number, pacer, safe_until)))
        finally:
            if sends:
                await asyncio.wait(sends)
        for send in sends:
            send.result()

    async def _send(self, message: Claimed, number: Sender, pacer: Pacer, safe_until: float) -> None:
        if message.hindrance is not None:
            await self._until_done(record, message, number, _hindered(message.hindrance))
            return
        outcome = None
        try:
            outcome = await send_once(
                partial(self._attempt, message, number, safe_until), longest_pause=RETRY_SECONDS
            )
        except NotNow:
            pass
        finally:
            self._process.slots.release()
        if outcome is not None and outcome.is_throttled:
            pacer.throttled()
        if outcome is not None and outcome.token_problem:
            await asyncio.to_thread(question_token, number)
        if outcome is None:
            await self._until_done(release, message)
        elif message.may_wait_after(outcome):
            await self._until_done(release, message, _wait(outcome))
        else:
            await self._until_done(record, message, number, outcome)

    async def _attempt(self, message: Claimed, number: Sender, safe_until: float) -> GraphAnswer:
        if self._process.stopping or time.monotonic() > safe_until or closed_until(message.hours, now()):
            raise NotNow
        return await self._pool.send(outbound.message_call(number, message.body))

    async def _until_done(self, call: Callable[..., Value], *values: Any) -> Value:
        return await until_done(self._process, _LANE, call, *values)


def due() -> tuple[bool, bool, bool]:
    """Whether a message is due, whether a message was interrupted, and whether a batch is due."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE)
        row: tuple[bool, bool, bool] = cursor.fetchone()
    return row


def claim(busy: list[str]) -> list[Claimed]:
    """Claim messages that are due. Skips numbers in `busy`."""
    return _claimed(
        _CLAIM,
        busy=busy,
        patience=PATIENCE.total_seconds(),
        patience_with_hours=held_batch.PATIENCE.total_seconds(),
    )


def claim_interrupted() -> list[Claimed]:
    """Claim messages whose claim expired without a result."""
    return _claimed(_CLAIM_INTERRUPTED)


def _claimed(statement: str, **parameters: Any) -> list[Claimed]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            statement, {"claim": uuid4(), "seconds": CLAIM_SECONDS, "limit": CLAIMED_AT_ONCE, **parameters}
        )
        rows = [
            Claimed(
                key, tenant_id, environment, number, bytes(body), token, restored(hours), hindrance, is_late
            )
            for key, tenant_id, environment, number, body, token, hours, hindrance, is_late in cursor
        ]
    return sorted(rows, key=lambda message: message.id)


def record(message: Claimed, number: Sender, outcome: Outcome) -> None:
    """Store a message's outcome with its event, in one transaction. Does nothing when another process has the claim."""
    event = outbound_event(
        number=number,
        sent=message.body,
        response=outcome.response,
        http_status=outcome.http_status,
        dedupe_key=f"out:{message.public_id}",
        id=ids.uuid7(),
        upstream_ms=outcome.upstream_ms,
    )
    with transaction.atomic():
        recorded = _own(message).update(
            status=Status.ACCEPTED if outcome.accepted else Status.FAILED,
            http_status=outcome.http_status,
            wamid=event.wamid,
            response=outcome.response,
            event_id=event.id,
            sent_at=outcome.sent_at,
            ended_at=now(),
            body=b"",
            claim=None,
            claimed_until=None,
        )
        if not recorded:
            log.warning("scheduled_claim_lost", scheduled_id=message.public_id)
            return
        publish(tenant_id=message.tenant_id, events=[event])
        if outcome.accepted:
            checklist.mark(tenant_id=message.tenant_id, step="test_message_sent")


def release(message: Claimed, wait: timedelta = timedelta()) -> None:
    """Release a message that was certainly not sent. It is due after `wait`, or when its customer's hours begin."""
    moment = now()
    send_at = closed_until(message.hours, moment)
    waits = {} if send_at is None else {"send_at": send_at}
    not_before = moment + wait if wait else None
    _own(message).update(status=Status.SCHEDULED, claim=None, claimed_until=not_before, **waits)


def _wait(outcome: Outcome) -> timedelta:
    """How long a message waits that the upstream did not take. For a throttled number, its pacer slows down instead."""
    if outcome.is_throttled:
        return timedelta()
    return timedelta(seconds=max(AGAIN_SECONDS, outcome.retry_after or 0))


def _own(message: Claimed) -> QuerySet[ScheduledMessage]:
    """A query that finds the message's row only while this claim is valid."""
    return ScheduledMessage.objects.filter(pk=message.id, status=Status.SENDING, claim=message.claim)


def _hindered(hindrance: str) -> Outcome:
    """The outcome of a message that this process does not send."""
    if hindrance == "interrupted":
        return Outcome(outcome_unknown({"reason": "interrupted"}))
    return Outcome(service_error(hindrance, _HINDRANCES[hindrance], {}))
