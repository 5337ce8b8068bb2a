"""The Celery app of the roles that run tasks, and of beat (`gateway/__main__.py`)."""

import os
from time import monotonic
from typing import Any

import structlog
from celery import Celery, Task
from celery.loaders.app import AppLoader
from celery.signals import setup_logging, task_postrun, task_prerun, worker_init, worker_ready

from gateway.process_limits import without_collector
from gateway.valkey import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

log = structlog.get_logger(__name__)

LOOPS = frozenset({"webhooks.tasks.deliver_due", "messaging.tasks.run_batches"})
"""Tasks that run for minutes and also process what becomes due meanwhile."""


class Loader(AppLoader):
    """Celery's loader, with a faster start of workers and of beat.

    Celery would run Django's checks, which import every URL, and ignore the result. `manage.py check` runs them.
    """

    def init_worker(self) -> None:
        """Import the modules of the process."""
        os.environ.setdefault("CELERY_SKIP_CHECKS", "1")
        with without_collector():
            super().init_worker()


LONG_SECONDS = 10.0
"""A task that takes longer is logged."""


class ServiceTask(Task):  # type: ignore[type-arg] # generic only in its stubs
    """A task with its own trace, a limit on waiting for locks, and a log line if it took long. The tasks in LOOPS set
    up the first two themselves.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name in LOOPS:
            return super().__call__(*args, **kwargs)
        from gateway.database.transactions import limited_locks
        from gateway.monitoring import tracing

        started = monotonic()
        try:
            with tracing.span(self.name, "consumer"), limited_locks():
                return super().__call__(*args, **kwargs)
        finally:
            if (seconds := monotonic() - started) >= LONG_SECONDS:
                log.info("long_task", task=self.name, seconds=round(seconds, 1))


broker.adapt()
app = Celery("gateway", task_cls=ServiceTask, loader="gateway.celery:Loader")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _configure_logs(**_: Any) -> None:
    """Log through the structured pipeline of the web processes."""
    from django.conf import settings

    from gateway.monitoring.logs import configure

    configure(settings.LOGGING)


@task_prerun.connect
@task_postrun.connect
def _close_old_connections(**_: Any) -> None:
    """Close old or broken connections and keep the others, as Django does for a request.

    By default Celery opens a connection for each task, and each costs Postgres a process (`CELERY_DB_REUSE_MAX`).
    """
    from django.db import close_old_connections

    close_old_connections()


@worker_init.connect
def _begin_monitoring(**_: Any) -> None:
    from gateway.api import access_log
    from gateway.monitoring import tracing

    access_log.start_flushing()
    tracing.begin()


@worker_ready.connect
def _check_servers(**_: Any) -> None:
    from gateway import checks

    checks.report_at_start()
