"""The aiohttp application: the Graph API, the control API, the inbox and the pages.

`__main__.py` serves it; tests build it with their own `Config`.
"""

import hmac
import re
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from simulator import conversations, flow_sessions, pages
from simulator import inbox_views as inbox
from simulator.config import Config
from simulator.control import accounts as control_accounts
from simulator.control import views as control
from simulator.graph import (
    accounts,
    analytics,
    calls,
    customer_payments,
    flows,
    groups,
    media,
    message_history,
    messages,
    numbers,
    oauth,
    profile,
    schema,
    templates,
    uploads,
)
from simulator.graph.dispatch import Graph, Table
from simulator.parts import SIMULATOR, Simulator
from simulator.payments import app as payments

_MAX_BODY = 32 * 1024 * 1024


def make_app(config: Config) -> web.Application:
    """Build the application with a fresh simulator in it."""
    app = web.Application(client_max_size=_MAX_BODY, middlewares=[_guarding(config.control_token)])
    sim = app[SIMULATOR] = Simulator(config)
    app.on_startup.append(_calling(sim.start))
    app.on_shutdown.append(_closing(sim))
    app.on_cleanup.append(_calling(sim.stop))

    table = Table()
    for module in (
        messages,
        oauth,
        accounts,
        numbers,
        profile,
        media,
        templates,
        uploads,
        flows,
        schema,
        groups,
        calls,
        analytics,
        customer_payments,
        message_history,
    ):
        module.register(table)
    app.router.add_route("*", r"/{version:v\d+\.\d+}/{rest:.*}", Graph(sim, table).handle)
    control.add_routes(app)
    control_accounts.add_routes(app)
    conversations.add_routes(app)
    flow_sessions.add_routes(app)
    calls.add_routes(app)
    media.add_routes(app)
    uploads.add_routes(app)
    inbox.add_routes(app)
    pages.add_routes(app)
    payments.add_routes(app)
    return app


_OPEN_PATHS = re.compile(r"/v\d+\.\d+/.*|/whatsapp_business/attachments/|/sim/health")
"""Paths that work without the control token: the Graph API and its files, which require an account's token, and the
health check. All other paths (pages, simulated sign-up, payments, inbox) require the control token.
"""


def _guarding(token: str) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        sent = request.headers.get("Authorization", "").encode()
        is_open = not token or _OPEN_PATHS.fullmatch(request.path) is not None
        if is_open or hmac.compare_digest(sent, f"Bearer {token}".encode()):
            return await handler(request)
        return web.json_response({"error": "this takes SIMULATOR_CONTROL_TOKEN"}, status=401)

    return guard


def _calling(step: Callable[[], Awaitable[None]]) -> Callable[[web.Application], Awaitable[None]]:
    async def call(_: web.Application) -> None:
        await step()

    return call


def _closing(sim: Simulator) -> Callable[[web.Application], Awaitable[None]]:
    async def close(_: web.Application) -> None:
        sim.chats.close()

    return close
