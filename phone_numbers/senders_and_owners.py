"""Look-up of accounts and numbers for the two hot flows of `messaging`: the number in the `from` of a send, and the
owners of a notification's numbers.

A call looks all of them up with one or two queries, and writes nothing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from gateway.api.errors import InvalidRequest, ServiceError
from gateway.database.statements import Statements, run
from gateway.encryption import decrypt
from phone_numbers.models import PhoneNumber

_FROM = re.compile(r"\+?[0-9]{1,64}", re.ASCII)


# Written in SQL, because every send runs this query, and the ORM would need more time than the database itself.
_SENDER = """
SELECT n.phone_number_id, a.waba_id, a.access_token, n.environment, n.connection_state, n.connection_detail,
       n.digits, n.throughput_level, n.coexistence
FROM numbers_phonenumber n JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE n.tenant_id = %s AND n.environment = %s AND (n.digits = %s OR n.phone_number_id = %s)
ORDER BY n.id DESC
"""
_NUMBERS = """
SELECT phone_number_id, display_phone_number FROM numbers_phonenumber
WHERE tenant_id = %s AND environment = %s AND (%s::text[] IS NULL OR phone_number_id = ANY(%s::text[]))
ORDER BY id LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Sender:
    """A number that a tenant may send from, with its account's token."""

    phone_number_id: str
    waba_id: str
    token: str = field(repr=False)
    environment: str
    connection_state: str
    connection_detail: str | None
    digits: str
    """The number's digits, as envelopes show them. Empty until Meta has sent the number."""
    throughput_level: str | None
    coexistence: bool

    @property
    def is_connected(self) -> bool:
        """Whether the number may send."""
        return self.connection_state == PhoneNumber.State.CONNECTED


_RECONNECT = "Connect the account again: POST /v1/connect-sessions."


class NumberNotConnected(ServiceError):
    """The sending number is not connected. The hint explains how to fix `details.connection_detail`."""

    status = 409
    code = "number_not_connected"
    message = "This number is not connected."
    hint = "GET /v1/numbers/{phone_number_id} says why in connection_detail."
    repeat = "after the number is connected"
    repairs: ClassVar[Mapping[str, str]] = {
        "not_subscribed": "Subscribe its account: POST /v1/numbers/{phone_number_id}/subscribe.",
        "not_registered": "Register it with its six-digit PIN: POST /v1/numbers/{phone_number_id}/register.",
        "deregistered": "Register it again with its six-digit PIN: POST /v1/numbers/{phone_number_id}/register.",
        "no_verified_endpoint": "Create a webhook endpoint with POST /v1/webhooks, or repeat the ping of one that is "
        "pending: POST /v1/webhooks/{endpoint_id}/verify.",
        "token_invalid": _RECONNECT,
        "account_removed": _RECONNECT,
        "account_restricted": "Meta restricts this account: see Account quality in Meta's Business Manager.",
    }

    def __init__(self, message: str | None = None, *, details: Mapping[str, Any] | None = None) -> None:
        found = details or {}
        detail = found.get("connection_detail")
        repair = self.repairs.get(str(detail), self.hint)
        super().__init__(
            message or (f"This number is not connected: {detail}." if detail else None),
            hint=repair.replace("{phone_number_id}", str(found.get("phone_number_id", "{phone_number_id}"))),
            details=details,
        )


def sender(*, tenant_id: UUID, environment: str, from_: str) -> Sender | None:
    """The tenant's number that `from` names: a phone_number_id, or E.164 with or without `+`. One query.

    None when the environment has no such number (send rule 4). A number whose phone_number_id is `from_` comes first.
    Several numbers can have the same digits, because a migrated number keeps its old row. Of these, a connected number
    comes first, then the newest.
    """
    return run(finding_sender(tenant_id=tenant_id, environment=environment, from_=from_), prepared=True)


def finding_sender(*, tenant_id: UUID, environment: str, from_: str) -> Statements[Sender | None]:
    """The statement of `sender`."""
    if not _FROM.fullmatch(from_):
        return None
    digits = from_.removeprefix("+")
    phone_number_id = "" if from_.startswith("+") else digits
    rows = yield _SENDER, [tenant_id, environment, digits, phone_number_id]
    return _best(rows, from_)


NAMED_NUMBERS = 10
"""The most numbers that the error for a wrong `from` names."""


@dataclass(frozen=True, slots=True)
class SenderQuery:
    """The arguments of `sender`."""

    tenant_id: UUID
    environment: str
    from_: str


# `place` is the position of a send in the list of queries. Each branch of the statement uses its own index.
_SENDERS = """
SELECT w.place::int, n.phone_number_id, a.waba_id, a.access_token, n.environment, n.connection_state,
       n.connection_detail, n.digits, n.throughput_level, n.coexistence
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) WITH ORDINALITY
    AS w (tenant_id, environment, digits, phone_number_id, place)
CROSS JOIN LATERAL (
    SELECT * FROM numbers_phonenumber WHERE phone_number_id = w.phone_number_id AND tenant_id = w.tenant_id
    UNION
    SELECT * FROM numbers_phonenumber WHERE tenant_id = w.tenant_id AND digits = w.digits
) n
JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE n.environment = w.environment
ORDER BY n.id DESC
"""


def finding_senders(queries: Sequence[SenderQuery]) -> Statements[list[Sender | None]]:
    """`sender` for several sends, with one statement. The result has the order of `queries`."""
    if len(queries) == 1:
        # At a moderate rate nearly every call has only one send. The statement for one send takes two thirds of the
        # time of the statement for several.
        (query,) = queries
        found_alone = yield from finding_sender(
            tenant_id=query.tenant_id, environment=query.environment, from_=query.from_
        )
        return [found_alone]
    places = [place for place, query in enumerate(queries, 1) if _FROM.fullmatch(query.from_)]
    asked = [queries[place - 1] for place in places]
    digits = [query.from_.removeprefix("+") for query in asked]
    rows = yield (
        _SENDERS,
        [
            [query.tenant_id for query in asked],
            [query.environment for query in asked],
            digits,
            ["" if query.from_.startswith("+") else text for query, text in zip(asked, digits, strict=True)],
        ],
    )
    found: dict[int, list[Sequence[Any]]] = {}
    for place, *row in rows:
        found.setdefault(places[place - 1], []).append(row)
    return [_best(found.get(place, []), query.from_) for place, query in enumerate(queries, 1)]


def _best(rows: Sequence[Sequence[Any]], from_: str) -> Sender | None:
    """Choose among the numbers that `from_` names: the number with this phone_number_id, else a connected number, else
    the newest. `rows` are newest first.
    """
    connected = PhoneNumber.State.CONNECTED
    chosen = max(rows, key=lambda row: (row[0] == from_, row[4] == connected), default=None)
    if chosen is None:
        return None
    phone_number_id, waba_id, token, *rest = chosen
    # Only of the chosen number, because the token of another one may be unreadable.
    return Sender(phone_number_id, waba_id, decrypt(token, purpose="upstream_token") if token else "", *rest)


def is_within(phone_number_ids: Collection[str] | None, number: Sender) -> bool:
    """Whether a key that is limited to these numbers may send from `number`. None means no limit."""
    return phone_number_ids is None or number.phone_number_id in phone_number_ids


def required_sender(
    *, tenant_id: UUID, environment: str, from_: str, within: Collection[str] | None = None
) -> Sender:
    """`sender`, restricted to the numbers in `within`. Raises InvalidRequest for `from` when no number is found (send
    rule 4).
    """
    number = sender(tenant_id=tenant_id, environment=environment, from_=from_)
    if number is None or not is_within(within, number):
        raise run(unknown_sender(tenant_id=tenant_id, environment=environment, within=within))
    return number


def connected_sender(
    *, tenant_id: UUID, environment: str, from_: str, within: Collection[str] | None = None
) -> Sender:
    """`required_sender`, if the number is connected. Raises NumberNotConnected otherwise (send rule 5)."""
    number = required_sender(tenant_id=tenant_id, environment=environment, from_=from_, within=within)
    if problem := connection_problem(number):
        raise problem
    return number


def connection_problem(number: Sender) -> NumberNotConnected | None:
    """The error of a number that is not connected. None for a connected number."""
    if number.is_connected:
        return None
    return NumberNotConnected(
        details={
            "phone_number_id": number.phone_number_id,
            "connection_state": number.connection_state,
            "connection_detail": number.connection_detail,
        }
    )


def unknown_sender(
    *, tenant_id: UUID, environment: str, within: Collection[str] | None = None
) -> Statements[InvalidRequest]:
    """The error for a `from` that names no number of the key. The error lists numbers that the key can use."""
    among = list(within) if within is not None else None
    rows = yield _NUMBERS, [tenant_id, environment, among, among, NAMED_NUMBERS]
    if not rows:
        problem = (
            f"This business has no {environment} number yet: connect one with POST /v1/connect-sessions."
        )
    else:
        names = ", ".join(f"{row[0]} ({row[1]})" if row[1] else row[0] for row in rows)
        problem = f"Not a number that this key sends from. It sends from: {names}."
    return InvalidRequest.of(**{"from": problem})


@dataclass(frozen=True, slots=True)
class AccountRoute:
    """The owner of an account."""

    tenant_id: UUID
    waba_id: str
    environment: str


OWNER_SECONDS = 1.0
"""How long a process may cache the owner of a number for notifications. A new owner gets a number that another tenant
has left only after this time.
"""


@dataclass(frozen=True, slots=True)
class NumberRoute:
    """The owner of a number."""

    tenant_id: UUID
    waba_id: str
    phone_number_id: str
    digits: str
    environment: str
    last_event_at: datetime | None


@dataclass(frozen=True, slots=True)
class Routes:
    """The owners of the changes in a notification (upstream fact 3.2)."""

    accounts: Mapping[str, AccountRoute]
    """The owners of accounts, by waba_id."""
    numbers: Mapping[str, NumberRoute]
    """The owners of numbers, by phone_number_id."""
    by_digits: Mapping[tuple[str, str], NumberRoute]
    """The owners of numbers, by (waba_id, digits). Meta's management events name a number by its digits."""


# A single statement, because every notification runs it. Each branch uses its own index. A row of an account has null
# for the number. Rows are in the order of their creation.
_ROUTES = """
SELECT tenant_id, waba_id, NULL, NULL, NULL::timestamptz, environment, id
FROM numbers_businessaccount
WHERE waba_id = ANY(%(waba_ids)s) AND environment = ANY(%(environments)s)
UNION ALL
SELECT n.tenant_id, a.waba_id, n.phone_number_id, n.digits, n.last_event_at, n.environment, n.id
FROM numbers_phonenumber n JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE n.phone_number_id = ANY(%(phone_number_ids)s) AND n.environment = ANY(%(environments)s)
UNION ALL
SELECT n.tenant_id, a.waba_id, n.phone_number_id, n.digits, n.last_event_at, n.environment, n.id
FROM numbers_phonenumber n JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE a.waba_id = ANY(%(waba_ids)s) AND n.digits = ANY(%(digits)s) AND n.environment = ANY(%(environments)s)
ORDER BY 7
"""


def route(
    *,
    waba_ids: Collection[str],
    phone_number_ids: Collection[str],
    environments: Collection[str],
    digits: Collection[str] = (),
) -> Routes:
    """Run `routing` on Django's connection."""
    return run(
        routing(
            waba_ids=waba_ids, phone_number_ids=phone_number_ids, environments=environments, digits=digits
        ),
        prepared=True,
    )


def routing(
    *,
    waba_ids: Collection[str],
    phone_number_ids: Collection[str],
    environments: Collection[str],
    digits: Collection[str] = (),
) -> Statements[Routes]:
    """Find the owners of all accounts and numbers that notifications name, with one query.

    `environments` are those whose app secret signed the notification. So the simulator's notifications never reach a
    live account. `digits` are the digits of the display numbers in the notifications. The result leaves out unknown
    ids.
    """
    rows = yield (
        _ROUTES,
        {
            "waba_ids": list(waba_ids),
            "phone_number_ids": list(phone_number_ids),
            "digits": list(digits),
            "environments": list(environments),
        },
    )
    accounts: dict[str, AccountRoute] = {}
    numbers: dict[str, NumberRoute] = {}
    by_digits: dict[tuple[str, str], NumberRoute] = {}
    for tenant_id, waba_id, phone_number_id, own_digits, last_event_at, environment, _ in rows:
        if phone_number_id is None:
            accounts[waba_id] = AccountRoute(tenant_id, waba_id, environment)
            continue
        found = NumberRoute(tenant_id, waba_id, phone_number_id, own_digits, environment, last_event_at)
        numbers[phone_number_id] = by_digits[waba_id, own_digits] = found
    return Routes(accounts=accounts, numbers=numbers, by_digits=by_digits)
