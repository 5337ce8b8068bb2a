"""Sends read receipts for customers' messages to WhatsApp, over the connections of `flow`.

A repeated receipt has no effect, so receipts need no idempotency key and no journal.
"""

from functools import partial
from typing import Any
from uuid import UUID

import orjson

from gateway.api import limits
from gateway.api.errors import InvalidRequest, Reply
from gateway.upstream.calls import UpstreamUnreachable, classify, meta_unreachable, reply_of
from messaging.sending import flow, outbound
from phone_numbers import tokens
from phone_numbers.senders_and_owners import connection_problem, finding_sender, is_within, unknown_sender


async def mark_read(
    *,
    tenant_id: UUID,
    environment: str,
    body: dict[str, Any],
    phone_number_ids: frozenset[str] | None = None,
) -> Reply:
    """Mark a customer's message as read, with or without a typing indicator. Returns the upstream's answer. Raises
    ServiceError.
    """
    with limits.sends.held(tenant_id, flow.number_named(body)):
        return await _mark_read(tenant_id, environment, body, phone_number_ids)


async def _mark_read(
    tenant_id: UUID, environment: str, body: dict[str, Any], phone_number_ids: frozenset[str] | None
) -> Reply:
    if problems := outbound.missing_sender(body) | _missing_message_id(body):
        raise InvalidRequest.of(**problems)
    runtime, from_ = flow.process_runtime(), outbound.check_sender(body)
    number = await runtime.read(finding_sender(tenant_id=tenant_id, environment=environment, from_=from_))
    if number is None or not is_within(phone_number_ids, number):
        raise await runtime.read(
            unknown_sender(tenant_id=tenant_id, environment=environment, within=phone_number_ids)
        )
    if problem := connection_problem(number):
        raise problem
    outgoing: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "status": "read",
        **{
            name: value for name, value in body.items() if name not in {"from", "messaging_product", "status"}
        },
    }
    try:
        answer = await flow.post(runtime, number, orjson.dumps(outgoing))
    except UpstreamUnreachable as error:
        raise meta_unreachable(error) from None
    verdict = classify(answer)
    if verdict.token_problem:
        await runtime.in_thread(partial(tokens.question, waba_id=number.waba_id, token=number.token))
    return reply_of(answer, verdict)


def _missing_message_id(body: dict[str, Any]) -> dict[str, str]:
    given = body.get("message_id")
    if isinstance(given, str) and given:
        return {}
    return {"message_id": "Required: the id of the message to mark as read."}
