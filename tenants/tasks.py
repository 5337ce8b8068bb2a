"""Celery entry points of the tenants app."""

from typing import Any

from celery import shared_task

from tenants import keys, mirror


@shared_task
def reconcile_key_mirror(**_: Any) -> None:
    """Every minute: repair what differs between Valkey and the database."""
    mirror.reconcile()


@shared_task
def write_last_used(**_: Any) -> None:
    """Every minute: store when keys were last used."""
    keys.write_last_used()
