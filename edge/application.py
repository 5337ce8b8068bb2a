"""The ASGI application of the edge: routes, the service's headers, errors in its form, one line in the log.

A raw application: what a framework's layers cost a request would be more than all the rest. Measured on two cores
with a notification of 600 bytes: 29 µs under uvicorn, 1,280 µs through Django's own ASGI handler.
"""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

import structlog

from edge import health, messages, notifications
from edge.request import AsgiScope, ClientGone, Receive, Request, Send
from gateway import ids
from gateway.api import finished, timing
from gateway.api.errors import MethodNotAllowed, NotFound, as_service_error, error_reply
from gateway.api.finished import FinishedCall
from gateway.api.middleware import check_version, service_headers
from gateway.api.reply import Reply

log = structlog.get_logger("gateway.request")

Handler = Callable[[Request], Awaitable[Reply]]

ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/upstream/webhook": {"GET": notifications.subscribe, "POST": notifications.accept},
    "/v1/messages": {"POST": messages.send},
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
        reply = await _answer(request)
    except ClientGone:
        return
    finally:
        request.close()
    await _send(reply, request, started, send)


async def _live(receive: Receive, send: Send) -> None:
    """The server's start and stop: what the routes hold is given back once the last request has its answer."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await notifications.close()
    await messages.close()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(request: Request) -> Reply:
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
    own_ms, meta_ms = timing.split((perf_counter() - started) * 1000)
    headers = {
        **service_headers(request.request_id, own_ms=own_ms, meta_ms=meta_ms),
        **request.admission_headers,
        **reply.headers,
        "Content-Length": str(len(reply.body)),
    }
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    if not request.body_is_read:
        # What was refused by its headers: the rest of its body is not waited for.
        lines.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": lines})
    await send({"type": "http.response.body", "body": reply.body})
    route = request.path if request.path in ROUTES else None
    if request.caller is not None:
        finished.tell(
            FinishedCall(
                request_id=request.request_uuid,
                caller=request.caller,
                method=request.method,
                route=route,
                status=reply.status,
                error_code=finished.error_code_of(reply.status, reply.body),
                own_ms=own_ms,
                upstream_ms=meta_ms,
            )
        )
    log.info(
        "request",
        method=request.method,
        route=route,
        status=reply.status,
        wb_ms=own_ms,
        meta_ms=meta_ms,
    )
