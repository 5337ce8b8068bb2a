"""Celery entry points of the numbers app."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task

from phone_numbers import onboarding, sync, tokens
from phone_numbers.hosted_connect import sessions
from phone_numbers.sandbox import control


@shared_task
def start_due_syncs(**_: Any) -> None:
    """Every half minute: hand out the accounts that are due."""
    sync.start_due()


@shared_task
def sync_account(*, account_id: str, lease: str, **_: Any) -> None:
    """Re-read one account, if the lease is still its own."""
    sync.run(account_id=UUID(account_id), lease=datetime.fromisoformat(lease))


@shared_task
def warn_of_token_ends(**_: Any) -> None:
    """Hourly: tell tenants of tokens that end soon."""
    tokens.warn_of_ends()


@shared_task
def forget_redeemed_codes(**_: Any) -> None:
    """Hourly: forget the tokens of codes that nobody will repeat."""
    onboarding.forget_redeemed_codes()


@shared_task
def forget_connect_sessions(**_: Any) -> None:
    """Hourly: forget the connect sessions of years ago."""
    sessions.forget_old()


@shared_task
def make_test_world(*, tenant_id: str, **_: Any) -> None:
    """After the confirmation of a sign-up: make the tenant's test world; what fails waits for the task below."""
    control.try_to_make(UUID(tenant_id))


@shared_task
def make_missing_test_worlds(**_: Any) -> None:
    """Every five minutes: make the test worlds whose making failed."""
    control.make_missing()
