"""Whose a change of a notification is (upstream facts 3.2): first step of the incoming flow after normalising.

Each change is routed by itself, never by the first one of its notification.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from gateway.upstream.normalise import Change
from phone_numbers import lookup


@dataclass(frozen=True, slots=True)
class Owner:
    """The tenant and account of a change, and its number as far as the gateway knows it."""

    tenant_id: UUID
    waba_id: str
    number: lookup.NumberRoute | None = None

    @property
    def phone_number_id(self) -> str | None:
        return self.number.phone_number_id if self.number else None

    @property
    def display_phone_number(self) -> str | None:
        """The number as notifications write it: digits only."""
        return "".join(filter(str.isdigit, self.number.display_phone_number)) if self.number else None


def owners(changes: Collection[Change], *, environments: Collection[str]) -> list[Owner | None]:
    """The owner of each change, in one query; None for what belongs to nobody here."""
    routes = [change.route for change in changes]
    known = lookup.route(
        waba_ids={waba_id for route in routes for waba_id in (route.waba_info_id, route.entry_id) if waba_id},
        phone_number_ids={route.phone_number_id for route in routes if route.phone_number_id},
        environments=environments,
        digits={route.display_phone_number for route in routes if route.display_phone_number},
    )
    return [_owner(change, known) for change in changes]


def _owner(change: Change, known: lookup.Routes) -> Owner | None:
    """The first hit of: the account named in the value, the number, the entry as account."""
    route = change.route
    account = known.accounts.get(route.waba_info_id or "")
    number = None if account else known.numbers.get(route.phone_number_id or "")
    if number is None:
        account = account or known.accounts.get(route.entry_id or "")
        if account is None:
            return None
        # A migrated number keeps its digits: an id that the upstream names is never replaced by an older one's.
        if route.phone_number_id is None:
            number = known.by_digits.get((account.waba_id, route.display_phone_number or ""))
    if number is not None:
        return Owner(number.tenant_id, number.waba_id, number)
    return Owner(account.tenant_id, account.waba_id) if account else None
