"""Spans, in the form that traced code uses. `tracing.py` creates them."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

from gateway.monitoring.metrics import Counter

Kind = Literal["server", "client", "producer", "consumer", "internal"]
Value = str | int | float | bool
Attributes = Mapping[str, Value]

LOST = Counter("gateway_spans_lost_total", "Spans that the collector of traces did not accept.")


class Span:
    """A traced piece of work, for a `with` statement. While traces are off, this class is used and does nothing."""

    traceparent: str | None = None
    """The span's id as the parent of another span, in the form of W3C Trace Context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def note(self, name: str, value: Value | None) -> None:
        """Set an attribute. None sets nothing."""

    def answered(self, status: int, route: str | None = None) -> None:
        """Record the status of an HTTP response, and the route pattern of the request."""

    def failed(self, reason: str) -> None:
        """Mark the work as failed, with a word for the reason."""


OFF: Final = Span()
