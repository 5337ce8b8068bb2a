"""Conversations seen from the customer's side: what the phone page shows and does, also for tests
(`docs/simulator.md`).
"""

from itertools import islice
from typing import Any

from aiohttp import web

from simulator.control.views import answer, read, refusals
from simulator.customers import contact
from simulator.graph.media import send_bytes
from simulator.inbound import receive
from simulator.parts import SIMULATOR, Simulator
from simulator.records import Message


async def inbound(request: web.Request) -> web.Response:
    """POST /sim/inbound: a customer sends a message of any type."""
    message = receive(request.app[SIMULATOR], await read(request))
    return answer(message.view(), status=201)


async def list_messages(request: web.Request) -> web.Response:
    """GET /sim/messages: newest first; ?phone_number_id= ?customer= ?direction= ?id= ?limit= filter."""
    sim = request.app[SIMULATOR]
    query = request.query
    number, customer, limit = (
        query.get("phone_number_id"),
        query.get("customer"),
        int(query.get("limit", "100")),
    )
    source: Any = sim.state.messages.values()
    if number and customer:
        source = sim.state.conversations.get((number, customer), ())
    rows = (
        message
        for message in reversed(source)
        if number in {None, message.phone_number_id}
        and customer in {None, message.customer}
        and query.get("direction") in {None, message.direction}
        and query.get("id") in {None, message.id}
    )
    return answer({"total": len(sim.state.messages), "data": [m.view() for m in islice(rows, max(0, limit))]})


async def list_conversations(request: web.Request) -> web.Response:
    """GET /sim/conversations?phone_number_id=: customers with their last message, newest first."""
    sim = request.app[SIMULATOR]
    wanted = request.query.get("phone_number_id")
    found = [
        _conversation(sim, number_id, customer, messages[-1])
        for (number_id, customer), messages in sim.state.conversations.items()
        if wanted in {None, number_id}
    ]
    found.sort(key=lambda row: -row["last"]["timestamp"])
    return answer({"data": found[: int(request.query.get("limit", "200"))]})


def _conversation(sim: Simulator, number_id: str, customer: str, last: Message) -> dict[str, Any]:
    account = sim.state.accounts[sim.state.numbers[number_id].waba_id]
    return {
        "phone_number_id": number_id,
        "customer": customer,
        "contact": contact(sim.state, account, customer),
        "last": last.view(),
    }


async def opened(request: web.Request) -> web.Response:
    """POST /sim/conversations/open {phone_number_id, customer}: the customer looks at the chat; it becomes
    read.
    """
    body = await read(request)
    request.app[SIMULATOR].statuses.opened(str(body.get("phone_number_id")), str(body.get("customer")))
    return answer({"opened": True})


async def fail(request: web.Request) -> web.Response:
    """POST /sim/messages/{id}/fail {code}: a failed status now, whatever went before."""
    sim = request.app[SIMULATOR]
    message = sim.state.messages.get(request.match_info["message_id"])
    if message is None or message.direction != "outbound":
        raise KeyError("such sent message")
    sim.statuses.fail(message, int((await read(request)).get("code", 131026)))
    return answer(message.view())


async def media(request: web.Request) -> web.StreamResponse:
    """GET /sim/media/{id}: a stored file without a token, for the phone page."""
    found = request.app[SIMULATOR].state.media.get(request.match_info["media_id"])
    if found is None:
        raise KeyError("such media")
    return await send_bytes(request, found)


async def stream(request: web.Request) -> web.StreamResponse:
    """GET /sim/messages/stream: new and changed messages as server-sent events."""
    return await request.app[SIMULATOR].chats.stream(request)


def add_routes(app: web.Application) -> None:
    """Put these routes into the application."""
    for method, path, handler in (
        ("POST", "/sim/inbound", inbound),
        ("GET", "/sim/messages", list_messages),
        ("GET", "/sim/messages/stream", stream),
        ("POST", "/sim/messages/{message_id}/fail", fail),
        ("GET", "/sim/conversations", list_conversations),
        ("POST", "/sim/conversations/open", opened),
        ("GET", "/sim/media/{media_id}", media),
    ):
        app.router.add_route(method, path, refusals(handler))
