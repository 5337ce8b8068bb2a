"""Calls of a number: begun and answered over the Graph API, and what a customer permits (upstream fact 3.11)."""

import secrets
import time

from simulator.errors import GraphError, invalid_parameter
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.schema import Row, coerced
from simulator.world.identifiers import digits_of

_ACTIONS = frozenset({"connect", "pre_accept", "accept", "reject", "terminate"})


async def call_customer(call: Call) -> Row:
    """POST /{number}/calls: `connect` begins a call that rings; the other actions are of one that exists."""
    number, params = call.sending_number(), call.params()
    action = text_of(params, "action")
    if action not in _ACTIONS:
        raise invalid_parameter(f"Param action must be one of {{{', '.join(sorted(_ACTIONS))}}}")
    calls = call.sim.state.objects.setdefault(f"{number.id}/calls", {})
    if action != "connect":
        if text_of(params, "call_id") not in calls:
            raise GraphError(100, "There is no such call.")
        if action in {"reject", "terminate"}:
            del calls[str(params["call_id"])]
        return {"messaging_product": "whatsapp", "success": True}
    if not params.get("to") and not params.get("recipient"):
        raise invalid_parameter("The parameter to is required.")
    coerced("object", "session", params.get("session"))
    call_id = f"wacid.{secrets.token_urlsafe(24)}"
    calls[call_id] = {"to": params.get("to") or params.get("recipient")}
    status = {"id": call_id, "type": "call", "status": "RINGING", "timestamp": str(int(time.time()))}
    if params.get("to"):
        status["recipient_id"] = digits_of(str(params["to"]))
    metadata = {"display_phone_number": number.digits, "phone_number_id": number.id}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "statuses": [status]}
    call.sim.notifier.publish(waba_id=number.waba_id, field="calls", value=value)
    return {"messaging_product": "whatsapp", "calls": [{"id": call_id}]}


async def call_permissions(call: Call) -> Row:
    """GET /{number}/call_permissions: every customer permits calls."""
    number = call.number()
    if not (call.params().get("user_wa_id") or call.params().get("recipient")):
        raise invalid_parameter("The parameter user_wa_id is required.")
    begun = len(call.sim.state.objects.get(f"{number.id}/calls", {}))
    day = {"time_period": "PT24H", "max_allowed": 5, "current_usage": min(begun, 5)}
    asked = {"time_period": "PT24H", "max_allowed": 1, "current_usage": 0}
    return {
        "messaging_product": "whatsapp",
        "permission": {"status": "temporary", "expiration_time": int(time.time()) + 7 * 86400},
        "actions": [
            {"action_name": "send_call_permission_request", "can_perform_action": True, "limits": [asked]},
            {"action_name": "start_call", "can_perform_action": begun < 5, "limits": [day]},
        ],
    }


def register(table: Table) -> None:
    """Put these routes into the table."""
    table.edge("POST", "calls", call_customer)
    table.edge("GET", "call_permissions", call_permissions)
