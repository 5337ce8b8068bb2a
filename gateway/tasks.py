"""Celery entry points of what all apps build on."""

from typing import Any

from celery import shared_task

from gateway.database import partitions


@shared_task
def maintain_partitions(**_: Any) -> None:
    """Hourly: make the coming partitions, drop the expired ones."""
    partitions.maintain()
