"""Authentication at the edge: a caller is judged by the headers alone, before a byte of the body is read."""

from edge.blocking import ThreadPool
from edge.request import Request
from gateway.api import throttling
from gateway.api.authentication import Caller, bearer_token, check_tenant_caller
from tenants.authentication import caller_for, recalled_caller_for, refusal

_threads = ThreadPool("callers", threads=4, waiting=1_000)


async def admitted_caller(request: Request) -> Caller:
    """The caller of a request, in good standing and within its rate.

    In the order of Django's door: 401, 403 of the kind of caller, 400 and 404 of the chosen tenant, 403 of the
    tenant's status, 429 of its rate. What this process remembers of keys, tenants and rates takes no look-up.
    """
    token = bearer_token(request.header(b"authorization") or "")
    chosen = request.header(b"x-service-tenant")
    caller = recalled_caller_for(token) or await _threads.run(caller_for, token, chosen)
    if caller is None:
        raise await _threads.run(refusal, token)
    request.caller = caller
    check_tenant_caller(caller, chosen)
    admission = throttling.admit_at_once(caller)
    if admission is None:
        admission = await _threads.run(throttling.admit, caller)
    request.admission_headers = admission.headers
    admission.check()
    return caller
