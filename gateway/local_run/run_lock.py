"""One run owns a data directory: `make run` and `make reset` take this lock first.

It is an advisory lock of the kernel on `DATA_DIR/run.lock`, gone with the processes that hold it, so a crash
leaves nothing to clean up. The file itself marks a directory as one that `make run` made.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.local_run.process_group import GRACE_SECONDS
from gateway.local_run.processes import StartError

LOCK = "run.lock"


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[int]:
    """Own the data directory; gives the lock's file descriptor. Raises `StartError` when a run owns it.

    The watchdog of a run that was killed holds the lock until the last child is gone; that is waited for.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + GRACE_SECONDS + 2
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(descriptor, 32, 0).decode() or "unknown"
                if _alive(owner) or time.monotonic() > deadline:
                    raise StartError(
                        f"{data_dir} is in use by a run (process {owner}): stop it with Ctrl-C there, "
                        "or start a second copy: DATA_DIR=.local2 PORT=8001 SIMULATOR_PORT=8101 make run"
                    ) from None
                time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _alive(process_id: str) -> bool:
    try:
        os.kill(int(process_id), 0)
    except PermissionError:
        return True
    except (ValueError, ProcessLookupError):
        return False
    return True
