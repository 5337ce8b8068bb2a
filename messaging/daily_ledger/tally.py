"""Counts from the tables themselves: the ledger of a day, and the usage of a platform's tenants.

For each endpoint, the ledger's `accepted` counts events and the states count deliveries. The two agree exactly when
each event has one delivery and each delivery has its event. A dead event that a replay delivered counts as delivered.
Usage counts the events of each kind, and the deliveries, of a day or a month.

Counts run hour by hour, each over an index range of one tenant. A call has a time limit, and a process counts for one
call at a time. A day with millions of events exceeds the limit; the caller then requests single hours.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from gateway import ids
from gateway.api.access_log import SEND_ROUTES
from gateway.api.errors import InvalidRequest, TooManyInFlight
from gateway.clock import now
from gateway.database.distribution import of_tenant, together
from tenants.models import Tenant

SECONDS = 10.0
"""The time limit of one call, in seconds."""
FIRST_YEAR = 2000
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time, as a range of ids: `first` inclusive, `end` exclusive."""

    begin: datetime
    end: datetime

    @property
    def ids(self) -> dict[str, UUID]:
        """The parameters `first` and `end` of `id >= %(first)s AND id < %(end)s`."""
        return {"first": ids.first_at(self.begin), "end": ids.first_at(self.end)}

    def hours(self) -> Iterator["TimeSpan"]:
        """The hours of the span in order."""
        begin = self.begin
        while begin < self.end:
            end = min(begin + timedelta(hours=1), self.end)
            yield TimeSpan(begin, end)
            begin = end


def refusal_of(first: date, zone: tzinfo = UTC) -> str | None:
    """Why a day, or the month that begins with it, cannot be counted. None for a day since 2000 that has begun in
    `zone`.
    """
    if first.year < FIRST_YEAR:
        return f"Must be from {FIRST_YEAR} on."
    if first > now().astimezone(zone).date():
        return "Must not be in the future."
    return None


def day_of(day: date, hour: int | None = None, zone: tzinfo = UTC) -> TimeSpan:
    """A day in a time zone, or one hour of it."""
    begin = datetime(day.year, day.month, day.day, hour or 0, tzinfo=zone)
    if hour is None:
        return TimeSpan(begin.astimezone(UTC), (begin + timedelta(days=1)).astimezone(UTC))
    return TimeSpan(begin.astimezone(UTC), begin.astimezone(UTC) + timedelta(hours=1))


def month_of(first: date) -> TimeSpan:
    """The month in UTC that begins with a day."""
    following = (first + timedelta(days=32)).replace(day=1)
    return TimeSpan(day_of(first).begin, day_of(following).begin)


class Counting:
    """Runs the statements of one call within its time limit."""

    def __init__(self, narrower: InvalidRequest) -> None:
        self._narrower = narrower
        self._ends = time.monotonic() + SECONDS

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. When the time is up, raises the error that asks for a narrower range."""
        left = int((self._ends - time.monotonic()) * 1000)
        if left <= 0:
            raise self._narrower
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(left)])
                cursor.execute(statement, parameters)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                # Reset for tests, which run in a longer transaction.
                cursor.execute("SELECT set_config('statement_timeout', '0', true)")
                return found
        except OperationalError as error:
            if isinstance(error.__cause__, QueryCanceled):
                raise self._narrower from None
            raise


@contextmanager
def counting(*, instead: str) -> Iterator[Counting]:
    """Allow one call at a time to count in this process. `instead` says what to request when the time limit is reached.

    Raises TooManyInFlight while another call counts: figures can wait, and a process has few database connections.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise TooManyInFlight("Other figures are being counted. Try again.")
    try:
        yield Counting(InvalidRequest(f"There are too many events to count in one call. {instead}"))
    finally:
        _one_at_a_time.release()


STATES = ("delivered", "waiting", "dead", "expired")

# A fresh delivery's id has the same millisecond as its event's id, so one range of ids contains both.
_EVENTS = """
SELECT count(*), count(d.event_id) FROM (
    SELECT id FROM events
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND id >= %(first)s AND id < %(end)s
) e LEFT JOIN (
    SELECT DISTINCT event_id FROM webhook_deliveries
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND id >= %(first)s AND id < %(end)s
      AND NOT is_replay
) d ON d.event_id = e.id
"""
_ENDPOINTS = """
WITH original AS MATERIALIZED (
    SELECT endpoint_id, event_id, status, last_error FROM webhook_deliveries
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND id >= %(first)s AND id < %(end)s
      AND NOT is_replay
), saved AS (
    SELECT o.endpoint_id, count(*) FILTER (WHERE o.last_error IS DISTINCT FROM 'payload_expired') AS dead,
           count(*) FILTER (WHERE o.last_error = 'payload_expired') AS expired
    FROM original o CROSS JOIN LATERAL (
        SELECT 1 FROM webhook_deliveries r
        WHERE r.tenant_id = %(tenant_id)s AND r.event_id = o.event_id AND r.id >= %(first)s
          AND r.endpoint_id = o.endpoint_id AND r.is_replay AND r.status = 'delivered' LIMIT 1
    ) replayed
    WHERE o.status = 'dead' GROUP BY o.endpoint_id
), accepted AS (
    SELECT o.endpoint_id, count(DISTINCT e.id) AS events
    FROM original o JOIN events e ON e.id = o.event_id
    WHERE e.tenant_id = %(tenant_id)s AND e.id >= %(first)s AND e.id < %(end)s GROUP BY o.endpoint_id
)
SELECT o.endpoint_id, coalesce(max(a.events), 0),
       count(*) FILTER (WHERE o.status = 'delivered') + coalesce(max(s.dead + s.expired), 0),
       count(*) FILTER (WHERE o.status IN ('pending', 'failed')),
       count(*) FILTER (WHERE o.status = 'dead' AND o.last_error IS DISTINCT FROM 'payload_expired')
           - coalesce(max(s.dead), 0),
       count(*) FILTER (WHERE o.status = 'dead' AND o.last_error = 'payload_expired')
           - coalesce(max(s.expired), 0)
FROM original o LEFT JOIN saved s USING (endpoint_id) LEFT JOIN accepted a USING (endpoint_id)
GROUP BY o.endpoint_id
"""
_IS_SENT = "(e.wamid IS NOT NULL OR e.status = 'accepted')"
"""SQL: whether an event reports a sent message. An erased event has only its status, and events that were written
before that column existed have only the wamid.
"""
# Counts sent messages, and events with the wamid of an earlier event: such a message was recorded twice. A message that
# was sent twice has two wamids and does not appear here.
_SENDS = f"""
SELECT count(*) FILTER (WHERE {_IS_SENT}), count(*) FILTER (WHERE e.wamid IS NOT NULL AND EXISTS (
    SELECT 1 FROM events other WHERE other.tenant_id = %(tenant_id)s AND other.wamid = e.wamid AND other.id < e.id
      AND other.id >= %(earliest)s AND other.type = 'message.outbound' AND other.environment = e.environment
))
FROM events e
WHERE e.tenant_id = %(tenant_id)s AND e.environment = %(environment)s AND e.type = 'message.outbound'
  AND e.id >= %(first)s AND e.id < %(end)s
"""  # noqa: S608 - only a condition is formatted in
# An interrupted item has no time of sending, so the time at which its outcome was recorded counts.
_ITEMS = """
SELECT count(*) FILTER (WHERE i.response IS NULL OR position('"outcome_unknown"'::bytea IN i.response) = 0),
       count(*) FILTER (WHERE position('"outcome_unknown"'::bytea IN i.response) > 0)
FROM messaging_batch b JOIN messaging_batchitem i ON i.batch_id = b.id
WHERE b.tenant_id = %(tenant_id)s AND b.environment = %(environment)s
  AND b.id < %(end)s AND (b.completed_at >= %(begin)s OR b.completed_at IS NULL) AND i.status = 'failed'
  AND (i.sent_at >= %(begin)s AND i.sent_at < %(ends)s
       OR i.sent_at IS NULL AND i.event_id >= %(first)s AND i.event_id < %(end)s)
"""
# A rejected send has no event, so the request log is counted. A repeat that gets the stored answer has no
# `upstream_ms`, so it is not counted.
_SINGLE = """
SELECT count(*) FILTER (WHERE error_code IS DISTINCT FROM 'meta_unreachable'),
       count(*) FILTER (WHERE error_code = 'meta_unreachable')
FROM api_requests
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND id >= %(first)s AND id < %(end)s
  AND method = 'POST' AND route = ANY(%(routes)s) AND status >= 400 AND upstream_ms > 0
"""
DOUBLE_WITHIN = timedelta(days=8)
"""How far before a span to search for an earlier event with the same wamid. Without a limit, the search would read
every partition. The only known cause of duplicates, a result that is written again, occurs within minutes.
"""


@dataclass
class EndpointLine:
    """The outcome of a day's events at one endpoint."""

    accepted: int = 0
    states: Counter[str] = field(default_factory=Counter)

    @property
    def balanced(self) -> bool:
        return self.accepted == self.states.total()


@dataclass
class Ledger:
    """The ledger of a day or of one hour."""

    events: int = 0
    routed: int = 0
    endpoints: dict[UUID, EndpointLine] = field(default_factory=lambda: defaultdict(EndpointLine))
    sent: int = 0
    doubled: int = 0
    failed: int = 0
    unknown: int = 0
    refused: int | None = None
    """Single sends that the upstream refused. None for a span that the request log does not cover."""
    unanswered: int | None = None

    @property
    def unwanted(self) -> int:
        """Events to which no endpoint was subscribed when they were published."""
        return self.events - self.routed

    @property
    def balanced(self) -> bool:
        """Whether the counts of every endpoint agree, and no send was recorded twice."""
        return not self.doubled and all(line.balanced for line in self.endpoints.values())


def count_events(counting: Counting, *, tenant_id: UUID, environment: str, span: TimeSpan) -> Ledger:
    """Count a span from the tables, hour by hour."""
    ledger = Ledger()
    scope = {"tenant_id": tenant_id, "environment": environment}
    earliest = ids.first_at(span.begin - DOUBLE_WITHIN)
    for hour in span.hours():
        here = {**scope, **hour.ids, "earliest": earliest, "begin": hour.begin, "ends": hour.end}
        ((events, routed),) = counting.rows(_EVENTS, here)
        ledger.events += events
        ledger.routed += routed
        for endpoint_id, accepted, *states in counting.rows(_ENDPOINTS, here):
            line = ledger.endpoints[endpoint_id]
            line.accepted += accepted
            line.states.update(dict(zip(STATES, states, strict=True)))
        ((sent, doubled),) = counting.rows(_SENDS, here)
        ledger.sent += sent
        ledger.doubled += doubled
        ((failed, unknown),) = counting.rows(_ITEMS, here)
        ledger.failed += failed
        ledger.unknown += unknown
    if _is_logged(span):
        here = {**scope, **span.ids, "routes": list(SEND_ROUTES)}
        ((ledger.refused, ledger.unanswered),) = counting.rows(_SINGLE, here)
    return ledger


def _is_logged(span: TimeSpan) -> bool:
    """Whether the request log still has all calls of a span."""
    kept = timedelta(days=settings.REQUEST_LOG_DAYS)
    return bool(kept) and span.begin >= now() - kept


COLUMNS = ("sent", "received", "statuses", "events", "deliveries", "delivered")

# One index range for each tenant and kind, so that only a tenant's own events are read for its line.
_USAGE = f"""
SELECT t.id, sent.n, received.n, statuses.n, everything.n, delivery.n, delivery.delivered
FROM unnest(%(owners)s::uuid[], %(environments)s::text[]) AS t (id, environment)
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e
    WHERE {of_tenant("e")} AND e.tenant_id = t.id AND e.environment = t.environment
      AND e.type = 'message.outbound' AND {_IS_SENT} AND e.id >= %(first)s AND e.id < %(end)s
) sent
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e
    WHERE {of_tenant("e")} AND e.tenant_id = t.id AND e.environment = t.environment
      AND e.type = 'message.inbound' AND e.id >= %(first)s AND e.id < %(end)s
) received
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e
    WHERE {of_tenant("e")} AND e.tenant_id = t.id AND e.environment = t.environment
      AND e.type = 'message.status' AND e.id >= %(first)s AND e.id < %(end)s
) statuses
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM events e
    WHERE {of_tenant("e")} AND e.tenant_id = t.id AND e.environment = t.environment
      AND e.id >= %(first)s AND e.id < %(end)s
) everything
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE d.status = 'delivered') AS delivered
    FROM webhook_deliveries d
    WHERE {of_tenant("d")} AND d.tenant_id = t.id AND d.environment = t.environment
      AND d.id >= %(first)s AND d.id < %(end)s
) delivery
"""  # noqa: S608 - only conditions are formatted in


def count_usage(counting: Counting, *, tenants: Sequence[Tenant], span: TimeSpan) -> list[dict[str, Any]]:
    """A line for each tenant, in the given order. A sandbox tenant's line counts its sandbox. All other lines count the
    live environment.
    """
    found: dict[UUID, list[Any]] = {}
    for tenant_id, group in together(tenants, attrgetter("id")):
        values = {
            "tenant_id": tenant_id,
            "owners": [tenant.id for tenant in group],
            "environments": ["test" if tenant.sandbox else "live" for tenant in group],
            **span.ids,
        }
        found |= {owner: figures for owner, *figures in counting.rows(_USAGE, values)}
    return [
        {
            "tenant_id": tenant.id,
            "name": tenant.name,
            "external_ref": tenant.external_ref,
            **dict(zip(COLUMNS, found[tenant.id], strict=True)),
        }
        for tenant in tenants
    ]
