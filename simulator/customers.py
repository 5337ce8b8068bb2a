"""Customers of a business, identified by phone number, by business-scoped user id, or by both (upstream facts 0.4 and
3.4).

A customer is stored under one key: the digits of the phone or, if the phone is unknown, the user id.
"""

from collections.abc import Mapping
from typing import Any

from simulator.world.identifiers import business_scoped_id, customer_name, digits_of
from simulator.world.records import Account
from simulator.world.state import State

IDENTITIES = ("both", "phone", "user_id")
MOST_OF_ACCOUNT = 2_000
"""The maximum number of customers of an account. Beyond this number, the oldest customer is deleted."""


def is_phone(customer: str) -> bool:
    """Whether a customer's key is a phone number."""
    return customer.isdigit()


def remember(state: State, account: Account, source: Mapping[str, Any]) -> str:
    """The key of the customer in `source["from"]`. Stores name, user name and identity. Raises `ValueError`."""
    given = str(source.get("from") or "")
    customer = resolve(state, account, given) if "." in given else digits_of(given)
    if not customer:
        raise ValueError("from is a phone number or a business-scoped user id")
    identity = source.get("identity")
    if identity is not None and identity not in IDENTITIES:
        raise ValueError(f"identity is one of {', '.join(IDENTITIES)}")
    own = state.customers.setdefault(account.waba_id, {})
    known = own.setdefault(customer, {})
    for name in ("name", "username", "identity", "parent_user_id"):
        if source.get(name):
            known[name] = str(source[name])
    if is_phone(customer):
        state.user_ids[business_scoped_id(account.business_id, customer)] = customer
    while len(own) > MOST_OF_ACCOUNT:
        oldest = next(iter(own))
        del own[oldest]
        state.user_ids.pop(business_scoped_id(account.business_id, oldest), None)
    state.changed()
    return customer


def resolve(state: State, account: Account, user_id: str) -> str:
    """The key of the customer with a user id: the phone if this business knows the phone, else the user id."""
    digits = state.user_ids.get(user_id)
    if digits is None or business_scoped_id(account.business_id, digits) != user_id:
        return user_id
    return digits


def _known(state: State, account: Account, customer: str) -> dict[str, Any]:
    return state.customers.get(account.waba_id, {}).get(customer, {})


def names(state: State, account: Account, customer: str) -> tuple[str | None, str | None]:
    """The customer's phone number and user id, as far as the business learns them. At most one of the two is None."""
    if not is_phone(customer):
        return None, customer
    user_id = business_scoped_id(account.business_id, customer)
    match _known(state, account, customer).get("identity"):
        case "phone":
            return customer, None
        case "user_id":
            return None, user_id
    return customer, user_id


def contact(state: State, account: Account, customer: str, *, username: bool = True) -> dict[str, Any]:
    """The `contacts` entry of a customer."""
    known = _known(state, account, customer)
    profile = {"name": known.get("name") or customer_name(customer)}
    if username and known.get("username"):
        profile["username"] = known["username"]
    entry: dict[str, Any] = {"profile": profile}
    wa_id, user_id = names(state, account, customer)
    if wa_id:
        entry["wa_id"] = wa_id
    if user_id:
        entry["user_id"] = user_id
    if known.get("parent_user_id"):
        entry["parent_user_id"] = known["parent_user_id"]
    return entry
