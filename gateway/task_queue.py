"""The Celery queue for its producers. They name a task and never import it, because the modules of tasks import the
producers.

Losing the broker loses no work, because every task works on a row in Postgres, and a periodic task finds the row again.
"""

from typing import Any

import structlog
from kombu.exceptions import OperationalError

from gateway.celery import app
from gateway.valkey.connection import VALKEY_UNAVAILABLE

log = structlog.get_logger(__name__)


def enqueue(
    task: str, *, expires: float | None = None, countdown: float | None = None, **arguments: Any
) -> bool:
    """Enqueue a task by its full name, such as `tenants.tasks.send_mail`. Call it after the commit, never before.

    A worker drops the task when it receives it more than `expires` seconds later. `countdown` is the delay, at most one
    or two seconds, because a periodic task must find the rows again if the broker loses the task. Returns False while
    the broker is unavailable. The caller's rows then wait for that periodic task.
    """
    try:
        app.send_task(task, kwargs=arguments, expires=expires, countdown=countdown)
    except (*VALKEY_UNAVAILABLE, OperationalError) as error:
        log.warning("task_not_queued", task=task, error=type(error).__name__)
        return False
    return True
