"""Connection state of a number: one pure function of facts, and the one place that stores its result.

Every cause (onboarding, number operations, endpoints, upstream events, token health) changes its facts inside
`facts_change`; at its end the tenant's numbers concerned are recomputed under lock, each change becomes one
`number.connection` event, and all of it commits together. docs/numbers.md lists the states and details.

State intervals hold from when to when a number was in a state; usage is measured by them. They are written in the
transaction that changes the state, under the tenant's lock.
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
from phone_numbers.connection import notices
from phone_numbers.lookup import NumberRoute
from phone_numbers.models import BusinessAccount, NumberStateInterval, PhoneNumber, sandbox_waba_id_of
from tenants import checklist
from tenants.models import Tenant
from webhooks.endpoints import lifecycle
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish


def change_state(numbers: Sequence[PhoneNumber]) -> None:
    """Close the numbers' intervals and open those of their new states."""
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
    """Close the interval of a number that leaves its tenant; its intervals keep what usage shows of it."""
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
"""`last_event_at` is kept to the second: a busy number's row is not rewritten for each of its events."""

CONNECTED, PENDING, DISCONNECTED = (
    PhoneNumber.State.CONNECTED,
    PhoneNumber.State.PENDING,
    PhoneNumber.State.DISCONNECTED,
)


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """All that a number's connection depends on."""

    taken_away: str | None
    token_valid: bool
    subscribed: bool
    registered: bool
    endpoint_verified: bool
    ever_connected: bool


class ConnectionState(NamedTuple):
    """A connection state with its detail, which is None exactly when connected."""

    state: PhoneNumber.State
    detail: str | None


def connection_of(facts: ConnectionFacts) -> ConnectionState:
    """The connection that follows from the facts (specification 3, docs/numbers.md)."""
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
    """A transaction in which facts of the tenant change; recomputes the numbers that the arguments choose.

    The tenant's row is locked first, so the causes of one tenant take turns, and always in the order tenant,
    account, number: they cannot wait for each other in a circle.
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
    """Recompute connections after facts changed elsewhere (an endpoint, a finished onboarding)."""
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
    # Read after the lock, in statements of their own: each sees what its latest writer committed.
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
    # A refused token has a mail of its own.
    notices.numbers_lost(
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
        # The sandbox is read with the event stream as well (decision "Sandbox").
        endpoint_verified=endpoint_verified or account.waba_id == sandbox_waba_id_of(number.tenant_id),
        ever_connected=number.ever_connected,
    )


def mark_number_connected(tenant_id: UUID) -> None:
    """Keep the first step up to date.

    The sandbox's numbers come by themselves: they count for a sandbox tenant alone, which has no others.
    """
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(connection_state=CONNECTED)
    own = numbers.exclude(tenant__sandbox=False, account__waba_id=sandbox_waba_id_of(tenant_id))
    connected = own.exists()
    checklist.mark(tenant_id=tenant_id, step="number_connected", done=connected)


def connection_event(
    number: PhoneNumber, account: BusinessAccount, before: str, after: ConnectionState
) -> NewEvent:
    """The `number.connection` event of a change."""
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
    """Receiver of `webhooks.endpoints.lifecycle.endpoints_changed`: an endpoint was verified, disabled, deleted …

    It counts for the numbers of its own environment alone.
    """
    recompute(tenant_id=tenant_id, environment=environment)


def token_failed(*, waba_id: str, token: str | None = None) -> None:
    """Mark an account's token as not working, and notify the tenant once. Disconnects the account's numbers.

    With `token`, the one that was used, a token that has been replaced meanwhile is left alone. The sync asks about the
    token again soon and with back-off: one that works again connects the numbers again.
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
        notices.token_refused(account)
        account.save(
            update_fields=["token_invalid_at", "facts_changed_at", "next_sync_at", "token_mailed_at"]
        )
        event = _token_event("token.invalid", account, str(microseconds(account.token_invalid_at)))
        publish(tenant_id=account.tenant_id, events=[event])


def token_expiring(account: BusinessAccount, *, days: int) -> None:
    """Notify the tenant that a token ends within this many days. Inside the caller's transaction, under its lock."""
    end = token_end(account)
    publish(
        tenant_id=account.tenant_id,
        events=[_token_event("token.expiring", account, f"{end and int(end.timestamp())}:{days}")],
    )
    notices.token_ends(account, end)


def token_end(account: BusinessAccount) -> datetime | None:
    """When a token stops working: its own end or that of its data access, whichever comes first; None is never."""
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
    """Note that events of these numbers arrived, once the transaction of their notification commits.

    Rows that another process holds are skipped: it records the same fact.
    """
    touched = numbers_to_touch(numbers)
    if touched:
        after_commit(lambda: run(touching(touched), prepared=True))


def numbers_to_touch(numbers: Iterable[NumberRoute]) -> set[str]:
    """The ids of those numbers whose `last_event_at` is older than its grain."""
    stale_before = now() - LAST_EVENT_GRAIN
    return {
        number.phone_number_id
        for number in numbers
        if number.last_event_at is None or number.last_event_at < stale_before
    }


# Written out, one statement and a transaction of its own: a busy number takes it every second.
_TOUCH = """
UPDATE numbers_phonenumber SET last_event_at = clock_timestamp()
WHERE id IN (SELECT id FROM numbers_phonenumber
             WHERE phone_number_id = ANY(%s)
               AND (last_event_at IS NULL OR last_event_at < clock_timestamp() - make_interval(secs => %s))
             FOR NO KEY UPDATE SKIP LOCKED)
"""


def touching(phone_number_ids: Collection[str]) -> Statements[None]:
    """Note that events of these numbers arrived."""
    yield _TOUCH, [list(phone_number_ids), LAST_EVENT_GRAIN.total_seconds()]
