"""Asynchronous pool of connections to the Graph API (aiohttp), for hundreds of calls under way at once.

It sends what `calls.prepare` makes and answers like the blocking pool. A call is made once: aiohttp repeats only
idempotent methods on a connection that turns out to be dead, and those are switched off here as well.
"""

import asyncio
from time import perf_counter
from types import TracebackType
from typing import Self

import aiohttp
from django.conf import settings
from yarl import URL

from gateway.api import timing
from gateway.http1 import tls_context
from gateway.upstream.calls import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    GraphAnswer,
    GraphCall,
    span_of,
    unreachable,
)


class AsyncPool:
    """A pool of connections to the upstream: an async context manager, for one event loop."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._limit, keepalive_timeout=IDLE_SECONDS, ssl=tls_context()
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._session._retry_connection = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, call: GraphCall) -> GraphAnswer:
        """Make a call and read the whole answer. Raises UpstreamUnreachable."""
        with span_of(call) as span:
            answer = await self._send(call)
            span.answered(answer.status)
            return answer

    async def _send(self, call: GraphCall) -> GraphAnswer:
        seconds = settings.UPSTREAM_TIMEOUT_MS / 1000
        started = perf_counter()
        try:
            async with self._session.request(
                call.method,
                URL(call.url, encoded=True),
                headers=call.headers,
                data=call.body,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds)),
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(error, started, is_unsent=True) from None
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            raise unreachable(error, started) from None
        ms = (perf_counter() - started) * 1000
        timing.add(ms)
        return GraphAnswer(response.status, body, response.headers, ms)
