"""Publishing: one statement writes events, bodies, deliveries and the message log, each event once.

Every flow that creates events publishes them inside its own transaction, so that an event exists exactly when its cause
does. An event that was published before (same tenant, same dedupe key) is skipped without an error.

The message log has one row for each message. `MessageRows` turns the events of a statement into these rows, and
`UPSERT` is the part of the statement that stores them. A stored time is replaced only by an earlier one, and other
columns are only filled if they are empty, so repetitions and the order of events do not matter. Rows are locked in the
order of their keys, so two statements that name the same messages wait for each other instead of deadlocking.

The database's function `message_month` (migration 0017) finds a message's row by its key: in the current month, and for
a status also in the preceding months within `LOOK_BACK`. A message gets a second row if a status comes even later, or
if its first two events are written at the same moment on both sides of the end of a month.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
import orjson
from django.conf import settings
from django.db import connection, transaction

from gateway import ids
from gateway.clock import isoformat_of, now
from gateway.database.statements import Statements, run
from gateway.monitoring import tracing
from gateway.monitoring.logs import type_alone
from gateway.upstream.notifications.change import MessageFacts
from webhooks import wake_up
from webhooks.events import envelope
from webhooks.events.envelope import (
    CALL_PREFIX,
    COLUMNS,
    CUSTOMER_KEY,
    IS_CALL,
    IS_URGENT,
    URGENT_KEY_SQL,
    WANTED,
    Envelope,
    NewEvent,
)
from webhooks.models import OLDEST_HISTORY
from webhooks.open_deliveries import TARGET_COLUMNS, StoredTarget
from webhooks.wake_up import Fresh, Packed

LOOK_BACK = timedelta(days=95)
"""How long after a message its status is expected. Meta tries to deliver a message for up to 30 days."""

MILLISECOND = timedelta(milliseconds=1)

_TIME_COLUMN = {
    "accepted": "accepted_at",
    "received": "sent_at",
    "sent": "sent_at",
    "delivered": "delivered_at",
    "read": "read_at",
    "failed": "failed_at",
}
"""The column with the time of each status. The status `unknown` has no column."""
_FILLED = {
    "waba_id": "text",
    "phone_number_id": "text",
    "wa_id": "text",
    "user_id": "text",
    "type": "text",
    "template": "text",
    "template_language": "text",
    "batch_id": "uuid",
    "idx": "int",
    "event_id": "uuid",
    "pricing_category": "text",
    "pricing_type": "text",
    "billable": "bool",
    "service_ms": "int",
    "upstream_ms": "int",
    "referral_source_type": "text",
    "referral_source_id": "text",
    "referral_ctwa_clid": "text",
}
"""Columns that keep their first value."""
_PLACEHOLDER = "media_placeholder"
"""Type of an old message whose file comes later, in a second message with the same id (upstream fact 3.6)."""
_REPLACED = ("type", "event_id")
"""Columns that the second message, which has the file, replaces."""
_TIMES = tuple(dict.fromkeys(_TIME_COLUMN.values()))
_VALUES = {**_FILLED, **dict.fromkeys(_TIMES, "timestamptz"), "error_code": "int", "history": "bool"}
_OF_FACTS = tuple(name for name in MessageFacts._fields if name in _VALUES)
"""Facts that are stored in a column of the same name."""
_OF_EVENT = ("waba_id", "phone_number_id", "wa_id", "user_id")
_facts_of, _ids_of = attrgetter(*_OF_FACTS), attrgetter(*_OF_EVENT)

_LIST = ", ".join(_VALUES)
_DRAFT = ", ".join(f"{name} {kind}" for name, kind in _VALUES.items())
_MERGE = ",\n        ".join(
    [
        *(f"{name} = COALESCE(m.{name}, excluded.{name})" for name in _FILLED if name not in _REPLACED),
        *(
            f"{name} = CASE WHEN m.type = '{_PLACEHOLDER}' THEN COALESCE(excluded.{name}, m.{name})"
            f" ELSE COALESCE(m.{name}, excluded.{name}) END"
            for name in _REPLACED
        ),
        *(f"{name} = LEAST(m.{name}, excluded.{name})" for name in _TIMES),
        "error_code = CASE WHEN m.failed_at IS NULL OR excluded.failed_at < m.failed_at"
        " THEN COALESCE(excluded.error_code, m.error_code) ELSE COALESCE(m.error_code, excluded.error_code) END",
    ]
)

ARCHIVED_AT = (
    "date_trunc('hour', now()) + interval '1 hour' + (hashtext(e.id::text) & 255) * interval '1 second'"
)
"""When an hour's events go to an archive. Each archive is due at its own second of the next hour, so that not all
archives are written together.
"""

# Runs after the statement's main query, which has read all of `fresh`. So every dedupe key is locked before any
# message.
UPSERT = f"""
new_message AS (
    INSERT INTO messages AS m (tenant_id, environment, key, month, id, direction, {_LIST})
    SELECT d.tenant_id, d.environment, d.key,
        COALESCE(
            CASE WHEN d.may_exist THEN
                message_month(d.tenant_id, d.environment, d.key, %(first_month)s, %(this_month)s)
            END,
            d.month
        ),
        d.id, d.direction, {_LIST}
    FROM json_to_recordset(%(messages)s::json) AS d (
        place int, tenant_id uuid, environment text, key text, month date, id uuid, direction text,
        may_exist bool, {_DRAFT}
    )
    WHERE d.place IN (SELECT fresh.message FROM fresh)
    ORDER BY d.tenant_id, d.environment, d.key COLLATE "C"
    ON CONFLICT (tenant_id, environment, key, month) DO UPDATE SET
        {_MERGE}
    RETURNING m.tenant_id, m.environment, m.id, m.history
)
"""  # noqa: S608 - only column names are formatted in


class MessageRows:
    """The rows of the message log for the events of one statement: one row for each message."""

    def __init__(self) -> None:
        self._places: dict[tuple[UUID, str, str], int] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, tenant_id: UUID, event_id: UUID, event: NewEvent) -> int | None:
        """Add the facts that an event reports about its message. Returns the index of the message's row, or None
        for an event without a message.
        """
        facts = event.message
        if facts is None or (event.wamid is None and not facts.is_message):
            return None
        row = _row(tenant_id, event_id, event, facts)
        key = tenant_id, event.environment, row["key"]
        place = self._places.setdefault(key, len(self._rows))
        if place == len(self._rows):
            self._rows.append(row)
        else:
            self._rows[place] = _merged(self._rows[place], row)
        return place

    def __len__(self) -> int:
        return len(self._rows)

    def parameters(self) -> dict[str, Any]:
        """The parameters of `UPSERT`."""
        this_month = max([now().date().replace(day=1), *(row["month"] for row in self._rows)])
        first_month = this_month
        for place, row in enumerate(self._rows):
            row["place"] = place
            # A row may already exist because of a status, if the message was sent at the end of its month or is
            # replayed from the send journal.
            row["may_exist"] |= row["month"] < this_month
            if row["may_exist"]:
                first_month = min(first_month, (row["month"] - LOOK_BACK).replace(day=1))
        return {
            "messages": orjson.dumps(self._rows).decode(),
            "this_month": this_month,
            "first_month": first_month,
        }


def _row(tenant_id: UUID, event_id: UUID, event: NewEvent, facts: MessageFacts) -> dict[str, Any]:
    """The row of an event's message, without empty columns."""
    row: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": event.environment,
        "key": event.wamid or ids.encode(ids.EVENT, event_id),
        "month": ids.month_of(event_id),
        "id": event_id,
        "direction": facts.direction,
        "may_exist": not facts.is_message,
    }
    if facts.is_message:
        row["event_id"] = event_id
    if facts.is_history:
        # An old chat is logged at the time when it was sent. Its row may exist already, in any month.
        arrived = ids.milliseconds(event_id)
        sent = min(max(facts.at_ms or arrived, arrived - OLDEST_HISTORY // MILLISECOND), arrived)
        row |= {"history": True, "may_exist": True, "id": ids.uuid7_at(sent)}
        row["month"] = ids.month_of(row["id"])
    members = zip(_OF_EVENT + _OF_FACTS, _ids_of(event) + _facts_of(facts), strict=True)
    row |= {name: value for name, value in members if value is not None}
    if facts.is_group:
        row.pop("wa_id", None)
        row.pop("user_id", None)
    if facts.is_participants and facts.status == "failed":
        row.pop("error_code", None)
    elif column := _TIME_COLUMN.get(facts.status or ""):
        row[column] = isoformat_of(facts.at_ms or ids.milliseconds(event_id))
    return row


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two rows of one message by the rules of `UPSERT`."""
    merged = {**second, **first, "may_exist": first["may_exist"] or second["may_exist"]}
    for name in _TIMES:
        if name in first and name in second:
            merged[name] = min(first[name], second[name])
    if "error_code" in second and merged.get("failed_at") != first.get("failed_at"):
        merged["error_code"] = second["error_code"]
    return merged


# --- Hand-over: the statement that makes a fresh delivery also claims it, and the wake-up signal carries it to a
# dispatcher.
#
# So the dispatcher needs no statement before it sends. The lease is like that of any other claim, and names the
# dispatcher that is expected to get the signal. When that dispatcher dies, the lease ends. If the signal is lost, the
# lease runs out (at least once). If another dispatcher gets the signal, it transfers the lease to itself before it
# sends.
MOST_EVENTS = 16
"""The maximum number of events of a statement that hands deliveries over. If there are more events, a dispatcher with
room claims the deliveries.
"""
MOST_BODY_BYTES = 16 * 1024
"""The maximum number of bytes of a body in a signal. The dispatcher reads a larger body from the database."""


class HandedOver(msgspec.Struct, frozen=True, array_like=True):
    """A fresh delivery that was claimed for the dispatcher that gets the signal. Its secrets are ciphertexts."""

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant_id: UUID
    event_type: str
    claimed_at: datetime
    """The database's time at the claim."""
    target: StoredTarget
    envelope: Envelope | None
    """None if the body is too large for a signal."""
    circuit_generation: int = 0
    """The generation of the endpoint's circuit at the claim. Signals of the former version lack it."""
    leased_by: int | None = None
    """The worker that the lease names. Signals of the former version lack it."""
    is_urgent: bool = False
    """Whether the delivery overtakes all others. Signals of the former version lack it."""

    def packed(self) -> Packed:
        """The delivery in the form that a signal carries."""
        return Packed(self.id, self.tenant_id, self.claimed_at, _encoder.encode(self))


def unpacked_one(content: bytes) -> HandedOver:
    """The delivery in the content of a signal."""
    return _decode_one(content)


_decode_one = msgspec.msgpack.Decoder(HandedOver).decode
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[HandedOver])


def unpacked(signal: bytes) -> list[HandedOver] | None:
    """The deliveries that a signal hands over. None for a signal that asks the dispatcher to poll."""
    try:
        return _decoder.decode(signal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Publication(msgspec.Struct, frozen=True):
    """Events of one tenant, and the notification to which their `raw_path` refers."""

    tenant_id: UUID
    events: Sequence[NewEvent]
    raw: bytes | None = None
    traceparent: str | None = msgspec.field(default_factory=tracing.current)
    """The parent span of the events' deliveries. By default, the span in which the publication is created."""

    def __repr__(self) -> str:
        return type_alone(self)


@dataclass(frozen=True, slots=True)
class Published:
    """The ids of new events, by publication, and the deliveries that were made for these events."""

    fresh: list[list[UUID]]
    deliveries: Fresh


_MEMBERS = ", ".join(COLUMNS)
_TYPES = {"id": "uuid", "error_code": "int"}
_DRAFT_COLUMNS = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in COLUMNS)

# One round trip. The key decides which events are new, and everything else is written only for new events. Keys are
# inserted in sorted order, so two processes with overlapping notifications wait for each other instead of deadlocking.
# The second process then sees the keys of the first. All rows are inserted by primary key and small indexes, so nothing
# is scanned. The statement builds a delivery's id, a UUIDv7 of its event's millisecond, because Postgres before 18 has
# no function for that. All bodies are sent as one value, because an array would be adapted element by element. Each row
# names its slice of this value. A call has no place in its customer's line, so it does not wait for messages that are
# collected. With a lease, the statement claims deliveries for the dispatcher to which they are handed over: all that
# can be sent at once, or only those of calls.
_DATA = "substr(%(bodies)s::bytea, fresh.start, fresh.length)"
_STATEMENT = f"""
WITH draft AS (
    SELECT * FROM json_to_recordset(%(events)s::json) AS d (
        tenant_id uuid, created_on date, raw_id uuid, start int, length int, message int, traceparent text,
        {_DRAFT_COLUMNS}
    )
), new_key AS (
    INSERT INTO event_keys (tenant_id, dedupe_key, created_at)
    SELECT tenant_id, dedupe_key, now() FROM draft ORDER BY tenant_id, dedupe_key
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, dedupe_key
), fresh AS (
    SELECT draft.*, draft.created_on + t.retention_days + 1 AS expires_on, t.status AS tenant_status
    FROM draft JOIN new_key USING (tenant_id, dedupe_key) JOIN tenants_tenant t ON t.id = draft.tenant_id
), new_event AS (
    INSERT INTO events (tenant_id, raw_id, payload_expires_on, traceparent, {_MEMBERS})
    SELECT tenant_id, raw_id, expires_on, traceparent, {_MEMBERS} FROM fresh
), new_payload AS (
    INSERT INTO event_payloads (expires_on, id, tenant_id, body)
    SELECT expires_on, id, tenant_id, substr(%(bodies)s::bytea, start, length) FROM fresh
    UNION ALL
    SELECT first.expires_on, raw.id, first.tenant_id, substr(%(bodies)s::bytea, raw.start, raw.length)
    FROM json_to_recordset(%(raws)s::json) AS raw (id uuid, start int, length int)
    CROSS JOIN LATERAL (SELECT expires_on, tenant_id FROM fresh WHERE raw_id = raw.id LIMIT 1) first
), new_delivery AS (
    INSERT INTO webhook_deliveries (id, tenant_id, environment, endpoint_id, event_id, event_type, status,
                                    attempts, next_attempt_at, leased_until, leased_by, attempt_log, is_replay,
                                    customer_key)
    SELECT (substr(fresh.id::text, 1, 13) || '-7' || substr(gen_random_uuid()::text, 16))::uuid,
           fresh.tenant_id, fresh.environment, e.id, fresh.id, fresh.type, 'pending', 0,
           coalesce(
               lease.until,
               CASE WHEN e.kind = 's3' THEN {ARCHIVED_AT} END,
               CASE WHEN fresh.type = 'message.inbound' THEN now() + make_interval(secs => e.quiet_seconds) END,
               now()
           ),
           lease.until, CASE WHEN lease.until IS NOT NULL THEN %(holder)s::bigint END,
           '[]', false,
           CASE WHEN lease.is_urgent THEN {URGENT_KEY_SQL}
                WHEN e.quiet_seconds IS NOT NULL AND {IS_CALL.format(event="fresh")} THEN NULL
                ELSE {CUSTOMER_KEY.format(event="fresh")} END
    FROM fresh JOIN webhooks_endpoint e ON e.tenant_id = fresh.tenant_id AND e.environment = fresh.environment
    CROSS JOIN LATERAL (
        SELECT CASE WHEN %(lease)s::float8 > 0 AND (%(hands_over)s OR {IS_URGENT.format(event="fresh")})
                         AND fresh.tenant_status = 'active' AND e.circuit_open_until IS NULL
                         AND e.secret_unreadable_since IS NULL AND e.rate_per_second IS NULL AND NOT e.ordered
                         AND e.kind <> 's3'
               THEN now() + make_interval(secs => %(lease)s::float8) END,
               {IS_URGENT.format(event="fresh")}
    ) AS lease (until, is_urgent)
    WHERE e.status = 'active' AND {WANTED.format(event="fresh", data=_DATA)}
    RETURNING id, endpoint_id, event_id, leased_until
){{more}}
SELECT fresh.id, d.id, d.endpoint_id, now(), d.leased_until IS NOT NULL, e.circuit_generation, {TARGET_COLUMNS}
FROM fresh
LEFT JOIN new_delivery d ON d.event_id = fresh.id
LEFT JOIN webhooks_endpoint e ON e.id = d.endpoint_id AND d.leased_until IS NOT NULL
"""  # noqa: S608 - only column names are formatted in
# Records which hours of which tenants must be recounted. Each note is a row of its own, so that no sender waits for a
# counter.
_NOTE = """, new_change AS (
    INSERT INTO figure_changes (tenant_id, environment, hour)
    SELECT DISTINCT tenant_id, environment,
        (('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000)::int
    FROM {changed} AS changed
)"""
_MESSAGES_TOO = """(SELECT tenant_id, environment, id FROM fresh
    UNION ALL SELECT tenant_id, environment, id FROM new_message WHERE history IS NOT TRUE)"""
_PUBLISH = _STATEMENT.format(more=_NOTE.format(changed="fresh"))
_PUBLISH_MESSAGES = _STATEMENT.format(more=f", {UPSERT}{_NOTE.format(changed=_MESSAGES_TOO)}")

_members = attrgetter(*COLUMNS)

MOST_TOGETHER = 500
"""The maximum number of events of one statement. Only a single notification may have more."""


def publish(*, tenant_id: UUID, events: Sequence[NewEvent], raw: bytes | None = None) -> list[UUID]:
    """Write events of one tenant, with a delivery to every active endpoint of their environment that wants them.

    `raw` is the notification to which the events' `raw_path` refers. Returns the ids of new events. Must run inside the
    transaction of the events' cause. The dispatcher is woken when the transaction commits.
    """
    if not events:
        return []
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("publish() belongs inside the transaction of its cause")
    published = run(publishing([Publication(tenant_id, events, raw)]), prepared=True)
    if published.deliveries:
        wake_up.after_commit(published.deliveries)
    return published.fresh[0]


def publishing(publications: Sequence[Publication]) -> Statements[Published]:
    """The statement that writes all publications. If events have the same dedupe key, only the first is written.

    If there are deliveries, the caller must then call `wake_up.after_commit(published.deliveries)`.
    """
    is_small = sum(len(each.events) for each in publications) <= MOST_EVENTS
    # Calls are handed over to any dispatcher, even one without room.
    has_calls = is_small and any(_is_call(event) for each in publications for event in each.events)
    hands_over = is_small and wake_up.may_hand_over()
    drafts = _Drafts()
    for place, publication in enumerate(publications):
        drafts.add(place, publication)
    holder = wake_up.next_dispatcher(urgent=has_calls)
    lease = settings.DELIVERY_LEASE_SECONDS if hands_over or has_calls else 0
    parameters = drafts.parameters(lease=lease, hands_over=hands_over, holder=holder)
    written = yield _PUBLISH_MESSAGES if drafts.messages else _PUBLISH, parameters
    fresh: list[dict[UUID, None]] = [{} for _ in publications]
    handed_over: list[Packed] = []
    has_unclaimed = False
    for event_id, delivery_id, endpoint_id, at, is_claimed, circuit_generation, *target in written:
        place, row, data = drafts.places[event_id]
        fresh[place][event_id] = None
        if is_claimed:
            raw = publications[place].raw if row["raw_id"] is not None else None
            whole = envelope.assembled(row, data, raw)
            delivery = HandedOver(
                id=delivery_id,
                event_id=event_id,
                endpoint_id=endpoint_id,
                tenant_id=row["tenant_id"],
                event_type=row["type"],
                claimed_at=at,
                target=StoredTarget(*target),
                envelope=whole if whole.size <= MOST_BODY_BYTES else None,
                circuit_generation=circuit_generation,
                leased_by=holder,
                is_urgent=row["dedupe_key"].startswith(CALL_PREFIX),
            )
            handed_over.append(delivery.packed())
        elif delivery_id is not None:
            has_unclaimed = True
    if written:
        wake_up.fresh(publications[place].tenant_id for place, found in enumerate(fresh) if found)
    return Published([list(event_ids) for event_ids in fresh], Fresh(handed_over, has_unclaimed, has_calls))


def _is_call(event: NewEvent) -> bool:
    return event.dedupe_key.startswith(CALL_PREFIX)


class _Drafts:
    """The publications in the form of the statement's parameters."""

    def __init__(self) -> None:
        self.places: dict[UUID, tuple[int, dict[str, Any], bytes]] = {}
        """For each event to write: the place of its publication, its row, and its data."""
        self.messages = MessageRows()
        self._rows: dict[tuple[UUID, str], dict[str, Any]] = {}
        self._raws: list[dict[str, Any]] = []
        self._bodies = _Bodies()

    def add(self, place: int, publication: Publication) -> None:
        """Add a publication's events. Leave out an event with the dedupe key of an earlier event."""
        raw_id = None
        if publication.raw is not None:
            raw_id = ids.uuid7()
            self._raws.append({"id": raw_id, **self._bodies.add(publication.raw)})
        event_ids = [event.id or ids.uuid7() for event in publication.events]
        common = {
            "tenant_id": publication.tenant_id,
            "created_on": ids.created_at(raw_id or event_ids[0]).date(),
            "traceparent": publication.traceparent,
        }
        for event_id, event in zip(event_ids, publication.events, strict=True):
            key = publication.tenant_id, event.dedupe_key
            if key not in self._rows:
                self._rows[key] = {
                    **common,
                    "raw_id": raw_id if event.raw_path is not None else None,
                    **dict(zip(COLUMNS, _members(event), strict=True)),
                    "id": event_id,
                    "message": self.messages.add(publication.tenant_id, event_id, event),
                    **self._bodies.add(event.data),
                }
                self.places[event_id] = place, self._rows[key], event.data

    def parameters(self, *, lease: float, hands_over: bool, holder: int | None) -> dict[str, Any]:
        """The values of the statement."""
        return {
            "events": orjson.dumps(list(self._rows.values())).decode(),
            "raws": orjson.dumps(self._raws).decode(),
            "bodies": b"".join(self._bodies.parts),
            "lease": float(lease),
            "hands_over": hands_over,
            "holder": holder,
            **(self.messages.parameters() if self.messages else {}),
        }


class _Bodies:
    """Bodies that are joined into one value."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._end = 1

    def add(self, body: bytes) -> dict[str, int]:
        """Append a body. Returns its start and length for SQL's `substr`."""
        start, self._end = self._end, self._end + len(body)
        self.parts.append(body)
        return {"start": start, "length": len(body)}
