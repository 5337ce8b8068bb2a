"""Work that many threads ask for and one does for all of them, outside of their requests."""

import threading
import time
from collections.abc import Callable


class Coalesced:
    """Does `work` soon after it is asked for: at once, or `seconds` after it last began.

    However often it is asked meanwhile, it is done once, and always begins after the last asking. It runs in a thread
    of its own, so a slow Valkey holds up nobody who asks; `work` must not raise. What is asked for in a process that
    ends is lost: for work that something else makes good.
    """

    def __init__(self, work: Callable[[], None], *, seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked = False
        self._began = -seconds
        self._never = threading.Event()

    def ask(self) -> None:
        """Have the work done."""
        with self._lock:
            if not self._asked:
                threading.Thread(target=self._run, daemon=True).start()
                self._asked = True

    def _run(self) -> None:
        wait = self._began + self._seconds - time.monotonic()
        if wait > 0:
            self._never.wait(wait)
        with self._lock:
            self._asked = False
            self._began = time.monotonic()
        self._work()
