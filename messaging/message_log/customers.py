"""A customer of a number: last messages, the service window, the opt-out, and the customer's ids.

Reads the message log and the opt-outs by the wa_id or the user_id. These rows contain the customer's other id. Only the
customer's newest `MOST_WALKED` messages are read.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from gateway.api.errors import NotFound
from gateway.api.query import phone_digits
from gateway.clock import now
from gateway.database.bounded_walk import MOST_WALKED
from gateway.upstream.notifications.lossless_json import member, text
from messaging import opt_outs
from messaging.message_log import message_search
from messaging.message_log.message_search import MESSAGES
from messaging.models import OptOut
from phone_numbers.models import PhoneNumber
from webhooks.models import Event, Message

WINDOW = timedelta(hours=24)
"""How long after a customer's message the business may send without a template (upstream fact 1.1.1)."""
FEWEST_DIGITS = 5
"""The fewest digits that a phone number has."""

_USER_ID = re.compile(r"[A-Z]{2}\.[A-Za-z0-9.]{1,140}", re.ASCII)

OPENS_WINDOW = (
    "direction = 'inbound' AND history IS NOT TRUE"
    " AND (type IS NULL OR type NOT IN ('system', 'edit', 'revoke'))"
)
"""The condition for a message that opens the service window. A notice of the system does not, and neither does the
change of an earlier message.
"""

# Finds the newest row of each kind of message. The last inbound message is the one that the customer wrote last: an
# older one may arrive later, because the upstream repeats a notification for days.
_NEWEST = """
SELECT DISTINCT ON (kind) kind, {columns}
FROM (
    SELECT * FROM messages
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND {customer} = %(customer)s
      AND phone_number_id = %(phone_number_id)s
    ORDER BY id DESC LIMIT %(walked)s
) AS walk
CROSS JOIN LATERAL (VALUES
    ('inbound', {opens_window}),
    ('outbound', direction = 'outbound' AND history IS NOT TRUE),
    ('template', template IS NOT NULL),
    ('referral', referral_source_id IS NOT NULL OR referral_ctwa_clid IS NOT NULL),
    ('wa_id', wa_id IS NOT NULL),
    ('user_id', user_id IS NOT NULL)
) AS each (kind, holds)
WHERE holds
ORDER BY kind, CASE WHEN kind = 'inbound' THEN sent_at END DESC NULLS LAST, id DESC
"""

Newest = dict[str, Message]
"""The newest message of each kind."""


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of a number, with the newest messages and the opt-out."""

    phone_number_id: str
    wa_id: str | None
    user_id: str | None
    username: str | None
    """The username in the last inbound message. None when the message's body is past retention."""
    last_inbound: Message | None
    last_outbound: Message | None
    last_template: Message | None
    last_referral: Message | None
    """The last message that came from an ad or post."""
    opt_out: OptOut
    """The customer's last decision about marketing messages from each source."""

    @property
    def window_open_until(self) -> datetime | None:
        """When the service window ends or ended. None for a customer who never wrote."""
        if self.last_inbound is None:
            return None
        return (self.last_inbound.sent_at or self.last_inbound.created_at) + WINDOW

    @property
    def window_open(self) -> bool:
        """Whether the window is open, so that the business may send without a template."""
        return self.window_open_until is not None and self.window_open_until > now()


def find(*, tenant_id: UUID, environment: str, phone_number_id: str, customer_id: str) -> Customer:
    """Find a customer of a tenant's number by wa_id or user_id. Raises NotFound."""
    numbers = PhoneNumber.objects.for_environment(tenant_id, environment)
    if not numbers.filter(phone_number_id=phone_number_id).exists():
        raise NotFound("There is no such number.")
    ids: dict[str, str | None] = {"wa_id": None, "user_id": None}
    digits = phone_digits(customer_id)
    if digits and len(digits) >= FEWEST_DIGITS:
        given, other = "wa_id", "user_id"
        ids[given] = digits
    elif _USER_ID.fullmatch(customer_id):
        given, other = "user_id", "wa_id"
        ids[given] = customer_id
    else:
        raise NotFound(
            "This is neither a wa_id nor a user_id.",
            hint="A wa_id is a phone number with its country code, such as 919812345678; a user_id is like IN.7788.",
        )
    scope: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": environment,
        "phone_number_id": phone_number_id,
    }
    newest = _newest(scope, given, ids[given])
    if linked := newest.get(other):
        ids[other] = getattr(linked, other)
        newest = _newer(newest, _newest(scope, other, ids[other]))
    inbound = newest.get("inbound")
    return Customer(
        phone_number_id=phone_number_id,
        wa_id=ids["wa_id"],
        user_id=ids["user_id"],
        username=_username(inbound) if inbound else None,
        last_inbound=inbound,
        last_outbound=newest.get("outbound"),
        last_template=newest.get("template"),
        last_referral=newest.get("referral"),
        opt_out=opt_outs.of_customer(**scope, customers=ids.values()),
    )


def _newest(scope: dict[str, Any], column: str, customer: str | None) -> Newest:
    statement = _NEWEST.format(columns=MESSAGES, customer=column, opens_window=OPENS_WINDOW)
    with connection.cursor() as cursor:
        cursor.execute(statement, {**scope, "customer": customer, "walked": MOST_WALKED})
        return {kind: MESSAGES.instance(row) for kind, *row in cursor.fetchall()}


def _newer(first: Newest, second: Newest) -> Newest:
    return {
        kind: max((each[kind] for each in (first, second) if kind in each), key=partial(_age, kind))
        for kind in first.keys() | second.keys()
    }


def _age(kind: str, row: Message) -> tuple[datetime, UUID]:
    """The order of a kind's messages, as in `_NEWEST`."""
    return (row.sent_at or row.created_at) if kind == "inbound" else row.created_at, row.id


def _username(inbound: Message) -> str | None:
    """The username in the profile of an inbound message's event. None without a username."""
    assert inbound.event_id is not None  # noqa: S101 - only statuses make rows without one
    events = list(Event.objects.for_tenant(inbound.tenant_id).filter(pk=inbound.event_id))
    for body in message_search.contents(inbound.tenant_id, events).values():
        contacts = orjson.loads(body).get("contacts")
        if isinstance(contacts, list) and contacts and isinstance(contacts[0], dict):
            return text(member(contacts[0], "profile").get("username"))
    return None
