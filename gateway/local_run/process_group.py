"""A process group whose members die with the process that created it, even when that is killed with SIGKILL.

The supervisor and the tests start every child in such a group. A small watchdog holds the read end of a pipe. The
kernel closes the write end when the owner ends for any reason. The watchdog then sends SIGTERM to the group, after a
grace period SIGKILL, and exits. This module knows nothing about the children. The watchdog runs as a separate script
with the standard library only, so it starts in milliseconds.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 5.0
"""Time from SIGTERM to SIGKILL for processes that are left when the owner has ended."""


class ProcessGroup:
    """Pass `id` as `process_group` to `subprocess.Popen`. Call `close()` when the members were stopped."""

    def __init__(self, *, keep_open: tuple[int, ...] = (), grace_seconds: float = GRACE_SECONDS) -> None:
        """Start the watchdog. It holds the file descriptors `keep_open` (a lock) until no member is left."""
        self._grace_seconds = grace_seconds
        reading_end, self._life_line = os.pipe()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(grace_seconds)],
            stdin=reading_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=keep_open,
        )
        os.close(reading_end)
        self.id = self._watchdog.pid

    def close(self) -> None:
        """End everything that is left in the group. Returns when it is gone, at the latest soon after the grace
        period.
        """
        os.close(self._life_line)
        self._watchdog.wait()
        deadline = time.monotonic() + self._grace_seconds + 1
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.id, 0)
                time.sleep(0.02)


def _watch(grace_seconds: float) -> None:
    """The watchdog: one half anchors the group's id, the other watches from its own session."""
    group = os.getpgrp()
    if os.fork():
        while True:
            signal.pause()
    os.setsid()
    while os.read(0, 1024):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _watch(float(sys.argv[1]))
