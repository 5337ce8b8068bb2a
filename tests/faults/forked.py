"""Processes that are forked from a server with imported libraries, so that a start takes a third of the CPU."""

import atexit
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_server = get_context("forkserver")
_server.set_forkserver_preload(["tests.faults.libraries"])


class ForkedProcess:
    """A forked `python -m` of a module. It has the members of `subprocess.Popen` that tests use."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, process_group: int
    ) -> None:
        self.args = command
        # The tests' process ends a daemon at exit, and would wait for any other process.
        self._process = _server.Process(
            target=_run, args=(command, dict(environment), log, process_group), daemon=True
        )
        self._process.start()
        self.pid: int = self._process.pid  # type: ignore[assignment]
        self.kill, self.terminate = self._process.kill, self._process.terminate

    def poll(self) -> int | None:
        """The exit code of an ended process, or the negative number of its signal. None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns the exit code. Raises TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return code


def _run(command: Sequence[str], environment: Mapping[str, str], log: Path, process_group: int) -> None:
    os.setpgid(0, process_group)
    os.chdir(ROOT)
    with log.open("ab") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = command[1:]
    code: object = None
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    # A forked process skips the shutdown of the interpreter, so this code does its steps.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
