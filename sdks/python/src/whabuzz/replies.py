"""Replies: a customer's choice, and the body of a reply to the customer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from whabuzz import types
from whabuzz.errors import WhabuzzError


@dataclass(frozen=True)
class Choice:
    """A customer's choice. `id` is the id of the button or list row, or the payload of a template's quick reply."""

    id: str
    title: str


def choice_of(event: types.MessageInboundEvent) -> Choice | None:
    """The customer's choice among buttons, list rows or a template's quick replies. None for any other message."""
    message: Any = event["data"]["message"]
    if message["type"] == "button":
        return Choice(message["button"].get("payload", ""), message["button"].get("text", ""))
    interactive = message.get("interactive") or {}
    chosen = interactive.get("button_reply") or interactive.get("list_reply")
    return Choice(chosen["id"], chosen.get("title", "")) if chosen else None


def reply_body(
    event: types.MessageInboundEvent, content: str | Mapping[str, Any], *, quote: bool = False
) -> types.OutgoingMessage:
    """The message that answers an inbound message. Raises WhabuzzError when the event names no customer.

    `content` is a text, or a message without `from` and `to`: `type` and the member of that name. If the customer's
    phone number is unknown, the reply goes to the business-scoped user id. With `quote`, the reply quotes the message.
    """
    message = event["data"]["message"]
    body: dict[str, Any] = {"from": event["phone_number_id"]}
    customer, user_id = message.get("from"), message.get("from_user_id") or event.get("user_id")
    if customer:
        # Without `+`, WhatsApp prepends the business's own country code to a full number of up to ten digits.
        body["to"] = f"+{customer}"
    elif user_id:
        body["recipient"] = user_id
    else:
        raise WhabuzzError("The event names no customer.")
    if quote:
        body["context"] = {"message_id": message["id"]}
    body.update({"type": "text", "text": {"body": content}} if isinstance(content, str) else content)
    return cast("types.OutgoingMessage", body)


def reply_key(event: types.MessageInboundEvent, name: str = "") -> str:
    """The idempotency key of a reply. So an event that is delivered twice within 24 hours is answered once."""
    return f"reply:{event['id']}" + (f":{name}" if name else "")
