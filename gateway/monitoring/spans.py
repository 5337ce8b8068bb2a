"""Spans, as the code that is traced sees them; `tracing.py` makes them."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

from gateway.monitoring.metrics import Counter

Kind = Literal["server", "client", "producer", "consumer", "internal"]
Value = str | int | float | bool
Attributes = Mapping[str, Value]

LOST = Counter("gateway_spans_lost_total", "Spans that the collector of traces did not take.")


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
