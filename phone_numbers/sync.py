"""Sync of accounts and numbers with Meta: every six hours and after notifications, with back-off.

Beat calls `start_due`, which claims accounts by lease and enqueues a task for each, so a slow or failing account does
not delay others. A lease belongs to one run. A task with an outdated lease does nothing, so only one run at a time
reads an account and its numbers. After a crash the lease expires, and the account is due again.

The incoming flow of `messaging` applies notifications about accounts and numbers (upstream facts 3.3, 3.9 and 3.10) in
its own transaction. It applies only new notifications, because a repeat that arrives days later must not undo a repair.
When a notification does not contain the changed value, the sync reads it from the Graph API after the commit. The
caller publishes the tenant's event.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q

from gateway.api.errors import MetaUnreachable
from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import blocking_client
from gateway.upstream import numbers as upstream
from gateway.upstream.calls import UpstreamUnreachable, platform
from gateway.upstream.numbers import digits_of
from phone_numbers import tokens
from phone_numbers.connection import state
from phone_numbers.models import AppData, BusinessAccount, PhoneNumber, TakenAway
from phone_numbers.tokens import FAILURES, Refused, accepted_for, graph_of


# --- Storing Meta's view of a number: quality, tier, name, throughput, registration.
#
# A view is stored after onboarding, by `refresh=true` and by the sync. `meta_snapshot` has the whole view.
def store_view(number: PhoneNumber, view: Mapping[str, Any], *, read_at: datetime) -> None:
    """Store Meta's view of a number, and recompute the number's connection. The read of the view began at
    `read_at`.
    """
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        current = (
            PhoneNumber.objects.select_for_update(of=("self",)).defer("pin").filter(pk=number.pk).first()
        )
        if current is None:
            return  # the number was released in the meantime
        columns = {
            **upstream.number_columns(view),
            **registration_columns(current, view, read_at=read_at),
            "meta_snapshot": dict(view),
            "refreshed_at": now(),
        }
        for name, value in columns.items():
            length = getattr(PhoneNumber._meta.get_field(name), "max_length", None)
            setattr(current, name, value[:length] if isinstance(value, str) else value)
        current.save(update_fields=list(columns))


def registration_columns(
    number: PhoneNumber, view: Mapping[str, Any], *, read_at: datetime
) -> dict[str, Any]:
    """The registration of a number in Meta's view, as columns of `PhoneNumber`. The read of the view began at
    `read_at`.

    Empty if the view does not show the registration, or if a command or an event changed it after `read_at`.
    """
    registered = upstream.registered(view)
    outdated = number.facts_changed_at is not None and number.facts_changed_at > read_at
    if registered is None or outdated:
        return {}
    since = number.registered_at if number.registered else None
    return {
        "registered": registered,
        "registered_at": since or upstream.onboarded_at(view) or read_at if registered else None,
    }


# --- Schedule of syncs (accounts here, templates in `messaging`): interval, lease, back-off.
#
# A failed sync is retried after a minute. The wait is doubled after each further failure, up to the interval. A
# claimed account is due again when its lease ends, so a crash only delays its sync.
INTERVAL = timedelta(hours=6)
LEASE = timedelta(minutes=10)
"""How long a claimed account may wait in the queue, and how long a run may take between two calls."""
FIRST_RETRY = timedelta(minutes=1)
BATCH = 200
"""The most accounts that one claim takes."""
MOST_FAILURES = 20


def next_interval() -> timedelta:
    """The time until the next regular sync. Random, so that accounts are not all due at once."""
    return INTERVAL * random.uniform(0.9, 1)  # noqa: S311


def after_failure(failures: int, error: Exception) -> tuple[int, timedelta]:
    """The number of consecutive failures, and the time until the next attempt. If Meta's answer asks for a wait, the
    time is at least this wait.
    """
    failures = min(failures + 1, MOST_FAILURES)
    wait = min(FIRST_RETRY * 2 ** (failures - 1), INTERVAL) * random.uniform(0.8, 1.2)  # noqa: S311
    if isinstance(error, Refused) and error.verdict.retry_after:
        wait = max(wait, timedelta(seconds=error.verdict.retry_after))
    return failures, wait


log = structlog.get_logger(__name__)

SETTLED = timedelta(hours=1)
"""For this long after a ban, Meta's view of the account may still be stale, so the view cannot lift the ban."""


class SyncLeaseLost(Exception):
    """Raised when another run has claimed the account."""


class TokenDoesNotWork(Exception):
    """Raised when Meta still rejects the account's token. The account is not read, and the token is soon checked
    again.
    """


def start_due() -> int:
    """Claim due accounts and enqueue a task for each. Returns the number of tasks. Called by beat."""
    return _start(_claim(Q(next_sync_at__lte=now()) | Q(sync_lease_until__lt=now())))


def request_sync(*, waba_id: str) -> None:
    """Schedule a sync of the account, after a notification about the account or a change that got no answer.

    The sync starts after the commit of the current transaction. If a sync is already running, another sync follows.
    """
    transaction.on_commit(lambda: _request_sync(Q(waba_id=waba_id)), robust=True)


@contextmanager
def read_again_if_unanswered(account: BusinessAccount) -> Iterator[None]:
    """Request a sync when a change inside gets no usable answer, because Meta may have made it."""
    try:
        yield
    except (MetaUnreachable, UpstreamUnreachable):
        transaction.on_commit(lambda: _request_sync(Q(pk=account.pk)), robust=True)
        raise


def _request_sync(wanted: Q) -> None:
    BusinessAccount.objects.filter(wanted).update(next_sync_at=now())
    _start(_claim(wanted))


def _claim(wanted: Q) -> list[tuple[UUID, datetime]]:
    moment = now()
    lease = moment + LEASE
    with transaction.atomic():
        accounts = (
            BusinessAccount.objects.filter(wanted)
            .filter(Q(sync_lease_until__isnull=True) | Q(sync_lease_until__lt=moment))
            .select_for_update(skip_locked=True)
            .order_by("next_sync_at")
            .values_list("pk", flat=True)[:BATCH]
        )
        claimed = list(accounts)
        BusinessAccount.objects.filter(pk__in=claimed).update(
            sync_lease_until=lease,
            next_sync_at=moment + next_interval(),
        )
    return [(account_id, lease) for account_id in claimed]


def _start(claimed: Iterable[tuple[UUID, datetime]]) -> int:
    started = 0
    for account_id, lease in claimed:
        if not enqueue(
            "phone_numbers.tasks.sync_account", account_id=str(account_id), lease=lease.isoformat()
        ):
            break
        started += 1
    return started


def run(*, account_id: UUID, lease: datetime) -> None:
    """Sync one account. If a check of the token is due, check the token first. If the token works, read the account's
    numbers, its subscription and whether the account may send.
    """
    sync = _Run(account_id, lease)
    try:
        sync.read()
    except SyncLeaseLost:
        return
    except Exception as error:
        if concerns_all(error):
            raise  # after the lease expires, the account is due again
        if not isinstance(error, (*FAILURES, TokenDoesNotWork)):
            log.exception("sync_crashed", account=str(account_id))
        sync.retry_later(error)
    else:
        sync.finish()


class _Run:
    """One run of a sync. It renews its lease between its calls to Meta."""

    def __init__(self, account_id: UUID, lease: datetime) -> None:
        self.account_id, self.lease = account_id, lease

    def renew(self) -> BusinessAccount:
        """Renew the lease and return the current account. Raises SyncLeaseLost when another run has claimed it."""
        lease = now() + LEASE
        mine = BusinessAccount.objects.filter(pk=self.account_id, sync_lease_until=self.lease)
        if not mine.update(sync_lease_until=lease):
            raise SyncLeaseLost
        self.lease = lease
        return BusinessAccount.objects.get(pk=self.account_id)

    def read(self) -> None:
        account = self.renew()
        if tokens.check_is_due(account):
            tokens.check(account)
            account = self.renew()
        if account.token_invalid_at is not None:
            raise TokenDoesNotWork
        self._read_numbers(account)
        read_subscription(self.renew())
        self._read_restriction(self.renew())

    def _read_numbers(self, account: BusinessAccount) -> None:
        known = {
            number.phone_number_id: number
            for number in account.numbers.defer("pin", "meta_snapshot").order_by("id")
        }
        read_at = now()
        for page in graph_of(account).number_pages(account.waba_id):
            for view in blocking_client.rows(accepted_for(account, page)):
                if number := known.pop(str(view.get("id")), None):
                    _store(number, view, read_at=read_at)
            self.renew()
        for number in known.values():
            _mark_unregistered(number, read_at=read_at)

    def _read_restriction(self, account: BusinessAccount) -> None:
        read_at = now()
        view = accepted_for(account, graph_of(account).account(account.waba_id)).json()
        health = view.get("health_status")
        sends = health.get("can_send_message") if isinstance(health, dict) else None
        with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
            rows = BusinessAccount.objects.filter(pk=account.pk)
            if isinstance(name := view.get("name"), str):
                rows.update(name=name[:255])
            if sends in _MAY_SEND:
                rows.filter(
                    _unchanged_since(read_at - SETTLED), taken_away=TakenAway.ACCOUNT_RESTRICTED
                ).update(taken_away=None)

    def finish(self) -> None:
        """Release the lease. The claim or a later request has already set the time of the next sync."""
        BusinessAccount.objects.filter(pk=self.account_id, sync_lease_until=self.lease).update(
            sync_lease_until=None, sync_failures=0, synced_at=now()
        )

    def retry_later(self, error: Exception) -> None:
        """Release the lease and schedule a retry, unless another run has claimed the account."""
        held = BusinessAccount.objects.filter(pk=self.account_id, sync_lease_until=self.lease)
        failures = held.values_list("sync_failures", flat=True).first()
        if failures is None:
            return  # the account was released, or another run has claimed it
        failures, wait = after_failure(failures, error)
        held.update(sync_lease_until=None, sync_failures=failures, next_sync_at=now() + wait)
        code = error.verdict.code if isinstance(error, Refused) else None
        log.warning("sync_failed", account=str(self.account_id), error=type(error).__name__, code=code)


def read_subscription(account: BusinessAccount) -> None:
    """Read whether Meta sends the account's notifications to the service, and store it. Raises one of FAILURES."""
    read_at, graph = now(), graph_of(account)
    answer = accepted_for(account, graph.subscriptions(account.waba_id))
    subscribed = graph.subscribed_to_us(answer)
    with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
        BusinessAccount.objects.filter(_unchanged_since(read_at), pk=account.pk).update(subscribed=subscribed)


_MAY_SEND = ("AVAILABLE", "LIMITED")
"""Meta's values for an account that is not blocked. A limited account can send within its limits
(upstream fact 3.10).
"""


def _unchanged_since(moment: datetime) -> Q:
    return Q(facts_changed_at__isnull=True) | Q(facts_changed_at__lt=moment)


def _store(number: PhoneNumber, view: Mapping[str, Any], *, read_at: datetime) -> None:
    """Store a view. A view that cannot be stored leaves its number unchanged and does not stop the account's other
    numbers.
    """
    try:
        store_view(number, view, read_at=read_at)
    except Exception as error:
        if concerns_all(error):
            raise
        log.exception("number_view_not_stored", number=str(number.pk))


def _mark_unregistered(number: PhoneNumber, *, read_at: datetime) -> None:
    """Mark a number as not registered, because its account no longer lists it."""
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        PhoneNumber.objects.filter(_unchanged_since(read_at), pk=number.pk).update(
            registered=False, registered_at=None
        )


_TIERS = {
    -1: "TIER_UNLIMITED",
    250: "TIER_250",
    1000: "TIER_1K",
    2000: "TIER_2K",
    10_000: "TIER_10K",
    100_000: "TIER_100K",
}


def apply_notification(
    *, field: str, value: Mapping[str, Any], waba_id: str, phone_number_id: str | None = None
) -> None:
    """Apply one change in a notification to its account and number, and request a sync of the account.

    Fields without a handler and unknown accounts are ignored.
    """
    handler = HANDLERS.get(field)
    account = BusinessAccount.objects.filter(waba_id=waba_id).first() if handler else None
    if handler is None or account is None:
        return
    with state.facts_change(tenant_id=account.tenant_id, waba_id=waba_id):
        handler(account, value, phone_number_id)
    request_sync(waba_id=waba_id)


def _account_update(account: BusinessAccount, value: Mapping[str, Any], _: str | None) -> None:
    match value.get("event"):
        case "ACCOUNT_DELETED":
            _take_away(account, TakenAway.ACCOUNT_REMOVED)
        case "PARTNER_REMOVED" | "ACCOUNT_OFFBOARDED":
            _business_left(account, value)
        case "PARTNER_APP_UNINSTALLED" if _of_our_app(account, value):
            _take_away(account, TakenAway.ACCOUNT_REMOVED)
        case "ACCOUNT_RECONNECTED":
            _release(account, TakenAway.ACCOUNT_REMOVED, digits_of(str(value.get("phone_number") or "")))
        case "DISABLED_UPDATE":
            ban = value.get("ban_info")
            states = ban.get("waba_ban_state") if isinstance(ban, Mapping) else None
            states = states if isinstance(states, list) else [states]
            if "DISABLE" in states:
                _take_away(account, TakenAway.ACCOUNT_RESTRICTED)
            elif "REINSTATE" in states:
                _release(account, TakenAway.ACCOUNT_RESTRICTED)


def _of_our_app(account: BusinessAccount, value: Mapping[str, Any]) -> bool:
    info = value.get("waba_info")
    app_id = value.get("partner_app_id") or (
        info.get("partner_app_id") if isinstance(info, Mapping) else None
    )
    return app_id is None or str(app_id) == platform(account.environment).app_id


def _business_left(account: BusinessAccount, value: Mapping[str, Any]) -> None:
    """Store that a business has left. An event that names a number affects only this number. An `ACCOUNT_OFFBOARDED`
    event without a number (a change of the device) affects all coexistence numbers. Any other event affects the whole
    account.
    """
    numbers = PhoneNumber.objects.filter(account=account)
    if named := digits_of(str(value.get("phone_number") or "")):
        numbers = numbers.filter(digits=named)
    elif value.get("event") == "ACCOUNT_OFFBOARDED":
        numbers = numbers.filter(coexistence=True)
    else:
        numbers = numbers.none()
    if value.get("event") == "PARTNER_REMOVED":
        # The next onboarding syncs the contacts and chats again. After a change of the device, WhatsApp reconnects the
        # numbers itself.
        synced = AppData.objects.filter(number__account=account)
        (synced.filter(number__digits=named) if named else synced).delete()
    parted = numbers.update(taken_away=TakenAway.ACCOUNT_REMOVED, facts_changed_at=now())
    if not parted and not named:
        _take_away(account, TakenAway.ACCOUNT_REMOVED)


def _take_away(account: BusinessAccount, why: TakenAway) -> None:
    """Store why Meta took an account away. A ban does not replace a removal: the removal lets the business connect
    again, and lets another tenant connect the account.
    """
    rows = BusinessAccount.objects.filter(pk=account.pk)
    if why == TakenAway.ACCOUNT_RESTRICTED:
        rows = rows.exclude(taken_away=TakenAway.ACCOUNT_REMOVED)
    rows.update(taken_away=why, facts_changed_at=now())


def _release(account: BusinessAccount, why: TakenAway, named: str = "") -> None:
    """Store that `why` no longer applies to an account with its numbers, or only to the number that an event names."""
    back = {"taken_away": None, "facts_changed_at": now()}
    numbers = PhoneNumber.objects.filter(account=account, taken_away=why)
    if named:
        numbers = numbers.filter(digits=named)
    else:
        BusinessAccount.objects.filter(pk=account.pk, taken_away=why).update(**back)
    numbers.update(**back)


def _quality(account: BusinessAccount, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    """Store the new limit, if the event contains one. The sync reads the quality, because these events do not contain
    it. In THROUGHPUT_UPGRADE, the limit TIER_UNLIMITED concerns the throughput.
    """
    if value.get("event") == "THROUGHPUT_UPGRADE":
        _numbers(account, phone_number_id).update(throughput_level="HIGH")
        return
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
    """The tier of a messaging limit. Older events give the limit as a count of customers. None for an unknown limit."""
    if isinstance(limit, str) and limit.startswith("TIER_"):
        return limit[:32]
    return _TIERS.get(limit) if isinstance(limit, int) else None


def _numbers(account: BusinessAccount, phone_number_id: str | None) -> Any:
    return PhoneNumber.objects.filter(account=account, phone_number_id=phone_number_id)


def _sync_only(account: BusinessAccount, value: Mapping[str, Any], phone_number_id: str | None) -> None:
    """Store nothing from the event. The sync reads the changed values."""


HANDLERS: Mapping[str, Callable[[BusinessAccount, Mapping[str, Any], str | None], None]] = {
    "account_update": _account_update,
    "account_review_update": _sync_only,
    "account_settings_update": _sync_only,
    "account_alerts": _sync_only,
    "business_status_update": _sync_only,
    "business_capability_update": _capability,
    "phone_number_quality_update": _quality,
    "phone_number_name_update": _name,
    "security": _sync_only,
}
"""Handlers of changes in notifications, by Meta's `field`."""
