"""Thread of a worker's loop: runs it from the process's start to its end, again whenever it ends by itself."""

import threading
from typing import Protocol, Self

import structlog

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""After a loop that failed, or that another thread of the process runs."""


class Loop(Protocol):
    """A module with the loop of a queue."""

    __name__: str

    def run(self) -> bool:
        """Run it until it has had nothing to do for long; returns whether it ran and may run again."""

    def stop(self) -> None:
        """Have it end soon, for good."""


class LoopThread:
    """Runs a loop while its context is open.

    An error ends neither the thread nor the process: it is logged, and the loop begins again after a pause. Both would
    leave rows waiting that no other process of this host may look for.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._loop.stop()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if self._loop.run():
                    continue
            except Exception:
                log.exception("loop_failed", loop=self._loop.__name__)
            self._ending.wait(PAUSE_SECONDS)
