"""One attempt of a delivery: the signed request, and the outcome that the receiver's answer means."""

import asyncio
import time
from collections.abc import Callable

from gateway import ids
from gateway.clock import isoformat_of
from gateway.outbound.client import Answer, Outbound
from webhooks.delivery.caps.body_memory import BodyMemory
from webhooks.delivery.claiming.claim_statements import Claimed
from webhooks.delivery.outcomes.attempt_log import log_entry
from webhooks.delivery.outcomes.failed_answers import AnswerAllowance
from webhooks.delivery.outcomes.outcome_statements import Outcome
from webhooks.delivery.outcomes.retry import Decision, decide, put_off, schedule
from webhooks.events.envelope import Envelope
from webhooks.requests.delivery_span import delivery_span, note_answer
from webhooks.requests.signed_request import body_of, delivery_headers


class Attempts:
    """The attempts of one dispatcher.

    `on_answer` is called with each answer, the receiver's or that the egress proxy failed. `on_first` is called for
    each first attempt that reached the receiver, with the seconds from its delivery's making to its begin.
    """

    def __init__(
        self, outbound: Outbound, *, on_answer: Callable[[Answer], None], on_first: Callable[[float], None]
    ) -> None:
        self._outbound = outbound
        self._on_answer, self._on_first = on_answer, on_first
        self._schedule = schedule()
        self._bodies = BodyMemory()
        """The bodies that are assembled."""
        self._body_freed = asyncio.Event()

    async def attempt(self, delivery: Claimed, answers: AnswerAllowance) -> Outcome:
        """Send a delivery, once the memory for its body is free. `answers` bounds what is kept of its endpoint's."""
        tenant_id, size = delivery.tenant_id, delivery.size
        while not self._bodies.fits(tenant_id, size):
            self._body_freed.clear()
            await self._body_freed.wait()
        self._bodies.add(tenant_id, size)
        try:
            return await self._attempt(delivery, answers)
        finally:
            self._bodies.remove(tenant_id, size)
            self._body_freed.set()

    async def _attempt(self, delivery: Claimed, answers: AnswerAllowance) -> Outcome:
        if delivery.envelope is None:
            return Outcome(
                delivery_id=delivery.id,
                endpoint_id=delivery.endpoint_id,
                attempts_before=delivery.attempts,
                decision=Decision("dead"),
                error="payload_expired",
            )
        timestamp = delivery.claimed_at.timestamp() + time.monotonic() - delivery.claimed_monotonic
        answer = await self._post(delivery, delivery.envelope, int(timestamp))
        self._on_answer(answer)
        if not answer.concerns_receiver:
            return Outcome(
                delivery_id=delivery.id,
                endpoint_id=delivery.endpoint_id,
                attempts_before=delivery.attempts,
                decision=put_off(delivery.attempts),
                error=answer.error,
                is_awaited=delivery.is_ordered,
            )
        if delivery.attempts == 0:
            self._on_first(max(0.0, timestamp - ids.milliseconds(delivery.id) / 1000))
        at = isoformat_of(int(timestamp * 1000))
        return Outcome(
            delivery_id=delivery.id,
            endpoint_id=delivery.endpoint_id,
            attempts_before=delivery.attempts,
            decision=decide(answer, attempt=delivery.attempts + 1, steps=self._schedule),
            answer=answer,
            log_entry=log_entry(answer, at),
            kept=answers.kept(answer, at),
            probe=delivery.probe,
            circuit_generation=delivery.circuit_generation,
            is_awaited=delivery.is_ordered,
        )

    async def _post(self, delivery: Claimed, event: Envelope, timestamp: int) -> Answer:
        """Sign a delivery's request as of a Unix time, and send it."""
        body = body_of(event, delivery.target)
        with delivery_span(
            event,
            delivery_id=delivery.id,
            endpoint_id=delivery.endpoint_id,
            tenant_id=delivery.tenant_id,
            event_type=delivery.event_type,
            attempt=delivery.attempts + 1,
        ) as span:
            answer = await self._outbound.post(
                delivery.target.url,
                body,
                delivery_headers(
                    delivery.target,
                    delivery_id=delivery.id,
                    message_id=event.id,
                    event_type=delivery.event_type,
                    attempt=delivery.attempts + 1,
                    timestamp=timestamp,
                    body=body,
                    traceparent=span.traceparent,
                ),
                total_timeout=delivery.target.timeout,
            )
            note_answer(span, answer)
        return answer
