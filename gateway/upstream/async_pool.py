"""Asynchronous pool of connections to the Graph API, for hundreds of calls under way at once; never repeats a call.

It sends what `calls.prepare` makes and answers like the blocking pool, over the connections that deliveries use.
Measured in turns: 35 to 54 µs of CPU a call, aiohttp's client 79 to 133.
"""

import asyncio
from time import perf_counter
from types import TracebackType
from typing import Self

from aiohappyeyeballs import start_connection
from django.conf import settings

from gateway.api import timing
from gateway.http1 import AnswerTooLargeError, BrokenOffError, Origin, headers_of, tls_context
from gateway.outbound.connection import HttpConnection, IdleConnections, connect
from gateway.outbound.dns import Names
from gateway.outbound.receiver_answer import Attempt, UnknownNameError
from gateway.upstream.calls import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MOST_BODY_BYTES,
    GraphAnswer,
    GraphCall,
    request_of,
    span_of,
    unreachable,
)

NAMES_SECONDS = 10.0
"""How long the addresses of a name are kept."""
_NEXT_ADDRESS_AFTER = 0.25
"""Seconds until a name's next address is tried beside the one that does not answer (RFC 8305)."""


class AsyncPool:
    """A pool of connections to the upstream: an async context manager, for one event loop."""

    def __init__(self, *, limit: int) -> None:
        self._turns = asyncio.Semaphore(limit)
        self._names = Names(None, NAMES_SECONDS)
        self._idle = IdleConnections(seconds=IDLE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._idle.close()
        await self._names.close()

    async def send(self, call: GraphCall) -> GraphAnswer:
        """Make a call when it has its turn, and read the whole answer within UPSTREAM_TIMEOUT_MS.

        Raises UpstreamUnreachable.
        """
        if not isinstance(call.body, bytes | None):
            raise TypeError("Only the blocking pool streams bodies.")
        origin, head = request_of(call)
        with span_of(call) as span:
            async with self._turns:
                answer = await self._exchange(origin, head, call.body or b"")
            span.answered(answer.status)
            return answer

    async def _exchange(self, origin: Origin, head: bytes, body: bytes) -> GraphAnswer:
        started = perf_counter()
        deadline = asyncio.get_running_loop().time() + settings.UPSTREAM_TIMEOUT_MS / 1000
        try:
            connection = self._idle.take(origin) or await self._connect(origin, deadline)
        except (OSError, UnknownNameError) as error:
            raise unreachable(error, started, is_unsent=True) from None
        attempt = Attempt()
        try:
            await connection.exchange(head, body, attempt, read_limit=MOST_BODY_BYTES + 1, deadline=deadline)
            if attempt.status is None or len(attempt.body) > MOST_BODY_BYTES:
                raise AnswerTooLargeError
        except (OSError, BrokenOffError, AnswerTooLargeError) as error:
            raise unreachable(error, started) from None
        self._idle.keep(origin, connection)
        ms = (perf_counter() - started) * 1000
        timing.add(ms)
        return GraphAnswer(attempt.status, bytes(attempt.body), headers_of(attempt.fields), ms)

    async def _connect(self, origin: Origin, deadline: float) -> HttpConnection:
        """Raises OSError or UnknownNameError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(min(loop.time() + CONNECT_SECONDS, deadline)):
            addresses = await self._names.addresses(origin.host, origin.port)
            sock = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER)
            return await connect(sock, origin, tls_context())
