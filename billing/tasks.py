"""Celery entry points of the billing app. While billing is off nothing is billed, but notices are still applied."""

from typing import Any

from celery import shared_task
from django.conf import settings

from billing import notices, run
from gateway.clock import now


@shared_task
def run_billing(**_: Any) -> None:
    """Every ten minutes: do what is due."""
    if settings.BILLING_ENABLED:
        run.run(now())


@shared_task
def apply_notices(**_: Any) -> None:
    """After a webhook, and every ten minutes for one whose wake-up was lost."""
    notices.apply_waiting()
