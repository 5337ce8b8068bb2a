"""Debounce: however often it is asked, a background thread runs the work at most once per interval."""

import math
import threading
from collections.abc import Callable
from time import monotonic

import structlog

log = structlog.get_logger(__name__)


class Debounced:
    """Runs `work` soon after `ask`: at once, or `seconds` after it last ran.

    With `collects` it runs `seconds` after it was first asked, so it takes together what comes in that time and does
    not compete with the call that asked. However often it is asked in between, it runs once, and always begins after
    the last `ask`. The thread is its own, so a slow Valkey delays no caller. Best effort: what was asked is lost when
    the process exits, so something else must repeat the work.
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
        """Have the work done; with `hurry` the interval is not waited for."""
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
            # Not slept through after each run: at a moderate rate the thread would wake once more for every one.
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
