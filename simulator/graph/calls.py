"""Calls of a number: started by a customer or over the Graph API, accepted, ended (upstream facts 3.11 and 3.16).

The control API plays the customer: `/sim/calls`. No audio is transported; the SDP is a sample.
"""

import asyncio
import secrets
import time
from typing import Any

from aiohttp import web

from simulator.control.views import answer, read, refusals, require_account
from simulator.customers import contact, names, remember
from simulator.errors import GraphError, invalid_parameter
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.schema import Row, coerced
from simulator.parts import SIMULATOR, Simulator
from simulator.world.records import Number

_ACTIONS = frozenset({"connect", "pre_accept", "accept", "reject", "terminate"})
OF_CUSTOMERS = ("hang_up", "accept", "reject")
RING_SECONDS = 60.0
"""How long a call rings. Meta's page "User-initiated calls" says 30 to 60 seconds."""
_SDP = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"
_BUSINESS, _USER = "BUSINESS_INITIATED", "USER_INITIATED"


async def call_customer(call: Call) -> Row:
    """POST /{number}/calls: `connect` starts a call that rings. The other actions need an existing call."""
    number, params = call.sending_number(), call.params()
    action = text_of(params, "action")
    if action not in _ACTIONS:
        raise invalid_parameter(f"Param action must be one of {{{', '.join(sorted(_ACTIONS))}}}")
    if action != "connect":
        row = _calls(call.sim, number).get(text_of(params, "call_id"))
        if row is None:
            raise GraphError(100, "There is no such call.")
        if "biz_opaque_callback_data" in params:
            row["data"] = str(params["biz_opaque_callback_data"])
        if action == "accept":
            row["accepted_at"] = time.time()
        elif action in {"reject", "terminate"}:
            _end(call.sim, number, row)
        return {"messaging_product": "whatsapp", "success": True}
    given = params.get("to") or params.get("recipient")
    if not given:
        raise invalid_parameter("The parameter to is required.")
    coerced("object", "session", params.get("session"))
    account = call.sim.state.accounts[number.waba_id]
    customer = remember(call.sim.state, account, {"from": str(given)})
    row = _begin(call.sim, number, customer, _BUSINESS)
    if "biz_opaque_callback_data" in params:
        row["data"] = str(params["biz_opaque_callback_data"])
    _publish_status(call.sim, number, row, "RINGING")
    return {"messaging_product": "whatsapp", "calls": [{"id": row["id"]}]}


async def call_permissions(call: Call) -> Row:
    """GET /{number}/call_permissions: every customer permits calls."""
    number = call.number()
    if not (call.params().get("user_wa_id") or call.params().get("recipient")):
        raise invalid_parameter("The parameter user_wa_id is required.")
    begun = len(_calls(call.sim, number))
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


def _calls(sim: Simulator, number: Number) -> dict[str, Row]:
    """The number's calls that have not ended, by id."""
    return sim.state.objects.setdefault(f"{number.id}/calls", {})


def _begin(sim: Simulator, number: Number, customer: str, direction: str) -> Row:
    row: Row = {"id": f"wacid.{secrets.token_urlsafe(24)}", "customer": customer, "direction": direction}
    _calls(sim, number)[row["id"]] = row
    asyncio.get_running_loop().call_later(RING_SECONDS, _give_up, sim, number, row)
    return row


def _give_up(sim: Simulator, number: Number, row: Row) -> None:
    if row["id"] in _calls(sim, number) and "accepted_at" not in row:
        _end(sim, number, row)


def _end(sim: Simulator, number: Number, row: Row) -> None:
    """End a call: COMPLETED if it was accepted, else FAILED."""
    del _calls(sim, number)[row["id"]]
    ended: Row = {"status": "FAILED"}
    if "accepted_at" in row:
        start, end = int(row["accepted_at"]), int(time.time())
        ended = {
            "status": "COMPLETED",
            "start_time": str(start),
            "end_time": str(end),
            "duration": end - start,
        }
    if "data" in row:
        ended["biz_opaque_callback_data"] = row["data"]
    _publish_call(sim, number, row, "terminate", **ended)


def _publish_call(sim: Simulator, number: Number, row: Row, event: str, **more: Any) -> None:
    account = sim.state.accounts[number.waba_id]
    wa_id, user_id = names(sim.state, account, row["customer"])
    theirs, ours = ("from", "to") if row["direction"] == _USER else ("to", "from")
    sides = {theirs: wa_id, ours: number.digits, f"{theirs}_user_id": user_id}
    parties = {name: value for name, value in sides.items() if value}
    item = {"id": row["id"], **parties, "event": event, "timestamp": str(int(time.time()))}
    contacts = [contact(sim.state, account, row["customer"])]
    _publish(sim, number, contacts=contacts, calls=[{**item, "direction": row["direction"], **more}])


def _publish_status(sim: Simulator, number: Number, row: Row, status: str) -> None:
    account = sim.state.accounts[number.waba_id]
    wa_id, user_id = names(sim.state, account, row["customer"])
    item = {"id": row["id"], "type": "call", "status": status, "timestamp": str(int(time.time()))}
    recipient = {"recipient_id": wa_id, "recipient_user_id": user_id}
    _publish(sim, number, statuses=[{**item, **{name: value for name, value in recipient.items() if value}}])


def _publish(sim: Simulator, number: Number, **lists: Any) -> None:
    metadata = {"display_phone_number": number.digits, "phone_number_id": number.id}
    value = {"messaging_product": "whatsapp", "metadata": metadata, **lists}
    sim.notifier.publish(waba_id=number.waba_id, field="calls", value=value)


async def ring(request: web.Request) -> web.Response:
    """POST /sim/calls {phone_number_id, from, name?, identity?}: call the business as a customer."""
    sim, body = request.app[SIMULATOR], await read(request)
    number = sim.state.numbers.get(str(body.get("phone_number_id", "")))
    if number is None:
        raise KeyError("such phone number")
    customer = remember(sim.state, sim.state.accounts[number.waba_id], body)
    sim.state.messages.open_window(number.id, customer, time.time())
    row = _begin(sim, number, customer, _USER)
    _publish_call(sim, number, row, "connect", session={"sdp_type": "offer", "sdp": _SDP})
    return answer(_view(number, row), status=201)


async def list_calls(request: web.Request) -> web.Response:
    """GET /sim/calls?phone_number_id=: list the number's calls that have not ended."""
    sim = request.app[SIMULATOR]
    number = sim.state.numbers.get(request.query.get("phone_number_id", ""))
    if number is None:
        raise KeyError("such phone number")
    return answer({"data": [_view(number, row) for row in _calls(sim, number).values()]})


async def act(request: web.Request) -> web.Response:
    """POST /sim/calls/{id} {action, waba_id?}: act as the customer: `hang_up`, or `accept` or `reject` a call from
    the business.
    """
    sim, body = request.app[SIMULATOR], await read(request)
    call_id, action = request.match_info["call_id"], body.get("action")
    objects, numbers = sim.state.objects, sim.state.numbers.values()
    number = next((each for each in numbers if call_id in objects.get(f"{each.id}/calls", {})), None)
    if number is None:
        raise KeyError("such call")
    require_account(body, number.waba_id, "call")
    row = _calls(sim, number)[call_id]
    if action not in OF_CUSTOMERS or (action != "hang_up" and row["direction"] == _USER):
        raise ValueError("action is hang_up; of a call to the customer also accept or reject")
    if action == "accept":
        # A customer's call, and a customer's acceptance of a call, open the window for messages, too.
        sim.state.messages.open_window(number.id, row["customer"], time.time())
        row["accepted_at"] = time.time()
        _publish_status(sim, number, row, "ACCEPTED")
        _publish_call(sim, number, row, "connect", session={"sdp_type": "answer", "sdp": _SDP})
    else:
        if action == "reject":
            _publish_status(sim, number, row, "REJECTED")
        _end(sim, number, row)
    return answer(_view(number, row))


def _view(number: Number, row: Row) -> Row:
    return {
        "id": row["id"],
        "phone_number_id": number.id,
        "customer": row["customer"],
        "is_incoming": row["direction"] == _BUSINESS,
        "is_accepted": "accepted_at" in row,
    }


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "calls", call_customer)
    table.edge("GET", "call_permissions", call_permissions)


def add_routes(app: web.Application) -> None:
    """Register the customer's routes in the application."""
    for method, path, handler in (
        ("POST", "/sim/calls", ring),
        ("GET", "/sim/calls", list_calls),
        ("POST", "/sim/calls/{call_id}", act),
    ):
        app.router.add_route(method, path, refusals(handler))
