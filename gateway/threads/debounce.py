"""Debounce: however often it is asked, a background thread runs the work at most once per interval."""

import os
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Debounced:
    """Runs `work` soon after `ask`: at once, or `seconds` after it last ran.

    However often it is asked in between, it runs once, and always begins after the last `ask`. The thread is its own,
    so a slow Valkey delays no caller. Best effort: what was asked is lost when the process exits, so something else
    must repeat the work.
    """

    def __init__(self, work: Callable[[], None], *, seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._asked = threading.Event()
        self._never = threading.Event()
        self._starting = threading.Lock()
        self._process: int | None = None

    def ask(self) -> None:
        """Have the work done."""
        if not self._asked.is_set():
            self._asked.set()
        if self._process != os.getpid():
            self._start()

    def _start(self) -> None:
        """The thread of this process: a forked one has none."""
        with self._starting:
            if self._process != os.getpid():
                threading.Thread(target=self._run, name="debounce", daemon=True).start()
                self._process = os.getpid()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self._work()
            except Exception:
                log.exception("debounced_work_failed")
            self._never.wait(self._seconds)
