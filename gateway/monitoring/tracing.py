"""Traces: requests, Graph API calls, tasks and deliveries as spans of OpenTelemetry.

Traces are off unless OTEL_EXPORTER_OTLP_ENDPOINT is set. While they are off, the SDK is not imported, no trace is
stored with an event, and a span costs a function call. Only `trace_export.py` uses OpenTelemetry.

A span never contains content, credentials, addresses or phone numbers. Nor does it contain a wamid, which is a phone
number in base64.
"""

from typing import TYPE_CHECKING

from django.conf import settings

from gateway.monitoring.spans import OFF, Attributes, Kind, Span

if TYPE_CHECKING:
    from gateway.monitoring.trace_export import Tracer

HEADER = "traceparent"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNTRACED = ("/v1/health", "/metrics", "/static/", "/docs/")


_tracer: "Tracer | None" = None


def begin() -> None:
    """Start traces in this process, with a thread that exports them. A second call does nothing."""
    global _tracer
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT and _tracer is None:
        from gateway.monitoring.trace_export import Tracer

        _tracer = Tracer()


def end() -> None:
    """Export finished spans and end traces in this process."""
    global _tracer
    if _tracer is not None:
        _tracer.close()
    _tracer = None


def is_on() -> bool:
    """Whether this process traces. Callers skip expensive attributes if it does not."""
    return _tracer is not None


def span(
    name: str, kind: Kind = "internal", *, parent: str | None = None, attributes: Attributes | None = None
) -> Span:
    """A span under `parent`, which is a traceparent. Without it, a span under the current span of this thread or task.

    If there is no current span either, a new trace starts.
    """
    if _tracer is None:
        return OFF
    return _tracer.span(name, kind, parent=parent, attributes=attributes)


def serving(method: str, path: str, traceparent: str | None) -> Span:
    """The span of an incoming request, under the caller's span. Health checks and static files get no span."""
    if _tracer is None or path.startswith(_UNTRACED):
        return OFF
    known = method if method in _METHODS else "_OTHER"
    return _tracer.span(known, "server", parent=traceparent, attributes={"http.request.method": known})


def current() -> str | None:
    """The traceparent of this thread's or task's current span, for storing. None while traces are off."""
    return None if _tracer is None else _tracer.current()


def continued(traceparent: str | None) -> Span:
    """Make a stored traceparent the current span of this thread or task, without a new span."""
    if _tracer is None or traceparent is None:
        return OFF
    return _tracer.continued(traceparent)
