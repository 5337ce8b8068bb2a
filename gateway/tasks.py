"""Celery entry points of the common parts."""

from typing import Any

from celery import shared_task

from gateway.database import partitions


@shared_task
def maintain_partitions(**_: Any) -> None:
    """Hourly: create upcoming partitions, and drop partitions past retention."""
    partitions.maintain()
