"""Event drafts: the normaliser's results, plain frozen records without a database.

The incoming flow takes each `Change`, finds its tenant by `route`, gives every `EventDraft` an id and the
columns that only the database knows, and stores it. Text in these records is safe to store: no U+0000, no
half surrogates.
"""

from dataclasses import dataclass
from typing import Literal

from gateway.upstream.notifications.lossless_json import JsonObject
from gateway.upstream.notifications.message_facts import MessageFacts

EventType = Literal[
    "message.inbound",
    "message.status",
    "message.error",
    "message.echo",
    "user.preferences",
    "template.status",
    "template.quality",
    "template.category",
    "number.quality",
    "number.name",
    "account.update",
    "account.alerts",
    "account.capability",
    "account.security",
    "meta.other",
]


@dataclass(frozen=True, slots=True)
class Route:
    """Whose change this is, as far as the upstream says: candidates in the order to try them.

    `waba_info_id`, then `phone_number_id`, then `entry_id` as a business account (for partner events it is
    the id of a business portfolio, which is nobody's account), then `display_phone_number` (digits only),
    which names a number inside the account of the entry.
    """

    waba_info_id: str | None
    phone_number_id: str | None
    entry_id: str | None
    display_phone_number: str | None


@dataclass(frozen=True, slots=True)
class EventDraft:
    """One event as the upstream tells it, before it belongs to a tenant.

    `data` is the finished JSON of the envelope's `data`. `dedupe_key` has at most 255 characters and is
    unique per tenant. `raw_path` leads from the body's root to the item; `entry` and `change` are the
    indexes in it. `waba_id`, `phone_number_id` and `display_phone_number` are the upstream's claim: where a
    look-up by `Route` knows better, it has the last word. `field` is the upstream's field after correction
    of its slips, `event` the value's own `event` (account_update, security, flows …). Identifiers longer
    than 255 characters are None here. `message` is what a message or a status tells about its message.
    """

    type: EventType
    dedupe_key: str
    data: bytes
    entry: int
    change: int
    raw_path: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    field: str
    event: str | None
    message: MessageFacts | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the notification, with at least one draft.

    `value` is the parsed change value (None when it is no object), `time` the entry's sending time in epoch
    seconds: what the gateway's own side effects need, such as refreshing a number or a template.
    """

    entry: int
    change: int
    field: str
    time: int | None
    route: Route
    value: JsonObject | None
    drafts: tuple[EventDraft, ...]


@dataclass(frozen=True, slots=True)
class Normalised:
    """A whole notification; `error` says what is malformed, `changes` holds what could be read beside it."""

    changes: tuple[Change, ...]
    error: str | None = None
