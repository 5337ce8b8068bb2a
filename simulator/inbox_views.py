"""The webhook inbox: simulated servers of tenants, which receive the gateway's deliveries at `POST /inbox/{name}`.

An inbox answers the verify ping, checks Standard Webhooks signatures with the registered secrets, fails on request,
and shows the deliveries on a page. Tests and benchmarks read the deliveries at `/sim/inboxes/…` (`docs/simulator.md`).
"""

import asyncio
import contextlib
import gzip
import time

import orjson
from aiohttp import web

from simulator.control.views import answer as as_json
from simulator.control.views import read, refusals
from simulator.event_stream import Channel
from simulator.faults import hang, reset
from simulator.parts import SIMULATOR
from simulator.world.inbox_store import Delivery, Inbox, check_signature

_DRIP_SECONDS = 120
_BIG_BYTES = 100 * 1024 * 1024
_OK = b'{"received":true}'

CHANNELS: web.AppKey[dict[str, Channel]] = web.AppKey("inbox_channels", dict)


async def receive(request: web.Request) -> web.StreamResponse:
    """POST /inbox/{name}: receive a delivery or a verify ping."""
    inboxes = request.app[SIMULATOR].inboxes
    inbox = inboxes.by_name.get(request.match_info["name"]) or inboxes.get(request.match_info["name"])
    body = await request.read()
    if inbox.count_only:
        event_id = request.headers.get("webhook-id", "")
        if event_id.startswith("evt_"):
            inbox.arrivals.append((event_id, time.time()))
            inbox.note(event_id, expected_status(inbox.mode))
            return await answer(inbox.mode, request)
    now = time.time()
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError:
        envelope = {}
    if not isinstance(envelope, dict):
        envelope = {}
    kind = str(envelope.get("type", ""))
    event_id = str(envelope.get("id") or headers.get("webhook-id", ""))
    is_ping = kind == "webhook.verify"
    status = (
        (200 if inbox.verify != "mode" else expected_status(inbox.mode))
        if is_ping
        else expected_status(inbox.mode)
    )
    verdict = check_signature(inbox.secrets, headers=headers, body=body, now=now)
    if is_ping:
        inbox.pings += 1
    else:
        inbox.note(event_id, status)
    delivery = Delivery(inbox.total + inbox.pings, now, event_id, kind, verdict, headers, body, status)
    inbox.add(delivery)
    channel = request.app[CHANNELS].get(inbox.name)
    if channel:
        channel.say({"delivery": delivery.view()})
    if is_ping and inbox.verify != "mode":
        return ping_answer(inbox, str(envelope.get("challenge", "")))
    return await answer(inbox.mode, request)


def ping_answer(inbox: Inbox, challenge: str) -> web.Response:
    """The answer to a verify ping: the challenge as JSON or plain text, or a wrong challenge."""
    if inbox.verify == "text":
        return web.Response(text=challenge)
    shown = challenge if inbox.verify == "json" else "not-the-challenge"
    return web.Response(body=orjson.dumps({"challenge": shown}), content_type="application/json")


def expected_status(mode: str) -> int | None:
    """The HTTP status of the answers in a mode. None for modes without a complete answer."""
    if mode.startswith("status:"):
        return int(mode.removeprefix("status:"))
    return {"redirect": 302, "gone": 410, "hang": None, "close": None, "drip": None}.get(mode, 200)


async def answer(mode: str, request: web.Request) -> web.StreamResponse:
    """Answer a delivery according to the inbox's mode."""
    kind, _, number = mode.partition(":")
    match kind:
        case "ok":
            return web.Response(body=_OK, content_type="application/json")
        case "status":
            return web.Response(status=int(number), text="as configured")
        case "slow":
            await asyncio.sleep(int(number) / 1000)
            return web.Response(body=_OK, content_type="application/json")
        case "redirect":
            return web.Response(status=302, headers={"Location": "/inbox/redirected"})
        case "gone":
            return web.Response(status=410, text="gone")
        case "gzip_bomb":
            zeros = gzip.compress(b"0" * _BIG_BYTES, 1)
            return web.Response(
                body=zeros, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"}
            )
        case "drip" | "big":
            return await _stream(request, drip=kind == "drip")
        case "hang":
            await hang(request, 120)
        case _:
            reset(request)
    return web.Response(status=499)


async def _stream(request: web.Request, *, drip: bool) -> web.StreamResponse:
    response = web.StreamResponse()
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        if drip:
            for _ in range(_DRIP_SECONDS):
                await response.write(b".")
                await asyncio.sleep(1)
        else:
            block = b"0" * 65536
            for _ in range(_BIG_BYTES // len(block)):
                await response.write(block)
        await response.write_eof()
    return response


def named(request: web.Request) -> Inbox:
    """The inbox in the path, created on first use."""
    return request.app[SIMULATOR].inboxes.get(request.match_info["name"])


async def configure(request: web.Request) -> web.Response:
    """PUT /sim/inboxes/{name} {secrets?, mode?, verify?, keep?, count_only?}: change the settings of an inbox."""
    inbox = request.app[SIMULATOR].inboxes.configure(request.match_info["name"], await read(request))
    return as_json(inbox.summary())


async def show(request: web.Request) -> web.Response:
    """GET /sim/inboxes/{name}?since=&type=&limit=: show counters and deliveries, newest first."""
    inbox = named(request)
    since, kind = int(request.query.get("since", "0")), request.query.get("type")
    limit = int(request.query.get("limit", "100"))
    wanted = (d for d in reversed(inbox.kept) if d.number > since and kind in {None, "", d.event_type})
    deliveries = [delivery.view() for delivery, _ in zip(wanted, range(limit), strict=False)]
    return as_json({**inbox.summary(), "timing": inbox.timing(), "deliveries": deliveries})


async def ids(request: web.Request) -> web.Response:
    """GET /sim/inboxes/{name}/ids: every event id with the number of times that it was accepted. Count-only inboxes
    add arrival times.
    """
    inbox = named(request)
    return as_json({"ids": inbox.accepted, "arrivals": inbox.arrivals})


async def clear(request: web.Request) -> web.Response:
    """DELETE /sim/inboxes/{name}: delete deliveries and counters, keep secrets and mode."""
    inbox = named(request)
    inbox.clear()
    return as_json(inbox.summary())


async def index(request: web.Request) -> web.Response:
    """GET /sim/inboxes: list all inboxes."""
    return as_json({"data": [inbox.summary() for inbox in request.app[SIMULATOR].inboxes.by_name.values()]})


async def stream(request: web.Request) -> web.StreamResponse:
    """GET /sim/inboxes/{name}/stream: stream new deliveries as server-sent events."""
    return await request.app[CHANNELS].setdefault(request.match_info["name"], Channel()).stream(request)


async def close_streams(app: web.Application) -> None:
    """End the pages' streams when the server stops."""
    for channel in app[CHANNELS].values():
        channel.close()


def add_routes(app: web.Application) -> None:
    """Register the inbox in the application."""
    app[CHANNELS] = {}
    app.on_shutdown.append(close_streams)
    for method, path, handler in (
        ("POST", "/inbox/{name}", receive),
        ("GET", "/sim/inboxes", index),
        ("GET", "/sim/inboxes/{name}", show),
        ("PUT", "/sim/inboxes/{name}", configure),
        ("DELETE", "/sim/inboxes/{name}", clear),
        ("GET", "/sim/inboxes/{name}/ids", ids),
        ("GET", "/sim/inboxes/{name}/stream", stream),
    ):
        app.router.add_route(method, path, refusals(handler))
