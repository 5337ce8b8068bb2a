"""`python -m gateway.worker QUEUE`: a Celery worker of one queue, one process with threads.

The loops of the queues `deliveries` and `batches` run from the process's start to its end, also while Celery waits for
Valkey. The one of deliveries begins as soon as its own modules are imported: Celery's worker and the tasks of all apps
are imported beside it.
"""

import argparse
import os
import signal
import sys
from contextlib import nullcontext
from importlib import import_module
from types import FrameType

LOOPS = {"deliveries": "webhooks.delivery.dispatcher", "batches": "messaging.batches.runner"}
"""What each queue's process runs from its start to its end: a module with `run` and `stop`."""
THREADS = 2
"""A loop takes one of them whenever its task is called again."""


def main() -> None:
    """Run the worker until SIGTERM; what is under way finishes."""
    parser = argparse.ArgumentParser(prog="python -m gateway.worker", description=__doc__.split("\n")[0])
    parser.add_argument("queue", choices=["deliveries", "batches", "default"])
    parser.add_argument("--name", help="tells several workers of one queue on one host apart")
    options = parser.parse_args()
    # Until Celery takes the signals over.
    signal.signal(signal.SIGTERM, _end)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

    import django

    from gateway import garbage_collector
    from gateway.threads.loop_thread import LoopThread

    with garbage_collector.paused():
        django.setup()
        loop = import_module(LOOPS[options.queue]) if options.queue in LOOPS else None
        if options.queue == "batches":
            # An item that waits for the interpreter could outlive its batch's lease, and be `outcome_unknown`.
            _import_the_rest()
    with LoopThread(loop) if loop else nullcontext():
        sys.exit(_work(options.queue, options.name or _usual_name(options.queue)))


def _import_the_rest() -> None:
    """What Celery imports when its worker starts."""
    import_module("celery.apps.worker")
    from gateway.celery import app

    app.loader.init_worker()


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit()


def _work(queue: str, name: str) -> int | None:
    from gateway.celery import app

    worker = app.Worker(
        hostname=f"{name}@{os.uname().nodename}",
        queues=[queue],
        pool_cls="threads",
        concurrency=THREADS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    code: int | None = worker.exitcode
    return code


def _usual_name(queue: str) -> str:
    return "worker" if queue == "default" else queue


if __name__ == "__main__":
    main()
