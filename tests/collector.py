"""A collector of traces on loopback: accepts spans as OTLP over HTTP and stores them for a test."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pytest_django import Settings

from gateway.monitoring import tracing


@dataclass(frozen=True)
class Exported:
    """A span as received by the collector."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    text: str
    """The whole span as text, so that a test can search it."""


@dataclass
class Collector:
    """The server. It stores the spans that are exported to `url`. `before_answer` can delay the exporter."""

    url: str = ""
    spans: list[Exported] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    before_answer: Callable[[], object] = lambda: None
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Store the spans of a request."""
        self.before_answer()
        spans = list(_spans(ExportTraceServiceRequest.FromString(body)))
        with self.arrived:
            self.headers.append(headers)
            self.spans += spans
            self.arrived.notify_all()

    def named(self, name: str, *, trace_id: str | None = None) -> list[Exported]:
        """Return the spans with a name, of one trace or of all."""
        return [span for span in self.spans if span.name == name and trace_id in (None, span.trace_id)]

    def wait_for(self, name: str, count: int = 1, *, trace_id: str | None = None) -> list[Exported]:
        """Wait until at least `count` spans with a name have arrived. Returns all so far. Fails after 30 seconds."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.named(name, trace_id=trace_id)) >= count, 30), (
                f"{name}: {len(self.named(name, trace_id=trace_id))} of {count} arrived; "
                f"received names: {sorted({span.name for span in self.spans})}"
            )
            return self.named(name, trace_id=trace_id)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector for one test."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


@pytest.fixture
def traced(collector: Collector, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that receives the traces of this process until the test ends. Each span is exported at once."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = collector.url
    tracing.begin()
    yield collector
    tracing.end()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Exported]:
    for of_resource in request.resource_spans:
        for scope in of_resource.scope_spans:
            for span in scope.spans:
                yield Exported(
                    name=span.name,
                    kind=span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                    attributes=_values(span.attributes),
                    resource=_values(of_resource.resource.attributes),
                    text=f"{span} {of_resource.resource}",
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
