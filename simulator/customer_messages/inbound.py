"""Messages from customers. `receive` stores a message and sends the `messages` notification (upstream fact 3.4).

Called by `POST /sim/inbound` and by the phone page. The business identifies a customer by phone, by phone and
business-scoped user id, or only by user id (`simulator/customers.py`).
"""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

from simulator.customer_messages.samples import sample
from simulator.customers import contact, names, remember
from simulator.errors import status_error
from simulator.media_urls import media_url
from simulator.parts import Simulator
from simulator.world.identifiers import customer_name, message_id
from simulator.world.records import MEDIA_TYPES, Account, Message, Number

Source = Mapping[str, Any]
INBOUND_DAYS = 7
"""How many days a customer's file is kept (upstream fact 1.2)."""


def receive(sim: Simulator, source: Source) -> Message:
    """Receive a message from a customer. Raises `KeyError` for an unknown number, `ValueError` for an invalid
    message.

    Members: phone_number_id, from (phone or user id), type, the object of that type (or a simple text), name,
    username, identity, context, referral, errors, id, timestamp. Without `type`, the type is that of the given object.
    """
    number = sim.state.numbers.get(str(source.get("phone_number_id", "")))
    if number is None:
        raise KeyError("such phone number")
    account = sim.state.accounts[number.waba_id]
    customer = remember(sim.state, account, source)
    kind = str(
        source.get("type") or next((kind for kind in _BUILDERS if kind in source and kind != "text"), "text")
    )
    build = _BUILDERS.get(kind)
    if build is None and kind not in source:
        raise ValueError(f"type is one of {', '.join(_BUILDERS)}, or any other with its object")
    given = str(source["id"]) if source.get("id") else message_id(customer, inbound=True)
    message: dict[str, Any] = {}
    if source.get("context"):
        message["context"] = _context(sim, number, source["context"])
    message.update(_sender(sim, account, customer))
    message.update(id=given, timestamp=str(source.get("timestamp") or int(time.time())), type=kind)
    message.update(build(sim, number, source) if build else {kind: source[kind]})
    for extra in ("referral", "errors", "group_id"):
        if extra in source:
            message[extra] = source[extra]
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": number.digits, "phone_number_id": number.id},
    }
    if kind != "system":
        value["contacts"] = [contact(sim.state, account, customer)]
    value["messages"] = [message]
    # A message in a group is of the group's conversation, and opens the group's window.
    chat = str(message.get("group_id") or customer)
    stored = Message(given, number.id, chat, "inbound", time.time(), message, "received")
    if kind == "reaction":
        sim.react(message["reaction"])
    if kind in {"edit", "revoke"}:
        _change_original(sim, number, chat, message)
    else:
        sim.add_message(stored)
    if account.subscribed:
        sim.notifier.publish(waba_id=account.waba_id, field="messages", value=value)
    return stored


def prefer(sim: Simulator, source: Source) -> str:
    """Stop or resume a number's marketing messages as a customer (upstream fact 3.7). Returns the customer.

    Members: phone_number_id, from, value. Raises the errors of `receive`.
    """
    number = sim.state.numbers.get(str(source.get("phone_number_id", "")))
    if number is None:
        raise KeyError("such phone number")
    value = source.get("value")
    if value not in {"stop", "resume"}:
        raise ValueError("value is stop or resume")
    account = sim.state.accounts[number.waba_id]
    customer = remember(sim.state, account, source)
    wa_id, user_id = names(sim.state, account, customer)
    preference: dict[str, Any] = {
        **({"wa_id": wa_id} if wa_id else {}),
        **({"user_id": user_id} if user_id else {}),
        "detail": f"User requested to {value} marketing messages",
        "category": "marketing_messages",
        "value": value,
        "timestamp": int(time.time()),
    }
    if account.subscribed:
        sim.notifier.publish(
            waba_id=account.waba_id,
            field="user_preferences",
            value={
                "messaging_product": "whatsapp",
                "metadata": {"display_phone_number": number.digits, "phone_number_id": number.id},
                "contacts": [contact(sim.state, account, customer)],
                "user_preferences": [preference],
            },
        )
    return customer


def _change_original(sim: Simulator, number: Number, chat: str, message: dict[str, Any]) -> None:
    """Apply an `edit` or a `revoke` to the original message. Raises `ValueError` if this message does not exist in the
    conversation with the customer or the group.
    """
    kind = message["type"]
    original = sim.state.messages.get(message[kind]["original_message_id"])
    if original is None or (original.phone_number_id, original.customer, original.direction) != (
        number.id,
        chat,
        "inbound",
    ):
        raise ValueError(f"{kind}.original_message_id names no message of this customer")
    if kind == "revoke":
        original.change = "deleted"
    else:
        original.change = "edited"
        new = {name: value for name, value in message["edit"]["message"].items() if name != "context"}
        original.body = {**original.body, **new}
    sim.message_changed(original)


def _sender(sim: Simulator, account: Account, customer: str) -> dict[str, str]:
    wa_id, user_id = names(sim.state, account, customer)
    sender = {"from": wa_id, "from_user_id": user_id}
    return {member: value for member, value in sender.items() if value}


def _writer(target: Message) -> str:
    return str(target.body.get("from") or target.body.get("from_user_id") or target.customer)


def _context(sim: Simulator, number: Number, given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        given = {"id": given}
    context = dict(given)
    target = sim.state.messages.get(str(context.get("id", "")))
    if target is not None and "from" not in context:
        context["from"] = number.digits if target.direction == "outbound" else _writer(target)
    return context


def _text(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    text = source.get("text", "Hello")
    return {"text": text if isinstance(text, dict) else {"body": str(text)}}


def _media(kind: str) -> Callable[[Simulator, Number, Source], dict[str, Any]]:
    def build(sim: Simulator, number: Number, source: Source) -> dict[str, Any]:
        given = dict(source.get(kind) or {})
        encoded = given.pop("data", None)
        data, mime_type, filename = sample(kind)
        if encoded is not None:
            data = base64.b64decode(str(encoded), validate=True)
        mime_type, filename = given.pop("mime_type", mime_type), given.pop("filename", filename)
        media = sim.state.media.store(
            number, data=data, mime_type=mime_type, filename=filename, days=INBOUND_DAYS, is_received=True
        )
        content: dict[str, Any] = {
            **given,
            "mime_type": mime_type,
            "sha256": base64.b64encode(media.sha256).decode(),
        }
        content["id"] = media.id
        content["url"] = media_url(sim, media)
        if kind == "document":
            content["filename"] = filename
        elif kind == "audio":
            content.setdefault("voice", True)
        elif kind == "sticker":
            content.setdefault("animated", False)
        return {kind: content}

    return build


def _location(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    default = {
        "latitude": 12.9716,
        "longitude": 77.5946,
        "name": "Cubbon Park",
        "address": "Bengaluru, Karnataka",
    }
    return {"location": source.get("location") or default}


def _contacts(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    card = {
        "name": {"formatted_name": "Ravi Kumar", "first_name": "Ravi", "last_name": "Kumar"},
        "phones": [{"phone": "+91 98111 22233", "wa_id": "919811122233", "type": "CELL"}],
    }
    return {"contacts": source.get("contacts") or [card]}


def _interactive(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    default = {"type": "button_reply", "button_reply": {"id": "yes", "title": "Yes"}}
    return {"interactive": source.get("interactive") or default}


def _button(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    return {"button": source.get("button") or {"payload": "stop", "text": "Stop"}}


def _reaction(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    reaction = source.get("reaction")
    if not isinstance(reaction, dict) or not reaction.get("message_id"):
        raise ValueError("reaction needs message_id and, unless it is taken back, emoji")
    return {"reaction": reaction}


def _edit(sim: Simulator, number: Number, source: Source) -> dict[str, Any]:
    edit = source.get("edit")
    if not isinstance(edit, dict) or not isinstance(edit.get("original_message_id"), str):
        raise ValueError("edit needs original_message_id")
    new = edit.get("message")
    if new is None and "text" in source:
        new = {"type": "text", **_text(sim, number, source)}
    if not isinstance(new, dict) or not isinstance(new.get("type"), str) or new["type"] not in new:
        raise ValueError("edit needs message, with its type and the object of that type, or text")
    message = {"context": {"id": edit["original_message_id"]}, **new}
    return {"edit": {"original_message_id": edit["original_message_id"], "message": message}}


def _revoke(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    revoke = source.get("revoke")
    if not isinstance(revoke, dict) or not isinstance(revoke.get("original_message_id"), str):
        raise ValueError("revoke needs original_message_id")
    return {"revoke": {"original_message_id": revoke["original_message_id"]}}


def _order(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    item = {"product_retailer_id": "SKU-1", "quantity": 2, "item_price": 12.5, "currency": "INR"}
    return {
        "order": source.get("order") or {"catalog_id": "700000000000001", "text": "", "product_items": [item]}
    }


def _system(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    system = source.get("system")
    if isinstance(system, dict) and "body" in system:
        return {"system": system}
    old = str(source.get("from"))
    new = str((system or {}).get("wa_id") or "919822222222")
    return {
        "system": {
            "body": f"User {customer_name(old)} changed from {old} to {new}",
            "type": "user_changed_number",
            "wa_id": new,
            **(system or {}),
        }
    }


def _unsupported(_: Simulator, __: Number, source: Source) -> dict[str, Any]:
    error = status_error(131051, "Message type is currently not supported.")
    error["title"] = error["message"] = "Message type unknown"
    del error["href"]
    return {"errors": [error], "unsupported": source.get("unsupported") or {"type": "unknown"}}


_BUILDERS: dict[str, Callable[[Simulator, Number, Source], dict[str, Any]]] = {
    "text": _text,
    **{kind: _media(kind) for kind in MEDIA_TYPES},
    "location": _location,
    "contacts": _contacts,
    "interactive": _interactive,
    "button": _button,
    "reaction": _reaction,
    "edit": _edit,
    "revoke": _revoke,
    "order": _order,
    "system": _system,
    "unsupported": _unsupported,
}
