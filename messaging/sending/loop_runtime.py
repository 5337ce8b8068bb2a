"""Runtime of the sending flow on an event loop: shared look-ups, group commit, the asynchronous pool.

Sends that arrive together share the statement that finds their numbers and the one that writes their events. Those
with a key have statements of their own, on a few connections that they take turns at.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.db import OperationalError

from gateway.database.loop_group_commit import LoopGroupCommit
from gateway.database.statements import LoopConnection, Statements
from gateway.upstream.async_pool import AsyncPool
from gateway.upstream.calls import GraphAnswer, GraphCall
from phone_numbers.lookup import Sender, SenderQuery, finding_senders
from webhooks import wake_up
from webhooks.events.new_event import NewEvent
from webhooks.events.publish import MOST_TOGETHER, Publication, publishing

LOOKUP_CONNECTIONS = 1
EVENT_CONNECTIONS = 2
"""While one group waits for the disk the next is written."""
OWN_CONNECTIONS = 4
MOST_LOOKUPS = 200
STATEMENT_SECONDS = 10.0
"""How long statements may take, the wait for a connection included."""

Result = TypeVar("Result")
Aside = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


class LoopRuntime:
    """The runtime of one process, for one event loop. `aside` does work of Django's ORM in a thread."""

    def __init__(self, *, calls_at_once: int, aside: Aside) -> None:
        self._calls_at_once = calls_at_once
        self._aside = aside
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
        return await self._senders.do(query)

    async def read(self, statements: Statements[Result]) -> Result:
        return await self._on_own_connection(lambda connection: connection.run_each(statements))

    async def write(self, statements: Statements[Result]) -> Result:
        return await self._on_own_connection(lambda connection: connection.run(statements))

    async def publish(self, tenant_id: UUID, event: NewEvent) -> None:
        await self._events.do(Publication(tenant_id, [event]))

    async def call(self, call: GraphCall) -> GraphAnswer:
        if self._upstream is None:
            self._upstream = await AsyncPool(limit=self._calls_at_once).__aenter__()
        return await self._upstream.send(call)

    async def aside(self, work: Callable[[], None]) -> None:
        await self._aside(work)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close all connections, once the last send has its answer."""
        await self._senders.close()
        await self._events.close()
        while not self._idle.empty():
            await self._idle.get_nowait().close()
        if self._upstream is not None:
            await self._upstream.__aexit__(None, None, None)
            self._upstream = None

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
