"""The body that answers a customer's message: to the number that wrote, from the number that was written to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from whabuzz import types
from whabuzz.errors import WhabuzzError


def reply_body(
    event: types.MessageInboundEvent, content: str | Mapping[str, Any], *, quote: bool = False
) -> types.OutgoingMessage:
    """The message that answers an inbound one; a text, or a message without its address (`type` and its member).

    A customer who is known by username alone has no phone number: the answer goes to the business-scoped user id.
    """
    message = event["data"]["message"]
    body: dict[str, Any] = {"from": event["phone_number_id"]}
    customer, user_id = message.get("from"), message.get("from_user_id") or event.get("user_id")
    if customer:
        body["to"] = customer
    elif user_id:
        body["recipient"] = user_id
    else:
        raise WhabuzzError("The event names no customer.")
    if quote:
        body["context"] = {"message_id": message["id"]}
    body.update({"type": "text", "text": {"body": content}} if isinstance(content, str) else content)
    return cast("types.OutgoingMessage", body)


def reply_key(event: types.MessageInboundEvent, name: str = "") -> str:
    """The idempotency key of an answer: an event that is delivered twice is answered once."""
    return f"reply:{event['id']}" + (f":{name}" if name else "")
