"""Celery entry points of the console."""

from typing import Any
from uuid import UUID

from celery import shared_task

from gateway.task_queue import long_task

WAITING = "console.tasks.write_exports"


@shared_task
def write_export(export_id: str, **_: Any) -> None:
    """After the commit of a new export: write its file."""
    from console import exports  # imported here: other tasks do not need the pages' imports

    with long_task(WAITING) as may_run:
        if may_run:
            exports.write(UUID(export_id))


@shared_task
def write_exports(**_: Any) -> None:
    """Every minute: write exports whose task was lost, and delete old exports."""
    from console import exports

    with long_task(WAITING) as may_run:
        if may_run:
            exports.write_waiting()
