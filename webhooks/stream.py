"""The event stream: `GET /v1/events/stream` as server-sent events.

One statement reads the events after the positions of many listeners. A request has a query and, when a client
reconnects, the last event's id. The response is the text form of server-sent events.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connection, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.http import HttpResponse, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request

from gateway import ids
from gateway.api.authentication import Caller, filtered_number
from gateway.api.errors import InvalidRequest
from gateway.api.validation import did_you_mean
from gateway.api.viewsets import AnsweredByListener, ResourceViewSet
from gateway.clock import now
from gateway.database import partitions
from gateway.database.distribution import of_tenant, together
from gateway.database.statements import Statements, id_range, uuids
from gateway.roles import KeyScope
from webhooks.events import envelope, filters
from webhooks.events.envelope import EVENT_TYPES, EXPLICIT_TYPES, Envelope
from webhooks.events.retention import LONGEST_RETENTION_DAYS

# --- Positions of events in the event stream: the number of the committing transaction, then the event's id.
#
# Ids are made before the commit, sometimes long before, so a reader that followed the ids would skip events that are
# not yet visible. A transaction's number orders commits well enough: once every transaction below a number has ended
# (`pg_snapshot_xmin`), nothing new can appear below it. The database's default sets `events.position`, so publishing
# flows need not know it.
#
# Each cluster numbers its transactions from the beginning. So the upper bits of a position are an epoch, a constant in
# the database's function `event_position`. Postgres puts the constant into each plan, so no statement reads it. A new
# epoch begins when the rows move to another cluster. All its positions follow those of earlier epochs.
ADD_COLUMN = """
ALTER TABLE events ADD COLUMN IF NOT EXISTS position xid8;
ALTER TABLE events ALTER COLUMN position SET DEFAULT pg_current_xact_id();
"""
DROP_COLUMN = "ALTER TABLE events DROP COLUMN position;"
LONGEST_COMMIT = timedelta(seconds=10)
"""How long before its commit the id of an event may have been made. The stream does not rely on it."""
EPOCH = 2**48
"""Transactions of one epoch: enough for ninety years at 100,000 a second. A position has room for 32,768 epochs."""
_FUNCTION = """
CREATE OR REPLACE FUNCTION event_position(transaction_id xid8) RETURNS xid8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT (transaction_id::text::bigint + {first})::text::xid8';
"""
ADD_EPOCH = [
    _FUNCTION.format(first=0),
    "ALTER TABLE events ALTER COLUMN position SET DEFAULT event_position(pg_current_xact_id())",
]
REMOVE_EPOCH = [
    # Citus needs this setting to drop a function that a distributed table has used. A single Postgres ignores it.
    "SET LOCAL citus.multi_shard_modify_mode TO 'sequential'",
    "ALTER TABLE events ALTER COLUMN position SET DEFAULT pg_current_xact_id()",
    # A separate statement, because Citus sends a statement to the nodes unchanged.
    "DROP FUNCTION event_position(xid8)",
]
CURRENT_EPOCH = f"SELECT event_position('0')::text::bigint / {EPOCH}"
_INDEX = "event_by_position"
_TEXT = re.compile(r"(\d{1,19})\.(evt_\w{26})")
_NONE = UUID(int=0)


class Position(NamedTuple):
    """A place in the stream: after the event `event_id` of the transaction `transaction_id`."""

    transaction_id: int
    event_id: UUID

    def __str__(self) -> str:
        return f"{self.transaction_id}.{ids.encode(ids.EVENT, self.event_id)}"


BEGINNING = Position(0, _NONE)


class Horizon(NamedTuple):
    """The transactions at a moment: all below `settled` have ended, and none from `begun` on has begun."""

    settled: int
    begun: int


# On Citus the coordinator numbers a transaction, and may have committed it before a node shows its rows. In the same
# transaction, the coordinator inserts a row for each part of the transaction, and deletes the row when the part is
# surely committed. The row's `xmin` is the lower half of the number.
_SETTLED_ON_NODES = """
least(pg_snapshot_xmin(s), (
    SELECT min(number - CASE WHEN number > next THEN 4294967296 ELSE 0 END)::text::xid8
    FROM pg_dist_transaction AS part,
        LATERAL (SELECT pg_snapshot_xmax(s)::text::bigint) AS s (next),
        LATERAL (SELECT (next >> 32 << 32) + part.xmin::text::bigint) AS p (number)
))
"""
_SETTLED = _SETTLED_ON_NODES if settings.DATABASE_IS_DISTRIBUTED else "pg_snapshot_xmin(s)"
_HORIZON = f"""
SELECT event_position({_SETTLED})::text, event_position(pg_snapshot_xmax(s))::text FROM pg_current_snapshot() s
"""  # noqa: S608 - only a part of the statement is formatted in


def horizon() -> Statements[Horizon]:
    """The current horizon."""
    ((settled, begun),) = yield _HORIZON, {}
    return Horizon(int(settled), int(begun))


def present() -> Statements[Position]:
    """The position after everything committed and before everything under way."""
    return Position((yield from horizon()).settled, _NONE)


def resumed(text: str, *, tenant_id: UUID, environment: str) -> Statements[Position | None]:
    """The position in `Last-Event-ID`: a position of the stream, or the public id of one of the caller's events.

    None for any other text. A position beyond the last transaction is from before a restore without a new epoch. The
    stream then starts from its beginning, so that no event is lost.
    """
    if found := _TEXT.fullmatch(text):
        event_id = ids.decode(ids.EVENT, found[2])
        if event_id is None:
            return None
        position = Position(int(found[1]), event_id)
        begun = (yield from horizon()).begun
        # A place without an event may be before the next transaction to begin.
        is_known = position.transaction_id < begun or position == (begun, _NONE)
        return position if is_known else BEGINNING
    event_id = ids.decode(ids.EVENT, text)
    if event_id is None:
        return None
    rows = yield (
        "SELECT position::text FROM events WHERE id = %(id)s AND tenant_id = %(tenant_id)s "
        "AND environment = %(environment)s",
        {"id": event_id, "tenant_id": tenant_id, "environment": environment},
    )
    if not rows:
        return None
    return Position(int(rows[0][0]), event_id) if rows[0][0] else BEGINNING


# The events up to transactions that have ended, in the order of the stream.
_FIRST = """
SELECT e.position::text, e.id FROM events e
WHERE e.tenant_id = %(tenant_id)s AND e.environment = %(environment)s AND e.position >= %(transaction)s::text::xid8
  AND e.position < %(settled)s::text::xid8 AND e.id >= %(first)s AND e.id < %(end)s
ORDER BY e.position, e.id LIMIT 1
"""


def _dated(position: Position, *, tenant_id: UUID, environment: str) -> Statements[Position]:
    """For a place without an event, the place just before the first event that follows, whose id says how old the place
    is. The same place if nothing follows yet.
    """
    if position.event_id != _NONE:
        return position
    settled = (yield from horizon()).settled
    moment = now()
    rows = yield (
        _FIRST,
        {
            "tenant_id": tenant_id,
            "environment": environment,
            "transaction": str(position.transaction_id),
            "settled": str(settled),
            "first": ids.first_at(moment - timedelta(days=LONGEST_RETENTION_DAYS)),
            "end": ids.first_at(moment + timedelta(days=1)),
        },
    )
    return Position(int(rows[0][0]), UUID(int=rows[0][1].int - 1)) if rows else position


def build_index(editor: BaseDatabaseSchemaEditor) -> None:
    """Build the index of the stream without blocking writes."""
    on = "(tenant_id, environment, position, id) WHERE position IS NOT NULL"
    partitions.build(editor, table="events", index=_INDEX, on=on)


def begin_epoch() -> None:
    """Begin a new epoch: all later positions follow all earlier ones.

    Raises `OperationalError`, and changes nothing, if a transaction that writes events does not end in time.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        # The lock waits for all writers of the previous epoch. Later writers plan their statements again, with the new
        # epoch.
        cursor.execute("LOCK TABLE ONLY events IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(CURRENT_EPOCH)
        (current,) = cursor.fetchone()
        cursor.execute(_FUNCTION.format(first=(current + 1) * EPOCH))


PAGE = 20
"""The maximum number of events that one listener gets at a time. This limits the memory that a slow
listener occupies.
"""
LATEST = timedelta(days=35)
"""An event whose id is older than this at its commit is not streamed. So old partitions need not be read."""


class Wanted(NamedTuple):
    """The request of a listener: the events of a tenant's environment after a position."""

    tenant_id: UUID
    environment: str
    after: Position
    filter_path: str | None = None
    """The jsonpath of a filter by content (`events/filters.py`)."""


class Found(NamedTuple):
    """An event of the stream. `envelope` is None for an event whose body is past retention."""

    position: Position
    type: str
    phone_number_id: str | None
    envelope: Envelope | None
    passes: bool = True
    """Whether the filter by content lets the event pass."""


class Look(NamedTuple):
    """The result of one poll: the horizon, and for each `Wanted` in order a page of at most `PAGE` events."""

    horizon: Horizon
    pages: list[list[Found]]


# Each listener's events are one walk through the index by position, up to transactions that have ended.
_WANTED = """
unnest(%(places)s::int[], %(owners)s::uuid[], %(environments)s::text[], %(transactions)s::text[], %(events)s::uuid[])
    AS w (place, tenant_id, environment, transaction_id, event_id)
"""
_FOLLOWS = f"""
    {of_tenant("e")} AND e.tenant_id = w.tenant_id AND e.environment = w.environment
    AND (e.position, e.id) > (w.transaction_id::xid8, w.event_id) AND e.id >= %(first)s AND e.id < %(end)s
"""
_AFTER = f"""
SELECT w.place, e.position::text, e.id, e.type, e.phone_number_id
FROM {_WANTED}
CROSS JOIN LATERAL (
    SELECT id, position, type, phone_number_id FROM events e
    WHERE {_FOLLOWS} AND e.position < %(settled)s::text::xid8
    ORDER BY e.position, e.id LIMIT {PAGE}
) e
ORDER BY w.place, e.position, e.id
"""  # noqa: S608 - only parts of statements are formatted in
_PASSING = f"""
SELECT w.place, e.id
FROM unnest(%(places)s::int[], %(ids)s::uuid[], %(paths)s::text[]) AS w (place, event_id, path)
JOIN events e ON {of_tenant("e")} AND e.id = w.event_id
  AND e.id BETWEEN %(first)s AND %(last)s
JOIN event_payloads p ON {of_tenant("p")} AND p.tenant_id = e.tenant_id
  AND p.expires_on = e.payload_expires_on AND p.id = e.id
WHERE event_passes(p.body, e.type, w.path::jsonpath)
"""  # noqa: S608 - only conditions are formatted in
_NEWS = f"SELECT w.place FROM {_WANTED} WHERE EXISTS (SELECT 1 FROM events e WHERE {_FOLLOWS})"  # noqa: S608


def look(wanted: Sequence[Wanted]) -> Statements[Look]:
    """The events that follow each position. An event is included once its and all earlier transactions have ended."""
    # The horizon is read first, so the later statements see all events of the transactions below it.
    seen = yield from horizon()
    rows: list[tuple[Any, ...]] = []
    for values in _parameters(wanted):
        rows += yield _AFTER, {**values, "settled": str(seen.settled)}
    envelopes = yield from envelope.loading(
        {event_id: wanted[place - 1].tenant_id for place, _, event_id, *_ in rows}
    )
    passing = yield from _passing(wanted, [(row[0], row[2]) for row in rows])
    pages: list[list[Found]] = [[] for _ in wanted]
    for place, transaction_id, event_id, kind, phone_number_id in rows:
        passes = wanted[place - 1].filter_path is None or (place, event_id) in passing
        position = Position(int(transaction_id), event_id)
        found = Found(position, kind, phone_number_id, envelopes[event_id], passes)
        pages[place - 1].append(found)
    return Look(seen, pages)


def _passing(wanted: Sequence[Wanted], rows: Sequence[tuple[int, UUID]]) -> Statements[set[tuple[int, UUID]]]:
    """The events that pass the filter of their request. `rows` and the result are pairs of a request's place and an
    event's id.
    """
    filtered = [
        (place, event_id, path)
        for place, event_id in rows
        if (path := wanted[place - 1].filter_path) is not None
    ]
    passing: set[tuple[int, UUID]] = set()
    for tenant_id, some in together(filtered, lambda each: wanted[each[0] - 1].tenant_id):
        places, event_ids, paths = map(list, zip(*some, strict=True))
        values = {
            "tenant_id": tenant_id,
            "places": places,
            "ids": uuids(event_ids),
            "paths": paths,
            **id_range(event_ids),
        }
        passing.update((yield _PASSING, values))
    return passing


def with_news(wanted: Sequence[Wanted]) -> Statements[set[int]]:
    """The indexes (from 0) of the listeners with events after their position. Cheaper than `look`."""
    places: set[int] = set()
    for values in _parameters(wanted):
        places.update(place - 1 for (place,) in (yield _NEWS, values))
    return places


def _parameters(wanted: Collection[Wanted]) -> Iterator[dict[str, object]]:
    """The parameters of each statement that reads events for the listeners. Places begin with 1."""
    moment = now()
    oldest = min(
        [moment, *(ids.created_at(each.after.event_id) for each in wanted if each.after.event_id.int)]
    )
    for tenant_id, group in together(enumerate(wanted, 1), lambda each: each[1].tenant_id):
        some = [each for _, each in group]
        yield {
            "tenant_id": tenant_id,
            "places": [place for place, _ in group],
            "owners": uuids(each.tenant_id for each in some),
            "environments": [each.environment for each in some],
            "transactions": [str(each.after.transaction_id) for each in some],
            "events": uuids(each.after.event_id for each in some),
            "first": ids.first_at(oldest - LATEST),
            "end": ids.first_at(moment + timedelta(days=1)),
        }


# --- Server-sent events: the text form of the event stream.
CONTENT_TYPE = "text/event-stream"
HEADERS = {
    "Content-Type": CONTENT_TYPE,
    "Cache-Control": "no-store",
    # By default, nginx buffers a response before passing it on.
    "X-Accel-Buffering": "no",
}
RETRY_MILLISECONDS = 1_000
HEARTBEAT_SECONDS = 15.0
"""How long a client receives nothing before a heartbeat is sent."""


def opening(position: Position) -> bytes:
    """The first lines of a stream: the delay before a client reconnects, and the position at which the
    stream begins.
    """
    return b"retry: %d\n%b" % (RETRY_MILLISECONDS, heartbeat(position))


def heartbeat(position: Position) -> bytes:
    """A sign of life without an event. Its id moves the client's position past events that a filter left out."""
    return b"id: %b\n: alive\n\n" % str(position).encode()


def event(position: Position, body: bytes) -> bytes:
    """An event. A line end becomes a new line of data. JSON has line ends only between its tokens."""
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"id: %b\ndata: %b\n\n" % (str(position).encode(), lines)


def closing(reason: str) -> bytes:
    """The last lines before the service ends a stream."""
    return b"event: closed\ndata: %b\n\n" % reason.encode()


# --- The request for an event stream: filters in the query, and the position from which to continue.
PARAMETERS = {"type": 2_000, "phone_number_id": 64, "filter": filters.LONGEST}
"""The query's parameters, with the maximum length of each value in characters."""


class Asked(NamedTuple):
    """The filters of a stream. Empty `types` mean all except EXPLICIT_TYPES. None for `phone_number_ids` means all."""

    types: frozenset[str]
    phone_number_ids: frozenset[str] | None
    filter_path: str | None = None

    def wants(self, kind: str, phone_number_id: str | None) -> bool:
        """Whether an event of this type and number passes."""
        of_type = kind in self.types if self.types else kind not in EXPLICIT_TYPES
        return of_type and (self.phone_number_ids is None or phone_number_id in self.phone_number_ids)


def asked_of(query: QueryDict, caller: Caller) -> Asked:
    """The filters in a query, within the numbers to which the caller is limited.

    Raises InvalidRequest for an unknown, repeated or empty parameter, and for a number that is not the caller's.
    """
    problems: dict[str, str] = {}
    for name, values in query.lists():
        if name not in PARAMETERS:
            known = ", ".join(sorted(PARAMETERS))
            problems[name] = f"This query parameter is unknown. The known ones are: {known}."
        elif len(values) > 1:
            problems[name] = "This query parameter may be given only once."
        elif not values[0] or "\0" in values[0] or len(values[0]) > PARAMETERS[name]:
            problems[name] = f"Must have 1 to {PARAMETERS[name]} characters."
    types = frozenset(filter(None, (query.get("type") or "").split(",")))
    if "type" not in problems and (unknown := types - set(EVENT_TYPES)):
        first = min(unknown)
        problems["type"] = (
            f"Unknown: {first[:200]}.{did_you_mean(first, EVENT_TYPES)} Must be one of: {', '.join(EVENT_TYPES)}."
        )
    if problems:
        raise InvalidRequest.of(**problems)
    path = None
    if (given := query.get("filter")) is not None:
        try:
            path = filters.checked(orjson.loads(given))
        except orjson.JSONDecodeError:
            raise InvalidRequest.of(filter="Must be JSON.") from None
    if (number := query.get("phone_number_id")) is None:
        return Asked(types, caller.phone_number_ids, path)
    return Asked(types, frozenset(filter(None, [filtered_number(caller, number)])), path)


def place_of(last_event_id: str | None, *, tenant_id: UUID, environment: str) -> Statements[Position]:
    """The position from which the stream continues: that of `Last-Event-ID`, or without this header the current one.

    Raises InvalidRequest for a header that is not a position.
    """
    if not last_event_id:
        return (yield from present())
    position = yield from resumed(last_event_id, tenant_id=tenant_id, environment=environment)
    if position is None:
        raise InvalidRequest(
            "Last-Event-ID names no event of yours.",
            hint="Send the id of the last event of the stream, or the `id` of an event, or leave the header out.",
            details={"fields": {"Last-Event-ID": ["Names no event of yours."]}},
        )
    return (yield from _dated(position, tenant_id=tenant_id, environment=environment))


# --- `GET /v1/events/stream` for the OpenAPI document. The listener answers it (`web/stream_response.py`).
class EventStreamView(ResourceViewSet):
    """The events of the caller's environment as server-sent events."""

    tag = "Events"
    scope = KeyScope.EVENTS
    limited_actions = frozenset({"listen"})

    @extend_schema(
        operation_id="stream_events",
        summary="Listen to events as they happen",
        description="Returns a stream of server-sent events. `data` is the event exactly as webhooks deliver it, and "
        "`id` is the place in the stream. To continue without gaps, send the last `id` as `Last-Event-ID`. Each key "
        "has one stream: a second stream ends the first. A comment is sent every 15 seconds. The stream may end at any "
        "time: reconnect after `retry` milliseconds.",
        parameters=[
            OpenApiParameter("type", str, description="Event types, separated by commas."),
            OpenApiParameter("phone_number_id", str, description="Only events of the number with this id."),
            OpenApiParameter("filter", str, description="A filter by content, as JSON."),
            OpenApiParameter(
                "Last-Event-ID",
                str,
                OpenApiParameter.HEADER,
                description="The last `id` of the stream, or the `id` of an event; without it the stream begins now.",
            ),
        ],
        responses={
            (200, CONTENT_TYPE): OpenApiResponse(
                OpenApiTypes.STR, description="A stream of server-sent events."
            )
        },
    )
    def listen(self, request: Request) -> HttpResponse:
        raise AnsweredByListener
