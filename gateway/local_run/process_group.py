"""A process group whose members die with the process that created it, even after a SIGKILL.

The supervisor and the tests start every child in such a group. A small watchdog holds the read end of a pipe. When the
owner ends for any reason, the kernel closes the write end. The watchdog then sends SIGTERM to the group, SIGKILL after
a grace period, and exits. The watchdog runs this module as a script that imports only the standard library, so it
starts in milliseconds.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 5.0
"""Time from SIGTERM to SIGKILL for processes that outlive the owner."""


class ProcessGroup:
    """The group. Pass `id` as `process_group` to `subprocess.Popen`. Call `close()` once the members are stopped."""

    def __init__(self, *, keep_open: tuple[int, ...] = (), grace_seconds: float = GRACE_SECONDS) -> None:
        """Start the watchdog. Until no member is left, it keeps the file descriptors `keep_open` (a lock's) open."""
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
        """End all remaining members. Returns when they are gone, which is soon after the grace period at the latest."""
        os.close(self._life_line)
        self._watchdog.wait()
        with contextlib.suppress(ProcessLookupError):
            _wait_for_end(self.id, self._grace_seconds + 1)


def _wait_for_end(group: int, seconds: float) -> None:
    """Wait at most some seconds. Raises ProcessLookupError as soon as the group has no member."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        os.killpg(group, 0)
        time.sleep(0.02)


def _watch(grace_seconds: float) -> None:
    """The watchdog, in two processes. One keeps the group's id in use, and the other watches from its own session."""
    group = os.getpgrp()
    if os.fork():
        while True:
            signal.pause()
    os.setsid()
    while os.read(0, 1024):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        _wait_for_end(group, grace_seconds)
        os.killpg(group, signal.SIGKILL)
        # Even a killed process exists for a moment, and the locks that this process holds promise that it is gone.
        _wait_for_end(group, 1.0)


if __name__ == "__main__":
    _watch(float(sys.argv[1]))
