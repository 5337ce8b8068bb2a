"""`python -m gateway [ROLE …]`: a process of the service. By default it has all roles, for a small host.

| role | what it does |
|---|---|
| web | answers HTTP: the API, notifications, pages |
| deliveries | sends events to the tenants' endpoints |
| batches | sends batches, paced to their numbers |
| tasks | runs Celery's tasks: mail, syncs, maintenance, billing |
| beat | queues the periodic tasks |

The roles of one process share its memory and its threads. When one role ends unexpectedly, the whole process ends.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, cast

ROLES = ("web", "deliveries", "batches", "tasks", "beat")
LOOPS = {"deliveries": "webhooks.delivery.dispatcher", "batches": "messaging.batches.runner"}
"""The module that contains each role's loop, as the functions `work` and `stop` (`gateway/role_loop.py`)."""
QUEUES = {"deliveries": "deliveries", "batches": "batches", "tasks": "default"}
"""The Celery queue of each role."""
TASK_THREADS = 2
"""Threads of each queue. A running loop occupies one of them."""
STOP_SECONDS = 10.0
"""How long the Celery worker of a small host may take to finish its tasks."""


def main() -> None:
    """Run the roles until SIGTERM, then finish what is under way."""
    parser = argparse.ArgumentParser(
        prog="python -m gateway",
        description="Run one process of the service. Without arguments it has all roles.",
    )
    parser.add_argument(
        "roles", nargs="*", metavar="ROLE", help=f"the roles of the process: {', '.join(ROLES)}"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address that the web role listens on")
    parser.add_argument(
        "--port", type=int, help="the port that the web role listens on (default: the setting PORT)"
    )
    parser.add_argument("--name", help="a name that distinguishes this worker from others on the same host")
    options = parser.parse_args()
    if unknown := set(options.roles) - set(ROLES):
        parser.error(f"unknown role: {', '.join(sorted(unknown))} (known: {', '.join(ROLES)})")
    roles = tuple(role for role in ROLES if role in options.roles) or ROLES
    # uvicorn or Celery later replaces this handler with its own.
    signal.signal(signal.SIGTERM, _exit)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

    import django

    from gateway import process_limits

    with process_limits.without_collector():
        django.setup()
        loops = [import_module(LOOPS[role]) for role in roles if role in LOOPS]
        serve = _web_server(options.host, options.port, loops) if "web" in roles else None
        queues = [QUEUES[role] for role in roles if role in QUEUES]
        if queues:
            _load_tasks()
    process_limits.raise_open_files()
    process_limits.calm_collector()
    sys.exit(_run(roles, serve, loops, queues, options.name or "-".join(roles)))


def _run(
    roles: Iterable[str],
    serve: Callable[[], None] | None,
    loops: Iterable[Any],
    queues: list[str],
    name: str,
) -> int:
    from gateway.database import pool
    from gateway.role_loop import LoopThread

    with ExitStack() as running:
        if serve is not None:
            pool.begin(beside_web=len(queues))
            begin_web()
        else:
            for loop in loops:
                running.enter_context(LoopThread(loop))
        if serve is None:
            if "beat" in roles and queues:
                running.enter_context(_in_thread("beat", *_beat(), seconds=0.0))
            return (_work(queues, name) or _exit_code) if queues else _beat_alone()
        if queues:
            running.enter_context(_in_thread("tasks", *_worker(queues, name)))
        if "beat" in roles:
            running.enter_context(_in_thread("beat", *_beat(), seconds=0.0))
        serve()
    return _exit_code


_exit_code = 0


@contextmanager
def _in_thread(
    role: str, work: Callable[[], Any], stop: Callable[[], None], *, seconds: float = STOP_SECONDS
) -> Iterator[None]:
    """Run a role's blocking work in a thread, which has `seconds` to stop. If the work ends unexpectedly, end the
    process.
    """
    is_stopping = threading.Event()

    def run() -> None:
        global _exit_code
        try:
            work()
        finally:
            if not is_stopping.is_set():
                _exit_code = 1
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run, name=role, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_stopping.set()
        stop()
        thread.join(seconds)


def begin_web() -> None:
    """Start the background work of a web process."""
    from gateway import checks
    from gateway.api import access_log
    from gateway.monitoring import tracing

    checks.report_at_start()
    access_log.start_flushing()
    tracing.begin()
    import_module("messaging.sending.journal_replay").start()


def _web_server(host: str, port: int | None, loops: Iterable[Any]) -> Callable[[], None]:
    """A function that runs the server of the web role until a signal stops it."""
    from django.conf import settings

    routes, listener = import_module("web.routes"), import_module("web.listener")
    port = port or settings.PORT
    front = routes.Application(loops)
    server = listener.Server(listener.config(front, host=host, port=port), on_stop=front.stop)

    def serve() -> None:
        try:
            listening = listener.bound(host, port)
        except OSError as error:
            sys.exit(f"Cannot listen at {host}:{port}: {error.strerror}.")
        server.run(sockets=[listening])

    return serve


def _load_tasks() -> None:
    """Import the modules that Celery imports when its worker starts.

    Done before the loops start: an import can occupy the interpreter for so long that a batch item's lease ends.
    """
    import_module("celery.apps.worker")
    from gateway.celery import app

    app.loader.init_worker()


def _worker_options(queues: list[str], name: str) -> dict[str, Any]:
    return {
        "hostname": f"{name}@{os.uname().nodename}",
        "queues": queues,
        "pool_cls": "threads",
        "concurrency": TASK_THREADS * len(queues),
        "without_gossip": True,
        "without_mingle": True,
        "without_heartbeat": True,
    }


def _work(queues: list[str], name: str) -> int:
    """Run Celery's worker in the main thread, which receives the signals."""
    from gateway.celery import app

    worker = app.Worker(**_worker_options(queues, name), quiet=True)
    worker.start()
    return int(worker.exitcode or 0)


def _worker(queues: list[str], name: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A function that runs Celery's worker in a thread, and the function that stops it."""
    from celery.worker import WorkController
    from celery.worker import state as worker_state

    from gateway.celery import app

    worker = WorkController(app=app, **_worker_options(queues, name))

    def stop() -> None:
        # Celery's own worker for tests is stopped in the same way.
        worker_state.should_stop = 0  # type: ignore[assignment] # None in its stubs

    return worker.start, stop


def _beat() -> tuple[Callable[[], Any], Callable[[], None]]:
    """A function that runs Celery's beat in a thread, and the function that stops it."""
    from celery.beat import Service

    from gateway.celery import app

    service = Service(cast("Any", app), schedule_filename=_schedule_file())

    def stop() -> None:
        # Beat's thread may sleep for minutes until the next task is due, so the process does not wait for the thread.
        service.stop()
        service.sync()

    return service.start, stop


def _beat_alone() -> int:
    """Run Celery's beat in the main thread."""
    from celery.apps.beat import Beat

    from gateway.celery import app

    Beat(app=cast("Any", app), schedule=_schedule_file(), quiet=True, loglevel="INFO").run()
    return 0


def _schedule_file() -> str:
    """The path where beat stores when each task last ran. Creates its folder."""
    from django.conf import settings

    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    return str(settings.DATA_DIR / "beat-schedule")


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(_exit_code)


if __name__ == "__main__":
    main()
