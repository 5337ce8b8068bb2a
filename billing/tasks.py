"""Celery entry points of the billing app. While billing is off, no step runs, but notices are still applied."""

import contextlib
from typing import Any

from celery import shared_task
from django.conf import settings

from billing import billing_run
from billing.error_isolation import SomeFailed
from billing.payments import provider_notices
from gateway.clock import now


@shared_task
def run_billing(**_: Any) -> None:
    """Every ten minutes: run every billing step that is due."""
    if settings.BILLING_ENABLED:
        billing_run.run(now())


@shared_task
def apply_notice(event_id: int, **_: Any) -> None:
    """After a webhook: apply its notice."""
    with contextlib.suppress(SomeFailed):  # logged; the notice waits for the next run
        provider_notices.apply_waiting(now(), only=event_id)


@shared_task
def apply_notices(**_: Any) -> None:
    """Every ten minutes: apply the notices that no task has applied."""
    with contextlib.suppress(SomeFailed):
        provider_notices.apply_waiting(now())


@shared_task
def prune_notices(**_: Any) -> None:
    """Hourly: delete notices a month after they were applied."""
    provider_notices.prune()
