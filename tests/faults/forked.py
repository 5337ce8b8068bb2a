"""Processes forked from one that has imported the libraries, so that a start takes a third of the CPU."""

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
    """`python -m` of a module with its arguments, with the members of `subprocess.Popen` that tests use."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, process_group: int
    ) -> None:
        self.args = command
        # A daemon ends with the tests' process, which would otherwise wait for it.
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
        """The exit code once the process has ended. Raises TimeoutExpired after this many seconds."""
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
    # The shutdown of an interpreter, which a forked process leaves out.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
