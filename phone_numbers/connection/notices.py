"""Explanations of connection problems: sentences and repairs for pages, and mails (live environment only)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction

from gateway.clock import now
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import mail
from tenants.models import ApiKey, Tenant

# --- Connection details in words: the reason as a sentence, and the repair. Pure functions.


class Explained(NamedTuple):
    """The explanation of a connection detail. `repair` names the form or link that the page shows, if any."""

    reason: str
    repair: str | None


_DETAILS = {
    None: Explained("It can send and receive.", None),
    "no_verified_endpoint": Explained(
        "Nobody receives its messages yet: turn conversations on, or add a webhook endpoint of your server.",
        "endpoint",
    ),
    "not_registered": Explained("It is not registered for sending yet.", "register"),
    "deregistered": Explained("It was deregistered. Register it again to send.", "register"),
    "not_subscribed": Explained("Its account does not send events to the gateway.", "subscribe"),
    "token_invalid": Explained("Meta refuses the token of its account.", "connect"),
    "account_removed": Explained("The access to its account was withdrawn at Meta.", "connect"),
    "account_restricted": Explained(
        "Meta restricted its account. Meta's Business Support can lift this.", None
    ),
}


def explained(detail: str | None) -> Explained:
    """Explain a connection detail."""
    return _DETAILS.get(detail, Explained(f"The gateway reports {detail}.", None))


# --- Failed connect sessions in words: what the sign-up lacked, and what to do differently. Pure functions.

_CANCELLED = "You left the sign-up before its end."
_PERMISSIONS = "Connect again, choose the account itself, and leave every permission on."
_CODE = "What the sign-up gives works once, for a few minutes. Connect again."


def explained_failure(error: Mapping[str, Any] | None) -> str:
    """Explain the error `{source, code, message}` of a failed session. Without an error, the explanation says that
    nobody finished the sign-up.
    """
    if not error or error["code"] == "cancelled":
        return _CANCELLED
    said = str(error["message"]).rstrip(".")
    if error["code"] == "signup_error":
        return f"Meta ended the sign-up: {said}. Repair that at Meta, then connect again."
    if error["source"] == "meta":
        return f"Meta refused: {said}. {_CODE}"
    if error["code"] == "conflict":
        return f"{said}. Choose another account, or have this one released first."
    if error["code"] == "invalid_request":
        return f"{said}. {_PERMISSIONS}"
    return f"{said}."


# --- Mails about numbers that were taken away and tokens that fail or expire. Live environment only.
#
# Called inside the transaction of the change, under the tenant's lock. A mail that cannot be stored is logged; it never
# undoes the change. A number or token causes at most one mail a day, however often its state changes.

log = structlog.get_logger(__name__)

AT_MOST_EVERY = timedelta(days=1)
TOKEN_WARNING_DAYS = (1, 7)
"""How many days before the end of a token its tenant is warned."""
MOST_NUMBERS = 20
"""The most numbers that one mail names. The mail has only the count of the others."""


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
    """Mail a tenant that the token of an account does not work. Sets `token_mailed_at` of the account,
    without saving.
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
