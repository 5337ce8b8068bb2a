"""The processes of one run: start, log, watch, restart with back-off, stop.

`gateway/local_run/supervisor.py` lists the processes, and `gateway/local_run/embedded_servers.py` uses this module to
start the servers. A child that repeatedly exits right after its start is in a crash loop, which ends the run. A child
that was killed is always restarted.
"""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

MAX_LOG_BYTES = 10 * 1024 * 1024
LONG_ENOUGH_SECONDS = 10.0
"""A child that ran this long was healthy, so its exit is not part of a crash loop."""
MAX_CRASHES = 5
MAX_BACK_OFF_SECONDS = 10.0


class Process(Protocol):
    """Protocol: the members of `subprocess.Popen` that a run uses."""

    pid: int

    def poll(self) -> int | None:
        """The exit code of a process that has ended, negative if a signal ended it. None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return its exit code. Raises `subprocess.TimeoutExpired`."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """Send SIGKILL."""


class StartError(Exception):
    """A server or process did not start. The message says why in one line, sometimes followed by the end of the log."""


def service_command(*roles: str, port: int | None = None) -> list[str]:
    """The command of a process of the service with these roles, or with all roles if none is named."""
    return [sys.executable, "-m", "gateway", *roles, *([f"--port={port}"] if port is not None else [])]


def start(
    name: str,
    command: list[str],
    *,
    data_dir: Path,
    process_group: int | None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a process group. Append its output to `logs/<name>.log`."""
    log = open_log(data_dir, name)
    try:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=process_group,
        )
    finally:
        os.close(log)


def stop(process: Process, *, seconds: float, signal_number: int = signal.SIGTERM) -> None:
    """Send the signal and wait for the process to end. After this many seconds, send SIGKILL."""
    process.send_signal(signal_number)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def back_off(short_lives: int) -> float:
    """Seconds to wait before a restart after this many short lives in a row: none at first, then about twice the
    last wait.
    """
    return min(0.25 * (2.0**short_lives - 1), MAX_BACK_OFF_SECONDS)


def log_path(data_dir: Path, name: str) -> Path:
    """The log file of a process of the run."""
    return data_dir.absolute() / "logs" / f"{name}.log"


def log_tail(data_dir: Path, name: str, *, lines: int = 15) -> str:
    """The last lines of a process's log, indented, after a line with the path of the log."""
    path = log_path(data_dir, name)
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 32_768))
        text = log.read().decode(errors="replace")
    return "\n".join([f"the end of {path}:", *(f"    {line}" for line in text.splitlines()[-lines:])])


def bound_logs(data_dir: Path) -> None:
    """Copy each log over `MAX_LOG_BYTES` to `<name>.log.1`, and empty the log.

    The processes append, so they continue at the new end. A line written between copying and emptying is lost.
    """
    for path in (data_dir / "logs").glob("*.log"):
        if path.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.truncate(path, 0)


def open_log(data_dir: Path, name: str) -> int:
    """A file descriptor for appending to a process's log."""
    path = log_path(data_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class Child:
    """One process of the run and its restarts.

    The function `start` starts the process and returns it, and `stop` stops it. `gateway/local_run/embedded_servers.py`
    has both for the servers. Call `tend` a few times a second.
    """

    def __init__(
        self,
        name: str,
        *,
        data_dir: Path,
        start: Callable[[], Process],
        stop: Callable[[Process], None],
    ) -> None:
        self.name = name
        self._data_dir = data_dir
        self._start = start
        self._stop = stop
        self._process: Process | None = None
        self._started_at = 0.0
        self._restart_at: float | None = None
        self._short_lives = 0
        self._crashes = 0

    def start(self) -> None:
        """Start the process. Raises `StartError`."""
        self._started_at = time.monotonic()
        self._restart_at = None
        self._process = self._start()

    def check_alive(self) -> None:
        """Raise `StartError` if the process has ended during the start of the run."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise StartError(
                f"{self.name} ended {_how(code)} while starting; {log_tail(self._data_dir, self.name)}"
            )

    def tend(self) -> str | None:
        """Restart the process if it has ended and its back-off is over. Returns a message for the user, or None.

        Raises `StartError` for a crash loop.
        """
        if self._process is None:
            return None
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self.start()
            return None
        code = self._process.poll()
        if code is None:
            return None
        return self._plan_restart(code, now)

    def stop(self) -> None:
        """Stop the process if it is running. Returns when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._stop(self._process)

    def _plan_restart(self, code: int, now: float) -> str:
        if now - self._started_at >= LONG_ENOUGH_SECONDS:
            self._short_lives = self._crashes = 0
        delay = back_off(self._short_lives)
        self._short_lives += 1
        if code not in (-signal.SIGKILL, -signal.SIGTERM):
            self._crashes += 1
        if self._crashes >= MAX_CRASHES:
            raise StartError(
                f"{self.name} ended {MAX_CRASHES} times right after its start, at last {_how(code)}; "
                f"{log_tail(self._data_dir, self.name)}"
            )
        self._restart_at = now + delay
        return f"{self.name} ended {_how(code)} and is restarted (see {log_path(self._data_dir, self.name)})."


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


# --- The TCP ports of a run: each is free before the run, and answers before the run reports ready.


def check_free(variable: str, port: int) -> None:
    """Raise `StartError` if another program uses the port that the environment variable `variable` names."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StartError(
                f"Port {port} cannot be used ({error.strerror}): stop the program that has it, or choose another "
                f"with {variable}={port + 1} make run"
            ) from error


def wait_for_answer(port: int, path: str, *, seconds: float, check_alive: Callable[[], None]) -> None:
    """Poll every 50 ms until the answer is 200. `check_alive` raises when the server has ended.

    Raises `StartError` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    answer = "no answer"
    while time.monotonic() < deadline:
        check_alive()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            try:
                connection.request("GET", path)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                answer = str(error)
            else:
                if status == 200:
                    return
                answer = f"status {status}"
        time.sleep(0.05)
    raise StartError(
        f"http://127.0.0.1:{port}{path} did not answer 200 within {seconds:.0f} s ({answer}): see `make logs`."
    )
