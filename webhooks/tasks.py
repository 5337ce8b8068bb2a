"""Celery entry points of the delivery engine."""

from typing import Any

from celery import shared_task


@shared_task
def deliver_due(**_: Any) -> None:
    """Deliver what is due; ends when idle. Called by wake-ups, and every second by beat as the safety net."""
    from webhooks import dispatch

    dispatch.run()
