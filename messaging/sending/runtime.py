"""Runtime of the sending flow: its access to the database and the upstream, on one event loop.

Sends that arrive together share two statements: one finds their numbers, the other writes their events. Sends with a
key have their own statements, on a few shared connections.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.db import OperationalError

from gateway.api.event_loop import ThreadPool
from gateway.database.statements import STATEMENT_SECONDS, LoopConnection, LoopGroupCommit, Statements
from gateway.upstream.calls import AsyncPool, GraphAnswer, GraphCall
from phone_numbers.lookup import Sender, SenderQuery, finding_senders
from webhooks import wake_up
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import MOST_TOGETHER, Publication, publishing

LOOKUP_CONNECTIONS = 1
EVENT_CONNECTIONS = 2
"""Two, so that the next group is written while one waits for the disk."""
OWN_CONNECTIONS = 4
MOST_LOOKUPS = 200

Result = TypeVar("Result")


class SendRuntime:
    """The runtime of one process, on one event loop."""

    def __init__(self, *, calls_at_once: int) -> None:
        self._calls_at_once = calls_at_once
        self._threads = ThreadPool("sends", threads=2, waiting=1_000)
        self._upstream: AsyncPool | None = None
        self._senders: LoopGroupCommit[SenderQuery, Sender | None] = LoopGroupCommit(
            finding_senders, connections=LOOKUP_CONNECTIONS, size=lambda _: 1, most=MOST_LOOKUPS
        )
        self._events: LoopGroupCommit[Publication, None] = LoopGroupCommit(
            _publishing, connections=EVENT_CONNECTIONS, size=lambda _: 1, most=MOST_TOGETHER
        )
        self._idle: asyncio.LifoQueue[LoopConnection] = asyncio.LifoQueue()
        for _ in range(OWN_CONNECTIONS):
            self._idle.put_nowait(LoopConnection())

    async def find_sender(self, query: SenderQuery) -> Sender | None:
        """Look up the number that a send names. Raises `DATABASE_UNAVAILABLE`."""
        return await self._senders.do(query)

    async def read(self, statements: Statements[Result]) -> Result:
        """Run statements, each in its own transaction. Raises `DATABASE_UNAVAILABLE`."""
        return await self._on_own_connection(lambda connection: connection.run_each(statements))

    async def write(self, statements: Statements[Result]) -> Result:
        """Run statements in one transaction, committed when this returns. Raises `DATABASE_UNAVAILABLE`."""
        return await self._on_own_connection(lambda connection: connection.run(statements))

    async def publish(self, tenant_id: UUID, event: NewEvent) -> None:
        """Write one event, in the same statement as concurrent publications. Committed when this returns."""
        await self._events.do(Publication(tenant_id, [event]))

    async def call(self, call: GraphCall) -> GraphAnswer:
        """Call the upstream once. Raises UpstreamUnreachable."""
        if self._upstream is None:
            self._upstream = await AsyncPool(limit=self._calls_at_once).__aenter__()
        return await self._upstream.send(call)

    async def in_thread(self, work: Callable[[], None]) -> None:
        """Run a function that uses Django's ORM."""
        await self._threads.run(work)

    async def close(self) -> None:
        """Close all connections after the last send has its answer."""
        await self._senders.close()
        await self._events.close()
        while not self._idle.empty():
            await self._idle.get_nowait().close()
        if self._upstream is not None:
            await self._upstream.__aexit__(None, None, None)
            self._upstream = None
        self._threads.close()

    async def _on_own_connection(
        self, work: Callable[[LoopConnection], Coroutine[Any, Any, Result]]
    ) -> Result:
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                connection = await self._idle.get()
                try:
                    return await work(connection)
                finally:
                    self._idle.put_nowait(connection)
        except TimeoutError:
            raise OperationalError("The statements took too long.") from None


def _publishing(publications: Sequence[Publication]) -> Statements[list[None]]:
    published = yield from publishing(publications)
    if published.deliveries:
        wake_up.soon(published.deliveries)
    return [None] * len(publications)
