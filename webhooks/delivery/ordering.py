"""Which deliveries of an endpoint may be sent: the order of its customers' events, and its rate limit.

Ordered delivery: for each customer of an ordered endpoint, only the oldest open event is under way. A delivery to an
ordered endpoint carries `customer_key`. The index `delivery_in_order` is the endpoint's queue of customers, each with
its open events in order. A claim skips from one customer to the next, so one customer's waiting events do not slow down
other customers. The head, a customer's oldest open event, may be claimed when it is due and none of the customer's
events is under way. So a retry holds back only its own customer. The events behind the head are claimed with it, as its
line. The dispatcher sends each of them as soon as the previous event has arrived.

Rate limit: each delivery gets a slot in time. The endpoint's rate sets the distance between slots. `paced_until` in the
endpoint's row is the next free slot, so all dispatchers share one limit. Slots are given out up to a second ahead. The
dispatcher that claimed a delivery sends it when its slot begins.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from django.conf import settings

from gateway.database.distribution import of_tenant, together
from gateway.database.statements import Statements, id_range, uuids

AHEAD_SECONDS = 1.0
"""How far ahead slots are given out. This is longer than a dispatcher waits between two polls (`POLL_SECONDS`), so that
no slot stays empty until the next poll.
"""

# An endpoint whose row is locked, by the recorder or another claim, gets no slots now, because a claim that has locked
# deliveries must not wait.
_TAKE_SLOTS = """
WITH paced AS (
    SELECT e.id, e.rate_per_second::float8 AS rate, GREATEST(e.paced_until, now()) AS first, wanted.rows
    FROM webhooks_endpoint e JOIN unnest(%s::uuid[], %s::int[]) AS wanted (id, rows) ON wanted.id = e.id
    WHERE e.rate_per_second IS NOT NULL
    ORDER BY e.id FOR NO KEY UPDATE OF e SKIP LOCKED
), slots AS (
    SELECT id, rate, first, GREATEST(0, LEAST(
        rows, floor(extract(epoch FROM now() - first) * rate + %s * rate) + 1
    ))::int AS count FROM paced
)
UPDATE webhooks_endpoint e SET paced_until = slots.first + make_interval(secs => slots.count / slots.rate)
FROM slots WHERE e.id = slots.id
RETURNING e.id, slots.count, extract(epoch FROM slots.first - now())::float8, slots.rate
"""

Row = tuple[Any, ...]
"""A delivery that is locked for a claim: its id, its endpoint, and further columns."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The deliveries that may be claimed now.

    `waits` has the seconds that each rate-limited delivery waits for its slot. `closed` has the endpoints that got
    fewer slots than they have deliveries, with the seconds until they get more.
    """

    rows: list[Row]
    waits: dict[UUID, float]
    closed: dict[UUID, float]


def taking_slots(locked: Sequence[Row], paced: AbstractSet[UUID]) -> Statements[Slots]:
    """Give slots to deliveries of endpoints with a rate limit. A delivery without a slot is left to a later claim."""
    wanted = Counter(endpoint_id for _, endpoint_id, *_ in locked if endpoint_id in paced)
    if not wanted:
        return Slots(list(locked), {}, {})
    found = yield _TAKE_SLOTS, [uuids(wanted), list(wanted.values()), AHEAD_SECONDS]
    slots = {endpoint_id: (count, first, rate) for endpoint_id, count, first, rate in found}
    rows: list[Row] = []
    waits: dict[UUID, float] = {}
    used: Counter[UUID] = Counter()
    for row in locked:
        delivery_id, endpoint_id, *_ = row
        if endpoint_id in paced:
            count, first, rate = slots.get(endpoint_id, (0, 0.0, 1.0))
            if used[endpoint_id] >= count:
                continue
            waits[delivery_id] = first + used[endpoint_id] / rate
            used[endpoint_id] += 1
        rows.append(row)
    closed = {
        endpoint_id: first + count / rate - AHEAD_SECONDS
        for endpoint_id, (count, first, rate) in slots.items()
        if count < wanted[endpoint_id]
    }
    return Slots(rows, waits, closed)


SCANNED_CUSTOMERS = 2_000
"""The maximum number of customers that one claim checks. Each claim begins with a random customer."""
LONGEST_LINE = 128
LINE_SECONDS = 5.0
"""How long a line may take. After this time, its remaining deliveries are released, because they were claimed under an
older state of the endpoint.
"""
SCANNED_ROWS = 500
"""The maximum number of an endpoint's due deliveries that one claim searches for deliveries without a customer key.
Deliveries without a key were created before the endpoint was ordered, and are due before all others.
"""
_KEYS = -(2**63) + 1, 2**63 - 1

# An ordered endpoint has one claim at a time, so that each claim sees the leases of the previous one. Otherwise one
# worker could claim an older event that was committed late, while another claims a newer event of the same customer.
_ALONE = """
SELECT id FROM unnest(%s::uuid[]) AS ready (id)
WHERE pg_try_advisory_xact_lock(hashtextextended('ordered:' || id::text, 0))
"""

_OPEN = f"""{of_tenant("d")} AND d.endpoint_id = share.endpoint_id
    AND d.status IN ('pending', 'failed')"""
_NEXT = f"""
    SELECT d.customer_key, d.next_attempt_at, d.is_replay FROM webhook_deliveries d
    WHERE {_OPEN} AND d.customer_key {{after}} AND d.customer_key <= span.last
    ORDER BY d.customer_key, d.event_id, d.id LIMIT 1
"""  # noqa: S608 - only parts of statements are formatted in
# Leases are read too, because an older event that was committed late must not be sent beside a newer event under way.
# The index `delivery_due` finds them by their times. A condition on the customer would read all deliveries that the
# customer has waiting. Heads that are replays come after all others. The search ends when there are enough heads.
_LINES = f"""
WITH share AS (
    SELECT * FROM unnest(%(endpoints)s::uuid[], %(heads)s::int[], %(rows)s::int[]) AS s (endpoint_id, heads, rows)
), head AS MATERIALIZED (
    SELECT share.endpoint_id, share.rows, ready.customer_key, ready.is_replay
    FROM share
    CROSS JOIN LATERAL (
        SELECT array_remove(ARRAY(
            SELECT d.customer_key FROM webhook_deliveries d
            WHERE {_OPEN} AND d.next_attempt_at > now() AND d.leased_until > now()
              AND d.next_attempt_at <= now() + make_interval(secs => %(lease)s)
        ), NULL) AS customer_keys
    ) AS under_way
    CROSS JOIN LATERAL (
        VALUES (%(start)s::bigint, %(last)s::bigint), (%(first)s - 1, %(start)s - 1)
    ) AS span (first, last)
    CROSS JOIN LATERAL (
        WITH RECURSIVE customer AS (
            (SELECT found.*, 1 AS place FROM ({_NEXT.format(after=">= span.first")}) AS found)
            UNION ALL
            SELECT next.*, customer.place + 1 FROM customer
            CROSS JOIN LATERAL ({_NEXT.format(after="> customer.customer_key")}) AS next
            WHERE customer.place < %(scanned)s
        ), due AS (
            SELECT customer_key, is_replay FROM customer
            WHERE next_attempt_at <= now() AND customer_key <> ALL(under_way.customer_keys)
        )
        SELECT * FROM due WHERE NOT is_replay UNION ALL SELECT * FROM due WHERE is_replay
        LIMIT share.heads
    ) AS ready
)
SELECT share.endpoint_id, share.customer_key, share.is_replay, line.event_id, line.id
FROM (SELECT head.*, count(*) OVER (PARTITION BY endpoint_id) AS heads FROM head) AS share
CROSS JOIN LATERAL (
    SELECT d.event_id, d.id FROM webhook_deliveries d WHERE {_OPEN} AND d.customer_key = share.customer_key
    ORDER BY d.event_id, d.id LIMIT least(%(longest)s, greatest(1, share.rows / share.heads))
) AS line
UNION ALL
SELECT share.endpoint_id, NULL, keyless.is_replay, keyless.event_id, keyless.id
FROM share
CROSS JOIN LATERAL (
    SELECT event_id, id, is_replay FROM (
        SELECT d.event_id, d.id, d.is_replay, d.customer_key FROM webhook_deliveries d
        WHERE {_OPEN} AND d.next_attempt_at <= now() ORDER BY d.next_attempt_at LIMIT %(due)s
    ) AS due WHERE customer_key IS NULL ORDER BY is_replay LIMIT share.heads
) AS keyless
"""  # noqa: S608 - only parts of statements are formatted in

_LOCK = f"""
SELECT id, leased_until IS NOT NULL FROM webhook_deliveries
WHERE {of_tenant("webhook_deliveries")} AND id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND status IN ('pending', 'failed')
  AND (next_attempt_at <= now() OR (
      endpoint_id = ANY(%(collecting)s::uuid[]) AND status = 'pending' AND attempts = 0 AND leased_until IS NULL
  ))
FOR UPDATE SKIP LOCKED
"""  # noqa: S608 - only conditions are formatted in
"""A delivery that is locked for a claim: its id, its endpoint, and whether a lease of it has run out."""


class Locked(NamedTuple):
    """The locked heads, and the rows behind each head by the head's id."""

    heads: list[Row]
    behind: Mapping[UUID, list[Row]]


def locking(
    shares: Mapping[UUID, int],
    rows: int,
    tenant_of: Mapping[UUID, UUID],
    *,
    single: Collection[UUID],
    collecting: Collection[UUID],
) -> Statements[Locked]:
    """Lock due deliveries of ordered endpoints: the heads of customers' lines, as many as each endpoint's share, and
    the lines behind these heads. Heads that are replays get what the others leave of the share.

    `tenant_of` has the tenant of each endpoint. All lines together have about `rows` rows. At the endpoints `single`,
    each line has one row. At the endpoints `collecting`, which collect a customer's messages, the deliveries behind a
    due head are due too.
    """
    if not shares:
        return Locked([], {})
    alone = [endpoint_id for (endpoint_id,) in (yield _ALONE, [uuids(shares)])]
    if not alone:
        return Locked([], {})
    found: list[Row] = []
    for tenant_id, endpoints in together(alone, tenant_of.__getitem__):
        found += yield (
            _LINES,
            {
                "tenant_id": tenant_id,
                "endpoints": uuids(endpoints),
                "heads": [shares[endpoint_id] for endpoint_id in endpoints],
                "rows": [1 if endpoint_id in single else rows // len(alone) for endpoint_id in endpoints],
                "start": random.randint(*_KEYS),  # noqa: S311 - a place to begin, no secret
                "first": _KEYS[0],
                "last": _KEYS[1],
                "lease": settings.DELIVERY_LEASE_SECONDS,
                "scanned": SCANNED_CUSTOMERS,
                "longest": LONGEST_LINE,
                "due": SCANNED_ROWS,
            },
        )
    lines: defaultdict[tuple[bool, UUID, Any], list[tuple[UUID, UUID]]] = defaultdict(list)
    for endpoint_id, customer_key, is_replay, event_id, delivery_id in found:
        key = delivery_id if customer_key is None else customer_key
        lines[is_replay, endpoint_id, key].append((event_id, delivery_id))
    wanted: list[tuple[UUID, list[UUID]]] = []
    left = dict(shares)
    in_turn = sorted(random.sample(list(lines), len(lines)), key=itemgetter(0))
    for is_replay, endpoint_id, key in in_turn:
        if left[endpoint_id] > 0:
            left[endpoint_id] -= 1
            events = sorted(lines[is_replay, endpoint_id, key])
            wanted.append((endpoint_id, [delivery_id for _, delivery_id in events]))
    if not wanted:
        return Locked([], {})
    rescued: dict[UUID, bool] = {}
    for tenant_id, group in together(wanted, lambda line: tenant_of[line[0]]):
        ids = [delivery_id for _, line in group for delivery_id in line]
        locked = yield (
            _LOCK,
            {
                "tenant_id": tenant_id,
                "ids": uuids(ids),
                "collecting": uuids(collecting),
                **id_range(ids),
            },
        )
        rescued.update((row[0], row[1]) for row in locked)
    heads: list[Row] = []
    behind: dict[UUID, list[Row]] = {}
    for endpoint_id, line in wanted:
        # Nothing is claimed behind a row that is not due, or that another process has locked.
        claimable = list(_until_gap(endpoint_id, line, rescued))
        if claimable:
            heads.append(claimable[0])
            behind[claimable[0][0]] = claimable[1:]
    return Locked(heads, behind)


def _until_gap(endpoint_id: UUID, line: Sequence[UUID], rescued: Mapping[UUID, bool]) -> Iterable[Row]:
    """The rows of a line before the first one that was not locked."""
    for delivery_id in line:
        if delivery_id not in rescued:
            return
        yield delivery_id, endpoint_id, rescued[delivery_id]


class Ordered(Protocol):
    """The facts of a claimed delivery that a line needs."""

    @property
    def id(self) -> UUID:
        """The delivery's id."""
        ...

    @property
    def event_id(self) -> UUID:
        """The event's id. Ids order the events of a customer."""
        ...

    @property
    def endpoint_id(self) -> UUID:
        """The endpoint's id."""
        ...

    @property
    def customer_key(self) -> int | None:
        """The key of the delivery's customer. None if no other delivery waits for this one."""
        ...


Delivery = TypeVar("Delivery", bound=Ordered)


class Lines:
    """Claimed deliveries that wait for the one before them. They occupy no sender and no room."""

    def __init__(self) -> None:
        self._lines: dict[tuple[UUID, int], deque[Any]] = {}

    def together(self, deliveries: Iterable[Delivery]) -> list[list[Delivery]]:
        """Group deliveries by customer, each group in order. A group is sent in one request."""
        lines: defaultdict[tuple[UUID, int | UUID], list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            key = delivery.id if delivery.customer_key is None else delivery.customer_key
            lines[delivery.endpoint_id, key].append(delivery)
        return [sorted(line, key=lambda each: (each.event_id, each.id)) for line in lines.values()]

    def heads(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """The deliveries that may be sent now. The others wait in their lines."""
        heads: list[Delivery] = []
        lines: defaultdict[tuple[UUID, int], list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            if delivery.customer_key is None:
                heads.append(delivery)
            else:
                lines[delivery.endpoint_id, delivery.customer_key].append(delivery)
        for key, line in lines.items():
            first, *others = sorted(line, key=lambda each: (each.event_id, each.id))
            heads.append(first)
            if others:
                self._lines.setdefault(key, deque()).extend(others)
        return heads

    def has_next(self, delivery: Ordered) -> bool:
        """Whether another delivery waits for this delivery."""
        return (
            delivery.customer_key is not None and (delivery.endpoint_id, delivery.customer_key) in self._lines
        )

    def take_next(self, delivery: Ordered) -> Any:
        """Remove and return the next delivery of the line, once this delivery has arrived."""
        key = delivery.endpoint_id, delivery.customer_key or 0
        line = self._lines[key]
        following = line.popleft()
        if not line:
            del self._lines[key]
        return following

    def break_off(self, delivery: Ordered) -> list[Any]:
        """Remove and return all deliveries that wait for this delivery. They will not be sent now."""
        return list(self._lines.pop((delivery.endpoint_id, delivery.customer_key or 0), ()))

    def break_all(self) -> list[Any]:
        """Remove and return all waiting deliveries."""
        waiting = [delivery for line in self._lines.values() for delivery in line]
        self._lines.clear()
        return waiting
