"""Notifications about accounts and numbers: what each changes here (upstream facts 3.3, 3.9 and 3.10).

Called by the incoming flow of `messaging`, inside its transaction and only for notifications that are new: a repetition
days later must not undo a repair. What a notification only hints at is read from the upstream after the commit. The
caller publishes the tenant's event.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.clock import now
from gateway.upstream.calls import platform
from gateway.upstream.numbers import digits_of
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, TakenAway
from phone_numbers.syncing import sync

_TIERS = {250: "TIER_250", 1000: "TIER_1K", 2000: "TIER_2K", 10_000: "TIER_10K", 100_000: "TIER_100K"}


def apply(*, field: str, value: Mapping[str, Any], waba_id: str, phone_number_id: str | None = None) -> None:
    """Apply one change of a notification to the account and the number that routing found.

    Fields without a side effect, and accounts of no tenant, are passed over.
    """
    handler = HANDLERS.get(field)
    account = BusinessAccount.objects.filter(waba_id=waba_id).first() if handler else None
    if handler is None or account is None:
        return
    with state.facts_change(tenant_id=account.tenant_id, waba_id=waba_id):
        handler(account, value, phone_number_id)
    sync.hint(waba_id=waba_id)


def _account_update(account: BusinessAccount, value: Mapping[str, Any], _: str | None) -> None:
    match value.get("event"):
        case "ACCOUNT_DELETED":
            _take_away(account, TakenAway.ACCOUNT_REMOVED)
        case "PARTNER_REMOVED" | "ACCOUNT_OFFBOARDED":
            _part(account, value)
        case "PARTNER_APP_UNINSTALLED" if _of_our_app(account, value):
            _take_away(account, TakenAway.ACCOUNT_REMOVED)
        case "ACCOUNT_RECONNECTED":
            _give_back(account, TakenAway.ACCOUNT_REMOVED)
        case "DISABLED_UPDATE":
            ban = value.get("ban_info")
            states = ban.get("waba_ban_state") if isinstance(ban, Mapping) else None
            states = states if isinstance(states, list) else [states]
            if "DISABLE" in states:
                _take_away(account, TakenAway.ACCOUNT_RESTRICTED)
            elif "REINSTATE" in states:
                _give_back(account, TakenAway.ACCOUNT_RESTRICTED)


def _of_our_app(account: BusinessAccount, value: Mapping[str, Any]) -> bool:
    info = value.get("waba_info")
    app_id = value.get("partner_app_id") or (
        info.get("partner_app_id") if isinstance(info, Mapping) else None
    )
    return app_id is None or str(app_id) == platform(account.environment).app_id


def _part(account: BusinessAccount, value: Mapping[str, Any]) -> None:
    """The business left: with one coexistence number where the event names it, else with its coexistence numbers
    (their device changed), else with the whole account."""
    numbers = PhoneNumber.objects.filter(account=account)
    if named := digits_of(str(value.get("phone_number") or "")):
        numbers = numbers.filter(digits=named)
    elif value.get("event") == "ACCOUNT_OFFBOARDED":
        numbers = numbers.filter(coexistence=True)
    else:
        numbers = numbers.none()
    parted = numbers.update(taken_away=TakenAway.ACCOUNT_REMOVED, facts_changed_at=now())
    if not parted and not named:
        _take_away(account, TakenAway.ACCOUNT_REMOVED)


def _take_away(account: BusinessAccount, why: TakenAway) -> None:
    BusinessAccount.objects.filter(pk=account.pk).update(taken_away=why, facts_changed_at=now())


def _give_back(account: BusinessAccount, why: TakenAway) -> None:
    back = {"taken_away": None, "facts_changed_at": now()}
    BusinessAccount.objects.filter(pk=account.pk, taken_away=why).update(**back)
    PhoneNumber.objects.filter(account=account, taken_away=why).update(**back)


def _quality(account: BusinessAccount, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    """The event does not hold the quality's colour, which the sync reads. It holds the new limit in some cases."""
    limit = _tier(value.get("current_limit")) or _tier(value.get("max_daily_conversations_per_business"))
    if limit:
        _numbers(account, phone_number_id).update(messaging_limit_tier=limit)


def _name(account: BusinessAccount, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    name = value.get("requested_verified_name")
    if value.get("decision") == "APPROVED" and isinstance(name, str):
        _numbers(account, phone_number_id).update(verified_name=name[:255], name_status="APPROVED")


def _capability(account: BusinessAccount, value: Mapping[str, Any], _: str | None) -> None:
    limit = _tier(value.get("max_daily_conversations_per_business")) or _tier(
        value.get("max_daily_conversation_per_phone")
    )
    if limit:
        PhoneNumber.objects.filter(account=account).update(messaging_limit_tier=limit)


def _tier(limit: object) -> str | None:
    """A messaging limit as its tier; older events carry the bare number."""
    if isinstance(limit, str) and limit.startswith("TIER_"):
        return limit[:32]
    return _TIERS.get(limit) if isinstance(limit, int) else None


def _numbers(account: BusinessAccount, phone_number_id: str | None) -> Any:
    return PhoneNumber.objects.filter(account=account, phone_number_id=phone_number_id)


def _hint_only(account: BusinessAccount, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    """Nothing in the event is stored by itself; the re-read brings what changed."""


HANDLERS: Mapping[str, Callable[[BusinessAccount, Mapping[str, Any], str | None], None]] = {
    "account_update": _account_update,
    "account_review_update": _hint_only,
    "account_settings_update": _hint_only,
    "account_alerts": _hint_only,
    "business_status_update": _hint_only,
    "business_capability_update": _capability,
    "phone_number_quality_update": _quality,
    "phone_number_name_update": _name,
    "security": _hint_only,
}
"""Upstream field → what it changes here."""
