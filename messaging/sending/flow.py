"""Sending: one message, or a read mark, from the caller to the upstream and back verbatim (specification 4).

earlier use of the key → resolve `from` → idempotency record → journal → upstream call → one commit with the event,
its deliveries and the outcome of the key → the upstream's bytes as the answer. Written once for both kinds of web
process (`runtimes.py`). A message is never sent twice: an interrupted send has an unknown outcome and is not repeated.
"""

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import structlog

from gateway import ids
from gateway.api.errors import InvalidRequest, MetaUnreachable, ServiceError, error_reply
from gateway.api.reply import Reply
from gateway.database.outage import DATABASE_UNAVAILABLE
from gateway.database.statements import Statements
from gateway.monitoring import tracing
from gateway.upstream import calls
from gateway.upstream.calls import GraphAnswer, GraphCall, UpstreamUnreachable
from gateway.upstream.judging import AppSecretRefused, judge, reply_of, unreachable
from messaging import idempotency, pacing
from messaging.idempotency import KeyUse
from messaging.sending import journal, upstream_body
from messaging.sending.errors import NumberNotConnected
from messaging.sending.journal import Slot
from messaging.sending.outbound_event import outbound_event
from messaging.sending.runtimes import Runtime
from phone_numbers import tokens
from phone_numbers.lookup import Sender, SenderQuery, finding_sender, required_sender, unknown_sender
from tenants import checklist
from webhooks import wake_up
from webhooks.events.new_event import NewEvent
from webhooks.events.publish import Publication, publishing
from webhooks.wake_up import Fresh

log = structlog.get_logger(__name__)

CONNECTED = "connected"
RECORD_PATIENCE_SECONDS = 15.0
"""How long a send that is done waits for a database that is away, and its caller with it."""
RECORD_AGAIN_SECONDS = 0.2
OUTCOME_UNKNOWN = "The upstream platform gave no usable answer: the message may have been sent."
WATCH = "Wait for its message.status event before you send it again."
NOT_SENT = "The upstream platform cannot be reached. Nothing was sent."
REPEAT = "Send it again, with the same Idempotency-Key."

_marked: set[UUID] = set()


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A caller's request to send one message. `body` is `raw` as an object."""

    tenant_id: UUID
    environment: str
    path: str
    raw: bytes = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    idempotency_key: str | None
    request_id: str | None
    edge: str = "messages"
    """The upstream's edge of the number that takes it: `messages` or `marketing_messages`."""


def resolve_sender(*, tenant_id: UUID, environment: str, from_: str) -> Sender:
    """The connected number to send from. Raises InvalidRequest (send rule 4) or NumberNotConnected (send rule 5)."""
    number = required_sender(tenant_id=tenant_id, environment=environment, from_=from_)
    if problem := _unusable(number):
        raise problem
    return number


async def send_message(runtime: Runtime, request: SendRequest) -> Reply:
    """Send one message; the answer is the upstream's (send rules 1 to 7). Raises ServiceError: nothing was sent."""
    began = time.perf_counter()
    use = idempotency.key_use(
        request.idempotency_key,
        tenant_id=request.tenant_id,
        environment=request.environment,
        path=request.path,
        raw=request.raw,
    )
    opened = await (runtime.read(_opening(request, use)) if use else _opening_without_key(runtime, request))
    if isinstance(opened, ServiceError):
        raise opened
    if isinstance(opened, Reply):
        return opened
    number = opened
    outgoing = upstream_body.outgoing(request.raw, has_product="messaging_product" in request.body)
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
            )
        )
    except ServiceError:
        if use is not None:
            await runtime.write(idempotency.releasing(use))
        raise
    try:
        outcome = await _call(runtime, number, outgoing, event_id, request, began)
    except BaseException:
        # Cut off in the middle: the replay tells of it.
        journal.leave(slot)
        raise
    await _record(runtime, request.tenant_id, outcome, use, slot)
    if outcome.token_problem:
        await runtime.aside(partial(tokens.question, waba_id=number.waba_id, token=number.token))
    return outcome.reply


async def mark_read(runtime: Runtime, *, tenant_id: UUID, environment: str, body: dict[str, Any]) -> Reply:
    """Mark a customer's message as read, with or without a typing indicator; the answer is the upstream's."""
    if problems := upstream_body.missing_sender(body) | _missing_message_id(body):
        raise InvalidRequest.of(**problems)
    from_ = upstream_body.check_sender(body)
    number = await runtime.read(finding_sender(tenant_id=tenant_id, environment=environment, from_=from_))
    if number is None:
        raise await runtime.read(unknown_sender(tenant_id=tenant_id, environment=environment))
    if problem := _unusable(number):
        raise problem
    outgoing: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "status": "read",
        **{
            name: value for name, value in body.items() if name not in {"from", "messaging_product", "status"}
        },
    }
    try:
        answer = await _post(runtime, number, orjson.dumps(outgoing))
    except UpstreamUnreachable as error:
        raise unreachable(error) from None
    verdict = judge(answer)
    if verdict.token_problem:
        await runtime.aside(partial(tokens.question, waba_id=number.waba_id, token=number.token))
    return reply_of(answer, verdict)


def _missing_message_id(body: dict[str, Any]) -> dict[str, str]:
    given = body.get("message_id")
    if isinstance(given, str) and given:
        return {}
    return {"message_id": "Required: the id of the message to mark as read."}


def message_call(number: Sender, outgoing: bytes, *, edge: str = "messages") -> GraphCall:
    """The POST of a message (upstream fact 1.1), for any transport."""
    return calls.prepare(
        environment=number.environment,
        method="POST",
        path=f"{number.phone_number_id}/{edge}",
        token=number.token,
        body=outgoing,
    )


async def _opening_without_key(runtime: Runtime, request: SendRequest) -> Sender | ServiceError:
    """The number to send from. It is asked for at every send, though it seldom changes.

    What the database cannot record is then not sent either.
    """
    if problem := upstream_body.problem_of_message(request.body):
        return problem
    from_ = upstream_body.check_sender(request.body)
    number = await runtime.find_sender(SenderQuery(request.tenant_id, request.environment, from_))
    if number is None:
        return await runtime.read(
            unknown_sender(tenant_id=request.tenant_id, environment=request.environment)
        )
    return _unusable(number) or number


def _opening(request: SendRequest, use: KeyUse) -> Statements[Sender | Reply | ServiceError]:
    """The number to send from under a key that is owned now, or what the caller is answered instead.

    An earlier use of the key comes before every other judgement (decision "Messages").
    """
    number: Sender | None = None
    problem: ServiceError | None = upstream_body.problem_of_message(request.body)
    if problem is None:
        number = yield from finding_sender(
            tenant_id=request.tenant_id,
            environment=request.environment,
            from_=upstream_body.check_sender(request.body),
        )
        if number is None:
            problem = yield from unknown_sender(tenant_id=request.tenant_id, environment=request.environment)
        else:
            problem = _unusable(number)
    if problem is not None:
        return (yield from idempotency.earlier(use)) or problem
    assert number is not None  # noqa: S101 - one that is missing is a problem
    return (yield from idempotency.beginning(use)) or number


def _unusable(number: Sender) -> ServiceError | None:
    if number.connection_state != CONNECTED:
        return NumberNotConnected(
            details={
                "phone_number_id": number.phone_number_id,
                "connection_state": number.connection_state,
                "connection_detail": number.connection_detail,
            }
        )
    return None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of the upstream call."""

    reply: Reply
    answer: GraphAnswer | None = None
    event: NewEvent | None = None
    token_problem: bool = False
    is_stored: bool = True
    """Whether the key keeps the reply: not, when the message was certainly not sent and may be sent again."""


async def _call(
    runtime: Runtime, number: Sender, outgoing: bytes, event_id: UUID, request: SendRequest, began: float
) -> _Outcome:
    """Send rules 6 and 7."""
    request_id = request.request_id
    try:
        answer = await _post(runtime, number, outgoing, edge=request.edge)
        verdict = judge(answer)
    except UpstreamUnreachable as error:
        text, hint = (NOT_SENT, REPEAT) if error.is_unsent else (OUTCOME_UNKNOWN, WATCH)
        reply = error_reply(unreachable(error, text, hint=hint), request_id)
        return _Outcome(reply, is_stored=not error.is_unsent)
    except AppSecretRefused as error:
        return _Outcome(error_reply(error, request_id), is_stored=False)
    except MetaUnreachable as error:
        unknown = MetaUnreachable(OUTCOME_UNKNOWN, hint=WATCH, details=error.details)
        return _Outcome(error_reply(unknown, request_id))
    reply = reply_of(answer, verdict)
    if not verdict.ok:
        return _Outcome(reply, answer, token_problem=verdict.token_problem, is_stored=not verdict.throttled)
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


async def _post(runtime: Runtime, number: Sender, outgoing: bytes, *, edge: str = "messages") -> GraphAnswer:
    """POST to an edge of the number that sends, counted against its pace. Raises UpstreamUnreachable."""
    pacing.count_send(
        phone_number_id=number.phone_number_id,
        rate=pacing.rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
    )
    return await runtime.call(message_call(number, outgoing, edge=edge))


async def _record(
    runtime: Runtime, tenant_id: UUID, outcome: _Outcome, use: KeyUse | None, slot: Slot
) -> None:
    """Commit the event and the outcome of the key, again and again while the database is away: it counts once.

    If the database stays away, the caller still gets the upstream's answer: the message is on its way, and any other
    answer would make the caller send it again. The journal is replayed then.
    """
    answer, reply = outcome.answer, outcome.reply
    if outcome.event is not None and answer is not None:
        try:
            slot.answered(
                journal.Answered(answer.status, answer.body, reply.status, dict(reply.headers), reply.body)
            )
        except OSError as error:
            log.error("send_journal_unwritable", error=error.strerror, errno=error.errno)
    gives_up_at = time.monotonic() + RECORD_PATIENCE_SECONDS
    together = use is None and tenant_id in _marked
    while True:
        try:
            if outcome.event is not None and together:
                # Nearly every send without a key: its one statement is a transaction of its own.
                await runtime.publish(tenant_id, outcome.event)
            elif outcome.event is not None or use is not None:
                kept = outcome.reply if outcome.is_stored else None
                if fresh := await runtime.write(recording(tenant_id, outcome.event, use, kept)):
                    wake_up.after_commit(fresh)
                if outcome.event is not None:
                    _marked.add(tenant_id)
            journal.recorded(slot)
            return
        except DATABASE_UNAVAILABLE as error:
            # Alone from now on: a send that waits for another's attempt has fewer of its own.
            together = False
            if time.monotonic() > gives_up_at:
                log.error("send_not_recorded", error=type(error).__name__, http_status=reply.status)
                break
            await runtime.sleep(RECORD_AGAIN_SECONDS)
        except Exception:
            # Whatever it is: the message is on its way, and its caller must not send it again.
            log.exception("send_not_recorded", http_status=reply.status)
            break
    if outcome.event is not None:
        journal.leave(slot)
    else:
        journal.recorded(slot)


def recording(
    tenant_id: UUID, event: NewEvent | None, use: KeyUse | None, reply: Reply | None
) -> Statements[Fresh]:
    """What a send leaves behind, for one transaction; the deliveries that came of it.

    A key without a reply is released.
    """
    fresh = Fresh()
    if event is not None:
        fresh = (yield from publishing([Publication(tenant_id, [event])])).deliveries
        yield from checklist.marking_test_message(tenant_id)
    if use is not None:
        yield from idempotency.completing(use, reply) if reply else idempotency.releasing(use)
    return fresh
