"""Threads of the edge for work that Django does: bounded in number, and in how much may wait for them."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection

from gateway.api.errors import ServiceUnavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class ThreadPool:
    """A few threads for one kind of work, so that no kind can take the threads of another.

    A thread's database connection goes back to the process's pool after each piece of work.
    """

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads + waiting

    async def run(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Do the work in a thread, in the caller's context. Raises ServiceUnavailable when too much waits."""
        if self._free <= 0:
            raise ServiceUnavailable("Too much is waiting for this process. Try again.")
        self._free -= 1
        in_context = partial(contextvars.copy_context().run, _with_connection, partial(work, *args, **kwargs))
        future = asyncio.get_running_loop().run_in_executor(self._executor, in_context)
        # Counted until the thread is free again, whatever becomes of the request that waits.
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def close(self) -> None:
        """Finish what has begun and end the threads."""
        self._executor.shutdown()

    def _done(self, future: "asyncio.Future[Result]") -> None:
        self._free += 1
        if not future.cancelled():
            future.exception()


def _with_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connection.close()
