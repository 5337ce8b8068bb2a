"""The Celery queue for its producers. They name a task and never import it, because the modules of tasks import the
producers.

Losing the broker loses no work, because every task works on a row in Postgres, and a periodic task finds the row again.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any
from uuid import UUID

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


# --- Tasks that may take minutes. One thread of a process runs them, so that the others are free for short tasks.

RUN_SECONDS = 20.0
"""How long a run of such a task begins more work. Then the task is queued again, behind the tasks that wait."""
AGAIN_SECONDS = 60.0
"""When the message of such a task expires: beat has started the task again by then."""

_is_running = threading.Lock()
_put_off: set[str] = set()
"""The tasks that found another one running."""


@contextmanager
def long_task(name: str) -> Iterator[bool]:
    """Whether a task that may take minutes may run in this process now. If not, the task `name`, which must find its
    work by itself, is queued when the running one ends.
    """
    if not _is_running.acquire(blocking=False):
        _put_off.add(name)
        yield False
        return
    try:
        yield True
    finally:
        _is_running.release()
        names = list(_put_off)
        _put_off.difference_update(names)
        for each in names:
            enqueue(each, expires=AGAIN_SECONDS)


def in_turn(rows: Iterable[tuple[UUID, UUID]]) -> list[UUID]:
    """The keys of the rows, which are pairs of tenant and key: one of each tenant, then the next of each.

    A random tenant is first. Otherwise a tenant whose work takes long would be first in each run.
    """
    of_tenant: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for tenant_id, key in rows:
        of_tenant[tenant_id].append(key)
    tenants = random.sample(list(of_tenant.values()), len(of_tenant))
    return [key for turn in zip_longest(*tenants) for key in turn if key is not None]
