"""`make run`: one command that starts the whole service on one machine and stops it again.

    python -m gateway.local_run.supervisor run | reset | logs

Starts the embedded servers (unless `DATABASE_URL` or `REDIS_URL` name others), migrates, starts the simulator and the
service, waits until they answer, creates the demo data and prints all addresses. Then it watches the processes until
SIGINT, SIGTERM or SIGHUP. It stops the processes that accept work first, and those that store it last. The service is
one process with all roles. With `ROLES=split` each role has its own process, as on several hosts. If the supervisor is
killed, the watchdog of `gateway/local_run/process_group.py` ends all processes.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from gateway import embedded_addresses, environment, settings
from gateway.local_run import embedded_servers, processes
from gateway.local_run.process_group import GRACE_SECONDS, ProcessGroup
from gateway.local_run.processes import Child, Process, StartError, log_tail

# --- One run owns a data directory: `make run` and `make reset` first acquire this lock.
#
# It is an advisory lock of the kernel on `DATA_DIR/run.lock`. The lock ends with the processes that hold it, so a crash
# leaves nothing to clean up. The file also marks a directory as one that `make run` created.

LOCK = "run.lock"


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[int]:
    """Lock the data directory. Yields the lock's file descriptor. Raises `StartError` while another run owns it.

    The watchdog of a killed run holds the lock until the last child is gone, so this function waits a few seconds.
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


READY_SECONDS = 90.0
"""How long the service and the simulator may take to start answering."""
WATCH_SECONDS, LOGS_SECONDS = 0.5, 10.0
"""Intervals between checks of the processes, and between checks of the logs' sizes."""
_ROLES = ("web", "deliveries", "batches", "tasks", "beat")
_STOP_ORDER = ["gateway", "web", "beat", "tasks", "batches", "deliveries", "simulator", "valkey", "postgres"]
"""The order in which processes are stopped: first those that accept new work, last those that store it."""
_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_MANAGE = [sys.executable, "-m", "django"]


class Stopped(BaseException):
    """A signal asked the run to end. Not an `Exception`, so that no handler treats the signal as an error."""


def main() -> int:
    """Run one of the commands. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gateway.local_run.supervisor")
    parser.add_argument("command", choices=["run", "reset", "logs"])
    command = parser.parse_args().command
    os.chdir(settings.BASE_DIR)
    try:
        {"run": run, "reset": reset, "logs": follow_logs}[command]()
    except StartError as error:
        _say(str(error))
        return 1
    return 0


def run() -> None:
    """Start everything, watch the processes, stop everything. Raises `StartError` with a message of one line."""
    data_dir = settings.DATA_DIR
    with locked(data_dir) as lock:
        processes.check_free("PORT", settings.PORT)
        processes.check_free("SIMULATOR_PORT", settings.SIMULATOR_PORT)
        for number in _SIGNALS:
            signal.signal(number, _stop_run)
        began = time.monotonic()
        set_environment()
        group = ProcessGroup(keep_open=(lock,))
        children = _children(data_dir, group.id)
        try:
            _start(children, data_dir, group.id)
            _say(_summary(data_dir, time.monotonic() - began))
            _watch(children)
        except Stopped:
            _say("Stopping ...")
        finally:
            _ignore_signals()
            for name in _STOP_ORDER:
                if name in children:
                    children[name].stop()
            group.close()
    _say(f"Stopped. The data stays in {_shown(data_dir)} (`make reset` deletes it).")


def reset() -> None:
    """Delete the data directory. Raises `StartError` while a run uses it, or if `make run` did not create it."""
    data_dir = settings.DATA_DIR
    if not data_dir.exists():
        return _say(f"There is nothing in {_shown(data_dir)}.")
    if not (data_dir / LOCK).exists():
        raise StartError(f"{_shown(data_dir)} was not made by `make run`: nothing is deleted.")
    with locked(data_dir):
        shutil.rmtree(data_dir)
        shutil.rmtree(embedded_addresses.socket_dir(data_dir), ignore_errors=True)
    return _say(f"Deleted {_shown(data_dir)}.")


def follow_logs() -> None:
    """Show the end of every log and each new line, until interrupted. Raises StartError if there are no logs."""
    logs = sorted((settings.DATA_DIR / "logs").glob("*.log"))
    if not logs:
        raise StartError(f"There are no logs in {_shown(settings.DATA_DIR)}: `make run` writes them.")
    with contextlib.suppress(KeyboardInterrupt):
        subprocess.run(["tail", "-n", "20", "-F", *logs], check=False)


def _children(data_dir: Path, group: int) -> dict[str, Child]:
    """Every process of the run by name, in starting order."""
    of_simulator = os.environ | {
        "SIMULATOR_STATE": os.environ.get("SIMULATOR_STATE") or str(data_dir / "simulator.json"),
        "GATEWAY_CALLBACK_URL": os.environ.get("GATEWAY_CALLBACK_URL")
        or f"http://127.0.0.1:{settings.PORT}/upstream/webhook",
        "META_APP_ID": settings.SANDBOX_APP_ID,
        "META_APP_SECRET": settings.SANDBOX_APP_SECRET,
    }
    commands = {"simulator": [sys.executable, "-m", "simulator"]}
    if os.environ.get("ROLES") == "split":
        commands |= {role: processes.service_command(role) for role in _ROLES}
    else:
        commands["gateway"] = processes.service_command()
    children = {}
    if "REDIS_URL" not in os.environ:
        start_valkey = partial(embedded_servers.start_valkey, data_dir, process_group=group)
        children["valkey"] = Child(
            "valkey", data_dir=data_dir, start=start_valkey, stop=embedded_servers.stop_valkey
        )
    if "DATABASE_URL" not in os.environ:
        start_postgres = partial(embedded_servers.start_postgres, data_dir, process_group=group)
        children["postgres"] = Child(
            "postgres", data_dir=data_dir, start=start_postgres, stop=embedded_servers.stop_postgres
        )
    for name, command in commands.items():
        start: Callable[[], Process] = partial(
            processes.start,
            name,
            command,
            data_dir=data_dir,
            process_group=group,
            environment=of_simulator if name == "simulator" else None,
        )
        children[name] = Child(name, data_dir=data_dir, start=start, stop=partial(processes.stop, seconds=12))
    return children


def set_environment() -> None:
    """Set the environment of the child processes, and the settings that this process has already read."""
    settings.SERVICE_SHA = os.environ.get("SERVICE_SHA") or _commit()
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
        "PYTHONUNBUFFERED": "1",
        "SERVICE_SHA": settings.SERVICE_SHA,
    }
    if settings.META_APP_ID == environment.SIMULATOR_APP_ID:
        _use_simulator_for_live()


def _use_simulator_for_live() -> None:
    """Let the simulator serve the live environment too, if no app at Meta is configured. Then a live number can be
    connected.

    Variables that the caller has set are not changed.
    """
    if "META_GRAPH_URL" not in os.environ:
        settings.META_GRAPH_URL = os.environ["META_GRAPH_URL"] = settings.SANDBOX_GRAPH_URL


def _commit() -> str:
    """The commit of this working copy, for `/v1/health`."""
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return git.stdout.strip()


def _start(children: dict[str, Child], data_dir: Path, group: int) -> None:
    """Start everything in order. `demo` loads beside the service, and waits until the service answers."""

    def check_alive() -> None:
        for child in children.values():
            child.check_alive()

    _say("Starting the databases and the simulator ...")
    children["simulator"].start()
    for name in ("valkey", "postgres"):
        if name in children:
            children[name].start()
    _say("Preparing the database ...")
    _finish("migrate", _begin("migrate", "--no-input", data_dir=data_dir, group=group), data_dir=data_dir)
    _say("Starting the service and making the demo data ...")
    for name in children.keys() - {"simulator", "valkey", "postgres"}:
        children[name].start()
    # `migrate` has made the checks.
    demo = _begin("demo", "--skip-checks", data_dir=data_dir, group=group)
    for port, path in ((settings.SIMULATOR_PORT, "/sim/health"), (settings.PORT, "/v1/health")):
        processes.wait_for_answer(port, path, seconds=READY_SECONDS, check_alive=check_alive)
    _finish("demo", demo, data_dir=data_dir)
    check_alive()


def _begin(command: str, *options: str, data_dir: Path, group: int) -> subprocess.Popen[bytes]:
    """Start a command of manage.py."""
    return processes.start(command, [*_MANAGE, command, *options], data_dir=data_dir, process_group=group)


def _finish(command: str, process: subprocess.Popen[bytes], *, data_dir: Path) -> None:
    """Wait for a command of manage.py. Raises `StartError` when it fails."""
    if process.wait():
        raise StartError(f"`manage.py {command}` failed; {log_tail(data_dir, command)}")


def _watch(children: dict[str, Child]) -> None:
    """Keep the children running until a signal, or under `make` until make has ended."""
    parent = os.getppid()
    under_make = "MAKELEVEL" in os.environ
    logs_due = 0.0
    while not under_make or os.getppid() == parent:
        for child in children.values():
            if news := child.tend():
                _say(news)
        if time.monotonic() >= logs_due:
            processes.bound_logs(settings.DATA_DIR)
            logs_due = time.monotonic() + LOGS_SECONDS
        time.sleep(WATCH_SECONDS)


def _summary(data_dir: Path, seconds: float) -> str:
    """The text for a new user: addresses, credentials, a first request. Reads `ready.json`, which `demo` writes."""
    ready = json.loads((data_dir / "ready.json").read_text())
    base, simulator = ready["base_url"], ready["simulator_url"]
    body = json.dumps(
        {"from": ready["phone_number_id"], "to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
    )
    return f"""
Ready after {seconds:.1f} s. Ctrl-C stops it; `make logs` shows what it does; the data is in {_shown(data_dir)}.

  API            {base}/v1
  Documentation  {base}/docs
  Console        {base}/console
  Admin          {base}/admin/
  Outbox         {base}/outbox
  Phone page     {simulator}/phone?phone_number_id={ready["phone_number_id"]}
  Inbox          {simulator}/inbox/demo

  API key        {ready["api_key"]}
  Owner login    {ready["owner_email"]} / {ready["owner_password"]}   (console, `whabuzz login`)
  Staff login    {ready["staff_email"]} / {ready["staff_password"]}   (admin)

Send a message, then look at the phone page and the inbox:

  curl -X POST {base}/v1/messages \\
    -H 'Authorization: Bearer {ready["api_key"]}' \\
    -H 'Content-Type: application/json' \\
    -d '{body}'
"""


def _stop_run(_number: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    raise Stopped


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _say(text: str) -> None:
    """Print to the user. A closed terminal must not prevent an orderly stop."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
