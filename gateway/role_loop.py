"""The loop of a role: runs as long as its process, and is started again whenever it ends by itself.

`keep_running` runs it on the event loop of the web role. `LoopThread` runs it in its own thread.
"""

import asyncio
import contextlib
import threading
from typing import Protocol, Self

import structlog

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""The pause after a loop that failed, or that already runs in another thread of the process."""


class Loop(Protocol):
    """A module with the loop of a role."""

    __name__: str

    async def work(self) -> bool:
        """Run until there has been no work for a long time. Returns whether the loop ran and may run again."""

    def stop(self) -> None:
        """Stop the loop soon, for good."""


async def keep_running(loop: Loop, ending: asyncio.Event) -> None:
    """Run a loop again and again until `ending` is set. Call its `stop` after setting it.

    An error is logged, and the loop starts again after a pause. If the loop stayed ended, rows that no other process
    polls could wait forever.
    """
    while not ending.is_set():
        try:
            if await loop.work():
                continue
        except Exception:
            log.exception("loop_failed", loop=loop.__name__)
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                await ending.wait()
        except TimeoutError:
            continue


class LoopThread:
    """Runs a loop in a thread while its context is open."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ending: asyncio.Event | None = None
        self._is_ending = False
        self._events: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="loop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self._loop.stop()
        if self._events is not None and self._ending is not None:
            # The event loop may have ended already.
            with contextlib.suppress(RuntimeError):
                self._events.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    async def _run(self) -> None:
        self._ending, self._events = asyncio.Event(), asyncio.get_running_loop()
        if not self._is_ending:
            await keep_running(self._loop, self._ending)
