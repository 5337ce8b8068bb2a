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
from phone_numbers.lookup import Sender
from webhooks.events.members import NewEvent


def outbound_event(
    *,
    number: Sender,
    sent: bytes,
    response: bytes,
    http_status: int | None,
    id: UUID | None = None,  # noqa: A002 - the event's own name for it
    dedupe_key: str | None = None,
    batch_id: str | None = None,
    idx: int | None = None,
) -> NewEvent:
    """The event of a message that was sent, or may have been.

    `response` is JSON. One without a message id is known by the event's own id.
    """
    try:
        value = orjson.loads(response)
    except orjson.JSONDecodeError:
        value = {}
    event_id = id or ids.uuid7()
    contact = _first(value, "contacts")
    wamid = text(_first(value, "messages").get("id"))
    tail = orjson.dumps({"http_status": http_status, "batch_id": batch_id, "idx": idx})
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
    )


def outcome_unknown(details: dict[str, Any]) -> bytes:
    """What stands in the place of an answer that is not known (decision "Batches")."""
    message = "The upstream's answer is not known: watch for a message.status event before sending again."
    error = {"code": "outcome_unknown", "message": message, "details": details}
    return orjson.dumps({"source": settings.SERVICE_NAME, "error": error})


def _dedupe_key(wamid: str | None, event_id: UUID) -> str:
    key = f"out:{wamid or event_id}"
    return key if len(key) <= LONGEST_COLUMN else f"out:{hashlib.sha256(key.encode()).hexdigest()}"


def _first(value: Any, name: str) -> dict[str, Any]:
    items = value.get(name) if isinstance(value, dict) else None
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}
