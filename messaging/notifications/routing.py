"""Routing: finds the tenant of each change of a parsed notification (upstream fact 3.2).

Changes of one notification can have different owners. A process caches the owner of a number for a second, for changes
that name the same account. So a busy number costs one look-up per second. Unknown numbers are looked up each time. The
first event of each second stores `last_event_at`, which is precise to the second.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from time import monotonic
from uuid import UUID

import msgspec

from gateway.clock import now
from gateway.database.statements import Statements, run
from gateway.upstream.notifications.normalise import Change
from messaging import known_nodes
from messaging.known_nodes import Named
from phone_numbers.senders_and_owners import OWNER_SECONDS, AccountRoute, NumberRoute, Routes, routing

MOST_REMEMBERED = 10_000

_numbers: dict[tuple[str, str], tuple[float, NumberRoute]] = {}
"""The cached numbers by environment and phone_number_id, each with the time when the entry expires."""


class Owner(msgspec.Struct, frozen=True):
    """The tenant and account of a change, and its number if the gateway knows it."""

    tenant_id: UUID
    environment: str
    waba_id: str
    number: NumberRoute | None = None

    @property
    def phone_number_id(self) -> str | None:
        return self.number.phone_number_id if self.number else None

    @property
    def display_phone_number(self) -> str | None:
        """The number as notifications write it: digits only. None when the number is unknown."""
        return self.number.digits or None if self.number else None


def named_in(change: Change, owner: Owner) -> Iterable[Named]:
    """The nodes of the Graph API that a change names, recorded for the change's owner."""
    return known_nodes.named_in(
        change, tenant_id=owner.tenant_id, environment=owner.environment, waba_id=owner.waba_id
    )


def owners(changes: Collection[Change], *, environments: Collection[str]) -> list[Owner | None]:
    """Run `finding_owners` on Django's connection."""
    return run(finding_owners(changes, environments=environments), prepared=True)


def finding_owners(
    changes: Collection[Change], *, environments: Collection[str]
) -> Statements[list[Owner | None]]:
    """The owner of each change, found with at most one query. None for a change that belongs to no tenant."""
    numbers = [_recall(change, environments) for change in changes]
    unknown = [change.route for change, number in zip(changes, numbers, strict=True) if number is None]
    known = Routes({}, {}, {})
    if unknown:
        asked_at = monotonic()
        known = yield from routing(
            waba_ids={id_ for route in unknown for id_ in (route.waba_info_id, route.entry_id) if id_},
            phone_number_ids={route.phone_number_id for route in unknown if route.phone_number_id},
            environments=environments,
            digits={route.display_phone_number for route in unknown if route.display_phone_number},
        )
        _remember(known.numbers.values(), until=asked_at + OWNER_SECONDS)
    return [
        _of_number(number) if number else _owner(change, known)
        for change, number in zip(changes, numbers, strict=True)
    ]


def _recall(change: Change, environments: Collection[str]) -> NumberRoute | None:
    route = change.route
    if route.phone_number_id is None or route.waba_info_id is not None:
        return None
    for environment in environments:
        until, number = _numbers.get((environment, route.phone_number_id), (0.0, None))
        if number is not None and until > monotonic() and number.waba_id == route.entry_id:
            return number
    return None


def _remember(numbers: Collection[NumberRoute], *, until: float) -> None:
    if len(_numbers) >= MOST_REMEMBERED:
        _numbers.clear()
    moment = now()
    for number in numbers:
        # The event of this look-up stores `last_event_at` in the database. The cached copy has it already, so that
        # later events in this second do not store it again.
        _numbers[number.environment, number.phone_number_id] = until, replace(number, last_event_at=moment)


def clear() -> None:
    """Clear the cache; for tests."""
    _numbers.clear()


def _owner(change: Change, known: Routes) -> Owner | None:
    """The owner of a change: the account named in the value, else the number, else the account of the entry.

    A number may have moved to another tenant's account while its previous owner still has a row for it. Then the
    account of the entry decides.
    """
    route = change.route
    account = known.accounts.get(route.waba_info_id or "")
    number = None if account else known.numbers.get(route.phone_number_id or "")
    entry = known.accounts.get(route.entry_id or "")
    if number is not None and entry is not None and entry.tenant_id != number.tenant_id:
        return _of_account(entry)
    if number is None:
        account = account or entry
        if account is None:
            return None
        # A migrated number keeps its digits. So if the upstream names an id, the row of an older id must not match.
        if route.phone_number_id is None:
            number = known.by_digits.get((account.waba_id, route.display_phone_number or ""))
    if number is not None:
        return _of_number(number)
    return _of_account(account) if account else None


def _of_number(number: NumberRoute) -> Owner:
    return Owner(number.tenant_id, number.environment, number.waba_id, number)


def _of_account(account: AccountRoute) -> Owner:
    return Owner(account.tenant_id, account.environment, account.waba_id)
