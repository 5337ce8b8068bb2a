"""The edge's door to `POST /v1/messages`: what Django's door checks, then the same flow on the event loop."""

from django.http import QueryDict

from edge.blocking import ThreadPool
from edge.callers import admitted_caller
from edge.request import Request
from gateway.api.errors import InvalidRequest, UnsupportedMediaType
from gateway.api.json import parse_object
from gateway.api.limits.body_size import API_BODY_BYTES
from gateway.api.limits.in_flight import Bulkhead
from gateway.api.reply import Reply
from messaging.sending import flow
from messaging.sending.flow import SendRequest
from messaging.sending.loop_runtime import LoopRuntime

CALLS_AT_ONCE = 1_000
"""In one process: below the 1,024 files that a process may usually open, each with a slot of the send journal."""

_threads = ThreadPool("sends", threads=2, waiting=1_000)
_runtime: LoopRuntime | None = None
_bulkhead = Bulkhead(per_number=200, per_tenant=400, crowded=800, in_all=CALLS_AT_ONCE)


async def close() -> None:
    """Give back what the route holds of the database and of the upstream."""
    if _runtime is not None:
        await _runtime.close()
    _threads.close()


async def send(request: Request) -> Reply:
    """Send one message (send rules 1 to 7)."""
    caller = await admitted_caller(request)
    assert caller.tenant is not None  # noqa: S101 - an admitted caller acts on a tenant
    if request.query_string:
        unknown = "This query parameter is unknown. This operation takes none."
        raise InvalidRequest.of(**dict.fromkeys(QueryDict(request.query_string), unknown))
    if not (request.header(b"content-type") or "").partition(";")[0].strip().lower() == "application/json":
        raise UnsupportedMediaType
    raw = await request.body(limit=API_BODY_BYTES) or b"{}"
    body = parse_object(raw)
    from_ = body.get("from")
    send = SendRequest(
        tenant_id=caller.tenant.id,
        environment=caller.effective_environment,
        path=request.path,
        raw=raw,
        body=body,
        idempotency_key=request.header(b"idempotency-key"),
        request_id=request.request_id,
    )
    with _bulkhead.held(caller.tenant.id, from_[:64] if isinstance(from_, str) else None):
        return await flow.send_message(_loop_runtime(), send)


def _loop_runtime() -> LoopRuntime:
    """The runtime of this process, made inside its event loop."""
    global _runtime
    if _runtime is None:
        _runtime = LoopRuntime(calls_at_once=CALLS_AT_ONCE, aside=_threads.run)
    return _runtime
