"""Spans, as traced code uses them. `tracing.py` creates them."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

from gateway.monitoring.metrics import Counter

Kind = Literal["server", "client", "producer", "consumer", "internal"]
Value = str | int | float | bool
Attributes = Mapping[str, Value]

LOST = Counter("gateway_spans_lost_total", "Spans that the collector of traces did not take.")


class Span:
    """A traced piece of work, for a `with` statement. This class is used while traces are off."""

    traceparent: str | None = None
    """The span as the parent of another span, in the form of W3C Trace Context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def note(self, name: str, value: Value | None) -> None:
        """Set an attribute. None sets nothing."""

    def answered(self, status: int, route: str | None = None) -> None:
        """Record the status of an HTTP response, and the pattern of the requested path."""

    def failed(self, reason: str) -> None:
        """Mark the work as failed, with a word for the reason."""


OFF: Final = Span()
