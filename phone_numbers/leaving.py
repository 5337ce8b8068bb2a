"""Release of accounts and numbers, and closing of tenants."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import cast
from uuid import UUID

import structlog
from cryptography.fernet import InvalidToken
from django.db import transaction
from django.db.models import Q, QuerySet

from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, RedeemedCode, TakenAway
from phone_numbers.sync import request_sync
from phone_numbers.tokens import FAILURES, accepted, graph_of
from tenants import audit, mail, tenant_status
from tenants.audit import GATEWAY, Actor
from tenants.connected_apps import connections
from tenants.credentials import api_keys
from tenants.models import ApiKey, AppConnection, AuditEntry, Tenant
from tenants.signals import tenant_closing
from tenants.signup import sign_ups
from tenants.team import members
from webhooks.endpoints import lifecycle
from webhooks.events import retention
from webhooks.events.publish import publish
from webhooks.models import Endpoint

# --- Release. The owner or staff release a number or an account. A new owner causes a release by connecting an account
# or number that Meta has taken away from the previous owner.
#
# `release_account` unsubscribes the account at Meta, if its token still works, and then deletes the rows with token and
# PINs in one transaction. `release_number` does the same with the last number of an account.
#
# The rows are deleted, so the next owner can neither use nor see data of the previous owner. Events, deliveries and the
# intervals that measure usage stay with the previous tenant. A waiting batch of the number ends by itself.

log = structlog.get_logger(__name__)

RELEASED = "released"
"""The connection detail in the last `number.connection` event of a released number."""


def release_number(number: PhoneNumber, *, actor: Actor) -> None:
    """Release one number. Releasing the last number of an account also releases the account. Raises NotFound.

    The account of the last number is unsubscribed first, so that a repeat completes a release that was interrupted.
    """
    account = number.account
    is_last = not account.numbers.exclude(pk=number.pk).exists()
    if is_last:
        unsubscribe(account)
    with state.facts_change(tenant_id=number.tenant_id, waba_id=account.waba_id):
        rows = BusinessAccount.objects.filter(pk=account.pk)
        rows.select_for_update().values_list("pk").first()
        current = _locked_numbers().filter(pk=number.pk).first()
        if current is None:
            raise NotFound("There is no such number.")
        actor.record(
            "number.release",
            tenant_id=number.tenant_id,
            target_type="number",
            target_id=number.phone_number_id,
            waba_id=account.waba_id,
        )
        _remove_number(current, account)
        stays = _remove_account(account, actor=actor, action="account.release", only_empty=True) is None
        if stays and is_last:
            # Another number was connected since, and its subscription may have been removed with the call above.
            rows.update(subscribed=False, facts_changed_at=now())
            request_sync(waba_id=account.waba_id)
    if not (stays or is_last):
        unsubscribe(account)


def release_account(account: BusinessAccount, *, actor: Actor) -> list[str]:
    """Release an account with all its numbers. Returns the ids of the numbers. Raises NotFound when the account is
    already gone.
    """
    unsubscribe(account)
    removed = _remove_account(account, actor=actor, action="account.release")
    if removed is None:
        raise NotFound("There is no such business account.")
    return removed


def unsubscribe(account: BusinessAccount) -> None:
    """Unsubscribe an account at Meta, so that Meta sends no more notifications about it. An error does not stop the
    release.
    """
    if account.token_invalid_at is not None or account.taken_away == TakenAway.ACCOUNT_REMOVED:
        return
    try:
        accepted(graph_of(account).unsubscribe(account.waba_id))
    except (*FAILURES, InvalidToken) as error:
        log.warning("account_not_unsubscribed", account=str(account.pk), error=type(error).__name__)


def make_way(*, waba_id: str, phone_number_ids: Collection[str], new_owner: UUID) -> None:
    """Remove an account and numbers that Meta has taken away from other tenants, before `new_owner` connects them with
    a valid token.

    Raises Conflict, before anything is removed, when the account stays with another tenant. Numbers that stay with
    another tenant are left out later. The former owner's audit log names the gateway as the actor, never the key or
    the person of the new owner.
    """
    held = BusinessAccount.objects.exclude(tenant_id=new_owner).filter(waba_id=waba_id)
    account = held.defer("access_token").first()
    if account is not None:
        moved = _remove_account(account, actor=GATEWAY, action="account.move", new_tenant_id=str(new_owner))
        if moved is None:
            raise held_by_another("business account")
    removed = Q(taken_away=TakenAway.ACCOUNT_REMOVED) | Q(account__taken_away=TakenAway.ACCOUNT_REMOVED)
    numbers = PhoneNumber.objects.filter(removed, phone_number_id__in=phone_number_ids)
    for number in numbers.exclude(tenant_id=new_owner).defer("pin").select_related("account"):
        with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
            current = _locked_numbers().filter(removed, pk=number.pk).first()
            if current is None:
                continue
            GATEWAY.record(
                "number.move",
                tenant_id=number.tenant_id,
                target_type="number",
                target_id=number.phone_number_id,
                new_tenant_id=str(new_owner),
            )
            _remove_number(current, number.account)


LATELY = timedelta(minutes=1)
"""Longer than the clocks of two hosts differ."""


def was_left(*, waba_id: str, phone_number_ids: Collection[str], new_owner: UUID) -> bool:
    """Whether the account or one of the numbers has lately left another tenant, so that web processes may still send
    its events to that tenant.
    """
    left = AuditEntry.objects.filter(
        action__in=("account.release", "number.release", "account.move", "number.move"),
        target_id__in=[waba_id, *phone_number_ids],
        created_at__gt=now() - LATELY,
    )
    return left.exclude(tenant_id=new_owner).exists()


def _remove_account(
    account: BusinessAccount, *, actor: Actor, action: str, only_empty: bool = False, **details: object
) -> list[str] | None:
    """Delete an account with its token and all its numbers. Returns the ids of the numbers. Returns None when the
    account was already gone or must stay.

    When a new owner connects the account, the account must stay unless Meta has removed it or all its numbers. This is
    checked under the lock. With `only_empty`, the account must stay if it has numbers.
    """
    with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
        rows = BusinessAccount.objects.select_for_update().defer("access_token")
        current = rows.filter(pk=account.pk).first()
        numbers = list(_locked_numbers().filter(account_id=account.pk))
        if current is None or (only_empty and numbers):
            return None
        if action == "account.move" and not _is_removed(current, numbers):
            return None
        phone_number_ids = [number.phone_number_id for number in numbers]
        actor.record(
            action,
            tenant_id=account.tenant_id,
            target_type="account",
            target_id=account.waba_id,
            phone_number_ids=phone_number_ids,
            **details,
        )
        for number in numbers:
            _remove_number(number, current)
        # The token is also stored, for a day, with the sign-up code that was exchanged for it.
        RedeemedCode.objects.filter(tenant_id=account.tenant_id, environment=account.environment).delete()
        current.delete()
    return phone_number_ids


def _is_removed(account: BusinessAccount, numbers: Collection[PhoneNumber]) -> bool:
    """Whether Meta has removed an account, or every number of it."""
    removed = TakenAway.ACCOUNT_REMOVED
    parted = bool(numbers) and all(number.taken_away == removed for number in numbers)
    return account.taken_away == removed or parted


def _locked_numbers() -> QuerySet[PhoneNumber]:
    """A query that locks numbers. It does not read PINs, so it also finds a number whose PIN cannot be
    decrypted.
    """
    return PhoneNumber.objects.select_for_update(of=("self",)).defer("pin", "meta_snapshot").order_by("id")


def held_by_another(what: str) -> Conflict:
    """The error when a tenant connects an account or a number (`what`) that belongs to another tenant."""
    return Conflict(f"This {what} is connected to another business. Its owner can release it.")


def _remove_number(number: PhoneNumber, account: BusinessAccount) -> None:
    """Delete a number under the tenant's lock. Publishes its last event and closes its interval."""
    publish(
        tenant_id=number.tenant_id,
        events=[
            state.connection_event(
                number,
                account,
                number.connection_state,
                state.ConnectionState(state.DISCONNECTED, RELEASED),
            )
        ],
    )
    state.end_interval(number)
    number.delete()
    state.mark_number_connected(number.tenant_id)


# --- Closing a tenant. This suspends the tenant, and ends its members, keys, endpoints, accounts, numbers, open batches
# and mandate. Higher apps end their own rows of the tenant when they receive `tenant_closing`.
#
# Called by `manage.py close_tenant`. Each step commits separately and is safe to repeat, so a second run completes a
# closing that crashed. Stored events are deleted at once or after the tenant's retention. The personal data of
# the sign-up is deleted at the end. Invoices and the audit log stay for as long as the law requires.


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one closing, as the mail to the tenant reports it."""

    tenant_id: UUID
    closed_at: datetime
    ended: dict[str, int]
    """The number of rows of each kind that this closing ended."""
    data_until: date | None
    """The day in UTC on which the last bodies of stored events are deleted. None when they are deleted now."""


def close(*, tenant_id: UUID, actor_user_id: int | None = None, delete_data: bool = False) -> Receipt:
    """End all access of a tenant and mail its contact a receipt. Raises NotFound for an unknown tenant.

    The tenant is suspended with the reason `admin`, and cannot be reinstated. With `delete_data`, the bodies of its
    events are deleted now instead of after their retention.
    """
    tenant = Tenant.objects.filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("There is no such tenant.")
    if tenant.status != Tenant.Status.SUSPENDED:
        tenant_status.suspend_for_closing(tenant_id=tenant.id, actor_user_id=actor_user_id)
    keys = ApiKey.objects.filter(tenant=tenant)
    open_keys = list(keys.filter(revoked_at__isnull=True).values_list("pk", flat=True))
    for key_id in open_keys:
        api_keys.revoke(keys=keys, key_id=key_id, actor_user_id=actor_user_id)
    connections.end_all(
        AppConnection.objects.for_tenant(tenant.id), reason="account_closed", actor_user_id=actor_user_id
    )
    people = members.remove_all(tenant_id=tenant.id, actor_user_id=actor_user_id)
    staff = Actor(user_id=actor_user_id)
    held = list(Endpoint.objects.filter(tenant=tenant).values_list("environment", "pk"))
    for environment, endpoint_id in held:
        lifecycle.delete(tenant_id=tenant.id, environment=environment, endpoint_id=endpoint_id, actor=staff)
    released = 0
    for account in BusinessAccount.objects.for_tenant(tenant.id):
        released += len(release_account(account, actor=staff))
    ended = {"people": people, "keys": len(open_keys), "endpoints": len(held), "numbers": released}
    for _, counts in tenant_closing.send(Tenant, tenant_id=tenant.id, delete_data=delete_data):
        ended |= cast("dict[str, int]", counts)
    moment = now()
    receipt = Receipt(
        tenant_id=tenant.id,
        closed_at=moment,
        ended=ended,
        data_until=None if delete_data else retention.deleted_on(moment, tenant.retention_days),
    )
    with transaction.atomic():
        audit.record(
            action="tenant.close",
            target_type="tenant",
            target_id=tenant.id,
            tenant_id=tenant.id,
            actor_user_id=actor_user_id,
            details={**ended, "data": "deleted" if delete_data else f"kept until {receipt.data_until}"},
        )
        mail.send_to_tenant(tenant=tenant, template="closed", context={"receipt": receipt})
        sign_ups.delete_personal_data(tenant_id=tenant.id)
    return receipt
