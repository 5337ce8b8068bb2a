"""Mails about numbers that were taken away and tokens that fail or expire. Live environment only.

Called inside the transaction of the change, under the tenant's lock. A mail that cannot be stored is logged; it never
undoes the change. A number or token causes at most one mail a day, however often its state changes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction

from gateway.clock import now
from phone_numbers.connection.explanations import explained
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import mail
from tenants.models import ApiKey, Tenant

log = structlog.get_logger(__name__)

AT_MOST_EVERY = timedelta(days=1)
TOKEN_WARNING_DAYS = (1, 7)
"""How many days before the end of a token its tenant is warned."""
MOST_NUMBERS = 20
"""The most numbers that one mail lists. For further numbers, the mail has only the count."""


def numbers_lost(tenant_id: UUID, numbers: Sequence[PhoneNumber]) -> None:
    """Mail a tenant about its numbers that just disconnected. Sets `disconnect_mailed_at` of these numbers, without
    saving.
    """
    mailed = [
        number
        for number in numbers
        if number.environment == ApiKey.Environment.LIVE and _is_due(number.disconnect_mailed_at)
    ]
    for number in mailed:
        number.disconnect_mailed_at = now()
    if mailed:
        shown = [
            {
                "name": number.display_phone_number or number.phone_number_id,
                "id": number.phone_number_id,
                "reason": explained(number.connection_detail).reason,
            }
            for number in mailed[:MOST_NUMBERS]
        ]
        _send(tenant_id, "number_disconnected", {"numbers": shown, "others": len(mailed) - len(shown)})


def token_refused(account: BusinessAccount) -> None:
    """Mail a tenant that Meta rejected the token of an account. Sets the account's `token_mailed_at`, without
    saving.
    """
    if account.environment == ApiKey.Environment.LIVE and _is_due(account.token_mailed_at):
        account.token_mailed_at = now()
        _send(account.tenant_id, "token_invalid", {"account": account, "numbers": _names(account)})


def token_ends(account: BusinessAccount, end: datetime | None) -> None:
    """Mail a tenant that the token of an account expires soon."""
    if account.environment == ApiKey.Environment.LIVE and end is not None:
        context = {"account": account, "numbers": _names(account), "ends_at": end}
        _send(account.tenant_id, "token_expiring", context)


def _is_due(mailed_at: datetime | None) -> bool:
    return mailed_at is None or mailed_at <= now() - AT_MOST_EVERY


def _names(account: BusinessAccount) -> str:
    numbers = PhoneNumber.objects.filter(account=account).order_by("id")[:MOST_NUMBERS]
    return ", ".join(number.display_phone_number or number.phone_number_id for number in numbers)


def _send(tenant_id: UUID, template: str, context: Mapping[str, Any]) -> None:
    try:
        with transaction.atomic():
            mail.send_to_tenant(tenant=Tenant.objects.get(pk=tenant_id), template=template, context=context)
    except Exception as error:  # noqa: BLE001 - the connection state matters more than its mail
        log.error("number_mail_failed", template=template, error=type(error).__name__)
