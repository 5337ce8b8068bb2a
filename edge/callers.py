"""Authentication at the edge: a caller is judged by the headers alone, before a byte of the body is read."""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from edge.blocking import ThreadPool
from edge.request import Request
from gateway.api.authentication import Caller, bearer_token, check_tenant_caller
from gateway.api.errors import ServiceError
from gateway.api.limits import throttling
from gateway.database.outage import concerns_all
from tenants.credentials import api_keys, key_cache
from tenants.credentials.authentication import caller_for, recalled_caller_for, refusal

log = structlog.get_logger(__name__)

_threads = ThreadPool("callers", threads=4, waiting=1_000)


class Credential(NamedTuple):
    """What a request brings along: its token and the tenant that it chose."""

    token: str
    chosen: str | None


def credential_of(request: Request) -> Credential:
    """The credential of a request. Raises Unauthorized."""
    return Credential(
        bearer_token(request.header(b"authorization") or ""), request.header(b"x-service-tenant")
    )


async def admitted_caller(request: Request) -> Caller:
    """The caller of a request, in good standing and within its rate.

    In the order of Django's door: 401, 403 of the kind of caller, 400 and 404 of the chosen tenant, 403 of the
    tenant's status, 429 of its rate. What this process remembers of keys, tenants and rates takes no look-up.
    """
    token, chosen = credential_of(request)
    caller = recalled_caller_for(token) or await _threads.run(caller_for, token, chosen)
    if caller is None:
        raise await _threads.run(refusal, token)
    request.caller = caller
    check_tenant_caller(caller, chosen, method=request.method)
    admission = throttling.admit_at_once(caller)
    if admission is None:
        admission = await _threads.run(throttling.admit, caller)
    request.admission_headers = admission.headers
    admission.check()
    return caller


async def still_admitted(credentials: Sequence[Credential]) -> list[bool]:
    """Whether each credential still opens what it reads, for answers that go on."""
    return await _threads.run(_still_admitted, credentials)


def _still_admitted(credentials: Sequence[Credential]) -> list[bool]:
    try:
        # Together: one by one, each would be two look-ups.
        key_cache.remember_many({api_keys.hash_of(credential.token) for credential in credentials})
    except Exception as error:
        if concerns_all(error):
            # Nothing is known of them now, and nothing can be read with them.
            return [True] * len(credentials)
        log.exception("credentials_unreadable_together")
    return [_is_admitted(credential) for credential in credentials]


def _is_admitted(credential: Credential) -> bool:
    try:
        caller = caller_for(credential.token, credential.chosen)
        if caller is None:
            return False
        check_tenant_caller(caller, credential.chosen, method="GET")
    except ServiceError:
        return False
    except Exception as error:
        if not concerns_all(error):
            log.exception("credential_unreadable")
        return concerns_all(error)
    return True
