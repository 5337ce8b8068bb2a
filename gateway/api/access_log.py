"""The record of every answered call: headers, access log line, metrics, span, request log.

The Graph API client adds the duration of each of its calls, which `Server-Timing` shows as `meta`. `refusal_bytes`
builds the whole response to a connection on which no valid request arrived.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import cache
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

import orjson
import structlog
from django.conf import settings

from gateway import ids
from gateway.api.authentication import Caller
from gateway.api.errors import InvalidRequest, ServiceError, error_reply
from gateway.monitoring import metrics
from gateway.monitoring.logs import log_answer
from gateway.monitoring.metrics import Counter, Histogram
from gateway.monitoring.spans import OFF, Span

_waited_ms: ContextVar[float] = ContextVar("upstream_waited_ms", default=0.0)
_tenant_ms: ContextVar[float] = ContextVar("tenant_waited_ms", default=0.0)
_client_ms: ContextVar[float] = ContextVar("client_waited_ms", default=0.0)


def start_timing() -> None:
    """Reset the times of the Graph API, of tenants' servers and of the client for a new request."""
    _waited_ms.set(0.0)
    _tenant_ms.set(0.0)
    _client_ms.set(0.0)


@contextmanager
def waiting_for_client() -> Iterator[None]:
    """Count the duration of the block as the client's time, such as a wait for the next part of its body."""
    began = perf_counter()
    try:
        yield
    finally:
        _client_ms.set(_client_ms.get() + (perf_counter() - began) * 1000)


def add_tenant_ms(milliseconds: float) -> None:
    """Add the duration of a call to a tenant's server in milliseconds. The metric of the own time leaves it out."""
    _tenant_ms.set(_tenant_ms.get() + milliseconds)


def add_upstream_ms(milliseconds: float) -> None:
    """Add the duration of a Graph API call in milliseconds."""
    _waited_ms.set(_waited_ms.get() + milliseconds)


def upstream_ms() -> float:
    """Milliseconds waited for the Graph API so far."""
    return _waited_ms.get()


def adopt_timing(context: Context) -> None:
    """Take over the times that work in a copy of this request's context has counted."""
    _waited_ms.set(context.get(_waited_ms, 0.0))
    _tenant_ms.set(context.get(_tenant_ms, 0.0))
    _client_ms.set(context.get(_client_ms, 0.0))


def split_ms(total_ms: float) -> tuple[float, float]:
    """The milliseconds of a request: the service's own, and those spent waiting for the Graph API. Each is rounded
    once, so that all headers show the same figures. The time in which the body arrives is part of neither, because it
    depends on the client's connection.
    """
    total_ms = max(0.0, total_ms - _client_ms.get())
    waited = min(upstream_ms(), total_ms)
    return round(total_ms - waited, 1), round(waited, 1)


# --- Metrics of responses: counts by status and kind of route, and the service's own time.
#
# Responses are counted in memory. A thread of each process adds its counts to the shared counts every few seconds.
FLUSH_SECONDS = 5.0

ANSWERS = Counter(
    "gateway_answers_total",
    "Answers by kind of route and class of status, as in `notifications_2xx`.",
    label="answer",
)
OWN_SECONDS = Histogram(
    "gateway_answer_own_seconds",
    "The service's own time for an answer of the API, without Meta's, tenants' servers' and the body's arrival.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)

_stopped = threading.Event()


def count(method: str, route: str | None, path: str, status: int, own_ms: float) -> None:
    """Count a response by the route that it matched. Health checks are not counted."""
    kind = _kind(method, route, path)
    if kind is None:
        return
    ANSWERS.add(label=f"{kind}_{status // 100}xx")
    if kind != "pages":
        OWN_SECONDS.observe(max(own_ms - _tenant_ms.get(), 0.0) / 1000)


SEND_ROUTES = (
    "/v1/messages",
    "/{node}/messages",
    "/{version}/{node}/messages",
    "/{node}/marketing_messages",
    "/{version}/{node}/marketing_messages",
)
_API_ROUTES = ("/v1/", "/{version}", "/{node}", "/upload:", "/mcp", "/internal/")
SWITCHED_OFF = frozenset({"billing_disabled"})
"""Codes of 5xx answers that report no failure. Such answers are not counted."""


def _kind(method: str, route: str | None, path: str) -> str | None:
    """The kind of a route. If there is no route, the kind that the path resembles. None for health checks and metrics,
    which are not counted.
    """
    if route is None:
        return "api" if path.startswith("/v") else "pages"
    if route == "/upstream/webhook":
        return "notifications"
    if route.startswith("/upstream/flows/"):
        return "flows"  # its 5xx are mostly those of tenants' servers
    if route.startswith("/v1/health") or route == "/metrics":
        return None
    if method == "POST" and route in SEND_ROUTES:
        return "sends"
    return "api" if route.startswith(_API_ROUTES) else "pages"


def start_flushing() -> None:
    """Start the thread that flushes the counts of this process. For web processes and workers."""
    threading.Thread(target=_flush_periodically, name="answers", daemon=True).start()


def _flush_periodically() -> None:
    while not _stopped.wait(FLUSH_SECONDS):
        metrics.flush()


# --- Finished calls: each answered call for a tenant is passed to listeners, such as the request log.
#
# A `FinishedCall` has no body, no concrete path and no query string.
MOST_PARSED_BYTES = 64 * 1024
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)


class FinishedCall(NamedTuple):
    """An API call with its response. `route` is the pattern of the path, None for a path without a route."""

    request_id: UUID
    caller: Caller
    method: str
    route: str | None
    status: int
    error_code: str | None
    own_ms: float
    upstream_ms: float


CallListener = Callable[[FinishedCall], None]
_listeners: list[CallListener] = []


def register(listener: CallListener) -> CallListener:
    """Add a listener. It receives each finished call on the thread or event loop of the call, and must not block."""
    _listeners.append(listener)
    return listener


def clear_listeners() -> None:
    """Remove all listeners, for tests."""
    _listeners.clear()


def notify_listeners(call: FinishedCall) -> None:
    """Pass a call to the listeners."""
    for listener in _listeners:
        listener(call)


@cache
def template_of(route: str) -> str:
    """A Django route in the form of the OpenAPI document: `/v1/numbers/{phone_number_id}`."""
    return "/" + _PARAMETER.sub(r"{\1}", route)


def error_code_of(status: int, body: bytes) -> str | None:
    """The code in the body of an error: the service's word, or Meta's number. None for a success.

    An error of the service in the Graph API's form has that word in `error_data.gateway_code`.
    """
    if status < 400 or len(body) > MOST_PARSED_BYTES:
        return None
    try:
        error = orjson.loads(body)["error"]
        code = error["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    data = error.get("error_data")
    if isinstance(data, dict) and "gateway_code" in data:
        code = data["gateway_code"]
    text = str(code)
    # Meta's response may contain anything.
    return text if isinstance(code, str | int) and _CODE.fullmatch(text) else None


# --- The trace of every answered request: response headers, access log line, metrics, span.
#
# The listener records the requests that it answers itself (`web/routes.py`). Django's outermost middleware records all
# others.
class Answering:
    """A request that is being answered."""

    __slots__ = ("method", "path", "request_id", "request_uuid", "started")

    def __init__(self, method: str, path: str) -> None:
        self.method, self.path = method, path
        self.started = perf_counter()
        self.request_uuid: UUID = ids.uuid7()
        self.request_id = ids.encode(ids.REQUEST, self.request_uuid)
        start_timing()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=self.request_id)

    def note_span(self, span: Span, *, caller: Caller | None, status: int, route: str | None) -> None:
        """Record the response's status and the caller's tenant on the request's span."""
        if span is OFF:
            return
        span.answered(status, route)
        span.note("gateway.request.id", self.request_id)
        if caller is not None and caller.tenant is not None:
            span.note("gateway.tenant.id", str(caller.tenant.id))
            span.note("gateway.environment", caller.effective_environment)

    def finish(
        self, *, status: int, route: str | None, caller: Caller | None = None, body: bytes = b""
    ) -> dict[str, str]:
        """Log and count the response. Returns the headers of every response (specification 1 and 9).

        `route` is the pattern of the path, such as `/v1/numbers/{phone_number_id}`; None for a path without a route.
        `body` is searched for the code of an error.
        """
        own_ms, meta_ms = split_ms((perf_counter() - self.started) * 1000)
        error_code = error_code_of(status, body)
        if error_code not in SWITCHED_OFF:
            count(self.method, route, self.path, status, own_ms)
        tenant = caller.tenant if caller is not None else None
        log_answer(
            request_id=self.request_id,
            method=self.method,
            route=route,
            status=status,
            wb_ms=own_ms,
            meta_ms=meta_ms,
            **({"tenant_id": tenant.id} if tenant is not None else {}),
        )
        if caller is not None:
            notify_listeners(
                FinishedCall(
                    request_id=self.request_uuid,
                    caller=caller,
                    method=self.method,
                    route=route,
                    status=status,
                    error_code=error_code,
                    own_ms=own_ms,
                    upstream_ms=meta_ms,
                )
            )
        return service_headers(self.request_id, own_ms=own_ms, meta_ms=meta_ms)


def service_headers(request_id: str, *, own_ms: float, meta_ms: float) -> dict[str, str]:
    """The headers of every response: times, request id, API version, and `nosniff`."""
    return {
        "Server-Timing": f"wb;dur={own_ms:.1f}, meta;dur={meta_ms:.1f}",
        "X-Service-Processing-Ms": str(round(own_ms)),
        "X-Service-Request-Id": request_id,
        "X-Service-Version": settings.API_VERSION,
        "X-Content-Type-Options": "nosniff",
    }


def check_version(version: str | None) -> None:
    """Raise InvalidRequest for a request that pins another version of the API."""
    if version is not None and version != settings.API_VERSION:
        raise InvalidRequest(
            f"X-Service-Version: the only version is {settings.API_VERSION}.",
            details={"fields": {"X-Service-Version": [f"Must be {settings.API_VERSION}."]}},
        )


def refusal_bytes(error: ServiceError, status_line: bytes) -> bytes:
    """Log and count a response that closes its connection. Returns its bytes. `status_line` ends with a line break."""
    request_id = ids.encode(ids.REQUEST, ids.uuid7())
    ANSWERS.add(label=f"api_{error.status // 100}xx")
    log_answer(request_id=request_id, method=None, route=None, status=error.status, wb_ms=0.0, meta_ms=0.0)
    reply = error_reply(error, request_id)
    headers = {
        **service_headers(request_id, own_ms=0.0, meta_ms=0.0),
        **reply.headers,
        "Content-Length": str(len(reply.body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return status_line + lines.encode("latin-1") + b"\r\n" + reply.body
