"""Export of traces: OpenTelemetry's SDK, with a queue in each process and OTLP over HTTP.

Imported only while traces are on. Finished spans wait in a bounded queue for the exporting thread. A slow or
unavailable collector loses spans but delays no request. The SDK itself reads all `OTEL_*` variables that the settings
do not read.
"""

import atexit
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from django.conf import settings
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from gateway.monitoring.spans import LOST, Attributes, Kind, Span, Value

EXIT_SECONDS = 2.0
"""How long an ending process waits for the collector."""

_KINDS: dict[Kind, SpanKind] = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
    "internal": SpanKind.INTERNAL,
}
_propagator = TraceContextTextMapPropagator()
_NOTHING = Context()


class Tracer:
    """The traces of one process."""

    def __init__(self) -> None:
        # Not the SDK's global provider: tracing libraries would add their own spans to it.
        self._provider = TracerProvider(
            resource=Resource.create(
                {
                    "service.name": settings.SERVICE_NAME,
                    "service.version": settings.SERVICE_SHA,
                    "deployment.environment.name": settings.ENVIRONMENT,
                }
            ).merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
        )
        self._processor = BatchSpanProcessor(
            _Exporter(f"{settings.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces", headers=_headers())
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("gateway", settings.SERVICE_SHA)
        atexit.register(self.close)

    def span(
        self,
        name: str,
        kind: Kind,
        *,
        parent: str | None,
        attributes: Attributes | None,
    ) -> Span:
        """See `tracing.span`."""
        above = otel_context.get_current() if parent is None else _context_of(parent)
        recorded = self._tracer.start_span(name, context=above, kind=_KINDS[kind], attributes=attributes)
        return _Current(recorded, above, kind, name)

    def continued(self, traceparent: str) -> Span:
        """See `tracing.continued`."""
        above = _context_of(traceparent)
        return _Current(trace.get_current_span(above), above, "internal", "")

    def current(self) -> str | None:
        """The current span as a traceparent. None without a span."""
        return _traceparent_of(trace.get_current_span())

    def close(self) -> None:
        """Export finished spans, within EXIT_SECONDS."""
        atexit.unregister(self.close)
        # The SDK's public method would wait for half a minute.
        self._processor._batch_processor.shutdown(timeout_millis=int(EXIT_SECONDS * 1000))


class _Current(Span):
    """A span that is the current span of its thread or task during its `with` statement."""

    def __init__(self, span: trace.Span, above: Context, kind: Kind, name: str) -> None:
        self._span, self._above, self._kind, self._name = span, above, kind, name
        self.traceparent = _traceparent_of(span)

    def __enter__(self) -> Self:
        self._token = otel_context.attach(trace.set_span_in_context(self._span, self._above))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        otel_context.detach(self._token)
        if kind is not None:
            # Only the exception's name, because its text may quote arguments.
            self.failed(kind.__name__)
        self._span.end()

    def note(self, name: str, value: Value | None) -> None:
        if value is not None:
            self._span.set_attribute(name, value)

    def answered(self, status: int, route: str | None = None) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if route is not None:
            self._span.set_attribute("http.route", route)
            self._span.update_name(f"{self._name} {route}")
        if status >= (500 if self._kind == "server" else 400):
            self.failed(str(status))

    def failed(self, reason: str) -> None:
        self._span.set_attribute("error.type", reason)
        self._span.set_status(StatusCode.ERROR)


class _Exporter(OTLPSpanExporter):
    """The OTLP exporter. It counts the spans that the collector did not accept."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            LOST.add(len(spans))
        return result


def _headers() -> dict[str, str]:
    """Headers for the collector. Read from the settings, because their value may come from a file."""
    return dict(parse_env_headers(settings.OTEL_EXPORTER_OTLP_HEADERS, liberal=True))


def _context_of(traceparent: str) -> Context:
    """The context of a traceparent. Empty when it cannot be parsed."""
    return _propagator.extract({"traceparent": traceparent}, _NOTHING)


def _traceparent_of(span: trace.Span) -> str | None:
    found = span.get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
