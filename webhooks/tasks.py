"""Celery entry points of the delivery engine. Worker: `celery -A gateway worker -Q deliveries -P threads`."""

from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from webhooks import dispatch


@shared_task
def deliver_due(**_: Any) -> None:
    """Deliver what is due; ends when idle. Called by wake-ups, and every second by beat as the safety net."""
    dispatch.run()


@worker_shutting_down.connect
def _stop_dispatcher(**_: Any) -> None:
    """A stopping worker lets its requests finish and claims no more."""
    dispatch.stop()
