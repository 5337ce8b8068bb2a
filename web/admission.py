"""Admission: a caller is authenticated and rate limited by the headers alone, before any of the body is read. Then the
body is read within the caller's rate in bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from gateway.api import authentication, limits
from gateway.api.authentication import Caller, bearer_token, check_tenant_caller
from gateway.api.errors import ServiceError
from gateway.api.event_loop import ThreadPool
from gateway.api.limits import API_BODY_BYTES, SMALL_BODY_BYTES
from gateway.database import pool
from gateway.database.transactions import concerns_all
from gateway.monitoring.logs import type_alone
from gateway.roles import KeyScope
from tenants.credentials import api_keys, key_cache
from tenants.credentials.bearer_tokens import caller_for, recalled_caller_for, refusal
from web.request import Request
from web.strangers import strangers

log = structlog.get_logger(__name__)

_threads = ThreadPool("callers", threads=4, waiting=1_000)
"""Threads that look up callers with a known credential."""
_strangers_threads = ThreadPool("strangers", threads=6, waiting=1_000, begin=pool.use_strangers_pool)


class Credential(NamedTuple):
    """A request's credential: the token, and the tenant that the request chose."""

    token: str
    chosen: str | None

    def __repr__(self) -> str:
        return type_alone(self)


def credential_of(request: Request) -> Credential:
    """The credential of a request. Raises Unauthorized."""
    return Credential(
        bearer_token(request.header(b"authorization") or ""), request.header(b"x-service-tenant")
    )


async def admitted_caller(request: Request, *, scope: KeyScope) -> Caller:
    """Return the caller of a request for an operation with this scope, in good standing and within its rate.

    Rejections come in the order of REST framework's views: 401; 403 for the kind of caller; 400 and 404 for the chosen
    tenant; 403 for the tenant's status and for the scope; 429 for the caller's rate. Facts in this process's caches
    need no look-up.
    """
    token, chosen = credential_of(request)
    caller = recalled_caller_for(token)
    if caller is None and authentication.is_known(authentication.credential_digest(token)):
        caller = await _threads.run(_identified, token, chosen)
    elif caller is None:
        async with strangers.turn(request):
            caller = await _strangers_threads.run(_identified, token, chosen)
    request.caller = caller
    check_tenant_caller(caller, chosen, method=request.method, scope=scope)
    admission = limits.admit_at_once(caller)
    if admission is None:
        admission = await _threads.run(limits.admit, caller)
    request.admission_headers = admission.headers
    admission.check()
    return caller


async def admitted_body(request: Request, caller: Caller) -> bytes:
    """The body of an admitted call, within its caller's rate in bytes. Raises ServiceError or ClientGone.

    A body of a declared length is counted before it is read, a chunked one afterwards.
    """
    declared = request.declared_length
    if declared is not None and declared > SMALL_BODY_BYTES:
        request.check_length(API_BODY_BYTES)
        await _threads.run(limits.require_room_for_body, caller, declared)
    raw = await request.body(limit=API_BODY_BYTES)
    if declared is None and len(raw) > SMALL_BODY_BYTES:
        await _threads.run(limits.require_room_for_body, caller, len(raw))
    return raw


def _identified(token: str, chosen: str | None) -> Caller:
    """The caller of a token. Raises Unauthorized with the reason."""
    caller = caller_for(token, chosen)
    if caller is None:
        raise refusal(token)
    return caller


async def still_admitted(credentials: Sequence[Credential]) -> list[bool]:
    """For each credential of an event stream, whether it is still valid."""
    return await _threads.run(_still_admitted, credentials)


def _still_admitted(credentials: Sequence[Credential]) -> list[bool]:
    try:
        # All credentials are looked up together, because each one alone would need two look-ups.
        key_cache.remember_many({api_keys.hash_of(credential.token) for credential in credentials})
    except Exception as error:
        if concerns_all(error):
            # Without the database the credentials cannot be checked, but then the streams deliver nothing either.
            return [True] * len(credentials)
        log.exception("credentials_unreadable_together")
    return [_is_admitted(credential) for credential in credentials]


def _is_admitted(credential: Credential) -> bool:
    try:
        caller = caller_for(credential.token, credential.chosen)
        if caller is None:
            return False
        check_tenant_caller(caller, credential.chosen, method="GET", scope=KeyScope.EVENTS)
    except ServiceError:
        return False
    except Exception as error:
        if not concerns_all(error):
            log.exception("credential_unreadable")
        return concerns_all(error)
    return True
