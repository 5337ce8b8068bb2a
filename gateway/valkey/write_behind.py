"""Write-behind: background threads for work that calls do not wait for.

`Debounced` runs a piece of work at most once per interval. Pending writes to Valkey are such work: tokens that calls
used before they were taken from a bucket, and the times when calls used API keys. A call that wrote to Valkey itself
would wait and switch threads twice. All writes of a process share one pipeline, because in an idle process a wake-up
costs more than the writes. Best effort, like the buckets: writes that Valkey does not accept are lost.
"""

import math
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

import structlog

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)


class Debounced:
    """Runs `work` soon after `ask`: at once, or `seconds` after its last run.

    With `collects`, the work runs `seconds` after the first `ask`. One run then serves all requests of that time, and
    does not compete with the asking call. However many calls ask, the work runs once, and always begins after the last
    `ask`. It has its own thread, so a slow Valkey delays no caller. Best effort: when the process exits, requested runs
    are lost. So something else must repeat the work.
    """

    def __init__(self, work: Callable[[], None], *, seconds: float, collects: bool = False) -> None:
        self._work = work
        self._seconds = seconds
        self._collects = collects
        self._asked = threading.Event()
        self._hurried = threading.Event()
        self._starting = threading.Lock()
        self._has_begun = False

    def ask(self, *, hurry: bool = False) -> None:
        """Request a run. With `hurry`, it begins at once, whatever the interval."""
        if hurry and not self._hurried.is_set():
            self._hurried.set()
        if not self._asked.is_set():
            self._asked.set()
        if not self._has_begun:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if not self._has_begun:
                threading.Thread(target=self._run, name="debounce", daemon=True).start()
                self._has_begun = True

    def _run(self) -> None:
        ran_at = -math.inf
        while True:
            self._asked.wait()
            # The wait comes before a run: at a moderate rate, a sleep after each run would wake the thread once more.
            rest = self._seconds if self._collects else ran_at + self._seconds - monotonic()
            if rest > 0:
                self._hurried.wait(rest)
            self._asked.clear()
            self._hurried.clear()
            try:
                self._work()
            except Exception:
                log.exception("debounced_work_failed")
            ran_at = monotonic()


# --- Pending writes to Valkey, in one pipeline.

FLUSH_SECONDS = 0.25
MOST_PENDING = 8
"""A bucket with this many pending tokens is flushed at once. Other processes do not see tokens before they are
flushed.
"""


class PendingWrite(NamedTuple):
    """A command, and the function that receives the command's answer."""

    command: tuple[Any, ...]
    answered: Callable[[Any], None] | None = None


Source = Callable[[], Sequence[PendingWrite]]

_sources: list[Source] = []
_writing = threading.Lock()


def register(source: Source) -> None:
    """Add a function that returns pending writes. It returns each write once."""
    _sources.append(source)


def flush_soon(pending: int = 1) -> None:
    """Request a flush: within `FLUSH_SECONDS`, or at once if a bucket has many `pending` tokens. Never waits."""
    _debounced.ask(hurry=pending >= MOST_PENDING)


def flush() -> None:
    """Write all pending writes."""
    with _writing:
        writes = [write for source in _sources for write in source()]
        if not writes:
            return
        try:
            with valkey().pipeline(transaction=False) as pipeline:
                for write in writes:
                    pipeline.execute_command(*write.command)
                answers = pipeline.execute()
        except VALKEY_UNAVAILABLE as error:
            log.warning("pending_writes_lost", error=type(error).__name__, writes=len(writes))
            return
        for write, answer in zip(writes, answers, strict=True):
            if write.answered is not None:
                write.answered(answer)


_debounced = Debounced(flush, seconds=FLUSH_SECONDS, collects=True)
