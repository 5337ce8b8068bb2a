"""The statements that claim due deliveries: in bulk, fair to every endpoint, with a lease for the claiming worker.

The lease is `next_attempt_at` itself: a claimed delivery is due again only when the lease runs out (at least once).
`leased_by` names the worker that holds the lease. When that worker has died, its leases end at once. Only the
database's time counts, so a worker's clock does not matter.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from django.db import transaction

from gateway.database.distribution import of_tenant, together
from gateway.database.live_workers import DeadWorkers
from gateway.database.statements import Statements, id_range, run, uuids
from tenants.tenant_status import SERVED
from webhooks.delivery import monitoring, ordering
from webhooks.delivery.caps import Room, Unserved
from webhooks.delivery.ordering import taking_slots
from webhooks.events import envelope
from webhooks.events.envelope import URGENT_KEY, URGENT_KEY_SQL, Envelope
from webhooks.events.publish import HandedOver
from webhooks.open_deliveries import BUSY, TARGET_COLUMNS, StoredTarget
from webhooks.requests.signed_request import Target, UnreadableSecret, target

log = structlog.get_logger(__name__)

_tenant_of = attrgetter("tenant_id")

BURY_ROWS = 5_000

SECRET_RETRY_SECONDS = 15 * 60
"""How long an endpoint's deliveries wait when its secret cannot be read. Then the secret is read again."""

# An endpoint with a closed circuit gets a share. An endpoint whose open circuit has waited long enough gets a single
# probe. The result has at least one row, which carries the database's time.
_READY = f"""{BUSY}
SELECT clock.*, ready.* FROM (SELECT now(), NOT EXISTS (SELECT 1 FROM busy)) AS clock LEFT JOIN (
    SELECT busy.endpoint_id, e.id IS NULL, e.circuit_open_until IS NOT NULL, busy.tenant_id,
           e.secret_unreadable_since IS NOT NULL, e.rate_per_second IS NOT NULL, e.ordered,
           e.circuit_generation, {TARGET_COLUMNS}
    FROM busy
    LEFT JOIN webhooks_endpoint e ON e.id = busy.endpoint_id
    LEFT JOIN tenants_tenant t ON t.id = e.tenant_id
    WHERE e.id IS NULL OR (e.status = 'active' AND {SERVED.format(row="e")} AND busy.due_at <= now()
                           AND (e.circuit_open_until IS NULL OR e.circuit_open_until <= now()))
) AS ready ON true
"""  # noqa: S608 - only column names are formatted in

# Locks the first due rows of each ready endpoint, by the index of `BUSY`. Skips rows that another worker is claiming.
# The statement runs once for fresh deliveries, and then once for replays. An endpoint never has many replays waiting
# (replay.py).
_LOCK = f"""
SELECT due.id, share.endpoint_id, due.rescued
FROM unnest(%(endpoints)s::uuid[], %(rows)s::int[]) AS share (endpoint_id, rows)
CROSS JOIN LATERAL (
    SELECT d.id, d.leased_until IS NOT NULL AS rescued FROM webhook_deliveries d
    WHERE {of_tenant("d")} AND d.endpoint_id = share.endpoint_id
      AND d.status IN ('pending', 'failed') AND d.next_attempt_at <= now() AND d.is_replay = %(is_replay)s
    ORDER BY d.next_attempt_at LIMIT share.rows
    FOR UPDATE SKIP LOCKED
) due
"""  # noqa: S608 - only conditions are formatted in

# Locks the deliveries of calls at endpoints whose due deliveries exceed their share, by the index `delivery_in_order`.
_LOCK_URGENT = f"""
SELECT due.id, ready.endpoint_id, due.rescued
FROM unnest(%(endpoints)s::uuid[], %(rows)s::int[]) AS ready (endpoint_id, rows)
CROSS JOIN LATERAL (
    SELECT d.id, d.leased_until IS NOT NULL AS rescued FROM webhook_deliveries d
    WHERE {of_tenant("d")} AND d.endpoint_id = ready.endpoint_id
      AND d.status IN ('pending', 'failed') AND d.customer_key = {URGENT_KEY_SQL}
      AND d.next_attempt_at <= now() AND d.id <> ALL(%(taken)s::uuid[])
    ORDER BY d.event_id LIMIT ready.rows
    FOR UPDATE SKIP LOCKED
) due
"""  # noqa: S608 - only conditions and a number are formatted in

# Finds the rows by primary key. The range of ids excludes partitions.
_LEASE = f"""
UPDATE webhook_deliveries
SET next_attempt_at = now() + make_interval(secs => %(lease)s),
    leased_until = now() + make_interval(secs => %(lease)s), leased_by = %(holder)s
WHERE {of_tenant("webhook_deliveries")} AND id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
RETURNING id, event_id, endpoint_id, tenant_id, event_type, attempts, customer_key, is_replay, leased_until
"""  # noqa: S608 - only conditions are formatted in

# In the index, leased deliveries are among the retries that are due within the length of a lease from now.
_LEASED = """
    SELECT {columns} FROM busy CROSS JOIN LATERAL (
        SELECT d.id, d.tenant_id, d.leased_by FROM webhook_deliveries d
        WHERE d.tenant_id = busy.tenant_id AND d.endpoint_id = busy.endpoint_id
          AND d.status IN ('pending', 'failed') AND d.next_attempt_at > now()
          AND d.next_attempt_at <= now() + make_interval(secs => %(lease)s) AND d.leased_until > now()
    ) AS leased WHERE leased.leased_by {holder}
"""
HOLDERS = BUSY + _LEASED.format(columns="DISTINCT leased.leased_by", holder="IS NOT NULL")
_LEASES_OF = BUSY + _LEASED.format(
    columns="leased.id, leased.tenant_id", holder="= ANY(%(holders)s::bigint[])"
)
_END_LEASES = f"""
UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = now()
WHERE {of_tenant("webhook_deliveries")} AND id = ANY(%(ids)s::uuid[])
  AND leased_until > now() AND leased_by = ANY(%(holders)s::bigint[])
"""  # noqa: S608 - only conditions are formatted in

# Transfers leases of deliveries to this worker, if another dispatcher should have received the deliveries but did not
# in time.
_TAKE_LEASES = f"""
UPDATE webhook_deliveries d SET leased_by = %(holder)s
FROM unnest(%(ids)s::uuid[], %(until)s::timestamptz[]) AS given (id, until)
WHERE {of_tenant("d")} AND d.id = given.id AND d.leased_until = given.until
  AND d.id BETWEEN %(first)s AND %(last)s AND d.status = 'pending' AND d.attempts = 0
RETURNING d.id
"""  # noqa: S608 - only conditions are formatted in

_PROBE = """
UPDATE webhooks_endpoint SET circuit_open_until = now() + make_interval(secs => %s)
WHERE id = ANY(%s::uuid[]) AND circuit_open_until <= now()
RETURNING id
"""

_BURY = f"""
UPDATE webhook_deliveries SET status = 'dead', last_error = 'endpoint_deleted', next_attempt_at = NULL,
    leased_until = NULL, dead_at = now()
WHERE {of_tenant("webhook_deliveries")}
  AND id = ANY(ARRAY(
    SELECT id FROM webhook_deliveries
    WHERE {of_tenant("webhook_deliveries")} AND endpoint_id = ANY(%(endpoints)s::uuid[])
      AND status IN ('pending', 'failed') LIMIT %(rows)s
    FOR UPDATE SKIP LOCKED
  ))
RETURNING 1
"""  # noqa: S608 - only conditions are formatted in

# Locks the rows in the order of their ids, so that two workers never deadlock.
_PUT_OFF_ENDPOINTS = """
UPDATE webhooks_endpoint SET circuit_open_until = now() + make_interval(secs => %s),
    secret_unreadable_since = coalesce(secret_unreadable_since, now())
WHERE id IN (SELECT id FROM webhooks_endpoint WHERE id = ANY(%s::uuid[]) ORDER BY id FOR NO KEY UPDATE)
"""
_PUT_OFF_DELIVERIES = f"""
UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = NULL, last_error = 'secret_unreadable'
WHERE {of_tenant("webhook_deliveries")} AND id = ANY(%(ids)s::uuid[])
"""  # noqa: S608 - only conditions are formatted in
_READABLE_AGAIN = """
UPDATE webhooks_endpoint SET secret_unreadable_since = NULL
WHERE id IN (SELECT id FROM webhooks_endpoint WHERE id = ANY(%s::uuid[]) ORDER BY id FOR NO KEY UPDATE)
"""


class Claimed(msgspec.Struct, frozen=True):
    """A delivery that belongs to this worker until the lease ends. `envelope` is None when the body is
    past retention.
    """

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant_id: UUID
    event_type: str
    attempts: int
    claimed_at: datetime
    """The database's time at the claim. The timestamp of the signature is computed from it."""
    claimed_monotonic: float
    target: Target
    probe: bool
    circuit_generation: int
    envelope: Envelope | None
    send_at: float = 0.0
    """When the delivery's slot begins, on the monotonic clock. 0 if the endpoint has no rate limit."""
    customer_key: int | None = None
    """The key of the customer at an ordered endpoint. The customer's next event waits for this delivery."""
    is_urgent: bool = False
    """Whether the delivery belongs to a call, and so overtakes other deliveries."""
    is_held: bool = False
    """Whether the delivery may have waited on purpose: a replay, or an endpoint with a rate limit or an order."""

    @property
    def size(self) -> int:
        """The approximate number of bytes of the body."""
        return self.envelope.size if self.envelope else 0


@dataclass(frozen=True, slots=True)
class DatabaseClock:
    """The database's time, converted to the monotonic clock of this process."""

    offset: float

    @classmethod
    def at(cls, moment: datetime) -> Self:
        """The clock of a database whose time now is `moment`."""
        return cls(moment.timestamp() - time.monotonic())

    def monotonic(self, moment: datetime) -> float:
        """The value of `time.monotonic()` at a moment of the database's time."""
        return moment.timestamp() - self.offset


class Claim(NamedTuple):
    """The result of a claim, and which further deliveries may be due.

    `closed` has the endpoints whose rate limit allows no more deliveries now, and the seconds until it
    allows the next.
    """

    deliveries: list[Claimed]
    unserved: Unserved
    closed: Mapping[UUID, float] = MappingProxyType({})


class _Busy(NamedTuple):
    """An endpoint that has due deliveries."""

    endpoint_id: UUID
    is_deleted: bool
    is_half_open: bool
    tenant_id: UUID
    is_unreadable: bool
    """Whether the secret could not be read at the last attempt."""
    is_paced: bool
    is_ordered: bool
    circuit_generation: int
    stored: StoredTarget


BUSY_COLUMNS = len(_Busy._fields) - 1


class Ready(NamedTuple):
    """The endpoints that have due deliveries, and the database's time. `is_quiet` means that no delivery is open."""

    at: datetime
    is_quiet: bool
    endpoints: list[_Busy]


class _Leased(NamedTuple):
    """A row of `_LEASE`."""

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant_id: UUID
    event_type: str
    attempts: int
    customer_key: int | None
    is_replay: bool
    until: datetime


def claim(room: Room) -> list[Claimed]:
    """Claim due deliveries up to the room, shared fairly among their endpoints. Empty when nothing is due."""
    with transaction.atomic():
        return run(claiming(run(finding_ready()), room)).deliveries


def ending_leases_of_dead(dead_workers: DeadWorkers) -> Statements[bool]:
    """The statements that end the leases of dead workers, to be run in a separate transaction.

    `dead_workers` must have been created with `HOLDERS`. Returns whether there was a dead worker.
    """
    values = {"lease": settings.DELIVERY_LEASE_SECONDS}
    dead = yield from dead_workers.finding(values)
    if dead:
        leases = yield _LEASES_OF, {**values, "holders": dead}
        for tenant_id, group in together(leases, itemgetter(1)):
            ended = [delivery_id for delivery_id, _ in group]
            yield _END_LEASES, {"tenant_id": tenant_id, "ids": uuids(ended), "holders": dead}
    return bool(dead)


def finding_ready() -> Statements[Ready]:
    """The statement that finds the endpoints with deliveries to claim."""
    rows = yield _READY, None
    endpoints = [
        _Busy._make((*columns[:BUSY_COLUMNS], StoredTarget(*columns[BUSY_COLUMNS:])))
        for _, _, *columns in rows
        if columns[0] is not None
    ]
    at, is_quiet, *_ = rows[0]
    return Ready(at, is_quiet, endpoints)


def claiming(found: Ready, room: Room, holder: int | None = None) -> Statements[Claim]:
    """The statements that claim deliveries of the endpoints in `found`, to be run in a separate transaction.

    `holder` is the registered worker that holds the leases.
    """
    orphaned = [each for each in found.endpoints if each.is_deleted]
    for tenant_id, deleted in together(orphaned, _tenant_of):
        endpoints = uuids(each.endpoint_id for each in deleted)
        buried = yield _BURY, {"tenant_id": tenant_id, "endpoints": endpoints, "rows": BURY_ROWS}
        monitoring.DEAD.add(len(buried), label="endpoint_deleted")
    ready = [each for each in found.endpoints if not each.is_deleted]
    probing = {each.endpoint_id for each in ready if each.is_half_open}
    generations = {each.endpoint_id: each.circuit_generation for each in ready}
    # Shuffled, so that when a tenant reaches its cap, the endpoint that comes last is not always the same one.
    random.shuffle(ready)
    shares = room.shares([(each.endpoint_id, each.tenant_id, each.is_half_open) for each in ready])
    ordered = {each.endpoint_id for each in ready if each.is_ordered}
    paced = {each.endpoint_id for each in ready if each.is_paced}
    tenant_of = {each.endpoint_id: each.tenant_id for each in ready}
    locked = yield from _locking(
        {each: rows for each, rows in shares.items() if each not in ordered}, tenant_of
    )
    of_share = Counter(endpoint_id for _, endpoint_id, _ in locked)
    backlogged = room.call_shares(
        (each.endpoint_id, each.tenant_id)
        for each in ready
        if of_share[each.endpoint_id] >= shares.get(each.endpoint_id, 0)
        and each.endpoint_id not in ordered | probing
    )
    taken = uuids(delivery_id for delivery_id, _, _ in locked)
    for values in _shared(backlogged, tenant_of):
        calls = yield _LOCK_URGENT, {**values, "taken": taken}
        locked = [*calls, *locked]
    in_order = yield from ordering.locking(
        {each: rows for each, rows in shares.items() if each in ordered},
        room.total,
        tenant_of,
        single=paced | probing,
        collecting={each.endpoint_id for each in ready if each.stored.quiet_seconds is not None},
    )
    locked += in_order.heads
    rows_of = Counter(endpoint_id for _, endpoint_id, _ in locked)
    unserved = room.unserved(
        tenant_of,
        rows_of,
        [
            each.endpoint_id
            for each in ready
            if not each.is_half_open
            and not each.is_paced
            and rows_of[each.endpoint_id] >= shares.get(each.endpoint_id, 0)
        ],
    )
    probes = [endpoint_id for endpoint_id in rows_of if endpoint_id in probing]
    if probes:
        # Only one worker gets the probe. The others leave the row to that worker.
        won = {
            endpoint_id for (endpoint_id,) in (yield _PROBE, [settings.DELIVERY_LEASE_SECONDS, uuids(probes)])
        }
        locked = [row for row in locked if row[1] not in probing or row[1] in won]
    slots = yield from taking_slots(locked, paced)
    if not slots.rows:
        return Claim([], unserved, slots.closed)
    claimed = [*slots.rows, *(row for head in slots.rows for row in in_order.behind.get(head[0], ()))]
    rows: list[tuple[Any, ...]] = []
    for tenant_id, group in together(claimed, lambda row: tenant_of[row[1]]):
        delivery_ids = [delivery_id for delivery_id, _, _ in group]
        rows += yield (
            _LEASE,
            {
                "lease": settings.DELIVERY_LEASE_SECONDS,
                "holder": holder,
                "tenant_id": tenant_id,
                "ids": uuids(delivery_ids),
                **id_range(delivery_ids),
            },
        )
    if rescued := sum(1 for _, _, lease_ran_out in claimed if lease_ran_out):
        monitoring.RESCUED.add(rescued)
    leased = [_Leased(*row) for row in rows]
    claimed_of = {row.endpoint_id for row in leased}
    targets = yield from _targets([each for each in ready if each.endpoint_id in claimed_of], found.at)
    envelopes = yield from envelope.loading({row.event_id: row.tenant_id for row in leased})
    deliveries = yield from _completing(
        leased, targets, envelopes, probing, generations, slots.waits, ordered=ordered, paced=paced
    )
    return Claim(deliveries, unserved, slots.closed)


def _completing(
    leased: Sequence[_Leased],
    targets: Mapping[UUID, Target],
    envelopes: Mapping[UUID, Envelope | None],
    probing: AbstractSet[UUID],
    generations: Mapping[UUID, int],
    waits: Mapping[UUID, float],
    *,
    ordered: AbstractSet[UUID],
    paced: AbstractSet[UUID],
) -> Statements[list[Claimed]]:
    """Leased deliveries with their targets, bodies and slots. Deliveries with an unreadable secret are put off.

    Rows that were created while their endpoint was `ordered` keep their customers' keys. If the endpoint is not ordered
    now, these deliveries form no lines.
    """
    moment = time.monotonic()
    monitoring.CLAIMED.add(len(leased))
    unsigned = [row for row in leased if row.endpoint_id not in targets]
    for tenant_id, group in together(unsigned, _tenant_of):
        yield _PUT_OFF_DELIVERIES, {"tenant_id": tenant_id, "ids": uuids(row.id for row in group)}
    lease = timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    return [
        Claimed(
            id=row.id,
            event_id=row.event_id,
            endpoint_id=row.endpoint_id,
            tenant_id=row.tenant_id,
            event_type=row.event_type,
            attempts=row.attempts,
            claimed_at=row.until - lease,
            claimed_monotonic=moment,
            target=targets[row.endpoint_id],
            probe=row.endpoint_id in probing,
            circuit_generation=generations[row.endpoint_id],
            envelope=envelopes.get(row.event_id),
            send_at=moment + waits[row.id] if row.id in waits else 0.0,
            customer_key=(
                row.customer_key if row.endpoint_id in ordered and row.customer_key != URGENT_KEY else None
            ),
            is_urgent=row.customer_key == URGENT_KEY,
            is_held=row.is_replay or row.endpoint_id in ordered or row.endpoint_id in paced,
        )
        for row in leased
        if row.endpoint_id in targets
    ]


def _targets(claimed: Sequence[_Busy], at: datetime) -> Statements[dict[UUID, Target]]:
    """The targets of endpoints by id. Leaves out endpoints whose secret cannot be read, and puts off their
    deliveries.
    """
    targets: dict[UUID, Target] = {}
    unreadable: list[UUID] = []
    for endpoint in claimed:
        try:
            targets[endpoint.endpoint_id] = target(endpoint.stored, endpoint.endpoint_id, at=at)
        except UnreadableSecret:
            unreadable.append(endpoint.endpoint_id)
    if unreadable:
        log.error(
            "endpoint_secrets_unreadable", endpoint_ids=[str(endpoint_id) for endpoint_id in unreadable]
        )
        yield _PUT_OFF_ENDPOINTS, [SECRET_RETRY_SECONDS, uuids(unreadable)]
    if repaired := [
        each.endpoint_id for each in claimed if each.is_unreadable and each.endpoint_id in targets
    ]:
        yield _READABLE_AGAIN, [uuids(repaired)]
    return targets


def _shared(shares: Mapping[UUID, int], tenant_of: Mapping[UUID, UUID]) -> Iterator[dict[str, Any]]:
    """The endpoints with their shares, as the parameters of each statement."""
    for tenant_id, endpoints in together(shares, tenant_of.__getitem__):
        rows = [shares[endpoint_id] for endpoint_id in endpoints]
        yield {"tenant_id": tenant_id, "endpoints": uuids(endpoints), "rows": rows}


def _locking(shares: Mapping[UUID, int], tenant_of: Mapping[UUID, UUID]) -> Statements[list[tuple[Any, ...]]]:
    """The first due rows of each endpoint, up to its share. Replays get what fresh deliveries leave of the share."""
    locked: list[tuple[Any, ...]] = []
    for is_replay in (False, True):
        left = Counter(shares)
        left.subtract(endpoint_id for _, endpoint_id, _ in locked)
        left = +left
        for values in _shared(left, tenant_of):
            locked += yield _LOCK, {**values, "is_replay": is_replay}
    return locked


def taking_over(
    deliveries: Sequence[HandedOver], clock: DatabaseClock, holder: int | None = None
) -> Statements[list[Claimed]]:
    """Turn deliveries that were handed over into claimed ones. Reads the bodies that were too large for the signal.

    Leases that name another worker are transferred to this worker, unless they have ended. Deliveries that cannot be
    signed are left out.
    """
    others = [each for each in deliveries if each.leased_by is not None and each.leased_by != holder]
    lease = timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    for tenant_id, group in together(others, _tenant_of):
        delivery_ids = [each.id for each in group]
        rows = yield (
            _TAKE_LEASES,
            {
                "holder": holder,
                "tenant_id": tenant_id,
                "ids": uuids(delivery_ids),
                "until": [each.claimed_at + lease for each in group],
                **id_range(delivery_ids),
            },
        )
        lost = set(delivery_ids) - {delivery_id for (delivery_id,) in rows}
        deliveries = [each for each in deliveries if each.id not in lost]
    missing = {each.event_id: each.tenant_id for each in deliveries if each.envelope is None}
    loaded = yield from envelope.loading(missing)
    return taken_over(deliveries, clock, loaded)


def taken_over(
    deliveries: Sequence[HandedOver], clock: DatabaseClock, bodies: Mapping[UUID, Envelope | None]
) -> list[Claimed]:
    """Turn deliveries that were handed over into claimed ones. `bodies` has the bodies that were too large for the
    signal.

    Deliveries that cannot be signed are left out.
    """
    claimed = []
    for each in deliveries:
        try:
            to = target(each.target, each.endpoint_id, at=each.claimed_at)
        except UnreadableSecret:
            continue
        claimed.append(
            Claimed(
                id=each.id,
                event_id=each.event_id,
                endpoint_id=each.endpoint_id,
                tenant_id=each.tenant_id,
                event_type=each.event_type,
                attempts=0,
                claimed_at=each.claimed_at,
                claimed_monotonic=clock.monotonic(each.claimed_at),
                target=to,
                probe=False,
                circuit_generation=each.circuit_generation,
                envelope=each.envelope or bodies.get(each.event_id),
                is_urgent=each.is_urgent,
            )
        )
    monitoring.CLAIMED.add(len(claimed))
    return claimed
