"""The ASGI application of a web process: it answers the busy routes itself and passes all others to Django.

It uses no framework, whose layers would cost more than the rest of a notification or a send.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.http import QueryDict

from gateway.api import event_loop
from gateway.api.call_log import Answering, check_version
from gateway.api.errors import InvalidRequest, MethodNotAllowed, Reply, as_service_error, error_reply
from gateway.api.middleware import API_PATHS
from gateway.loop_thread import Loop, keep_running
from gateway.monitoring import tracing
from messaging.cloud_api.parameters import graph_send
from web import event_stream, routes
from web.django_threads import DjangoThreads
from web.event_stream import StreamReply
from web.request import AsgiScope, ClientGone, Receive, Request, Send, send_head, send_whole

Handler = Callable[[Request], Awaitable[Reply | StreamReply]]


class Route(NamedTuple):
    """A route of the listener. If Django has the path too, it answers all other methods."""

    handlers: Mapping[str, Handler]
    is_shared: bool = False


ROUTES: Mapping[str, Route] = {
    "/upstream/webhook": Route({"GET": routes.subscribe, "POST": routes.accept_notification}),
    "/v1/messages": Route({"POST": routes.send_message}, is_shared=True),
    "/v1/messages/read": Route({"POST": routes.mark_read}),
    "/v1/events/stream": Route({"GET": event_stream.listen}),
    "/v1/health": Route({"GET": routes.health}),
    "/v1/health/live": Route({"GET": routes.live}),
    "/v1/health/ready": Route({"GET": routes.ready}),
}
_FLOW_PATH = re.compile(r"/upstream/flows/([0-9a-f]{32})")


class Application:
    """The application of one process, for one event loop, on which loops of other roles may run too."""

    def __init__(self, loops: Iterable[Loop] = ()) -> None:
        self._django = DjangoThreads()
        self._loops = list(loops)

    def stop(self) -> None:
        """Start to stop: end the event streams, and let the loops of the other roles finish."""
        event_stream.stop()
        for loop in self._loops:
            loop.stop()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif (handler := handler_of(scope["method"], scope["path"])) is not None:
            await answer(handler, scope, receive, send)
        else:
            await self._django.answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """The server's start and stop. Everything is closed after the last response."""
        await receive()
        event_loop.attach(asyncio.get_running_loop())
        ending = asyncio.Event()
        # Outside of the context of any request.
        running = [asyncio.create_task(keep_running(loop, ending), context=Context()) for loop in self._loops]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        ending.set()
        await asyncio.gather(*running)
        self._django.close()
        await close()
        event_loop.attach(None)
        await send({"type": "lifespan.shutdown.complete"})


async def close() -> None:
    """Close the resources of the listener's own routes."""
    await routes.close()
    await event_stream.close()


def handler_of(method: str, path: str) -> Handler | None:
    """The handler of a request on the event loop. None when Django answers."""
    route = ROUTES.get(path) or _flow_route(path)
    if route is None:
        send = graph_send(path) if method == "POST" else None
        return partial(routes.send_at_graph_path, send) if send is not None else None
    handler = route.handlers.get(method) or (route.handlers.get("GET") if method == "HEAD" else None)
    if handler is None and not route.is_shared:
        return _other_methods(route)
    return handler


def _flow_route(path: str) -> Route | None:
    """The route of a Flow endpoint's public address."""
    match = _FLOW_PATH.fullmatch(path)
    return Route({"POST": partial(routes.exchange_flow_data, UUID(match[1]))}) if match else None


def _other_methods(route: Route) -> Handler:
    allowed = sorted({*route.handlers, *(["HEAD"] if "GET" in route.handlers else []), "OPTIONS"})

    async def handler(request: Request) -> Reply:
        if request.method == "OPTIONS":
            return Reply(204, {"Allow": ", ".join(allowed)}, b"")
        raise MethodNotAllowed.of(*allowed)

    return handler


async def answer(handler: Handler, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Answer a request with a handler. Every error has the service's form."""
    answering = Answering(scope["method"], scope["path"])
    request = Request(scope, receive, answering.request_id)
    try:
        with tracing.serving(request.method, request.path, request.header(b"traceparent")) as span:
            reply = await _reply(handler, request)
            answering.note_span(
                span,
                caller=request.caller,
                status=reply.status if isinstance(reply, Reply) else 200,
                route=request.route,
            )
    except ClientGone:
        return
    finally:
        request.close()
    if isinstance(reply, StreamReply):
        await _send_stream(reply, request, answering, send)
    else:
        await _send(reply, request, answering, send)


async def _reply(handler: Handler, request: Request) -> Reply | StreamReply:
    try:
        if request.path.startswith(API_PATHS):
            check_version(request.header(b"x-service-version"))
        if b"%00" in request.query_string:
            named = [
                name
                for name, values in QueryDict(request.query_string).lists()
                if any("\0" in v for v in values)
            ]
            raise InvalidRequest(details={"fields": {name: ["Must not hold a U+0000."] for name in named}})
        return await handler(request)
    except ClientGone:
        raise
    except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; the unforeseen is logged
        return error_reply(as_service_error(exception), request.request_id)


async def _send(reply: Reply, request: Request, answering: Answering, send: Send) -> None:
    headers = answering.finish(
        status=reply.status, route=request.route, caller=request.caller, body=reply.body
    )
    own = {**headers, **request.admission_headers, **reply.headers}
    await send_whole(reply.status, own.items(), reply.body, request, send)


async def _send_stream(reply: StreamReply, request: Request, answering: Answering, send: Send) -> None:
    """Send a response without an end. Its log line is written at its beginning."""
    try:
        headers = answering.finish(status=200, route=request.route, caller=request.caller)
        own = {**headers, **request.admission_headers, **reply.headers}
        await send_head(200, own.items(), request, send)
        async with contextlib.aclosing(reply.chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await reply.ended()
