"""The flow of one message from the caller to the upstream, and of the answer back, verbatim (specification 4).

look up an earlier use of the Idempotency-Key → resolve `from` → idempotency record → journal → upstream call → one
commit with the event, its deliveries and the key's outcome → answer with the upstream's bytes. An interrupted send has
an unknown outcome and is not repeated, so no message is sent twice.

`send` is the entry point, on the event loop of a web process. Threads use `send_from_thread`, which runs it there.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.db import OperationalError

from gateway import ids
from gateway.api import event_loop, limits
from gateway.api.errors import (
    InvalidRequest,
    MetaUnreachable,
    Reply,
    ServiceError,
    ServiceUnavailable,
    error_reply,
)
from gateway.api.event_loop import ThreadPool
from gateway.database.statements import STATEMENT_SECONDS, LoopConnection, LoopGroupCommit, Statements
from gateway.database.transactions import error_fields, is_outage
from gateway.meta_errors import explained
from gateway.monitoring import tracing
from gateway.upstream.calls import (
    AppSecretRefused,
    AsyncPool,
    GraphAnswer,
    GraphCall,
    UpstreamUnreachable,
    classify,
    meta_unreachable,
    reply_of,
)
from messaging import idempotency, pacing
from messaging.idempotency import KeyUse
from messaging.sending import journal, outbound
from messaging.sending.journal import Slot
from messaging.sending.outbound import outbound_event
from phone_numbers import tokens
from phone_numbers.senders_and_owners import (
    Sender,
    SenderQuery,
    connection_problem,
    finding_sender,
    finding_senders,
    is_within,
    unknown_sender,
)
from tenants import checklist
from webhooks import wake_up
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import MOST_TOGETHER, Publication, publishing
from webhooks.wake_up import Fresh

log = structlog.get_logger(__name__)

RECORD_PATIENCE_SECONDS = 15.0
"""How long a finished send retries to record its outcome. Its caller waits for that long."""
RECORD_AGAIN_SECONDS = 0.2
OUTCOME_UNKNOWN = "WhatsApp gave no usable answer: the message may have been sent."
WATCH = "Wait for its message.status event before you send it again."
NOT_SENT = "WhatsApp cannot be reached. Nothing was sent."
REPEAT = "Send it again, with the same Idempotency-Key."

LOOKUP_CONNECTIONS = 1
EVENT_CONNECTIONS = 2
"""Connections for events. While one waits for the disk, the other writes the next group."""
OWN_CONNECTIONS = 4
MOST_LOOKUPS = 200

Result = TypeVar("Result")

_marked: set[UUID] = set()
"""Tenants whose checklist this process has marked after a first message."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A caller's request to send one message. `body` is the object parsed from `raw`."""

    tenant_id: UUID
    environment: str
    path: str
    raw: bytes = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    idempotency_key: str | None
    request_id: str | None
    edge: str = "messages"
    """The number's edge at the upstream: `messages` or `marketing_messages`."""
    phone_number_ids: frozenset[str] | None = None
    """The numbers that the caller may send from. None means all numbers of the tenant."""

    def key_use(self) -> KeyUse | None:
        """The request's use of its Idempotency-Key; None without a key. Raises InvalidRequest for an invalid key."""
        return idempotency.key_use(
            self.idempotency_key,
            tenant_id=self.tenant_id,
            environment=self.environment,
            path=self.path,
            raw=self.raw,
        )


class SendRuntime:
    """Database connections and an upstream client for the sends of one process, on one event loop.

    Concurrent sends share two statements: one finds their numbers, the other writes their events. A send with an
    Idempotency-Key runs its own statements, on one of a few shared connections.
    """

    def __init__(self, *, calls_at_once: int) -> None:
        self._calls_at_once = calls_at_once
        self._threads = ThreadPool("sends", threads=2, waiting=1_000)
        self._upstream: AsyncPool | None = None
        self._senders: LoopGroupCommit[SenderQuery, Sender | None] = LoopGroupCommit(
            finding_senders, connections=LOOKUP_CONNECTIONS, size=lambda _: 1, most=MOST_LOOKUPS
        )
        self._events: LoopGroupCommit[Publication, None] = LoopGroupCommit(
            _publishing, connections=EVENT_CONNECTIONS, size=lambda _: 1, most=MOST_TOGETHER
        )
        self._background: set[asyncio.Task[None]] = set()
        self._idle: asyncio.LifoQueue[LoopConnection] = asyncio.LifoQueue()
        for _ in range(OWN_CONNECTIONS):
            self._idle.put_nowait(LoopConnection())

    async def find_sender(self, query: SenderQuery) -> Sender | None:
        """Look up the sending number. None for an unknown number. Raises an error of `is_outage`."""
        return await self._senders.do(query)

    async def read(self, statements: Statements[Result]) -> Result:
        """Run statements, each in its own transaction. Raises an error of `is_outage`."""
        return await self._on_own_connection(lambda connection: connection.run_each(statements))

    async def write(self, statements: Statements[Result]) -> Result:
        """Run statements in one transaction, committed when this returns. Raises an error of `is_outage`."""
        return await self._on_own_connection(lambda connection: connection.run(statements))

    async def publish(self, tenant_id: UUID, event: NewEvent) -> None:
        """Write one event. Concurrent events share a statement. The event is committed when this returns."""
        await self._events.do(Publication(tenant_id, [event]))

    async def call(self, call: GraphCall) -> GraphAnswer:
        """Call the upstream once. Raises UpstreamUnreachable."""
        if self._upstream is None:
            self._upstream = await AsyncPool(limit=self._calls_at_once).__aenter__()
        return await self._upstream.send(call)

    async def in_thread(self, work: Callable[[], None]) -> None:
        """Run a function that uses Django's ORM, in a thread."""
        await self._threads.run(work)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task that no send waits for. `close` cancels it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Close all connections after the last send has its answer."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._senders.close()
        await self._events.close()
        while not self._idle.empty():
            await self._idle.get_nowait().close()
        if self._upstream is not None:
            await self._upstream.__aexit__(None, None, None)
            self._upstream = None
        self._threads.close()

    async def _on_own_connection(
        self, work: Callable[[LoopConnection], Coroutine[Any, Any, Result]]
    ) -> Result:
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                connection = await self._idle.get()
                try:
                    return await work(connection)
                finally:
                    self._idle.put_nowait(connection)
        except TimeoutError:
            raise OperationalError("The statements took too long.") from None


def _publishing(publications: Sequence[Publication]) -> Statements[list[None]]:
    published = yield from publishing(publications)
    if published.deliveries:
        wake_up.soon(published.deliveries)
    return [None] * len(publications)


async def send_on(runtime: SendRuntime, request: SendRequest) -> Reply:
    """Send one message (send rules 1 to 7). Returns the upstream's answer. After a ServiceError nothing was sent."""
    began = time.perf_counter()
    use = request.key_use()
    opened = await (_open_with_key(runtime, request, use) if use else _opening_without_key(runtime, request))
    if isinstance(opened, ServiceError):
        raise opened
    if isinstance(opened, Reply):
        return opened
    number = opened
    outgoing = outbound.outgoing(request.raw, request.body)
    event_id = ids.uuid7()
    try:
        slot = journal.begin(
            journal.Begun(
                event_id=event_id,
                tenant_id=request.tenant_id,
                environment=number.environment,
                waba_id=number.waba_id,
                phone_number_id=number.phone_number_id,
                digits=number.digits,
                sent=outgoing,
                idempotency_key=use.key if use else None,
                traceparent=tracing.current(),
                claim=use.claim if use else "",
            )
        )
    except ServiceError:
        if use is not None:
            await runtime.write(idempotency.releasing(use))
        raise
    try:
        outcome = await _call(runtime, number, outgoing, event_id, request, began)
    except BaseException:
        # The replay of the journal records the interrupted send.
        journal.leave(slot)
        raise
    await _record(runtime, request.tenant_id, outcome, use, slot)
    if outcome.token_problem:
        await runtime.in_thread(partial(tokens.question, waba_id=number.waba_id, token=number.token))
    return outcome.reply


async def _open_with_key(
    runtime: SendRuntime, request: SendRequest, use: KeyUse
) -> Sender | Reply | ServiceError:
    """Run `opening`. If the answer to the claim of the key is lost, the caller may repeat, so the claim is released in
    the background.
    """
    claims: list[KeyUse] = []
    try:
        return await runtime.read(opening(request, use, before_claim=claims.append))
    except Exception as error:
        if claims and is_outage(error):
            runtime.in_background(_withdraw(runtime, use))
        raise


async def _withdraw(runtime: SendRuntime, use: KeyUse) -> None:
    """Release a claim for which nothing is sent. If the database stays away, the replay of the journal releases it."""
    begun = journal.Begun(
        event_id=ids.uuid7(),
        tenant_id=use.tenant_id,
        environment=use.environment,
        waba_id="",
        phone_number_id="",
        digits="",
        sent=b"",
        idempotency_key=use.key,
        claim=use.claim,
    )
    refusal = error_reply(ServiceUnavailable(), None)
    # If the journal cannot be written, it logs an error, and the claim stays.
    with suppress(ServiceUnavailable):
        await _record(runtime, use.tenant_id, _Outcome(refusal, is_stored=False), use, journal.begin(begun))


async def _opening_without_key(runtime: SendRuntime, request: SendRequest) -> Sender | ServiceError:
    """Look up the sending number. The number is never cached.

    So a send fails before the upstream call if the database is unavailable and could not record the send.
    """
    if problem := outbound.problem_of_message(request.body):
        return problem
    from_ = outbound.check_sender(request.body)
    number = await runtime.find_sender(SenderQuery(request.tenant_id, request.environment, from_))
    if number is None or not is_within(request.phone_number_ids, number):
        return await runtime.read(_unknown_sender(request))
    return connection_problem(number) or number


def opening(
    request: SendRequest, use: KeyUse | None, *, before_claim: Callable[[KeyUse], None] = lambda _: None
) -> Statements[Sender | Reply | ServiceError]:
    """Claim the idempotency key and return the sending number, or the answer to the caller if nothing may be sent.

    If the key was used before, the answer of that use takes precedence over any problem (decision "Messages").
    `before_claim` is called before the statement that claims the key.
    """
    number: Sender | None = None
    problem: ServiceError | None = outbound.problem_of_message(request.body)
    if problem is None:
        number = yield from finding_sender(
            tenant_id=request.tenant_id,
            environment=request.environment,
            from_=outbound.check_sender(request.body),
        )
        if number is None or not is_within(request.phone_number_ids, number):
            problem = yield from _unknown_sender(request)
        else:
            problem = connection_problem(number)
    if problem is not None:
        return ((yield from idempotency.earlier(use)) if use else None) or problem
    assert number is not None  # noqa: S101 - a missing number is a problem
    if use is None:
        return number
    before_claim(use)
    return (yield from idempotency.beginning(use)) or number


def _unknown_sender(request: SendRequest) -> Statements[InvalidRequest]:
    return unknown_sender(
        tenant_id=request.tenant_id, environment=request.environment, within=request.phone_number_ids
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of the upstream call."""

    reply: Reply
    answer: GraphAnswer | None = None
    event: NewEvent | None = None
    token_problem: bool = False
    is_stored: bool = True
    """Whether the reply is stored for the key. False if the message was certainly not sent: the caller may retry."""


async def _call(
    runtime: SendRuntime, number: Sender, outgoing: bytes, event_id: UUID, request: SendRequest, began: float
) -> _Outcome:
    """Call the upstream, and classify its answer by send rules 6 and 7."""
    request_id = request.request_id
    try:
        answer = await post(runtime, number, outgoing, edge=request.edge)
        verdict = classify(answer)
    except UpstreamUnreachable as error:
        text, hint = (NOT_SENT, REPEAT) if error.is_unsent else (OUTCOME_UNKNOWN, WATCH)
        reply = error_reply(meta_unreachable(error, text, hint=hint), request_id)
        return _Outcome(reply, is_stored=not error.is_unsent)
    except AppSecretRefused as error:
        return _Outcome(error_reply(error, request_id), is_stored=False)
    except MetaUnreachable as error:
        unknown = MetaUnreachable(OUTCOME_UNKNOWN, hint=WATCH, details=error.details)
        return _Outcome(error_reply(unknown, request_id))
    reply = reply_of(answer, verdict)
    if not verdict.ok:
        reply = Reply(reply.status, reply.headers, explained(reply.body, request_id))
        return _Outcome(reply, answer, token_problem=verdict.token_problem, is_stored=not verdict.is_unsent)
    event = outbound_event(
        number=number,
        sent=outgoing,
        response=answer.body,
        http_status=answer.status,
        id=event_id,
        service_ms=(time.perf_counter() - began) * 1000 - answer.ms,
        upstream_ms=answer.ms,
    )
    return _Outcome(reply, answer, event)


async def post(
    runtime: SendRuntime, number: Sender, outgoing: bytes, *, edge: str = "messages"
) -> GraphAnswer:
    """POST to an edge of the sending number, and count it against the number's pace. Raises UpstreamUnreachable."""
    pacing.count_send(
        phone_number_id=number.phone_number_id,
        rate=pacing.rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
    )
    return await runtime.call(outbound.message_call(number, outgoing, edge=edge))


async def _record(
    runtime: SendRuntime, tenant_id: UUID, outcome: _Outcome, use: KeyUse | None, slot: Slot
) -> None:
    """Commit the event and the key's outcome. Retries while the database is unavailable; a second commit has no effect.

    If the database stays unavailable, the caller still gets the upstream's answer. The message is on its way, and any
    other answer would make the caller send it again. The replay of the journal commits later.
    """
    answer, reply = outcome.answer, outcome.reply
    is_accepted = is_left = outcome.event is not None
    if is_accepted or use is not None:
        try:
            slot.answered(
                journal.Answered(
                    answer.status if answer else 0,
                    answer.body if answer else b"",
                    reply.status,
                    dict(reply.headers),
                    reply.body,
                    is_accepted,
                    outcome.is_stored,
                )
            )
            is_left = True
        except OSError as error:
            log.error("send_journal_unwritable", error=error.strerror, errno=error.errno)
    gives_up_at = time.monotonic() + RECORD_PATIENCE_SECONDS
    together = use is None and tenant_id in _marked
    while True:
        try:
            if outcome.event is not None and together:
                # Nearly every send without a key takes this branch. Its single statement needs no transaction.
                await runtime.publish(tenant_id, outcome.event)
            elif outcome.event is not None or use is not None:
                kept = outcome.reply if outcome.is_stored else None
                if fresh := await runtime.write(recording(tenant_id, outcome.event, use, kept)):
                    wake_up.after_commit(fresh)
                if outcome.event is not None:
                    _marked.add(tenant_id)
            journal.recorded(slot)
            return
        except Exception as error:
            if not is_outage(error):
                # Catches any error: the message is on its way, and an error would make the caller send it again.
                log.exception("send_not_recorded", http_status=reply.status)
                break
            # Retries do not wait for other sends, because waiting would leave time for fewer retries.
            together = False
            if time.monotonic() > gives_up_at:
                log.error("send_not_recorded", http_status=reply.status, **error_fields(error))
                break
            await asyncio.sleep(RECORD_AGAIN_SECONDS)
    if is_left:
        journal.leave(slot)
    else:
        journal.recorded(slot)


def recording(
    tenant_id: UUID, event: NewEvent | None, use: KeyUse | None, reply: Reply | None
) -> Statements[Fresh]:
    """The statements that record a send, for one transaction. They return the created deliveries.

    Without a `reply` to store, they release the key.
    """
    fresh = Fresh()
    if event is not None:
        fresh = (yield from publishing([Publication(tenant_id, [event])])).deliveries
        if tenant_id not in _marked:
            yield from checklist.marking_test_message(tenant_id)
    if use is not None:
        yield from idempotency.completing(use, reply) if reply else idempotency.releasing(use)
    return fresh


_runtime: SendRuntime | None = None


async def send(request: SendRequest) -> Reply:
    """Send one message. After a ServiceError, such as TooManyInFlight, nothing was sent."""
    with limits.sends.held(request.tenant_id, number_named(request.body)):
        return await send_on(process_runtime(), request)


def send_from_thread(request: SendRequest) -> Reply:
    """Run `send` for a Django thread, such as the console's or an agent's. The thread waits. Raises ServiceError."""
    with limits.upstream.held(request.tenant_id, number_named(request.body)):
        return event_loop.run(send(request))


async def close() -> None:
    """Close the runtime's connections after the last send has its answer."""
    global _runtime
    if _runtime is not None:
        await _runtime.close()
        _runtime = None


def process_runtime() -> SendRuntime:
    """The runtime of this process, created inside its event loop."""
    global _runtime
    if _runtime is None:
        _runtime = SendRuntime(calls_at_once=limits.SENDS_AT_ONCE)
    return _runtime


def number_named(body: dict[str, Any]) -> str | None:
    """The `from` of a body, cut to 64 characters, for the limits per number. None when `from` is not a text."""
    from_ = body.get("from")
    return from_[:64] if isinstance(from_, str) else None
