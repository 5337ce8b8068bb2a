"""The ASGI application of the edge: routes, the service's headers, errors in its form, one line in the log.

A raw application: what a framework's layers cost a request would be more than all the rest. Measured on two cores
with a notification of 600 bytes: 29 µs under uvicorn, 1,280 µs through Django's own ASGI handler.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

import structlog

from edge import event_stream, health, messages, notifications
from edge.request import AsgiScope, ClientGone, Receive, Request, Send
from edge.stream_reply import StreamReply
from gateway import ids
from gateway.api import finished_calls, request_span, timing
from gateway.api.errors import MethodNotAllowed, NotFound, as_service_error, error_reply
from gateway.api.finished_calls import FinishedCall
from gateway.api.middleware import check_version, service_headers
from gateway.api.reply import Reply
from gateway.monitoring import answer_metrics, tracing

log = structlog.get_logger("gateway.request")

Handler = Callable[[Request], Awaitable[Reply | StreamReply]]

ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/upstream/webhook": {"GET": notifications.subscribe, "POST": notifications.accept},
    "/v1/messages": {"POST": messages.send},
    "/v1/events/stream": {"GET": event_stream.listen},
    "/v1/health": {"GET": health.health, "HEAD": health.health},
    "/v1/health/live": {"GET": health.live, "HEAD": health.live},
    "/v1/health/ready": {"GET": health.ready, "HEAD": health.ready},
}
"""By path and method. Each of these paths is served by Django's door too, with the same answers."""


async def application(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """The ASGI entry point: `python -m edge` serves it."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    started = perf_counter()
    timing.start()
    request = Request(scope, receive, ids.uuid7())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request.request_id)
    try:
        with tracing.serving(request.method, request.path, request.header(b"traceparent")) as span:
            reply = await _answer(request)
            request_span.note(
                span,
                request_id=request.request_id,
                caller=request.caller,
                status=reply.status if isinstance(reply, Reply) else 200,
                route=_route_of(request),
            )
    except ClientGone:
        return
    finally:
        request.close()
    if isinstance(reply, StreamReply):
        await _send_stream(reply, request, started, send)
    else:
        await _send(reply, request, started, send)


async def _live(receive: Receive, send: Send) -> None:
    """The server's start and stop: what the routes hold is given back once the last request has its answer."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await notifications.close()
    await messages.close()
    await event_stream.close()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(request: Request) -> Reply | StreamReply:
    try:
        check_version(request.header(b"x-service-version"))
        methods = ROUTES.get(request.path)
        if methods is None:
            raise NotFound(f"There is nothing at {request.path}.")
        handler = methods.get(request.method)
        if handler is None:
            raise MethodNotAllowed
        return await handler(request)
    except ClientGone:
        raise
    except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; the unforeseen is logged
        return error_reply(as_service_error(exception), request.request_id)


async def _send(reply: Reply, request: Request, started: float, send: Send) -> None:
    length = {"Content-Length": str(len(reply.body))}
    took = await _send_head(reply.status, {**reply.headers, **length}, request, started, send)
    await send({"type": "http.response.body", "body": reply.body})
    _tell(request, reply.status, reply.body, *took)


async def _send_stream(reply: StreamReply, request: Request, started: float, send: Send) -> None:
    """An answer without an end: its line in the logs is written at its beginning."""
    try:
        took = await _send_head(200, reply.headers, request, started, send)
        _tell(request, 200, b"", *took)
        async with contextlib.aclosing(reply.chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await reply.ended()


async def _send_head(
    status: int, own: Mapping[str, str], request: Request, started: float, send: Send
) -> tuple[float, float]:
    """Send status and headers; returns the milliseconds of the service and of the upstream until then."""
    own_ms, meta_ms = timing.split((perf_counter() - started) * 1000)
    headers = {
        **service_headers(request.request_id, own_ms=own_ms, meta_ms=meta_ms),
        **request.admission_headers,
        **own,
    }
    answer_metrics.count(request.path, status, own_ms)
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    if not request.body_is_read:
        # What was refused by its headers: the rest of its body is not waited for.
        lines.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    return own_ms, meta_ms


def _route_of(request: Request) -> str | None:
    return request.path if request.path in ROUTES else None


def _tell(request: Request, status: int, body: bytes, own_ms: float, meta_ms: float) -> None:
    route = _route_of(request)
    if request.caller is not None:
        finished_calls.tell(
            FinishedCall(
                request_id=request.request_uuid,
                caller=request.caller,
                method=request.method,
                route=route,
                status=status,
                error_code=finished_calls.error_code_of(status, body),
                own_ms=own_ms,
                upstream_ms=meta_ms,
            )
        )
    log.info(
        "request",
        method=request.method,
        route=route,
        status=status,
        wb_ms=own_ms,
        meta_ms=meta_ms,
    )
