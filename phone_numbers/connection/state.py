"""Connection state of a number: the pure function that derives it from facts, and the only code that stores it.

Onboarding, number operations, endpoints, notifications and token health change facts inside `facts_change`. When
`facts_change` ends, the affected numbers of the tenant are recomputed under lock, and each changed connection becomes
one `number.connection` event. The facts, the states and the events commit together. docs/numbers.md lists the states
and details.

A state interval records from when to when a number was in a state. Usage is measured with these intervals. They are
written in the transaction that changes the state, under the tenant's lock.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

from gateway.clock import isoformat, microseconds, now
from gateway.database.statements import Statements, run
from gateway.database.transactions import after_commit
from phone_numbers.connection import mails
from phone_numbers.models import BusinessAccount, NumberStateInterval, PhoneNumber, sandbox_waba_id_of
from phone_numbers.senders_and_owners import NumberRoute
from tenants import checklist
from tenants.models import Tenant
from webhooks.endpoints import lifecycle
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish


def change_state(numbers: Sequence[PhoneNumber]) -> None:
    """Close the open intervals of numbers, and open intervals of their new states."""
    if not numbers:
        return
    moment = now()
    _close(numbers, moment)
    NumberStateInterval.objects.bulk_create(
        NumberStateInterval(
            number=number,
            tenant_id=number.tenant_id,
            connection_state=number.connection_state,
            from_at=moment,
        )
        for number in numbers
    )


def end_interval(number: PhoneNumber) -> None:
    """Close the interval of a number that leaves its tenant. The interval gets a copy of the number's values that usage
    shows.
    """
    _close([number], now())
    NumberStateInterval.objects.filter(number=number).update(
        number=None,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.display_phone_number,
        environment=number.environment,
    )


def _close(numbers: Sequence[PhoneNumber], moment: datetime) -> None:
    NumberStateInterval.objects.filter(number__in=numbers, to_at__isnull=True).update(
        to_at=Greatest(F("from_at"), Value(moment))
    )


LAST_EVENT_GRAIN = timedelta(seconds=1)
"""The precision of `last_event_at`. Without it, every event would rewrite the row of a busy number."""

CONNECTED, PENDING, DISCONNECTED = (
    PhoneNumber.State.CONNECTED,
    PhoneNumber.State.PENDING,
    PhoneNumber.State.DISCONNECTED,
)


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """The facts on which a number's connection depends."""

    taken_away: str | None
    token_valid: bool
    subscribed: bool
    registered: bool
    endpoint_verified: bool
    ever_connected: bool


class ConnectionState(NamedTuple):
    """A connection state with its detail. The detail is None exactly when the number is connected."""

    state: PhoneNumber.State
    detail: str | None


def connection_of(facts: ConnectionFacts) -> ConnectionState:
    """The connection state that the facts imply (specification 3, docs/numbers.md)."""
    if facts.taken_away:
        return ConnectionState(DISCONNECTED, facts.taken_away)
    if not facts.token_valid:
        return ConnectionState(DISCONNECTED, "token_invalid")
    if not facts.subscribed:
        return ConnectionState(DISCONNECTED if facts.ever_connected else PENDING, "not_subscribed")
    if not facts.registered:
        return (
            ConnectionState(DISCONNECTED, "deregistered")
            if facts.ever_connected
            else ConnectionState(PENDING, "not_registered")
        )
    if not facts.endpoint_verified:
        return ConnectionState(PENDING, "no_verified_endpoint")
    return ConnectionState(CONNECTED, None)


@contextmanager
def facts_change(
    *,
    tenant_id: UUID,
    environment: str | None = None,
    waba_id: str | None = None,
    phone_number_id: str | None = None,
) -> Iterator[None]:
    """Open a transaction in which facts of the tenant change. At its end, recompute the numbers that the arguments
    select.

    The tenant's row is locked first, so changes of one tenant run one after the other. The lock order is always tenant,
    account, number, which prevents deadlocks.
    """
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).only("id").get(pk=tenant_id)
        yield
        _recompute(tenant_id, environment, waba_id, phone_number_id)


def recompute(
    *,
    tenant_id: UUID,
    environment: str | None = None,
    waba_id: str | None = None,
    phone_number_id: str | None = None,
) -> None:
    """Recompute connections after facts have changed elsewhere, such as after an endpoint was verified."""
    with facts_change(
        tenant_id=tenant_id, environment=environment, waba_id=waba_id, phone_number_id=phone_number_id
    ):
        pass


def _recompute(
    tenant_id: UUID, environment: str | None, waba_id: str | None, phone_number_id: str | None
) -> None:
    chosen = PhoneNumber.objects.for_tenant(tenant_id)
    if environment is not None:
        chosen = chosen.filter(environment=environment)
    if waba_id is not None:
        chosen = chosen.filter(account__waba_id=waba_id)
    if phone_number_id is not None:
        chosen = chosen.filter(phone_number_id=phone_number_id)
    numbers = list(chosen.select_for_update(of=("self",)).defer("pin", "meta_snapshot").order_by("id"))
    # Accounts and endpoints are read after the lock, with their own statements, so that each statement sees the latest
    # commit.
    accounts = BusinessAccount.objects.defer("access_token").in_bulk(
        {number.account_id for number in numbers}
    )
    endpoint_verified = {
        environment: lifecycle.has_verified(tenant_id=tenant_id, environment=environment)
        for environment in {number.environment for number in numbers}
    }
    changed: list[PhoneNumber] = []
    moved: list[PhoneNumber] = []
    events: list[NewEvent] = []
    for number in numbers:
        account = accounts[number.account_id]
        new = connection_of(
            _facts_of(number, account, endpoint_verified=endpoint_verified[number.environment])
        )
        old = ConnectionState(PhoneNumber.State(number.connection_state), number.connection_detail)
        if new == old:
            continue
        changed.append(number)
        if new.state != old.state:
            moved.append(number)
        number.connection_state, number.connection_detail = new
        number.ever_connected = number.ever_connected or new.state == CONNECTED
        number.connection_changes += 1
        events.append(connection_event(number, account, old.state, new))
    # Numbers with a rejected token are left out, because `mails.token_refused` reports the token.
    mails.numbers_lost(
        tenant_id,
        [
            number
            for number in moved
            if number.connection_state == DISCONNECTED and number.connection_detail != "token_invalid"
        ],
    )
    PhoneNumber.objects.bulk_update(
        changed,
        [
            "connection_state",
            "connection_detail",
            "ever_connected",
            "connection_changes",
            "disconnect_mailed_at",
        ],
        batch_size=500,
    )
    change_state(moved)
    publish(tenant_id=tenant_id, events=events)
    if changed:
        mark_number_connected(tenant_id)


def _facts_of(number: PhoneNumber, account: BusinessAccount, *, endpoint_verified: bool) -> ConnectionFacts:
    return ConnectionFacts(
        taken_away=account.taken_away or number.taken_away,
        token_valid=account.token_invalid_at is None,
        subscribed=account.subscribed,
        registered=number.registered,
        # Events of the sandbox can also be read with the event stream, so no endpoint is needed (decision "Sandbox").
        endpoint_verified=endpoint_verified or account.waba_id == sandbox_waba_id_of(number.tenant_id),
        ever_connected=number.ever_connected,
    )


def mark_number_connected(tenant_id: UUID) -> None:
    """Update the step `number_connected` of the checklist.

    Every tenant has sandbox numbers. They complete the step only for a sandbox tenant, which has no other numbers.
    """
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(connection_state=CONNECTED)
    own = numbers.exclude(tenant__sandbox=False, account__waba_id=sandbox_waba_id_of(tenant_id))
    connected = own.exists()
    checklist.mark(tenant_id=tenant_id, step="number_connected", done=connected)


def connection_event(
    number: PhoneNumber, account: BusinessAccount, before: str, after: ConnectionState
) -> NewEvent:
    """The `number.connection` event for a change."""
    return NewEvent(
        type="number.connection",
        environment=number.environment,
        dedupe_key=f"num:{number.phone_number_id}:conn:{after.state}:{after.detail or ''}:{microseconds(now())}",
        data=orjson.dumps(
            {
                "phone_number_id": number.phone_number_id,
                "from": before,
                "to": after.state,
                "detail": after.detail,
            }
        ),
        waba_id=account.waba_id,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.digits or None,
    )


def on_endpoints_changed(*, tenant_id: UUID, environment: str, **_: Any) -> None:
    """Receiver of `webhooks.endpoints.lifecycle.endpoints_changed`. The signal is sent when an endpoint is verified,
    disabled or deleted, for example.

    Recomputes only the numbers of the endpoint's environment.
    """
    recompute(tenant_id=tenant_id, environment=environment)


def token_failed(*, waba_id: str, token: str | None = None) -> None:
    """Mark an account's token as not working, and notify the tenant once. This disconnects the account's numbers.

    `token` is the token that was used. If the account has another token by now, nothing changes. The sync soon checks
    the token again, with back-off. When the token works again, the numbers are connected again.
    """
    account = BusinessAccount.objects.only("tenant_id").filter(waba_id=waba_id).first()
    if account is None:
        return
    with facts_change(tenant_id=account.tenant_id, waba_id=waba_id):
        account = BusinessAccount.objects.select_for_update().filter(pk=account.pk).first()
        if (
            account is None
            or account.token_invalid_at is not None
            or token not in {None, account.access_token}
        ):
            return
        account.token_invalid_at = account.facts_changed_at = account.next_sync_at = now()
        account.sync_failures = 0  # failures of a former token do not delay the checks of this one
        mails.token_refused(account)
        account.save(
            update_fields=[
                "token_invalid_at",
                "facts_changed_at",
                "next_sync_at",
                "sync_failures",
                "token_mailed_at",
            ]
        )
        event = _token_event("token.invalid", account, str(microseconds(account.token_invalid_at)))
        publish(tenant_id=account.tenant_id, events=[event])


def token_expiring(account: BusinessAccount, *, days: int) -> None:
    """Notify the tenant that a token expires within `days` days. The caller opens the transaction and locks the
    account.
    """
    end = token_end(account)
    publish(
        tenant_id=account.tenant_id,
        events=[_token_event("token.expiring", account, f"{end and int(end.timestamp())}:{days}")],
    )
    mails.token_ends(account, end)


def token_end(account: BusinessAccount) -> datetime | None:
    """When a token stops working: at its own end or at the end of its data access, whichever is first. None means
    never.
    """
    return min(filter(None, (account.token_expires_at, account.data_access_expires_at)), default=None)


def _token_event(event_type: str, account: BusinessAccount, suffix: str) -> NewEvent:
    end = token_end(account)
    return NewEvent(
        type=event_type,
        environment=account.environment,
        dedupe_key=f"tok:{account.waba_id}:{event_type.removeprefix('token.')}:{suffix}",
        data=orjson.dumps({"waba_id": account.waba_id, "expires_at": isoformat(end) if end else None}),
        waba_id=account.waba_id,
    )


def touch_last_event(numbers: Iterable[NumberRoute]) -> None:
    """After the commit of the current transaction, record that events of these numbers arrived.

    A row that another process has locked is skipped, because that process records the same fact.
    """
    touched = numbers_to_touch(numbers)
    if touched:
        after_commit(lambda: run(touching(touched), prepared=True))


def numbers_to_touch(numbers: Iterable[NumberRoute]) -> set[str]:
    """The ids of the numbers whose `last_event_at` is missing or older than LAST_EVENT_GRAIN."""
    stale_before = now() - LAST_EVENT_GRAIN
    return {
        number.phone_number_id
        for number in numbers
        if number.last_event_at is None or number.last_event_at < stale_before
    }


# Written in SQL, because this is a single statement in its own transaction, and a busy number needs it every second.
_TOUCH = """
UPDATE numbers_phonenumber SET last_event_at = clock_timestamp()
WHERE id IN (SELECT id FROM numbers_phonenumber
             WHERE phone_number_id = ANY(%s)
               AND (last_event_at IS NULL OR last_event_at < clock_timestamp() - make_interval(secs => %s))
             FOR NO KEY UPDATE SKIP LOCKED)
"""


def touching(phone_number_ids: Collection[str]) -> Statements[None]:
    """Run the statement that records that events of these numbers arrived."""
    yield _TOUCH, [list(phone_number_ids), LAST_EVENT_GRAIN.total_seconds()]
