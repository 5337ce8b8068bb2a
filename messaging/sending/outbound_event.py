"""The `message.outbound` event of a send, single or of a batch (specification 6; decision "Events").

The request's and the answer's own bytes are its `data`. Identifiers in the answer are the upstream's: they are stored
under the same guards as those of a notification, so that no answer makes an event that the database refuses.
"""

import hashlib
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings

from gateway import ids
from gateway.upstream.notifications.change import LONGEST_COLUMN, column
from gateway.upstream.notifications.lossless_json import text
from gateway.upstream.notifications.message_facts import MessageFacts, Status, content_of, error_code_of
from phone_numbers.lookup import Sender
from webhooks.events.new_event import NewEvent

OUTCOME_UNKNOWN = "outcome_unknown"


def outbound_event(
    *,
    number: Sender,
    sent: bytes,
    response: bytes,
    http_status: int | None,
    id: UUID | None = None,  # noqa: A002 - the event's own name for it
    dedupe_key: str | None = None,
    batch_id: UUID | None = None,
    idx: int | None = None,
    service_ms: float | None = None,
    upstream_ms: float | None = None,
) -> NewEvent:
    """The event of a message that was sent, or may have been.

    `response` is JSON. One without a message id is known by the event's own id.
    """
    value, message = object_in(response), object_in(sent)
    event_id = id or ids.uuid7()
    contact = _first(value, "contacts")
    wamid = text(_first(value, "messages").get("id"))
    batch = ids.encode(ids.BATCH, batch_id) if batch_id else None
    tail = orjson.dumps({"http_status": http_status, "batch_id": batch, "idx": idx})
    kind, template, language = content_of(message)
    return NewEvent(
        id=event_id,
        type="message.outbound",
        environment=number.environment,
        dedupe_key=dedupe_key or _dedupe_key(wamid, event_id),
        data=b'{"request":%b,"response":%b,%b' % (sent, response, tail[1:]),
        waba_id=number.waba_id,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.digits or None,
        wamid=column(wamid),
        wa_id=column(text(contact.get("wa_id"))),
        user_id=column(text(contact.get("user_id"))),
        message=MessageFacts(
            direction="outbound",
            status=_status(wamid, value),
            is_message=True,
            type=kind,
            template=template,
            template_language=language,
            error_code=error_code_of(value),
            batch_id=batch_id,
            idx=idx,
            service_ms=_whole(service_ms),
            upstream_ms=_whole(upstream_ms),
        ),
    )


def outcome_unknown(details: dict[str, Any]) -> bytes:
    """The response recorded when the upstream's answer is unknown (decision "Batches")."""
    message = "The upstream's answer is not known: watch for a message.status event before sending again."
    error = {"code": OUTCOME_UNKNOWN, "message": message, "details": details}
    return orjson.dumps({"source": settings.SERVICE_NAME, "error": error})


def _status(wamid: str | None, value: dict[str, Any]) -> Status:
    """An answer without a message id is a refusal when it holds an error; otherwise nobody knows."""
    if wamid is not None:
        return "accepted"
    error = value.get("error")
    return "failed" if isinstance(error, dict) and error.get("code") != OUTCOME_UNKNOWN else "unknown"


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else max(0, round(milliseconds))


def object_in(content: bytes) -> dict[str, Any]:
    """The object that a JSON text is; empty for anything else."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _dedupe_key(wamid: str | None, event_id: UUID) -> str:
    key = f"out:{wamid or event_id}"
    return key if len(key) <= LONGEST_COLUMN else f"out:{hashlib.sha256(key.encode()).hexdigest()}"


def _first(value: dict[str, Any], name: str) -> dict[str, Any]:
    items = value.get(name)
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}
