"""Rate limit of an endpoint: each delivery gets a slot in time, and slots are the endpoint's rate apart.

The next free slot is `paced_until` of the endpoint's row, so all dispatchers share one limit. Slots are given out up to
a second ahead; the dispatcher that claimed a delivery sends it when its slot begins.
"""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.database.statements import Statements, uuids

AHEAD_SECONDS = 1.0
"""Longer than a dispatcher waits until it looks again (`POLL_SECONDS`), so slots are not left empty."""

# A row that the recorder or another claim holds gets no slot now: a claim that holds deliveries waits for nobody.
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
"""A delivery that is locked for a claim: its id, its endpoint, and more."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The deliveries that may be claimed now.

    `waits` says how many seconds each paced one waits for its slot, `closed` for how many seconds an endpoint that got
    fewer slots than it has deliveries will get none.
    """

    rows: list[Row]
    waits: dict[UUID, float]
    closed: dict[UUID, float]


def taking_slots(locked: Sequence[Row], paced: AbstractSet[UUID]) -> Statements[Slots]:
    """Give slots to deliveries of endpoints that have a rate; those without one are left for a later claim."""
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
