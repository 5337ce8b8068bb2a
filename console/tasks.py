"""Celery entry points of the console."""

from typing import Any
from uuid import UUID

from celery import shared_task


@shared_task
def write_export(export_id: str, **_: Any) -> None:
    """After the commit of a new export: write its file."""
    from console import exports  # imported here: other tasks do not need the pages' imports

    exports.write(UUID(export_id))


@shared_task
def write_exports(**_: Any) -> None:
    """Every minute: write exports whose task was lost, and delete old exports."""
    from console import exports

    exports.write_waiting()
