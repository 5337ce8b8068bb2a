"""Handlers of the routes that the listener answers itself: notifications, Flow data, sends, read marks, health.

They call the same flows as Django's views, on the event loop. The event stream is in `event_stream.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import QueryDict

from gateway.api import health_views
from gateway.api.authentication import Caller, reach_of
from gateway.api.errors import (
    InvalidRequest,
    Reply,
    ServiceError,
    Unauthorized,
    UnsupportedMediaType,
    as_service_error,
    error_reply,
)
from gateway.api.json import parse_object
from gateway.api.limits import API_BODY_BYTES, SMALL_BODY_BYTES
from gateway.meta_errors import explained
from gateway.roles import KeyScope
from messaging import idempotency
from messaging.cloud_api import parameters as graph_sends
from messaging.cloud_api.errors import graph_reply
from messaging.cloud_api.parameters import GraphSend
from messaging.flows import exchange
from messaging.flows.exchange import FlowExchange
from messaging.notifications import incoming, signatures
from messaging.notifications.incoming import Intake
from messaging.sending import flow
from messaging.sending.flow import SendRequest
from web.admission import admitted_caller
from web.request import ClientGone, Request
from web.strangers import strangers

_TEXT = {"Content-Type": "text/plain"}
_intake: Intake | None = None
_flows: FlowExchange | None = None


async def close() -> None:
    """Finish running work and close the handlers' connections to the database and to the Graph API."""
    global _intake, _flows
    if _intake is not None:
        await _intake.close()
        _intake = None
    if _flows is not None:
        await _flows.close()
        _flows = None
    await flow.close()


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
    """POST /upstream/flows/{endpoint_id}: a data request of a Flow; 432 for a wrong signature."""
    global _flows
    request.route = "/upstream/flows/{endpoint_id}"
    try:
        body, environments = await _signed(request, limit=exchange.MAX_BODY_BYTES)
    except Unauthorized:
        return Reply(exchange.NOT_SIGNED, _TEXT, b"")
    if _flows is None:
        _flows = FlowExchange()
    return await _flows.answer(endpoint_id, body, environments=environments)


async def _signed(request: Request, *, limit: int) -> tuple[bytes, list[str]]:
    """The body of Meta's request, and the environments whose app secret signed it.

    An address that failed recently has to wait its turn. Raises ServiceError, ClientGone.
    """
    if strangers.is_suspect(request):
        async with strangers.turn(request):
            return await _verified(request, limit)
    try:
        return await _verified(request, limit)
    except (ServiceError, ClientGone):
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
    """POST /{number}/messages: requests of Cloud API software, with errors in its form."""
    request.route = send.route
    try:
        reply = await _graph_send(send, request)
    except ClientGone:
        raise
    except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; the unforeseen is logged
        reply = error_reply(as_service_error(exception), request.request_id)
    version = send.version or settings.META_GRAPH_VERSION
    return graph_reply(reply, request_id=request.request_id, version=version)


async def _graph_send(send: GraphSend, request: Request) -> Reply:
    query = request.query_string.decode("latin-1")
    content_type = request.header(b"content-type") or ""
    authorization = graph_sends.credential(
        request.header(b"authorization"), request.header(b"x-api-key"), query
    )
    raw: bytes | None = None
    if authorization is None:
        # The caller is unknown yet, so no more of the body is read than of a page's form.
        raw = await request.body(limit=SMALL_BODY_BYTES)
        token = graph_sends.access_token(query=query, content_type=content_type, body=raw)
        authorization = f"Bearer {token}" if token else None
    request.headers[b"authorization"] = (authorization or "").encode("latin-1", "replace")
    caller = await admitted_caller(request, scope=KeyScope.MESSAGES)
    if raw is None:
        raw = await request.body(limit=API_BODY_BYTES)
    call = graph_sends.send_call(send, query=query, content_type=content_type, body=raw)
    if call.path == "/v1/messages/read":
        return await flow.mark_read(**reach_of(caller), body=call.members)
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
    reply = await flow.mark_read(**reach_of(caller), body=body)
    return Reply(reply.status, reply.headers, explained(reply.body, request.request_id))


async def _operation(request: Request) -> tuple[Caller, bytes, dict[str, Any]]:
    """The JSON body of an admitted caller, as bytes and as an object. Raises ServiceError."""
    caller = await admitted_caller(request, scope=KeyScope.MESSAGES)
    if request.query_string:
        unknown = "This query parameter is unknown. This operation takes none."
        raise InvalidRequest.of(**dict.fromkeys(QueryDict(request.query_string), unknown))
    content_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not (content_type == "" and request.body_is_read):
        raise UnsupportedMediaType("This operation takes application/json.")
    raw = await request.body(limit=API_BODY_BYTES) or b"{}"
    return caller, raw, parse_object(raw)


def _idempotency_key(request: Request) -> str | None:
    """The idempotency key of a send. Raises InvalidRequest for a request with two different ones."""
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
