"""Celery entry points of the console."""

from typing import Any
from uuid import UUID

from celery import shared_task


@shared_task
def write_export(export_id: str, **_: Any) -> None:
    """After a commit: write one export."""
    from console import exports  # its pages' imports are of no use to the other tasks

    exports.write(UUID(export_id))


@shared_task
def write_exports(**_: Any) -> None:
    """Every minute: write what a task did not, delete what is old."""
    from console import exports

    exports.write_waiting()
