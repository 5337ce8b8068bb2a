"""Publishing: events, bodies, deliveries and the message log are written in one statement, each event once.

Called by every flow that makes events, inside that flow's own transaction, so that an event exists exactly when
its cause does. An event that was published before (same tenant, same dedupe key) is skipped without an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connection, transaction

from gateway import ids
from gateway.database.outage import concerns_all
from gateway.database.statements import Statements, run
from gateway.database.transactions import leave_database
from gateway.monitoring import tracing
from gateway.threads.group_commit import GroupCommit
from webhooks import stream_signal, wake_up
from webhooks.events import envelope
from webhooks.events.customer_key import CUSTOMER_KEY
from webhooks.events.endpoint_filter import WANTED
from webhooks.events.hand_over import MOST_BODY_BYTES, MOST_EVENTS, HandedOver
from webhooks.events.message_log import UPSERT, MessageRows
from webhooks.events.new_event import COLUMNS, NewEvent
from webhooks.stored_target import TARGET_COLUMNS, StoredTarget
from webhooks.wake_up import Fresh, Packed


@dataclass(frozen=True, slots=True)
class Publication:
    """Events of one tenant, and the notification that their `raw_path` points into."""

    tenant_id: UUID
    events: Sequence[NewEvent]
    raw: bytes | None = None
    traceparent: str | None = field(default_factory=tracing.current)
    """The span that the events' deliveries belong under: the current one where the publication is made."""


@dataclass(frozen=True, slots=True)
class Published:
    """The ids of the events that are new, by publication, and the deliveries that were made for them."""

    fresh: list[list[UUID]]
    deliveries: Fresh


_MEMBERS = ", ".join(COLUMNS)
_TYPES = {"id": "uuid", "error_code": "int"}
_DRAFT_COLUMNS = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in COLUMNS)

# One round trip: the key decides which events are new, and everything else is written for those alone. Keys are
# inserted in their order, so two processes with overlapping notifications wait for each other instead of deadlocking;
# the second then sees the first one's keys. Primary-key inserts only, plus small indexes: no scan anywhere.
# A delivery's id is a UUIDv7 of its event's millisecond: Postgres before 18 cannot make one itself.
# All bodies come as one value, of which each row names its slice: an array would be adapted element by element.
# With a lease, deliveries that can go out at once are claimed for the dispatcher to which they are handed over.
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
                                    attempts, next_attempt_at, leased_until, attempt_log, is_replay, customer_key)
    SELECT (substr(fresh.id::text, 1, 13) || '-7' || substr(gen_random_uuid()::text, 16))::uuid,
           fresh.tenant_id, fresh.environment, e.id, fresh.id, fresh.type, 'pending', 0,
           coalesce(lease.until, now()), lease.until, '[]', false, {CUSTOMER_KEY.format(event="fresh")}
    FROM fresh JOIN webhooks_endpoint e ON e.tenant_id = fresh.tenant_id AND e.environment = fresh.environment
    CROSS JOIN LATERAL (
        SELECT CASE WHEN %(lease)s::float8 > 0 AND fresh.tenant_status = 'active' AND e.circuit_open_until IS NULL
                         AND e.secret_unreadable_since IS NULL AND e.rate_per_second IS NULL AND NOT e.ordered
               THEN now() + make_interval(secs => %(lease)s::float8) END
    ) AS lease (until)
    WHERE e.status = 'active' AND {WANTED.format(event="fresh")}
    RETURNING id, endpoint_id, event_id, leased_until
){{more}}
SELECT fresh.id, d.id, d.endpoint_id, now(), d.leased_until IS NOT NULL, e.circuit_generation, {TARGET_COLUMNS}
FROM fresh
LEFT JOIN new_delivery d ON d.event_id = fresh.id
LEFT JOIN webhooks_endpoint e ON e.id = d.endpoint_id AND d.leased_until IS NOT NULL
"""  # noqa: S608 - only column names are formatted in
# Which hours of which tenants are to be counted again: rows of their own, so that no sender waits for a counter.
_NOTE = """, new_change AS (
    INSERT INTO figure_changes (tenant_id, environment, hour)
    SELECT DISTINCT tenant_id, environment,
        (('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000)::int
    FROM {changed} AS changed
)"""
_MESSAGES_TOO = """(SELECT tenant_id, environment, id FROM fresh
    UNION ALL SELECT tenant_id, environment, id FROM new_message)"""
_PUBLISH = _STATEMENT.format(more=_NOTE.format(changed="fresh"))
_PUBLISH_MESSAGES = _STATEMENT.format(more=f", {UPSERT}{_NOTE.format(changed=_MESSAGES_TOO)}")

_members = attrgetter(*COLUMNS)

MOST_TOGETHER = 500
"""Events of one statement, unless a single notification has more."""


def publish(
    *, tenant_id: UUID, events: Sequence[NewEvent], raw: bytes | None = None, alone: bool = False
) -> list[UUID]:
    """Write events of one tenant with a delivery to every active endpoint of their environment that wants them.

    `raw` is the notification that the events' `raw_path` points into. Returns the ids of the events that are new.
    Must run inside the transaction of the events' cause; the dispatcher is woken when it commits. With `alone` the
    events have no other writes beside them: they are committed when this returns, in one transaction with what other
    threads publish at the same moment.
    """
    if not events:
        return []
    publication = Publication(tenant_id, events, raw)
    if alone:
        # A thread that waits for another one must not hold the connection that the other may need.
        leave_database()
        return _together.do(publication)
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("publish() belongs inside the transaction of its cause")
    (fresh,) = _write([publication])
    return fresh


def _write(publications: Sequence[Publication]) -> list[list[UUID]]:
    """Write publications on Django's connection; the ids of each one's new events."""
    published = run(publishing(publications), prepared=True)
    if published.deliveries:
        wake_up.after_commit(published.deliveries)
    return published.fresh


def publishing(publications: Sequence[Publication]) -> Statements[Published]:
    """One statement for all publications. Of equal keys the first counts.

    The caller of these statements calls `wake_up.after_commit(published.deliveries)` when there are deliveries.
    """
    hands_over = wake_up.may_hand_over() and sum(len(each.events) for each in publications) <= MOST_EVENTS
    drafts = _Drafts()
    for place, publication in enumerate(publications):
        drafts.add(place, publication)
    parameters = drafts.parameters(lease=settings.DELIVERY_LEASE_SECONDS if hands_over else 0)
    written = yield _PUBLISH_MESSAGES if drafts.messages else _PUBLISH, parameters
    fresh: list[dict[UUID, None]] = [{} for _ in publications]
    handed_over: list[Packed] = []
    has_unclaimed = False
    for event_id, delivery_id, endpoint_id, at, is_claimed, circuit_generation, *target in written:
        place, row, data = drafts.places[event_id]
        fresh[place][event_id] = None
        if is_claimed:
            whole = envelope.assembled(row, data, publications[place].raw)
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
            )
            handed_over.append(delivery.packed())
        elif delivery_id is not None:
            has_unclaimed = True
    if written:
        stream_signal.fresh(publications[place].tenant_id for place, found in enumerate(fresh) if found)
    return Published([list(event_ids) for event_ids in fresh], Fresh(handed_over, has_unclaimed))


class _Drafts:
    """Publications as the statement takes them."""

    def __init__(self) -> None:
        self.places: dict[UUID, tuple[int, dict[str, Any], bytes]] = {}
        """Of each event to write: the place of its publication, its row, and its data."""
        self.messages = MessageRows()
        self._rows: dict[tuple[UUID, str], dict[str, Any]] = {}
        self._raws: list[dict[str, Any]] = []
        self._bodies = _Bodies()

    def add(self, place: int, publication: Publication) -> None:
        """Add the events whose dedupe key no event of before has."""
        raw_id = None
        if publication.raw is not None:
            raw_id = ids.uuid7()
            self._raws.append({"id": raw_id, **self._bodies.add(publication.raw)})
        event_ids = [event.id or ids.uuid7() for event in publication.events]
        common = {
            "tenant_id": publication.tenant_id,
            "created_on": ids.created_at(raw_id or event_ids[0]).date(),
            "raw_id": raw_id,
            "traceparent": publication.traceparent,
        }
        for event_id, event in zip(event_ids, publication.events, strict=True):
            key = publication.tenant_id, event.dedupe_key
            if key not in self._rows:
                self._rows[key] = {
                    **common,
                    **dict(zip(COLUMNS, _members(event), strict=True)),
                    "id": event_id,
                    "message": self.messages.add(publication.tenant_id, event_id, event),
                    **self._bodies.add(event.data),
                }
                self.places[event_id] = place, self._rows[key], event.data

    def parameters(self, *, lease: float) -> dict[str, Any]:
        """The values of the statement."""
        return {
            "events": orjson.dumps(list(self._rows.values())).decode(),
            "raws": orjson.dumps(self._raws).decode(),
            "bodies": b"".join(self._bodies.parts),
            "lease": float(lease),
            **(self.messages.parameters() if self.messages else {}),
        }


class _Bodies:
    """Bodies joined into one value."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._end = 1

    def add(self, body: bytes) -> dict[str, int]:
        """Append a body; returns its place as SQL's `substr` counts."""
        start, self._end = self._end, self._end + len(body)
        self.parts.append(body)
        return {"start": start, "length": len(body)}


_together: GroupCommit[Publication, list[UUID]] = GroupCommit(
    _write, size=lambda publication: len(publication.events), most=MOST_TOGETHER, is_common=concerns_all
)
