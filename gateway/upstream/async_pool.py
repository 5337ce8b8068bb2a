"""The Graph API over aiohttp: the transport of the batch runner, which has hundreds of calls under way at once.

It sends what `client.prepare` makes and answers like `client.send`. A call is made once: aiohttp repeats only
idempotent methods on a connection that turns out to be dead, and those are switched off here as well.
"""

import asyncio
from time import perf_counter
from types import TracebackType
from typing import Self

import aiohttp
import structlog
from django.conf import settings
from yarl import URL

from gateway.upstream.client import Answer, Call, UpstreamUnreachable

log = structlog.get_logger(__name__)

IDLE_SECONDS = 10.0
"""A connection idle for longer is not used again: the upstream may have closed it."""


class Channel:
    """A pool of connections to the upstream: an async context manager, for one event loop."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._limit, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._session._retry_connection = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, call: Call) -> Answer:
        """Make a call and read the whole answer. Raises UpstreamUnreachable."""
        seconds = settings.UPSTREAM_TIMEOUT_MS / 1000
        started = perf_counter()
        try:
            async with self._session.request(
                call.method,
                URL(call.url, encoded=True),
                headers=call.headers,
                data=call.body,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=min(5.0, seconds)),
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            ms = (perf_counter() - started) * 1000
            reason = "timeout" if isinstance(error, TimeoutError) else "connection_error"
            log.warning("upstream_unreachable", reason=reason, error=type(error).__name__, ms=round(ms, 1))
            raise UpstreamUnreachable(reason, ms) from None
        return Answer(response.status, body, response.headers, (perf_counter() - started) * 1000)
