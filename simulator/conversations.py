"""Conversations from the customer's side, for the phone page and for tests (`docs/simulator.md`)."""

from itertools import islice
from typing import Any

from aiohttp import web

from simulator.app_data import echo
from simulator.control.views import answer, read, refusals, require_account
from simulator.customer_messages.inbound import prefer, receive
from simulator.customers import contact
from simulator.graph.media import send_bytes
from simulator.parts import SIMULATOR, Simulator
from simulator.world.records import Message


async def inbound(request: web.Request) -> web.Response:
    """POST /sim/inbound: a customer sends a message of any type."""
    message = receive(request.app[SIMULATOR], await read(request))
    return answer(message.view(), status=201)


async def preferences(request: web.Request) -> web.Response:
    """POST /sim/preferences: a customer stops or resumes marketing messages."""
    body = await read(request)
    customer = prefer(request.app[SIMULATOR], body)
    preference = {"phone_number_id": body["phone_number_id"], "customer": customer, "value": body["value"]}
    return answer(preference, status=201)


async def echoes(request: web.Request) -> web.Response:
    """POST /sim/echoes: the business writes a text in its WhatsApp Business app."""
    return answer(echo(request.app[SIMULATOR], await read(request)).view(), status=201)


async def list_messages(request: web.Request) -> web.Response:
    """GET /sim/messages?phone_number_id=&customer=&direction=&id=&limit=: list messages, newest first."""
    sim = request.app[SIMULATOR]
    query = request.query
    number, customer = query.get("phone_number_id"), query.get("customer")
    rows = (
        message
        for message in sim.state.messages.newest_first(number, customer)
        if customer in {None, message.customer}
        and query.get("direction") in {None, message.direction}
        and query.get("id") in {None, message.id}
    )
    shown = islice(rows, max(0, int(query.get("limit", "100"))))
    return answer({"total": len(sim.state.messages), "data": [message.view() for message in shown]})


async def list_conversations(request: web.Request) -> web.Response:
    """GET /sim/conversations?phone_number_id=: list customers with their last messages, newest first."""
    sim = request.app[SIMULATOR]
    limit = max(0, int(request.query.get("limit", "200")))
    found = sim.state.messages.latest(request.query.get("phone_number_id"), limit=limit)
    return answer({"data": [_conversation(sim, last) for last in found]})


def _conversation(sim: Simulator, last: Message) -> dict[str, Any]:
    account = sim.state.accounts[sim.state.numbers[last.phone_number_id].waba_id]
    return {
        "phone_number_id": last.phone_number_id,
        "customer": last.customer,
        "contact": contact(sim.state, account, last.customer),
        "last": last.view(),
    }


async def opened(request: web.Request) -> web.Response:
    """POST /sim/conversations/open {phone_number_id, customer}: open the chat as the customer, which marks its
    messages as read.
    """
    body = await read(request)
    request.app[SIMULATOR].statuses.opened(str(body.get("phone_number_id")), str(body.get("customer")))
    return answer({"opened": True})


async def change_status(request: web.Request) -> web.Response:
    """POST /sim/messages/{id}/status {status, code?, waba_id?}: send a status of a sent message, whatever its earlier
    statuses.
    """
    sim = request.app[SIMULATOR]
    body = await read(request)
    message = sim.state.messages.get(request.match_info["message_id"])
    if message is None or message.direction != "outbound":
        raise KeyError("such sent message")
    require_account(body, sim.state.numbers[message.phone_number_id].waba_id, "sent message")
    if body.get("status", "failed") == "failed":
        sim.statuses.fail(message, int(body.get("code", 131026)))
    else:
        sim.statuses.set(message, str(body["status"]))
    return answer(message.view())


async def media(request: web.Request) -> web.StreamResponse:
    """GET /sim/media/{id}?waba_id=: serve a stored file without a token, for the phone page."""
    found = request.app[SIMULATOR].state.media.get(request.match_info["media_id"])
    if found is None:
        raise KeyError("such media")
    require_account(request.query, found.waba_id, "media")
    return await send_bytes(request, found)


async def stream(request: web.Request) -> web.StreamResponse:
    """GET /sim/messages/stream: stream new and changed messages as server-sent events."""
    return await request.app[SIMULATOR].chats.stream(request)


def add_routes(app: web.Application) -> None:
    """Register these routes in the application."""
    for method, path, handler in (
        ("POST", "/sim/inbound", inbound),
        ("POST", "/sim/preferences", preferences),
        ("POST", "/sim/echoes", echoes),
        ("GET", "/sim/messages", list_messages),
        ("GET", "/sim/messages/stream", stream),
        ("POST", "/sim/messages/{message_id}/status", change_status),
        ("GET", "/sim/conversations", list_conversations),
        ("POST", "/sim/conversations/open", opened),
        ("GET", "/sim/media/{media_id}", media),
    ):
        app.router.add_route(method, path, refusals(handler))
