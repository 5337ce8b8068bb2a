"""Reads of the event stream: what follows each listener's position, for many listeners in one statement."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from gateway import ids
from gateway.clock import now
from gateway.database.statements import Statements
from webhooks.events import envelope
from webhooks.events.envelope import Envelope
from webhooks.stream.positions import Horizon, Position

PAGE = 20
"""Events that one listener gets at a time: what a slow one may hold of the process's memory."""
LATEST = timedelta(days=35)
"""An event whose id is older than this when it is committed is not streamed. The bound leaves old partitions aside."""


class Wanted(NamedTuple):
    """What a listener waits for: the events of a tenant's environment after a position."""

    tenant_id: UUID
    environment: str
    after: Position


class Found(NamedTuple):
    """An event of the stream. `envelope` is None for one whose body is past retention."""

    position: Position
    type: str
    phone_number_id: str | None
    envelope: Envelope | None


class Look(NamedTuple):
    """What one look found, for each of the wanted in their order, at most `PAGE` each, and the horizon it looked to."""

    horizon: Horizon
    pages: list[list[Found]]


# Each listener's events are one walk through the index by position, up to transactions that have ended.
_AFTER = f"""
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(s) AS settled, pg_snapshot_xmax(s) AS begun FROM pg_current_snapshot() s
)
SELECT h.settled::text, h.begun::text, found.*
FROM horizon h LEFT JOIN LATERAL (
SELECT w.place, e.position::text, e.id, e.type, e.phone_number_id
FROM unnest(%(tenants)s::uuid[], %(environments)s::text[], %(transactions)s::text[], %(events)s::uuid[])
     WITH ORDINALITY AS w (tenant_id, environment, transaction_id, event_id, place)
CROSS JOIN LATERAL (
    SELECT id, position, type, phone_number_id FROM events e
    WHERE e.tenant_id = w.tenant_id AND e.environment = w.environment
      AND (e.position, e.id) > (w.transaction_id::xid8, w.event_id)
      AND e.position < h.settled AND e.id >= %(first)s AND e.id < %(end)s
    ORDER BY e.position, e.id LIMIT {PAGE}
) e
ORDER BY w.place, e.position, e.id
) found ON true
"""  # noqa: S608 - only a number is formatted in
_NEWS = """
SELECT w.place
FROM unnest(%(tenants)s::uuid[], %(environments)s::text[], %(transactions)s::text[], %(events)s::uuid[])
     WITH ORDINALITY AS w (tenant_id, environment, transaction_id, event_id, place)
WHERE EXISTS (
    SELECT FROM events e
    WHERE e.tenant_id = w.tenant_id AND e.environment = w.environment
      AND (e.position, e.id) > (w.transaction_id::xid8, w.event_id) AND e.id >= %(first)s AND e.id < %(end)s
)
"""


def look(wanted: Sequence[Wanted]) -> Statements[Look]:
    """The events that follow each position and whose transactions, and all before them, have ended."""
    (first, *others) = yield _AFTER, _parameters(wanted)
    settled, begun, place, *_ = first
    rows = [] if place is None else [row[2:] for row in (first, *others)]
    envelopes = yield from envelope.loading(list({event_id for _, _, event_id, *_ in rows}))
    pages: list[list[Found]] = [[] for _ in wanted]
    for place, transaction_id, event_id, kind, phone_number_id in rows:
        found = Found(Position(int(transaction_id), event_id), kind, phone_number_id, envelopes[event_id])
        pages[place - 1].append(found)
    return Look(Horizon(int(settled), int(begun)), pages)


def with_news(wanted: Sequence[Wanted]) -> Statements[set[int]]:
    """The indexes of those whose position something follows: cheaper than a look."""
    rows = yield _NEWS, _parameters(wanted)
    return {place - 1 for (place,) in rows}


def _parameters(wanted: Collection[Wanted]) -> dict[str, object]:
    moment = now()
    oldest = min(
        [moment, *(ids.created_at(each.after.event_id) for each in wanted if each.after.event_id.int)]
    )
    return {
        "tenants": [each.tenant_id for each in wanted],
        "environments": [each.environment for each in wanted],
        "transactions": [str(each.after.transaction_id) for each in wanted],
        "events": [each.after.event_id for each in wanted],
        "first": ids.first_at(oldest - LATEST),
        "end": ids.first_at(moment + timedelta(days=1)),
    }
