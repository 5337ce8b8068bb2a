"""Upstream time of the current request: the `meta` part of `Server-Timing`.

The client adds what each call took; the outermost middleware starts the count and reads it.
"""

from contextvars import ContextVar

_waited_ms: ContextVar[float] = ContextVar("upstream_waited_ms", default=0.0)


def start() -> None:
    """Begin counting for a new request."""
    _waited_ms.set(0.0)


def add(milliseconds: float) -> None:
    """Count a call of that many milliseconds."""
    _waited_ms.set(_waited_ms.get() + milliseconds)


def waited_ms() -> float:
    """Milliseconds waited for the upstream so far."""
    return _waited_ms.get()


def split(total_ms: float) -> tuple[float, float]:
    """A request's milliseconds as its own and those of waiting, each rounded once: all headers show one figure."""
    waited = min(waited_ms(), total_ms)
    return round(total_ms - waited, 1), round(waited, 1)
