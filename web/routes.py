"""The routes that the listener answers itself, and the ASGI application, which passes all others to Django.

The routes are notifications, Flow data, sends, read marks, health, and the event stream (`stream_response.py`). Their
handlers call the same flows as Django's views, on the event loop. They use no framework, because its layers would cost
more than all other work of a notification or a send.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.http import QueryDict

from gateway.api import event_loop, health_views
from gateway.api.access_log import Answering, check_version
from gateway.api.authentication import Caller, reach_of
from gateway.api.errors import (
    InvalidRequest,
    MethodNotAllowed,
    PayloadTooLarge,
    Reply,
    RequestTimeout,
    Unauthorized,
    UnsupportedMediaType,
    as_service_error,
    error_reply,
)
from gateway.api.json import parse_object
from gateway.api.limits import SMALL_BODY_BYTES
from gateway.api.middleware import API_PATHS
from gateway.meta_errors import explained
from gateway.monitoring import tracing
from gateway.role_loop import Loop, keep_running
from gateway.roles import KeyScope
from messaging import idempotency
from messaging.cloud_api import parameters as graph_sends
from messaging.cloud_api.errors import graph_reply
from messaging.cloud_api.parameters import GraphSend
from messaging.flows import exchange
from messaging.flows.exchange import FlowExchange
from messaging.notifications import incoming, signatures
from messaging.notifications.incoming import Intake
from messaging.sending import flow, read_receipts
from messaging.sending.flow import SendRequest
from web import stream_response
from web.admission import admitted_body, admitted_caller
from web.django_threads import DjangoThreads
from web.request import AsgiScope, ClientGone, Receive, Request, Send, send_head, send_whole
from web.strangers import strangers
from web.stream_response import StreamReply

_TEXT = {"Content-Type": "text/plain"}
_intake: Intake | None = None
_flows: FlowExchange | None = None


async def subscribe(request: Request) -> Reply:
    """GET /upstream/webhook: the verification of a subscription (upstream fact 3.1)."""
    return Reply(200, _TEXT, signatures.challenge(request.parameters).encode())


async def accept_notification(request: Request) -> Reply:
    """POST /upstream/webhook: 200 after the commit, 401 for a wrong signature."""
    global _intake
    body, environments = await _signed(request, limit=incoming.MAX_BODY_BYTES)
    if _intake is None:
        _intake = Intake()
    await _intake.accept(body, environments=environments)
    return Reply(200, _TEXT, b"")


async def exchange_flow_data(endpoint_id: UUID, request: Request) -> Reply:
    """POST /upstream/flows/{endpoint_id}: a data request of a Flow. 432 for a wrong signature."""
    global _flows
    try:
        body, environments = await _signed(request, limit=exchange.MAX_BODY_BYTES)
    except Unauthorized:
        return Reply(exchange.NOT_SIGNED, _TEXT, b"")
    if _flows is None:
        _flows = FlowExchange()
    return await _flows.answer(endpoint_id, body, environments=environments)


async def _signed(request: Request, *, limit: int) -> tuple[bytes, list[str]]:
    """The body of Meta's request, and the environments whose app secret signed it.

    A client must wait its turn if its IP address recently sent an invalid request. Raises ServiceError or ClientGone.
    """
    if strangers.is_suspect(request):
        async with strangers.turn(request):
            return await _verified(request, limit)
    try:
        return await _verified(request, limit)
    except (Unauthorized, PayloadTooLarge, RequestTimeout, ClientGone):
        strangers.suspect(request)
        raise


async def _verified(request: Request, limit: int) -> tuple[bytes, list[str]]:
    body = await request.body(limit=limit)
    return body, signatures.signing_environments(body, request.header(b"x-hub-signature-256"))


async def send_message(request: Request) -> Reply:
    """POST /v1/messages: send one message (send rules 1 to 7)."""
    caller, raw, body = await _operation(request)
    return await flow.send(
        SendRequest(
            **reach_of(caller),
            path=request.path,
            raw=raw,
            body=body,
            idempotency_key=_idempotency_key(request),
            request_id=request.request_id,
        )
    )


async def send_at_graph_path(send: GraphSend, request: Request) -> Reply:
    """POST /{number}/messages: a send of Cloud API software, with errors in the Cloud API's form."""
    query = request.query_string.decode("latin-1")
    content_type = request.header(b"content-type") or ""
    authorization = graph_sends.credential(
        request.header(b"authorization"), request.header(b"x-api-key"), query
    )
    raw: bytes | None = None
    if authorization is None:
        # The caller is not known yet, so the body may only be as long as a form of a page.
        raw = await request.body(limit=SMALL_BODY_BYTES)
        token = graph_sends.access_token(query=query, content_type=content_type, body=raw)
        authorization = f"Bearer {token}" if token else None
    request.headers[b"authorization"] = (authorization or "").encode("latin-1", "replace")
    caller = await admitted_caller(request, scope=KeyScope.MESSAGES)
    if raw is None:
        raw = await admitted_body(request, caller)
    call = graph_sends.send_call(send, query=query, content_type=content_type, body=raw)
    if call.path == "/v1/messages/read":
        # A read mark must not be counted as a send.
        request.route = call.path
        return await read_receipts.mark_read(**reach_of(caller), body=call.members)
    return await flow.send(
        SendRequest(
            **reach_of(caller),
            path=call.path,
            edge=send.edge,
            raw=call.body,
            body=call.members,
            idempotency_key=_idempotency_key(request),
            request_id=request.request_id,
        )
    )


async def mark_read(request: Request) -> Reply:
    """POST /v1/messages/read: mark a customer's message as read."""
    caller, _, body = await _operation(request)
    reply = await read_receipts.mark_read(**reach_of(caller), body=body)
    return Reply(reply.status, reply.headers, explained(reply.body, request.request_id))


async def _operation(request: Request) -> tuple[Caller, bytes, dict[str, Any]]:
    """The admitted caller of an operation, and the JSON body as bytes and as an object. Raises ServiceError."""
    caller = await admitted_caller(request, scope=KeyScope.MESSAGES)
    if request.query_string:
        unknown = "This query parameter is unknown. This operation takes none."
        raise InvalidRequest.of(**dict.fromkeys(QueryDict(request.query_string), unknown))
    content_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not (content_type == "" and request.body_is_read):
        raise UnsupportedMediaType("This operation takes application/json.")
    raw = await admitted_body(request, caller) or b"{}"
    return caller, raw, parse_object(raw)


def _idempotency_key(request: Request) -> str | None:
    """The idempotency key of a send. None if there is none. Raises InvalidRequest for two different keys."""
    keys = {value for name, value in request.scope["headers"] if name == b"idempotency-key"}
    if len(keys) > 1:
        raise InvalidRequest.of(**{idempotency.HEADER: "Send one key: this request has two different ones."})
    return keys.pop().decode("latin-1") if keys else None


async def live(request: Request) -> Reply:
    """GET /v1/health/live."""
    return health_views.live()


def _shared(ask: Callable[[], Reply]) -> Callable[[Request], Awaitable[Reply]]:
    """A handler whose concurrent calls share one query of the database."""
    asking: asyncio.Task[Reply] | None = None

    async def handler(request: Request) -> Reply:
        nonlocal asking
        if asking is None or asking.done():
            asking = asyncio.create_task(asyncio.to_thread(ask))
        return await asyncio.shield(asking)

    return handler


health = _shared(health_views.health)
"""GET /v1/health."""
ready = _shared(health_views.ready)
"""GET /v1/health/ready."""


Handler = Callable[[Request], Awaitable[Reply | StreamReply]]


class Match(NamedTuple):
    """What answers a request: a handler, and the pattern of the request's path."""

    handler: Handler
    route: str
    graph_version: str | None = None
    """The version of the Graph API that names a response in its form. None for responses in the service's form."""


class Route(NamedTuple):
    """A route of the listener. If Django also has the path, Django answers all other methods. `scope` is that of the
    route's operations, None for a route without callers.
    """

    handlers: Mapping[str, Handler]
    is_shared: bool = False
    scope: KeyScope | None = None


ROUTES: Mapping[str, Route] = {
    "/upstream/webhook": Route({"GET": subscribe, "POST": accept_notification}),
    "/v1/messages": Route({"POST": send_message}, is_shared=True),
    "/v1/messages/read": Route({"POST": mark_read}, scope=KeyScope.MESSAGES),
    "/v1/events/stream": Route({"GET": stream_response.listen}, scope=KeyScope.EVENTS),
    "/v1/health": Route({"GET": health}),
    "/v1/health/live": Route({"GET": live}),
    "/v1/health/ready": Route({"GET": ready}),
}
_FLOW_PATTERN = "/upstream/flows/{endpoint_id}"
_FLOW_PATH = re.compile(r"/upstream/flows/([0-9a-f]{32})")


class Application:
    """The application of one process, for one event loop. Other roles may use the same event loop."""

    def __init__(self, loops: Iterable[Loop] = ()) -> None:
        self._django = DjangoThreads()
        self._loops = list(loops)

    def stop(self) -> None:
        """Begin to stop: end the event streams, and let the loops of other roles finish."""
        stream_response.stop()
        for loop in self._loops:
            loop.stop()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif (match := match_of(scope["method"], scope["path"])) is not None:
            await answer(match, scope, receive, send)
        else:
            await self._django.answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the start and the stop of the server. The routes' resources are closed after the last response."""
        await receive()
        event_loop.attach(asyncio.get_running_loop())
        ending = asyncio.Event()
        # A new context, because the loops belong to no request.
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
    """Finish running work, and close the routes' connections to the database and to the Graph API."""
    global _intake, _flows
    if _intake is not None:
        await _intake.close()
        _intake = None
    if _flows is not None:
        await _flows.close()
        _flows = None
    await flow.close()
    await stream_response.close()


def match_of(method: str, path: str) -> Match | None:
    """What answers a request on the event loop. None if Django answers the request."""
    pattern, route = path, ROUTES.get(path)
    if route is None:
        pattern, route = _FLOW_PATTERN, _flow_route(path)
    if route is None:
        send = graph_sends.graph_send(path) if method == "POST" else None
        if send is None:
            return None
        return Match(
            partial(send_at_graph_path, send), send.route, send.version or settings.META_GRAPH_VERSION
        )
    handler = route.handlers.get(method) or (route.handlers.get("GET") if method == "HEAD" else None)
    if handler is None:
        if route.is_shared:
            return None
        handler = _other_methods(route)
    return Match(handler, pattern)


def _flow_route(path: str) -> Route | None:
    """The route of a Flow endpoint's public address. None for any other path."""
    match = _FLOW_PATH.fullmatch(path)
    return Route({"POST": partial(exchange_flow_data, UUID(match[1]))}) if match else None


def _other_methods(route: Route) -> Handler:
    allowed = sorted({*route.handlers, *(["HEAD"] if "GET" in route.handlers else []), "OPTIONS"})

    async def handler(request: Request) -> Reply:
        if route.scope is not None:
            await admitted_caller(request, scope=route.scope)
        if request.method == "OPTIONS":
            return Reply(204, {"Allow": ", ".join(allowed)}, b"")
        raise MethodNotAllowed.of(*allowed)

    return handler


async def answer(match: Match, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Answer a request. Every error has the form of its route."""
    answering = Answering(scope["method"], scope["path"])
    request = Request(scope, receive, answering.request_id)
    request.route = match.route
    if match.graph_version is not None:
        request.convert = partial(graph_reply, request_id=request.request_id, version=match.graph_version)
    try:
        with tracing.serving(request.method, request.path, request.header(b"traceparent")) as span:
            reply = await _reply(match.handler, request)
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
            raise InvalidRequest.of(**dict.fromkeys(named, "Must not contain the character U+0000."))
        reply = await handler(request)
    except ClientGone:
        raise
    except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; unexpected ones are logged
        reply = error_reply(as_service_error(exception), request.request_id)
    if request.convert is not None and isinstance(reply, Reply):
        return request.convert(reply)
    return reply


async def _send(reply: Reply, request: Request, answering: Answering, send: Send) -> None:
    headers = answering.finish(
        status=reply.status, route=request.route, caller=request.caller, body=reply.body
    )
    own = {**headers, **request.admission_headers, **reply.headers}
    await send_whole(reply.status, own.items(), reply.body, request, send)


async def _send_stream(reply: StreamReply, request: Request, answering: Answering, send: Send) -> None:
    """Send a response that does not end by itself. Write its log line when it begins."""
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
