"""An event: its members, and the envelope that endpoints get (specification 6).

`NewEvent` defines the members once, for publishing, reading and the API's schema. A new member takes three edits: a
field here, a column of `webhooks.models.Event`, and the flow that knows its value.

An envelope is assembled from stored bytes, so each attempt sends the same bytes. `data` and `raw` are inserted byte for
byte and never serialised again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Self, get_args
from uuid import UUID

import msgspec
import orjson
from django.conf import settings

from gateway import ids
from gateway.clock import isoformat_of
from gateway.database.distribution import of_tenant, together
from gateway.database.statements import Statements, id_range, run, uuids
from gateway.monitoring.logs import type_alone
from gateway.upstream.notifications.change import Direction, EventType, MessageFacts
from gateway.upstream.notifications.split_by_tenant import Splitter, place_in, rebase

# --- Event types, grouped by how the service treats them. `EventType` of the notifications is the whole list.
EVENT_TYPES: tuple[str, ...] = get_args(EventType)
OPERATIONAL_TYPES = tuple(name for name in EVENT_TYPES if name.startswith("webhook."))
"""Operational events. Each is about one endpoint, and is sent to the tenant's other endpoints."""
ALL = "*"
EXPLICIT_TYPES = ("message.history", "customer.opt_out")
"""Types that an endpoint or a stream gets only if it lists them. These types were added later, so `*` does not include
them.
"""

STATUSES = ("sent", "delivered", "read", "played", "failed", "deleted")
"""The statuses that a `message.status` event can report (upstream fact 3.5)."""
DIRECTION_OF_TYPE: Mapping[str, Direction] = {
    "message.inbound": "inbound",
    "message.outbound": "outbound",
    "message.echo": "outbound",
    "message.status": "outbound",
}
"""The direction of an event's message, by event type."""

# --- The customer key of an event. An ordered endpoint gets events with the same key one after another.
CUSTOMER_KEY = """
    CASE WHEN e.ordered THEN
        hashtextextended(
            COALESCE({event}.phone_number_id || ':' || COALESCE({event}.wa_id, {event}.user_id), {event}.id::text), 0
        )
    END
"""
"""SQL on the endpoint `e` and an event. Null for an endpoint that is not ordered. An event without a number or a
customer gets a unique key, so it waits for no other event. The key is a hash, so that a delivery does not contain
the customer's id.
"""

# --- The lane of calls. While a call's notifications are delivered, a customer's phone rings, so these deliveries
# overtake all others.
CALL_PREFIX = "call:"
"""Prefix of the dedupe keys of events about calls, their statuses and their errors."""
URGENT_KEY = -(2**63)
URGENT_KEY_SQL = f"'{URGENT_KEY}'::bigint"
"""Marks a delivery that overtakes all others of its endpoint. At endpoints without order, it replaces the customer
key. At ordered endpoints, each customer's order remains. A customer's hash equals this number once in 2^64.
"""
IS_CALL = f"left({{event}}.dedupe_key, {len(CALL_PREFIX)}) = '{CALL_PREFIX}'"
IS_URGENT = f"{IS_CALL} AND NOT e.ordered AND e.kind <> 's3'"
"""SQL on the endpoint `e` and a fresh event: whether the event is delivered in the lane of calls."""


# --- The filter of an endpoint: which events it gets. Publishing and replays of missed events use the same condition.
STATUS = """coalesce({event}.status,
        split_part(substr({event}.dedupe_key, length('status:' || {event}.wamid || ':') + 1), ':', 1))"""
"""SQL: the status of a `message.status` event. Events that were written before the column existed have the status only
in the dedupe key, `status:<wamid>:<status>`.
"""
WANTED_BY_MEMBERS = f"""
    (e.format = 'envelope' OR {{event}}.raw_path IS NOT NULL)
    AND (left({{event}}.type, 8) <> 'webhook.' OR split_part({{event}}.dedupe_key, ':', 2) <> e.id::text)
    AND e.event_types && (CASE WHEN {{event}}.type IN ({", ".join(f"'{name}'" for name in EXPLICIT_TYPES)})
        THEN ARRAY[{{event}}.type] ELSE ARRAY['{ALL}', {{event}}.type] END)::varchar[]
    AND (e.waba_ids IS NULL OR {{event}}.waba_id = ANY(e.waba_ids))
    AND (e.phone_number_ids IS NULL OR {{event}}.phone_number_id = ANY(e.phone_number_ids))
    AND (e.statuses IS NULL OR {{event}}.type <> 'message.status' OR {STATUS} = ANY(e.statuses))
"""
"""SQL on the endpoint `e` and a row `{event}` with the columns of an event. An endpoint gets no events about
itself. The service's own events have no `raw_path`, and are not sent to endpoints with Meta's format. `*` does not
include explicit types.
"""
WANTED = f"""{WANTED_BY_MEMBERS}
    AND (e.filter_path IS NULL OR event_passes({{data}}, {{event}}.type, e.filter_path))
"""
"""SQL: `WANTED_BY_MEMBERS` and the filter by content (`filters.py`). `{data}` is the event's `data` as bytes."""


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to publish: the members of the envelope (specification 6) that its flow knows, in the envelope's
    order.
    """

    id: UUID | None = None
    """Set by flows that store the event's id in another row. Otherwise publishing creates the id."""
    type: str
    environment: str
    """The environment whose endpoints get the event: that of the account, batch or session that caused it. The
    envelope omits the environment.
    """
    waba_id: str | None = None
    phone_number_id: str | None = None
    display_phone_number: str | None = None
    wamid: str | None = None
    wa_id: str | None = None
    user_id: str | None = None
    dedupe_key: str
    data: bytes
    """JSON, delivered byte for byte."""
    raw_path: str | None = None
    message: MessageFacts | None = None
    """The facts that a `message.*` event reports about its message, for the message log. Not in the envelope."""

    def __repr__(self) -> str:
        return type_alone(self)

    @property
    def status(self) -> str | None:
        """The message's status that the event reports, for lists of events. None for an event without a message."""
        return (self.message.word or self.message.status) if self.message else None

    @property
    def error_code(self) -> int | None:
        """Meta's error code that the event reports, for lists of events. None without an error."""
        return self.message.error_code if self.message else None


STORED = tuple(name for name in NewEvent.__struct_fields__ if name not in {"data", "message"})
"""The envelope's members that are columns of the event's row. `data` and `raw` are stored as bodies."""
COLUMNS = (*STORED, "status", "error_code")
"""The columns of an event's row that publishing sets. All are text except the id and the error code."""
LISTED = tuple(name for name in STORED if name not in {"id", "type", "environment", "raw_path"})
"""The members that the envelope shows between `tenant_id` and `data`."""
ENVELOPE = ("id", "type", "api_version", "created_at", "tenant_id", *LISTED, "data", "raw", "raw_path")
"""The envelope's members in the order in which endpoints get them."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The stored parts of an envelope. Events of one notification share its bytes until `body()` joins the parts."""

    id: str
    """The event's public id."""
    head: bytes = field(repr=False)
    data: bytes = field(repr=False)
    raw: bytes = field(repr=False)
    raw_path: str | None
    traceparent: str | None = None
    """The parent span of the event's deliveries. The body does not contain it."""

    @property
    def size(self) -> int:
        """The approximate number of bytes in the body."""
        return len(self.head) + len(self.data) + len(self.raw)

    @property
    def has_raw(self) -> bool:
        """Whether the event's notification is stored. It is deleted when any of its customers is erased."""
        return self.raw != _NO_RAW

    def with_own_change(self) -> Self:
        """The envelope whose `raw` has only the change to which `raw_path` leads.

        Meta sends changes of several numbers in one notification. A caller that is limited to some numbers gets the
        event in this form. `raw` is null if `raw_path` leads to no change.
        """
        place = place_in(self.raw_path or "")
        if place is None or self.raw_path is None or not self.has_raw:
            return replace(self, raw=_NO_RAW)
        raw, moved = _splitter(self.raw).split([place])
        return replace(self, raw=raw, raw_path=rebase(self.raw_path, moved[place]))

    def body(self) -> bytes:
        """The JSON that endpoints get."""
        return b'%b,"data":%b,"raw":%b,"raw_path":%b}' % (
            self.head[:-1],
            self.data,
            self.raw,
            orjson.dumps(self.raw_path if self.has_raw else None),
        )


_NO_RAW = b"null"

_splitter = lru_cache(maxsize=2)(Splitter)
"""Events of one notification, of which there may be a thousand, share its bytes and so its parsed form."""

_READ = (*STORED, "tenant_id", "raw_id", "payload_expires_on", "traceparent")
# Finds the rows by primary key: one index probe for each event, in the partitions of the ids.
_EVENTS = f"""
SELECT {", ".join(f"e.{name}" for name in _READ)}, t.retention_days, now()
FROM events e
JOIN tenants_tenant t ON t.id = e.tenant_id
WHERE {of_tenant("e")} AND e.id = ANY(%(ids)s::uuid[]) AND e.id BETWEEN %(first)s AND %(last)s
"""  # noqa: S608 - only a condition and column names are formatted in
# All bodies of one day are in one partition. A prepared statement selects this partition when it starts, and does not
# touch the others, of which there are more than 50.
_BODIES_OF_DAY = f"""
SELECT id, body FROM event_payloads
WHERE {of_tenant("event_payloads")} AND expires_on = %(day)s AND id = ANY(%(ids)s::uuid[])
"""  # noqa: S608 - only a condition is formatted in
_BODIES = f"""
SELECT p.id, p.body FROM unnest(%(days)s::date[], %(ids)s::uuid[]) AS wanted (expires_on, id)
JOIN event_payloads p ON {of_tenant("p")} AND p.expires_on = wanted.expires_on AND p.id = wanted.id
"""  # noqa: S608 - only a condition is formatted in
FEW_DAYS = 3


def load(event_ids: Iterable[UUID], *, tenant_id: UUID) -> dict[UUID, Envelope | None]:
    """The envelopes of a tenant's events, in a few queries. None for an event whose body is past retention.

    The caller has checked that the events are the tenant's. Only Citus needs `tenant_id`, to find their node.
    """
    return run(loading(dict.fromkeys(event_ids, tenant_id)))


def loading(tenant_of: Mapping[UUID, UUID]) -> Statements[dict[UUID, Envelope | None]]:
    """The statements of `load`, for events of several tenants.

    `retention.py` may move a body between the two statements, so a missing body is read once more.
    """
    envelopes: dict[UUID, Envelope | None] = {}
    for tenant_id, event_ids in together(tenant_of, tenant_of.__getitem__):
        found = yield from _loading(tenant_id, event_ids)
        if missing := [event_id for event_id, body in found.items() if body is None]:
            found |= yield from _loading(tenant_id, missing)
        envelopes |= found
    return envelopes


def _loading(tenant_id: UUID | None, event_ids: Sequence[UUID]) -> Statements[dict[UUID, Envelope | None]]:
    rows = yield _EVENTS, {"tenant_id": tenant_id, "ids": uuids(event_ids), **id_range(event_ids)}
    events = [dict(zip((*_READ, "retention_days", "read_at"), row, strict=True)) for row in rows]
    # A notification is read once, even if several of its events are requested.
    wanted = {event["raw_id"]: event["payload_expires_on"] for event in events if event["raw_id"]}
    wanted |= {event["id"]: event["payload_expires_on"] for event in events}
    bodies: dict[UUID | None, bytes] = {}
    days = set(wanted.values())
    if len(days) <= FEW_DAYS:
        for day in days:
            of_day = [body_id for body_id, expires_on in wanted.items() if expires_on == day]
            bodies |= dict((yield _BODIES_OF_DAY, {"tenant_id": tenant_id, "day": day, "ids": uuids(of_day)}))
    else:
        values = {"tenant_id": tenant_id, "days": list(wanted.values()), "ids": uuids(wanted)}
        bodies |= dict((yield _BODIES, values))
    return {event["id"]: _envelope(event, bodies) for event in events}


def _envelope(event: Mapping[str, Any], bodies: Mapping[UUID | None, bytes]) -> Envelope | None:
    data = bodies.get(event["id"])
    # By the clock of the database: with a wrong clock, a dispatcher would end its deliveries.
    if data is None or not within_retention(event["id"], event["retention_days"], event["read_at"]):
        return None
    # The erasure of another customer may have deleted the notification.
    return assembled(event, data, bodies.get(event["raw_id"]))


def within_retention(event_id: UUID, retention_days: int, moment: datetime) -> bool:
    """Whether an event's body may still be shown and delivered. The body may be stored for longer."""
    return ids.milliseconds(event_id) / 1000 + retention_days * 86_400 > moment.timestamp()


def assembled(event: Mapping[str, Any], data: bytes, raw: bytes | None) -> Envelope:
    """Assemble an event's envelope from the event's members (`STORED`, `tenant_id` and `traceparent`) and its bodies.

    `raw` is None for an event that came from no notification, or whose notification was deleted.
    """
    event_id = event["id"]
    public_id = ids.encode(ids.EVENT, event_id)
    head = {
        "id": public_id,
        "type": event["type"],
        "api_version": settings.API_VERSION,
        "created_at": isoformat_of(ids.milliseconds(event_id)),
        "tenant_id": event["tenant_id"],
    }
    head |= {name: event[name] for name in LISTED}
    return Envelope(
        id=public_id,
        head=orjson.dumps(head),
        data=data,
        raw=_NO_RAW if raw is None else raw,
        raw_path=event["raw_path"],
        traceparent=event["traceparent"],
    )
