"""The Celery queue as its producers see it: a task is named, never imported, so a flow does not import its callers.

Losing the broker loses nothing: what every task works on is a row in Postgres, and beat finds it again.
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
    """Queue a task by its full name, for example `tenants.tasks.send_mail`. Call it after the commit, never before.

    `expires` is in seconds: a worker that gets the task later drops it. `countdown` is how many seconds it waits first:
    one or two, for what is lost with the broker and found again by beat. Returns False when the broker is away; the
    caller's rows then wait for the periodic task that looks for them.
    """
    try:
        app.send_task(task, kwargs=arguments, expires=expires, countdown=countdown)
    except (*VALKEY_UNAVAILABLE, OperationalError) as error:
        log.warning("task_not_queued", task=task, error=type(error).__name__)
        return False
    return True
