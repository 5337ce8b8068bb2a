"""Traces: requests, calls of the upstream, tasks and deliveries as spans of OpenTelemetry.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set: then the SDK is not imported, no trace is stored with an event, and a
span costs a function call. `trace_export.py` is the part that knows OpenTelemetry.

A span never holds content, credentials, addresses or phone numbers; nor a wamid, which is the base64 of one.
"""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from django.conf import settings

from gateway.monitoring.metrics import Counter

if TYPE_CHECKING:
    from gateway.monitoring.trace_export import Tracer

Kind = Literal["server", "client", "producer", "consumer", "internal"]
Value = str | int | float | bool
Attributes = Mapping[str, Value]

LOST = Counter("gateway_spans_lost_total", "Spans that the collector of traces did not take.")
HEADER = "traceparent"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNTRACED = ("/v1/health", "/metrics", "/static/", "/docs/")


class Span:
    """A piece of work in a trace, for a `with` statement. This one is what there is while traces are off."""

    traceparent: str | None = None
    """The span as the next one's parent, in the form of W3C Trace Context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def note(self, name: str, value: Value | None) -> None:
        """Set an attribute; None sets none."""

    def answered(self, status: int, route: str | None = None) -> None:
        """Note the status of an HTTP answer, and the pattern of the path that was asked for."""

    def failed(self, reason: str) -> None:
        """Mark the work as failed, with a word that says why."""


OFF: Final = Span()

_tracer: "Tracer | None" = None
_process: int | None = None


def prepare() -> None:
    """Import the SDK where traces are on, before the processes fork that will share its memory."""
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        from gateway.monitoring import trace_export  # noqa: F401 - imported for its modules


def begin() -> None:
    """Begin traces in this process, after its fork: the export has a thread of its own. Does nothing a second time."""
    global _tracer, _process
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT and _process != os.getpid():
        from gateway.monitoring.trace_export import Tracer

        _tracer, _process = Tracer(), os.getpid()


def end() -> None:
    """Export what is finished and end traces in this process."""
    global _tracer, _process
    if _tracer is not None:
        _tracer.close()
    _tracer = _process = None


def is_on() -> bool:
    """Whether this process traces. Costly attributes are made only then."""
    return _tracer is not None


def span(
    name: str, kind: Kind = "internal", *, parent: str | None = None, attributes: Attributes | None = None
) -> Span:
    """A span under `parent`, a traceparent; without one, under the current span of this thread or task.

    One that has neither begins a trace.
    """
    if _tracer is None:
        return OFF
    return _tracer.span(name, kind, parent=parent, attributes=attributes)


def serving(method: str, path: str, traceparent: str | None) -> Span:
    """The span of a request that came in, under the caller's. Health checks and static files have none."""
    if _tracer is None or path.startswith(_UNTRACED):
        return OFF
    known = method if method in _METHODS else "_OTHER"
    return _tracer.span(known, "server", parent=traceparent, attributes={"http.request.method": known})


def current() -> str | None:
    """The current span of this thread or task as a traceparent, to be stored; None while traces are off."""
    return None if _tracer is None else _tracer.current()


def continued(traceparent: str | None) -> Span:
    """Makes a stored traceparent the current span of this thread or task, without a span of its own."""
    if _tracer is None or traceparent is None:
        return OFF
    return _tracer.continued(traceparent)
