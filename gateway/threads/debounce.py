"""Work that many threads ask for and one does for all of them, outside of their requests."""

import os
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Coalesced:
    """Does `work` soon after it is asked for: at once, or `seconds` after it was last done.

    However often it is asked meanwhile, it is done once, and always begins after the last asking. It runs in a thread
    of its own, so a slow Valkey holds up nobody who asks. What is asked for in a process that ends is lost: for work
    that something else makes good.
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
                threading.Thread(target=self._run, name="coalesced", daemon=True).start()
                self._process = os.getpid()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self._work()
            except Exception:
                log.exception("coalesced_work_failed")
            self._never.wait(self._seconds)
