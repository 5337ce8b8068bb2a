"""Spans of requests: what both doors note in a trace of a request and its answer."""

from gateway.api.authentication import Caller
from gateway.monitoring.spans import OFF, Span


def note(span: Span, *, request_id: str, caller: Caller | None, status: int, route: str | None) -> None:
    """Note the answer and the caller's tenant. `route` is the pattern of the path, never the path itself."""
    if span is OFF:
        return
    span.answered(status, route)
    span.note("gateway.request.id", request_id)
    if caller is not None and caller.tenant is not None:
        span.note("gateway.tenant.id", str(caller.tenant.id))
        span.note("gateway.environment", caller.effective_environment)
