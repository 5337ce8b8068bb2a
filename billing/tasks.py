"""Celery entry points of the billing app. While billing is off nothing is billed, but notices are still applied."""

from typing import Any

from celery import shared_task
from django.conf import settings

from billing import billing_run
from billing.payments import notices
from gateway.clock import now


@shared_task
def run_billing(**_: Any) -> None:
    """Every ten minutes: do what is due."""
    if settings.BILLING_ENABLED:
        billing_run.run(now())


@shared_task
def apply_notice(event_id: int, **_: Any) -> None:
    """After a webhook: apply it."""
    notices.apply_waiting(now(), only=event_id)


@shared_task
def apply_notices(**_: Any) -> None:
    """Every ten minutes: apply what a task did not."""
    notices.apply_waiting(now())
