"""Group commit on an event loop: what arrives while a statement runs is written by the next one, in one commit.

The counterpart of `gateway/threads/group_commit.py` for a process without threads. An item finds a free connection and
is written at once when little arrives; under load many items share a statement, its commit and its way to the disk.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from django.db import OperationalError

from gateway.database.outage import concerns_all
from gateway.database.statements import LoopConnection, Statements

Item = TypeVar("Item")
Result = TypeVar("Result")

WRITE_SECONDS = 10.0
"""How long one statement may take, the connection included, before its items fail."""
LEAST_SHARED = 16
"""So few items are not shared among idle connections: a statement of its own would cost more than it saves."""


class LoopGroupCommit(Generic[Item, Result]):
    """Writes items in groups, a group at a time on each connection.

    Idle connections share what has arrived at once. In one group, all callers would be answered together and come
    again together: the process and the database would wait for each other in turns.

    `write` makes the statements of a group and returns a result for each item, in their order. A database that cannot
    be reached fails everyone waiting. Any other exception: each item of the group is retried alone.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Statements[Sequence[Result]]],
        *,
        connections: int,
        size: Callable[[Item], int],
        most: int,
    ) -> None:
        self._write, self._size, self._most = write, size, most
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._idle = [LoopConnection() for _ in range(connections)]
        self._writers: set[asyncio.Task[None]] = set()
        self._starting = 0
        """Writers that will take their first group in this round of the loop."""

    async def do(self, item: Item) -> Result:
        """The result of an item, after its commit. Raises what its own writing raised."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._idle:
            self._starting += 1
            writer = asyncio.create_task(self._write_all(self._idle.pop()))
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await done

    async def close(self) -> None:
        """Finish what has begun and close the connections."""
        await asyncio.gather(*self._writers)
        for connection in self._idle:
            await connection.close()

    async def _write_all(self, connection: LoopConnection) -> None:
        """Write groups until nothing waits."""
        try:
            # What the loop has received in this round joins the first group.
            await asyncio.sleep(0)
            self._starting -= 1
            while self._waiting:
                await self._write_group(connection, self._take())
        finally:
            self._idle.append(connection)

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """The first of what waits: a share of it, up to `most` by size, at least one."""
        share = max(LEAST_SHARED, math.ceil(len(self._waiting) / (1 + self._starting)))
        group = [self._waiting.popleft()]
        size = self._size(group[0][0])
        while (
            self._waiting
            and len(group) < share
            and (size := size + self._size(self._waiting[0][0])) <= self._most
        ):
            group.append(self._waiting.popleft())
        return group

    async def _write_group(
        self, connection: LoopConnection, group: Sequence[tuple[Item, "asyncio.Future[Result]"]]
    ) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                results = await connection.run_each(self._write([item for item, _ in group]))
        except TimeoutError:
            # Only this group: another connection may be well.
            for _, done in group:
                _fail(done, OperationalError("The statement took too long."))
        except Exception as error:  # noqa: BLE001 - whoever waits for an item gets its error
            if concerns_all(error):
                # Who waits has waited for this as well: a try for each of them would take as long once more.
                for _, done in (*group, *self._waiting):
                    _fail(done, error)
                self._waiting.clear()
                return
            if len(group) == 1:
                _fail(group[0][1], error)
                return
            for each in group:
                await self._write_group(connection, [each])
        else:
            for (_, done), result in zip(group, results, strict=True):
                if not done.done():
                    done.set_result(result)


def _fail(done: "asyncio.Future[Result]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
