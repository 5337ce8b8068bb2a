"""Data from the WhatsApp Business app of a coexistence number: contacts, old chats, and messages written in the app.

Called by the Graph edge `smb_app_data`, and by the control API for messages that the business writes in its app
(upstream fact 3.6).
"""

import time
from collections.abc import Mapping
from typing import Any

from simulator.customers import contact, is_phone, remember
from simulator.parts import Simulator
from simulator.world.identifiers import message_id
from simulator.world.records import Message, Number

_DAY = 86_400
_CHATS = (
    # Each chat: the customer, the phase of the sync, and its messages (age in days, author, text).
    ("919811100001", 0, ((0.2, "customer", "Are you open on Sunday?"), (0.19, "business", "Yes, from ten."))),
    ("919811100002", 0, ((0.5, "customer", "Thanks, it arrived."),)),
    ("919811100001", 1, ((20, "customer", "Do you deliver?"), (20, "business", "Yes, within the city."))),
    ("919811100003", 2, ((120, "business", "Happy Diwali!"), (119, "customer", "To you too!"))),
)
_PHASES = 3


def send(sim: Simulator, number: Number, kind: str) -> None:
    """Send the data requested at `smb_app_data`."""
    account = sim.state.accounts[number.waba_id]
    if not account.subscribed:
        return
    people = dict.fromkeys(customer for customer, _, _ in _CHATS)
    if kind == "smb_app_state_sync":
        changes = [
            {
                "type": "contact",
                "contact": {
                    "full_name": contact(sim.state, account, customer)["profile"]["name"],
                    "phone_number": customer,
                },
                "action": "add",
                "metadata": {"timestamp": str(int(time.time()))},
            }
            for customer in people
        ]
        _publish(sim, number, kind, {"state_sync": changes})
        return
    for phase in range(_PHASES):
        threads = [
            {"id": customer, "messages": [_old(number, customer, *said) for said in chat]}
            for customer, of_phase, chat in _CHATS
            if of_phase == phase
        ]
        progress = 100 * (phase + 1) // _PHASES
        metadata = {"phase": phase, "chunk_order": 1, "progress": progress}
        _publish(sim, number, kind, {"history": [{"metadata": metadata, "threads": threads}]})


def echo(sim: Simulator, source: Mapping[str, Any]) -> Message:
    """Send a text that the business writes in its app. Raises `KeyError` for an unknown number, `ValueError` without
    a text.

    Members: phone_number_id, to, text.
    """
    number = sim.state.numbers.get(str(source.get("phone_number_id", "")))
    if number is None or not number.is_on_biz_app:
        raise KeyError("such number of an app")
    said = source.get("text")
    if not isinstance(said, str) or not said:
        raise ValueError("text is required")
    account = sim.state.accounts[number.waba_id]
    customer = remember(sim.state, account, {"from": source.get("to")})
    given = message_id(customer, inbound=False)
    body = {"type": "text", "text": {"body": said}}
    item = {
        "from": number.digits,
        "to" if is_phone(customer) else "to_user_id": customer,
        "id": given,
        "timestamp": str(int(time.time())),
        **body,
    }
    stored = Message(given, number.id, customer, "outbound", time.time(), body, "delivered")
    sim.add_message(stored)
    if account.subscribed:
        _publish(sim, number, "smb_message_echoes", {"message_echoes": [item]})
    return stored


def _old(number: Number, customer: str, days: float, writer: str, said: str) -> dict[str, Any]:
    """A message of the old chats. It has the same id each time the chats are requested."""
    is_own = writer == "business"
    return {
        "from": number.digits if is_own else customer,
        **({"to": customer} if is_own else {}),
        "id": message_id(customer, inbound=not is_own, of=f"{number.id} {customer} {days} {said}"),
        "timestamp": str(int(time.time() - days * _DAY)),
        "type": "text",
        "text": {"body": said},
        "history_context": {"status": "READ"},
    }


def _publish(sim: Simulator, number: Number, field: str, value: dict[str, Any]) -> None:
    metadata = {"display_phone_number": number.digits, "phone_number_id": number.id}
    sim.notifier.publish(
        waba_id=number.waba_id,
        field=field,
        value={"messaging_product": "whatsapp", "metadata": metadata, **value},
    )
