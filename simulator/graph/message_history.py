"""The history of a number's sent messages, with the statuses of each (OAPI, "Message History")."""

import hashlib
from typing import Any

from simulator.errors import no_such_object
from simulator.graph.dispatch import Call, Table
from simulator.graph.fields import page
from simulator.graph.schema import Row, chosen
from simulator.world.records import Message

_STEPS = ("sent", "delivered", "read")


async def list_history(call: Call) -> Row:
    """GET /{number}/message_history: list the sent messages, newest first, or only the message `message_id`."""
    number, wanted = call.number(), call.params().get("message_id")
    sent = [
        message
        for message in call.sim.state.messages.newest_first(number.id)
        if message.direction == "outbound" and wanted in {None, message.id}
    ]
    return page(call, sent, lambda message: message.id, lambda message: chosen(call, _entry(call, message)))


async def list_events(call: Call) -> Row:
    """GET /{history entry}/events: list the statuses of one message."""
    for message in call.sim.state.messages.newest_first():
        if message.direction == "outbound" and _numeric(message.id) == call.node:
            call.account(call.sim.state.numbers[message.phone_number_id].waba_id)
            return page(call, _events(call, message), lambda event: event["id"], lambda event: event)
    raise no_such_object(call.node, "GET")


def _entry(call: Call, message: Message) -> Row:
    entry = _numeric(message.id)
    return {"id": entry, "message_id": message.id, "events": {"data": _events(call, message)}}


def _events(call: Call, message: Message) -> list[dict[str, Any]]:
    """The statuses of a message: the current status and the earlier ones."""
    steps = _STEPS[: _STEPS.index(message.status) + 1] if message.status in _STEPS else (message.status,)
    return [
        {
            "id": _numeric(f"{message.id}:{step}"),
            "delivery_status": step.upper(),
            "timestamp": int(message.timestamp),
            "application": {"id": call.sim.config.app_id},
        }
        for step in steps
    ]


def _numeric(text: str) -> str:
    return str(10**15 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big"))


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("GET", "message_history", list_history)
    table.edge("GET", "events", list_events)
