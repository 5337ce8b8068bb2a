"""Sending: one message, or a read mark, from the caller to the upstream and back verbatim (docs/architecture.md).

validate → resolve `from` → idempotency record → give the database connection back → upstream call → one
transaction with the event, its deliveries and the idempotency result → the upstream's bytes as the answer.
A message is never sent twice: an interrupted send ends as 'outcome unknown' and is not repeated.
"""

import time
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

from gateway.api.errors import InvalidRequest, MetaUnreachable, NumberNotConnected, error_response
from gateway.database.outage import DATABASE_UNAVAILABLE
from gateway.upstream import client
from gateway.upstream.blocking_pool import line
from gateway.upstream.client import Answer, UpstreamUnreachable
from gateway.upstream.errors import judge, passed_through, unreachable
from messaging import idempotency, pacing, upstream_body
from messaging.idempotency import Claim
from phone_numbers import tokens
from phone_numbers.lookup import Sender, required_sender
from tenants import checklist
from webhooks.events.members import NewEvent
from webhooks.events.publish import publish

log = structlog.get_logger(__name__)

CONNECTED = "connected"
RECORD_PATIENCE_SECONDS = 15.0
"""How long a send that is done waits for a database that is away, and its caller with it."""
RECORD_AGAIN_SECONDS = 0.2

_marked: set[UUID] = set()


def resolve_sender(*, tenant_id: UUID, environment: str, from_: str) -> Sender:
    """The connected number to send from. Raises InvalidRequest (rule 4) or NumberNotConnected (rule 5).

    Asked at every send, though a number seldom changes: what the database cannot record is then not sent either.
    """
    number = required_sender(tenant_id=tenant_id, environment=environment, from_=from_)
    if number.connection_state != CONNECTED:
        raise NumberNotConnected(
            details={
                "phone_number_id": number.phone_number_id,
                "connection_state": number.connection_state,
                "connection_detail": number.connection_detail,
            }
        )
    return number


def send_message(
    *,
    tenant_id: UUID,
    environment: str,
    raw: bytes,
    body: dict[str, Any],
    idempotency_key: str | None,
    request: HttpRequest,
) -> HttpResponse:
    """Send one message; the answer is the upstream's (send rules 1 to 7)."""
    from_ = upstream_body.check_sender(body)
    if problems := upstream_body.missing_of_message(body):
        raise InvalidRequest.of(**problems)
    key = idempotency.key_of(idempotency_key)
    number = resolve_sender(tenant_id=tenant_id, environment=environment, from_=from_)
    claim: Claim | None = None
    if key is not None:
        begun = idempotency.begin(
            tenant_id=tenant_id, environment=environment, key=key, path=request.path, body=body
        )
        if isinstance(begun, HttpResponse):
            return begun
        claim = begun
    outgoing = upstream_body.outgoing(raw)
    try:
        answer = post_message(number, outgoing)
        verdict = judge(answer)
    except UpstreamUnreachable as error:
        return _unknown(claim, unreachable(error), request)
    except MetaUnreachable as error:
        return _unknown(claim, error, request)
    response = passed_through(answer, verdict)
    _record(tenant_id=tenant_id, number=number, sent=outgoing, answer=answer, claim=claim, response=response)
    if verdict.token_problem:
        tokens.question(waba_id=number.waba_id, token=number.token)
    return response


def mark_read(*, tenant_id: UUID, environment: str, body: dict[str, Any]) -> HttpResponse:
    """Mark a customer's message as read, with or without a typing indicator; the answer is the upstream's."""
    from_ = upstream_body.check_sender(body)
    message_id = body.get("message_id")
    if not isinstance(message_id, str) or not message_id:
        raise InvalidRequest.of(message_id="Required: the id of the message to mark as read.")
    number = resolve_sender(tenant_id=tenant_id, environment=environment, from_=from_)
    outgoing: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "status": "read",
        **{
            name: value for name, value in body.items() if name not in {"from", "messaging_product", "status"}
        },
    }
    try:
        answer = post_message(number, orjson.dumps(outgoing))
    except UpstreamUnreachable as error:
        raise unreachable(error) from None
    verdict = judge(answer)
    if verdict.token_problem:
        tokens.question(waba_id=number.waba_id, token=number.token)
    return passed_through(answer, verdict)


def post_message(number: Sender, outgoing: bytes) -> Answer:
    """POST to the number's messages edge, counted against its pace. Raises UpstreamUnreachable."""
    pacing.count_send(
        phone_number_id=number.phone_number_id,
        rate=pacing.rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
    )
    return line().send(message_call(number, outgoing))


def message_call(number: Sender, outgoing: bytes) -> client.Call:
    """The POST of a message (upstream fact 1.1), for any transport."""
    return client.prepare(
        environment=number.environment,
        method="POST",
        path=f"{number.phone_number_id}/messages",
        token=number.token,
        body=outgoing,
    )


def outbound_event(
    *,
    number: Sender,
    sent: bytes,
    response: bytes,
    http_status: int | None,
    dedupe_key: str | None = None,
    batch_id: str | None = None,
    idx: int | None = None,
    id: UUID | None = None,  # noqa: A002 - the event's own name for it
) -> NewEvent:
    """The `message.outbound` event of a send: the request's and the answer's own bytes (decision "Events")."""
    try:
        value = orjson.loads(response)
    except orjson.JSONDecodeError:
        value = {}
    message = _first(value, "messages")
    contact = _first(value, "contacts")
    wamid = message.get("id")
    tail = orjson.dumps({"http_status": http_status, "batch_id": batch_id, "idx": idx})
    return NewEvent(
        type="message.outbound",
        environment=number.environment,
        dedupe_key=dedupe_key or f"out:{wamid}"[:255],
        data=b'{"request":%b,"response":%b,%b' % (sent, response, tail[1:]),
        waba_id=number.waba_id,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.digits or None,
        wamid=wamid,
        wa_id=contact.get("wa_id"),
        user_id=contact.get("user_id"),
        id=id,
    )


def _record(
    *,
    tenant_id: UUID,
    number: Sender,
    sent: bytes,
    answer: Answer,
    claim: Claim | None,
    response: HttpResponse,
) -> None:
    """One transaction for what the send left behind, again and again while the database is away: it counts once.

    If the database stays away, the caller still gets the upstream's answer: the message is on its way, and any
    other answer would make the caller send it again.
    """
    events = (
        [outbound_event(number=number, sent=sent, response=answer.body, http_status=answer.status)]
        if answer.ok
        else []
    )
    gives_up_at = time.monotonic() + RECORD_PATIENCE_SECONDS
    together = claim is None and tenant_id in _marked
    while True:
        try:
            _write(tenant_id, events, claim, response, together=together)
            return
        except DATABASE_UNAVAILABLE as error:
            # By itself from now on: one that waits for another's attempt has fewer of its own.
            together = False
            connection.close()
            if time.monotonic() > gives_up_at:
                log.error("send_not_recorded", error=type(error).__name__, http_status=answer.status)
                return
            time.sleep(RECORD_AGAIN_SECONDS)


def _write(
    tenant_id: UUID, events: list[NewEvent], claim: Claim | None, response: HttpResponse, *, together: bool
) -> None:
    if together:
        # Nearly every send without a key: its one statement is a transaction of its own.
        publish(tenant_id=tenant_id, events=events, alone=True)
        return
    with transaction.atomic():
        publish(tenant_id=tenant_id, events=events)
        if events:
            _mark_first_step(tenant_id)
        if claim is not None:
            claim.complete(response)


def _mark_first_step(tenant_id: UUID) -> None:
    """Note that the tenant has sent a message: a step that is never undone, so each process asks but once."""
    if tenant_id not in _marked:
        checklist.mark(tenant_id=tenant_id, step="test_message_sent")
        transaction.on_commit(lambda: _marked.add(tenant_id))


def _unknown(claim: Claim | None, error: MetaUnreachable, request: HttpRequest) -> HttpResponse:
    """Send rule 7: the 502 whose outcome is unknown, stored under the key so that it is never repeated."""
    response = error_response(error, request)
    if claim is not None:
        try:
            claim.complete(response)
        except DATABASE_UNAVAILABLE as failure:
            log.error("send_not_recorded", error=type(failure).__name__)
            connection.close()
    return response


def _first(value: Any, name: str) -> dict[str, Any]:
    items = value.get(name) if isinstance(value, dict) else None
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}
