"""Strangers: callers that this process does not know yet. Each IP address has a limited share of resources.

The threads of callers serve requests with a known credential. All other requests share a few threads and database
connections. Only a few requests of one address are processed at once, and the rest wait their turn. The same applies to
notifications from an address that recently sent an invalid one.
"""

import asyncio
import ipaddress
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings
from django.http.cookie import parse_cookie

from gateway.api import authentication
from gateway.api.authentication import BEARER
from gateway.api.errors import RateLimited, ServiceError
from gateway.api.middleware import GRAPH_PATH
from messaging.cloud_api import parameters as graph_sends
from web.request import AsgiScope, ClientGone, Request
from web.turns import Turns

AT_ONCE = 4
"""The maximum number of concurrent requests of one address. There are more threads for strangers, so one address never
uses all.
"""
MOST_WAITING = 200
"""The maximum number of waiting requests of one address."""
FAILED_SECONDS = 0.1
"""How long a rejected request keeps its turn, so that an address gets at most 40 rejections a second."""
REFUSED_SECONDS = 1.0
"""The shortest delay of a rejection when too many requests wait, to slow down retries. The longest delay is twice as
long.
"""
SUSPECT_SECONDS = 60.0
"""How long an address must wait its turn for each notification after an invalid one."""
MOST_SUSPECTS = 10_000


REJECTIONS = frozenset({401, 403, 429})
"""The statuses of Django's responses that reject a caller."""


class Strangers:
    """Gives turns to strangers, by address."""

    def __init__(self) -> None:
        self._turns = Turns(AT_ONCE)
        self._suspects: dict[str, float] = {}
        """When each address stops being a suspect."""

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Hold a turn during the block. Raises RateLimited if too many requests of the address wait."""
        address = network_of(request)
        if self._turns.users(address) >= AT_ONCE + MOST_WAITING:
            # Simultaneous requests are rejected at different times, so that other calls need not wait for all of them.
            await asyncio.sleep(REFUSED_SECONDS * random.uniform(1, 2))  # noqa: S311 - no secret
            raise RateLimited(
                "Too many calls from your address are waiting for their turn.", headers={"Retry-After": "1"}
            )
        async with self._turns.held(address):
            try:
                yield
            except (ServiceError, ClientGone):
                await self.after_rejection()
                raise

    @staticmethod
    async def after_rejection() -> None:
        """Keep a turn for a while. The block of `turn` calls this after a rejection that is not an exception."""
        await asyncio.sleep(FAILED_SECONDS)

    def suspect(self, request: Request) -> None:
        """Record an invalid notification: it had no valid signature, or its body did not arrive."""
        if len(self._suspects) >= MOST_SUSPECTS:
            self._suspects.clear()
        self._suspects[network_of(request)] = asyncio.get_running_loop().time() + SUSPECT_SECONDS

    def is_suspect(self, request: Request) -> bool:
        """Whether this IP address recently sent an invalid notification."""
        if not self._suspects:
            return False
        address = network_of(request)
        until = self._suspects.get(address)
        if until is not None and until <= asyncio.get_running_loop().time():
            del self._suspects[address]
            return False
        return until is not None


strangers = Strangers()


def is_known(scope: AsgiScope) -> bool:
    """Whether a request has a known credential.

    A key in the body does not count, because the body has not been read yet.
    """
    credential = _credential(scope)
    return credential is not None and authentication.is_known(authentication.credential_digest(credential))


def owner_of_session(scope: AsgiScope) -> str | None:
    """The business of a request with a known session, or the person of a session without a business. None for any other
    request.
    """
    credential = _credential(scope)
    return (
        None if credential is None else authentication.owner_of(authentication.credential_digest(credential))
    )


def _credential(scope: AsgiScope) -> str | None:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    given = headers.get(b"authorization")
    authorization = None if given is None else given.decode("latin-1")
    if GRAPH_PATH.match(scope["path"]):
        api_key = headers.get(b"x-api-key", b"").decode("latin-1")
        authorization = graph_sends.credential(
            authorization, api_key, scope["query_string"].decode("latin-1")
        )
    if authorization is None:
        cookies = parse_cookie(headers.get(b"cookie", b"").decode("latin-1"))
        return cookies.get(settings.SESSION_COOKIE_NAME)
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == BEARER else None


def network_of(request: Request) -> str:
    """The client's address, as the trusted proxies report it. For IPv6, the /64 network of the address. An IPv4 address
    counts as such also in its IPv6 form (`::ffff:203.0.113.7`), because all these forms are in one /64.
    """
    client = request.scope["client"]
    address = str(client[0]) if client else ""
    if settings.ALLAUTH_TRUSTED_PROXY_COUNT:
        forwarded = [part.strip() for part in (request.header(b"x-forwarded-for") or "").split(",")]
        address = forwarded[-min(settings.ALLAUTH_TRUSTED_PROXY_COUNT, len(forwarded))] or address
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(getattr(parsed, "ipv4_mapped", parsed))
