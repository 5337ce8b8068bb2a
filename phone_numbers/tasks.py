"""Celery entry points of the numbers app."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task

from phone_numbers import app_data, onboarding, sync, tokens
from phone_numbers.hosted_connect import sessions
from phone_numbers.sandbox import control


@shared_task
def start_due_syncs(**_: Any) -> None:
    """Every half minute: enqueue a sync for each due account."""
    sync.start_due()


@shared_task
def sync_account(*, account_id: str, lease: str, **_: Any) -> None:
    """Sync one account, if the lease is still valid."""
    sync.run(account_id=UUID(account_id), lease=datetime.fromisoformat(lease))


@shared_task
def request_app_data(**_: Any) -> None:
    """Every minute, and after an onboarding: request the contacts and chats that are due."""
    app_data.request_due()


@shared_task
def warn_of_token_ends(**_: Any) -> None:
    """Hourly: notify tenants of tokens that expire soon."""
    tokens.warn_of_ends()


@shared_task
def prune_redeemed_codes(**_: Any) -> None:
    """Hourly: delete the tokens of sign-up codes after a day."""
    onboarding.prune_redeemed_codes()


@shared_task
def prune_connect_sessions(**_: Any) -> None:
    """Hourly: prune connect sessions past retention."""
    sessions.prune()


@shared_task
def make_sandbox(*, tenant_id: str, **_: Any) -> None:
    """After a sign-up is confirmed, or a sandbox tenant or a test key is created: create the tenant's sandbox.
    `make_missing_sandboxes` retries a failure.
    """
    control.try_to_make(UUID(tenant_id))


@shared_task
def make_missing_sandboxes(**_: Any) -> None:
    """Every five minutes: create missing sandboxes of recent tenants."""
    control.make_missing()
