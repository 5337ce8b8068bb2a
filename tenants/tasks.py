"""Celery entry points of the tenants app."""

from typing import Any
from uuid import UUID

from celery import shared_task

from tenants import device_login as device_login
from tenants import mail
from tenants.connected_apps import connections
from tenants.credentials import api_keys, key_cache_repair
from tenants.signup import registration, screening
from tenants.team import invitations


@shared_task
def reconcile_key_mirror(**_: Any) -> None:
    """Every minute: repair what differs between Valkey and the database."""
    key_cache_repair.reconcile()


@shared_task
def write_last_used(**_: Any) -> None:
    """Every minute: store when keys were last used."""
    api_keys.write_last_used()


@shared_task
def send_mail(mail_id: int, **_: Any) -> None:
    """After a commit: send one mail."""
    mail.deliver(mail_id)


@shared_task
def send_waiting_mail(**_: Any) -> None:
    """Every minute: send what a task did not, forget what is old."""
    mail.deliver_waiting()


@shared_task
def check_website(tenant_id: str, **_: Any) -> None:
    """After a confirmation: look at the new business's website."""
    screening.check(UUID(tenant_id))


@shared_task
def forget_unconfirmed_sign_ups(**_: Any) -> None:
    """Daily: drop what nobody confirmed."""
    registration.forget_unconfirmed()


@shared_task
def forget_device_logins(**_: Any) -> None:
    """Hourly: drop device log-ins that are over."""
    device_login.forget_expired()


@shared_task
def forget_connected_apps(**_: Any) -> None:
    """Hourly: drop connections of apps that are over, and apps that nobody connected."""
    connections.forget_expired()


@shared_task
def forget_invitations(**_: Any) -> None:
    """Daily: drop invitations that are over."""
    invitations.forget_old()
