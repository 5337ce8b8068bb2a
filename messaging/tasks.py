"""Celery entry points of the messaging app."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task

from messaging import template_sync


@shared_task
def start_due_template_syncs(**_: Any) -> None:
    """Every quarter minute: hand out the accounts whose templates are due."""
    template_sync.start_due()


@shared_task
def sync_templates(*, account_id: str, lease: str, **_: Any) -> None:
    """Read one account's templates, if the lease is still its own."""
    template_sync.run(account_id=UUID(account_id), lease=datetime.fromisoformat(lease))
