"""Sync of accounts and numbers with the upstream: every six hours, after hints, with back-off (`schedule.py`).

Beat calls `start_due`, which claims accounts by lease and hands each to a task of its own, so a slow or failing account
delays no other. A lease belongs to one run: a task that finds another's lease does nothing, so an account and its
numbers are read by one at a time. A crash lets the lease run out, and the account is due again.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q

from gateway.clock import now
from gateway.database.outage import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import reading
from phone_numbers import tokens
from phone_numbers.connection import state
from phone_numbers.connection.upstream_snapshot import store_view
from phone_numbers.graph_calls import FAILURES, Refused, graph_of
from phone_numbers.models import BusinessAccount, PhoneNumber, TakenAway
from phone_numbers.syncing.schedule import BATCH, LEASE, after_failure, next_interval
from phone_numbers.tokens import accepted_for

log = structlog.get_logger(__name__)

SETTLED = timedelta(hours=1)
"""How long after a ban the upstream's own view of the account may lift it: right after the event it can lag."""


class SyncLeaseLost(Exception):
    """Another run has taken the account over."""


def start_due() -> int:
    """Claim what is due and enqueue a task for each account. Returns how many; called by beat."""
    return _start(_claim(Q(next_sync_at__lte=now()) | Q(sync_lease_until__lt=now())))


def hint(*, waba_id: str) -> None:
    """Have an account re-read soon: after an upstream event about it, or an answer that contradicts the stored view.

    Begins when the current transaction commits. While the account is being read, it is read once more.
    """
    transaction.on_commit(lambda: _hint(waba_id), robust=True)


def _hint(waba_id: str) -> None:
    BusinessAccount.objects.filter(waba_id=waba_id).update(next_sync_at=now())
    _start(_claim(Q(waba_id=waba_id)))


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
    """Re-read one account: its token's health when that is due, its numbers, its subscription, whether it may send."""
    sync = _Run(account_id, lease)
    try:
        sync.read()
    except SyncLeaseLost:
        return
    except Exception as error:
        if concerns_all(error):
            raise  # the lease runs out, and the account is due again
        if not isinstance(error, FAILURES):
            log.exception("sync_crashed", account=str(account_id))
        sync.put_off(error)
    else:
        sync.finish()


class _Run:
    """One run under its lease, renewed before each call."""

    def __init__(self, account_id: UUID, lease: datetime) -> None:
        self.account_id, self.lease = account_id, lease

    def renew(self) -> BusinessAccount:
        """The account as it is now, while this run still holds the lease. Raises SyncLeaseLost."""
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
            return
        self._read_numbers(account)
        self._read_subscription(self.renew())
        self._read_restriction(self.renew())

    def _read_numbers(self, account: BusinessAccount) -> None:
        known = {
            number.phone_number_id: number
            for number in account.numbers.defer("pin", "meta_snapshot").order_by("id")
        }
        read_at = now()
        for page in graph_of(account).number_pages(account.waba_id):
            for view in reading.rows(accepted_for(account, page)):
                if number := known.pop(str(view.get("id")), None):
                    _store(number, view, read_at=read_at)
            self.renew()
        for number in known.values():
            _note_gone(number, read_at=read_at)

    def _read_subscription(self, account: BusinessAccount) -> None:
        read_at, graph = now(), graph_of(account)
        answer = accepted_for(account, graph.subscriptions(account.waba_id))
        subscribed = graph.subscribed_to_us(answer)
        with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
            BusinessAccount.objects.filter(_unchanged_since(read_at), pk=account.pk).update(
                subscribed=subscribed
            )

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
        """Release the lease; the claim, or a hint since, has set the next time."""
        BusinessAccount.objects.filter(pk=self.account_id, sync_lease_until=self.lease).update(
            sync_lease_until=None, sync_failures=0, synced_at=now()
        )

    def put_off(self, error: Exception) -> None:
        """Release the lease and try again later."""
        held = BusinessAccount.objects.filter(pk=self.account_id, sync_lease_until=self.lease)
        failures = held.values_list("sync_failures", flat=True).first()
        if failures is None:
            return  # released meanwhile, or read by another run
        failures, wait = after_failure(failures, error)
        held.update(sync_lease_until=None, sync_failures=failures, next_sync_at=now() + wait)
        code = error.verdict.code if isinstance(error, Refused) else None
        log.warning("sync_failed", account=str(self.account_id), error=type(error).__name__, code=code)


_MAY_SEND = ("AVAILABLE", "LIMITED")
"""Answers for an account that is not blocked: a limited one sends within limits (upstream fact 3.10)."""


def _unchanged_since(moment: datetime) -> Q:
    return Q(facts_changed_at__isnull=True) | Q(facts_changed_at__lt=moment)


def _store(number: PhoneNumber, view: Mapping[str, Any], *, read_at: datetime) -> None:
    """Store a view. One that cannot be stored leaves its number as it is, and the account's other numbers go on."""
    try:
        store_view(number, view, read_at=read_at)
    except Exception as error:
        if concerns_all(error):
            raise
        log.exception("number_view_not_stored", number=str(number.pk))


def _note_gone(number: PhoneNumber, *, read_at: datetime) -> None:
    """A number that its account no longer lists is not registered any more."""
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        PhoneNumber.objects.filter(_unchanged_since(read_at), pk=number.pk).update(registered=False)
