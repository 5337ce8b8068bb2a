"""Spans of deliveries: each attempt is a span under its event's, and its receiver gets it as `traceparent`."""

from uuid import UUID

from gateway import ids
from gateway.monitoring import tracing
from gateway.monitoring.spans import OFF, Span
from gateway.outbound.client import Answer
from webhooks.events.envelope import Envelope


def delivery_span(
    event: Envelope, *, delivery_id: UUID, endpoint_id: UUID, tenant_id: UUID, event_type: str, attempt: int
) -> Span:
    """The span of one attempt. The endpoint's address is left out: customers put secrets into theirs."""
    if not tracing.is_on():
        return OFF
    return tracing.span(
        f"deliver {event_type}",
        "producer",
        parent=event.traceparent,
        attributes={
            "gateway.tenant.id": str(tenant_id),
            "gateway.event.id": event.id,
            "gateway.event.type": event_type,
            "gateway.delivery.id": ids.encode(ids.DELIVERY, delivery_id),
            "gateway.delivery.attempt": attempt,
            "gateway.endpoint.id": str(endpoint_id),
        },
    )


def note_answer(span: Span, answer: Answer) -> None:
    """Note how the receiver answered."""
    span.note("http.response.status_code", answer.status)
    if answer.error is not None:
        span.failed(answer.error)
