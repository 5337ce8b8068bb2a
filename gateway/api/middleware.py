"""The outermost middleware: request id, timing and version on every response, also 404s, 405s and crashes.

The headers and the version of every response (specification 1 and 9); header names in `docs/api.md`.
"""

import re
from collections.abc import Callable
from time import perf_counter
from typing import Any

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from gateway import ids
from gateway.api import finished_calls, request_span, timing
from gateway.api.authentication import Caller
from gateway.api.errors import InvalidRequest, NotFound, PayloadTooLarge, ServiceError, error_response
from gateway.api.finished_calls import FinishedCall
from gateway.api.limits import body_size
from gateway.monitoring import answer_metrics, tracing

log = structlog.get_logger("gateway.request")

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def service_response(get_response: GetResponse) -> GetResponse:
    """Give each request an id and each response the service's headers."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        started = perf_counter()
        timing.start()
        request_uuid = ids.uuid7()
        request_id = ids.encode(ids.REQUEST, request_uuid)
        request.request_id = request_id  # type: ignore[attr-defined]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        with tracing.serving(str(request.method), request.path, request.headers.get(tracing.HEADER)) as span:
            try:
                _refuse_early(request)
                response = get_response(request)
            except ServiceError as error:
                response = error_response(error, request)
                response["Content-Length"] = str(len(response.content))
            # A page's user is looked up lazily, and nothing here reads it.
            user = getattr(request, "user", None)
            caller = user if type(user) is Caller else None
            request_span.note(
                span,
                request_id=request_id,
                caller=caller,
                status=response.status_code,
                route=_route_of(request),
            )
        own_ms, meta_ms = timing.split((perf_counter() - started) * 1000)
        headers = service_headers(request_id, own_ms=own_ms, meta_ms=meta_ms)
        for name, value in (*headers.items(), *getattr(request, "rate_limit_headers", {}).items()):
            response[name] = value
        answer_metrics.count(request.path, response.status_code, own_ms)
        match = request.resolver_match
        log.info(
            "request",
            method=request.method,
            route=match.route if match else None,
            status=response.status_code,
            wb_ms=own_ms,
            meta_ms=meta_ms,
        )
        if caller is not None:
            finished_calls.tell(
                FinishedCall(
                    request_id=request_uuid,
                    caller=caller,
                    method=str(request.method),
                    route=_route_of(request),
                    status=response.status_code,
                    error_code=finished_calls.error_code_of(
                        response.status_code, getattr(response, "content", b"")
                    ),
                    own_ms=own_ms,
                    upstream_ms=meta_ms,
                )
            )
        return response

    # Django calls it when it has found the view, before any other middleware looks at the body.
    middleware.process_view = _bound_body  # type: ignore[attr-defined]
    return middleware


def _route_of(request: HttpRequest) -> str | None:
    """The pattern of the request's path; a view whose URL is a regular expression names its own."""
    match = request.resolver_match
    own: str | None = getattr(request, "route_template", None)
    return own or (finished_calls.template_of(match.route) if match else None)


def _bound_body(request: HttpRequest, view: Callable[..., Any], *_: Any) -> HttpResponseBase | None:
    try:
        body_size.bound(request, view)
    except PayloadTooLarge as error:
        if not getattr(getattr(view, "cls", None), "refuses_large_bodies", False):
            return error_response(error, request)
        request.too_large = error  # type: ignore[attr-defined]
    return None


def service_headers(request_id: str, *, own_ms: float, meta_ms: float) -> dict[str, str]:
    """The headers of every answer (specification 1 and 9): times, request id, version."""
    return {
        "Server-Timing": f"wb;dur={own_ms:.1f}, meta;dur={meta_ms:.1f}",
        "X-Service-Processing-Ms": str(round(own_ms)),
        "X-Service-Request-Id": request_id,
        "X-Service-Version": settings.API_VERSION,
    }


def check_version(version: str | None) -> None:
    """Refuse a request that pins another version of the API. Raises InvalidRequest."""
    if version is not None and version != settings.API_VERSION:
        raise InvalidRequest(
            f"X-Service-Version: the only version is {settings.API_VERSION}.",
            details={"fields": {"X-Service-Version": [f"Must be {settings.API_VERSION}."]}},
        )


def _refuse_early(request: HttpRequest) -> None:
    """What is refused before any view is found: a U+0000, which the database takes in no text; an unknown version."""
    if "\0" in request.path:
        raise NotFound
    if "%00" in request.META.get("QUERY_STRING", ""):
        named = [name for name, values in request.GET.lists() if any("\0" in value for value in values)]
        raise InvalidRequest(details={"fields": {name: ["Must not hold a U+0000."] for name in named}})
    if request.path.startswith(API_PATHS):
        check_version(request.headers.get("X-Service-Version"))


API_PATHS = ("/v1/", "/upstream/", "/internal/", "/mcp")
"""Paths whose errors are JSON; all others are pages."""
GRAPH_PATH = re.compile(r"/(?:v\d{1,3}\.\d|\d{5}|upload:)")
"""How a path of the Cloud API front begins; no page has such a path."""
