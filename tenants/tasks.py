"""Celery entry points of the tenants app."""

from typing import Any
from uuid import UUID

from celery import shared_task

from tenants import device_login as device_login
from tenants import mail
from tenants.connected_apps import connections
from tenants.credentials import api_keys, bearer_tokens, key_cache_repair, log_in
from tenants.signup import screening, sign_ups
from tenants.team import invitations


@shared_task
def reconcile_key_mirror(**_: Any) -> None:
    """Every minute: repair entries in Valkey that differ from the database."""
    key_cache_repair.reconcile()


@shared_task
def write_last_used(**_: Any) -> None:
    """Every minute: store the last use of keys."""
    api_keys.write_last_used()


@shared_task
def send_mail(mail_id: int, **_: Any) -> None:
    """After a commit: send one mail."""
    mail.deliver(mail_id)


@shared_task
def send_waiting_mail(**_: Any) -> None:
    """Every minute: retry unsent mail. Delete mail past retention."""
    mail.deliver_waiting()


@shared_task
def check_website(tenant_id: str, **_: Any) -> None:
    """After a confirmation: check the website of the new tenant."""
    screening.check(UUID(tenant_id))


@shared_task
def prune_unconfirmed_sign_ups(**_: Any) -> None:
    """Hourly: delete sign-ups that were not confirmed within a week."""
    sign_ups.prune_unconfirmed()


@shared_task
def prune_device_logins(**_: Any) -> None:
    """Hourly: delete expired device log-ins."""
    device_login.prune_expired()


@shared_task
def prune_connected_apps(**_: Any) -> None:
    """Hourly: delete expired connections of OAuth clients, and day-old clients without connections."""
    connections.prune_expired()


@shared_task
def prune_invitations(**_: Any) -> None:
    """Hourly: delete invitations a week after they were sent."""
    invitations.prune()


@shared_task
def prune_sessions(**_: Any) -> None:
    """Hourly: delete the expired sessions of browsers."""
    log_in.prune_sessions()


@shared_task
def prune_console_tokens(**_: Any) -> None:
    """Hourly: delete expired console tokens."""
    bearer_tokens.prune_expired()
