"""A web process's event loop and threads, which pass work to each other.

The loop passes blocking work to a `ThreadPool`, with limits on threads and on waiting work. Django's threads call `run`
for work that needs the loop.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.db import connection

from gateway.api import access_log
from gateway.api.errors import ServiceUnavailable
from gateway.database.transactions import leave_database

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class ThreadPool:
    """A few threads for one kind of work, so that no kind of work can occupy the threads of another kind.

    A thread's database connection returns to its pool after each piece of work. Each thread calls `begin` when it
    starts.
    """

    def __init__(
        self, name: str, *, threads: int, waiting: int, begin: Callable[[], None] | None = None
    ) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=begin)
        self._free = threads + waiting

    async def run(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run work in a thread, in the caller's context. The times that it counts are the caller's.

        Raises ServiceUnavailable when too much work waits.
        """
        if self._free <= 0:
            raise ServiceUnavailable("Too many requests are waiting for this process. Try again.")
        self._free -= 1
        context = contextvars.copy_context()
        in_context = partial(context.run, _with_connection, partial(work, *args, **kwargs))
        future = asyncio.get_running_loop().run_in_executor(self._executor, in_context)
        # The work counts until the thread is free, even if the waiting request ends earlier.
        future.add_done_callback(self._on_done)
        result = await asyncio.shield(future)
        access_log.adopt_timing(context)
        return result

    def close(self) -> None:
        """Finish running work and end the threads."""
        self._executor.shutdown()

    def _on_done(self, future: "asyncio.Future[Result]") -> None:
        self._free += 1
        if not future.cancelled():
            future.exception()


def _with_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connection.close()


_loop: asyncio.AbstractEventLoop | None = None


def attach(loop: asyncio.AbstractEventLoop | None) -> None:
    """Set the loop of this process. None when the loop ends."""
    global _loop
    _loop = loop


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run work on the process's loop, and wait for its result in this thread. Graph API time is counted for this
    thread's request.

    Never call it inside a transaction. Raises RuntimeError in a process without a loop.
    """
    leave_database()
    if _loop is None:
        work.close()
        raise RuntimeError("This process has no event loop: it is not a web process.")

    async def timed() -> tuple[Result, float]:
        access_log.start_timing()
        return await work, access_log.upstream_ms()

    result, waited_ms = asyncio.run_coroutine_threadsafe(timed(), _loop).result()
    access_log.add_upstream_ms(waited_ms)
    return result
