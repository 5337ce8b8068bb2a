"""Processes that are forked from a process that has imported the service, so that each start takes little CPU time.

A fork server (`multiprocessing`) has the libraries. For each environment, it forks a template, which imports the
service with the settings of that environment. The template forks the processes of the service.
"""

import atexit
import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]

_server = get_context("forkserver")
_server.set_forkserver_preload(["tests.faults.libraries"])


class Template:
    """A process that has imported the service for one environment. It starts the processes with this environment."""

    def __init__(self, environment: Mapping[str, str], *, log: Path, process_group: int) -> None:
        self._connection, its_end = _server.Pipe()
        # A daemon, because the tests' process ends daemons at exit, but would wait for other processes.
        self._process = _server.Process(
            target=_fork_on_request, args=(its_end, dict(environment), log, process_group), daemon=True
        )
        self._process.start()
        its_end.close()
        self._codes: dict[int, int] = {}
        """The exit codes of ended processes, by pid."""

    def start(self, command: Sequence[str], log: Path, process_group: int) -> int:
        """Start `python -m` of a module with arguments. Returns the pid."""
        self._connection.send((list(command), log, process_group))
        while isinstance(answer := self._connection.recv(), tuple):
            self._codes.update([answer])
        pid: int = answer
        self._codes.pop(pid, None)  # of an earlier process with this pid
        return pid

    def exit_code(self, pid: int, timeout: float = 0) -> int | None:
        """The exit code of an ended process, or None while it runs. Waits up to `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while pid not in self._codes and self._connection.poll(max(0.0, deadline - time.monotonic())):
            self._codes.update([self._connection.recv()])
        return self._codes.get(pid)

    def close(self) -> None:
        """End the template. Its processes go on."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._connection.close()


class ForkedProcess:
    """A forked `python -m` of a module. It has the members of `subprocess.Popen` that tests use."""

    def __init__(self, command: Sequence[str], *, template: Template, log: Path, process_group: int) -> None:
        self.args, self._template = command, template
        self.pid = template.start(command, log, process_group)
        self._code: int | None = None

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self._signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """The exit code of an ended process, or the negative number of its signal. None while it runs."""
        if self._code is None:
            self._code = self._template.exit_code(self.pid)
        return self._code

    def wait(self, timeout: float = 0) -> int:
        """Wait for the end. Returns the exit code. Raises TimeoutExpired after `timeout` seconds."""
        if self._code is None:
            self._code = self._template.exit_code(self.pid, timeout)
        if self._code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout)
        return self._code

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _fork_on_request(
    requests: "connection.Connection[Any, Any]", environment: Mapping[str, str], log: Path, process_group: int
) -> None:
    """Import the service, then fork a process for each request. Reports the pid, and later its exit code."""
    os.setpgid(0, process_group)
    os.chdir(ROOT)
    _write_to(log)
    os.environ.clear()
    os.environ.update(environment)
    _import_service()
    ended, signals = os.pipe()
    os.set_blocking(signals, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signals)
    while True:
        ready = connection.wait([requests, ended])
        if ended in ready:
            os.read(ended, 4096)
            _report_ended(requests)
        if requests in ready:
            command, log, process_group = requests.recv()
            if pid := os.fork():
                requests.send(pid)
                continue
            os.setpgid(0, process_group)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (ended, signals, requests.fileno()):
                os.close(end)
            _become_another_process()
            _run(command, log)


def _report_ended(requests: "connection.Connection[Any, Any]") -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        requests.send((pid, os.waitstatus_to_exitcode(status)))


def _import_service() -> None:
    """Import what the roles import before they start a thread or a connection."""
    from importlib import import_module

    import django

    gc.disable()
    django.setup()
    from gateway.celery import app

    for name in (
        "messaging.batches.runner",
        "messaging.sending.journal_replay",
        "web.listener",
        "web.routes",
        "webhooks.delivery.dispatcher",
    ):
        import_module(name)
    app.loader.import_default_modules()
    gc.collect()
    gc.freeze()
    gc.enable()


def _become_another_process() -> None:
    """Replace what the import chose for this process alone."""
    from tenants.credentials import key_cache

    # Otherwise each process would take the messages of the others for its own.
    key_cache.CHANGES._sender = uuid4().hex


def _write_to(log: Path) -> None:
    with log.open("ab") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)


def _run(command: Sequence[str], log: Path) -> None:
    _write_to(log)
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
