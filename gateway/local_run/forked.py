"""Fork server of `make run`: the processes that run Django are forked from one that has imported everything.

The imports take a second and a half of CPU and 110 MB. Forked processes pay for them once together, and share the
memory of what none of them changes. The supervisor itself is the fork server: it has one thread, no connection to a
server, and nothing of its own that a child could use by mistake, since a child closes every file at its start.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from gateway import garbage_collector
from gateway.local_run.processes import open_log

_PRELOADED = (
    "gateway.urls",
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "gateway.worker",
    "webhooks.delivery.dispatcher",
    "messaging.batches.runner",
    "edge.application",
    "edge.server",
    "gunicorn.app.wsgiapp",
    "gateway.web_worker",
)
_HIGHEST_FILE = 65_536
_SET_NAME = 15
"""`PR_SET_NAME` of Linux."""
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_LOOK_SECONDS = 0.02


def preload() -> None:
    """Import what the children have in common. It connects to nothing and makes no random number.

    A generator of random numbers that is forked after its first use gives every child the same ones.
    """
    with garbage_collector.paused():
        import django

        django.setup()
        from gateway.celery import app

        app.loader.init_worker()
        for module in _PRELOADED:
            import_module(module)
        # The collector would write to every object it looks at, and so copy its page.
        gc.freeze()


class Forked:
    """A forked process, with the methods of `subprocess.Popen` that a run uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal, of a process that has ended."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once the process has ended. Raises `subprocess.TimeoutExpired`."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_LOOK_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    name: str,
    command: Sequence[str],
    *,
    data_dir: Path,
    process_group: int,
    environment: Mapping[str, str] | None = None,
) -> Forked:
    """Run `python -m MODULE ARGUMENTS …` in a forked process, as `processes.start` does in a new one."""
    if list(command[:2]) != [sys.executable, "-m"]:
        raise ValueError("Only a module of Python can be forked.")
    log = open_log(data_dir, name)
    # A signal to the supervisor must not have the child stop the run.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = os.fork()
        if not child:
            _run(name, command[2:], log, process_group, environment or {})
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, process_group)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(log)
    return Forked(child)


def _run(name: str, module: Sequence[str], log: int, group: int, environment: Mapping[str, str]) -> None:
    """Never returns: what the supervisor does after its fork is none of the child's business."""
    code = 1
    try:
        os.setpgid(0, group)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _take_files(log)
        _take_name(name)
        os.environ.update(environment)
        sys.argv = list(module)
        runpy.run_module(module[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is belongs in the child's log
        traceback.print_exc()
    finally:
        # What an interpreter does at its end.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_files(log: int) -> None:
    """The log as output, nothing as input, and no other file of the supervisor."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, target)
    os.closerange(3, _HIGHEST_FILE)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _take_name(name: str) -> None:
    """The name that `ps` and `top` show; the command line stays the supervisor's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)
