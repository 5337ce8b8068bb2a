"""Database operations on a batch: why it waits, the runner's lease, claims of items, results and the end.

Every function that changes items locks the batch's row first, so a runner, a cancellation and a second runner take
turns. The lease's token fences off earlier holders: only the next holder replaces the token. An item is claimed before
it is sent. The lease ends when its time is over, or when its worker has died. If the batch's number or tenant may not
send, the batch is claimed only to report interrupted items or to end it.

A batch waits until its time, while its number is not connected or was released, or while its tenant is suspended.
`record_waiting` writes the reason and the start of the wait to every open batch that no runner holds. It runs before
each claim of batches, so the reason is at most a few seconds old. A batch that waited for PATIENCE, or whose number was
released, is claimed once more to end it: its unsent items are skipped (decision "Messages").
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import orjson
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from gateway import ids
from gateway.clock import isoformat, now
from gateway.database.live_workers import DeadWorkers
from gateway.database.statements import run
from messaging import opt_outs
from messaging.batches import references
from messaging.batches.body import customers_of
from messaging.models import Batch, BatchItem
from messaging.pacing import rate_of
from messaging.sending.customer_hours import closed_until, restored
from messaging.sending.outbound import outbound_event
from phone_numbers.senders_and_owners import Sender, sender
from tenants import checklist
from tenants.tenant_status import SERVED
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish

PATIENCE = timedelta(hours=24)
"""A batch that waits longer than this is ended."""

_RECORD_WAITING = f"""
UPDATE messaging_batch b
SET waiting_for = w.reason,
    waiting_since = CASE WHEN w.reason <> 'scheduled' THEN COALESCE(b.waiting_since, now()) END
FROM (
    SELECT c.id, r.reason
    FROM messaging_batch c
        JOIN tenants_tenant t ON t.id = c.tenant_id
        LEFT JOIN numbers_phonenumber n
            ON n.phone_number_id = c.phone_number_id AND n.tenant_id = c.tenant_id AND n.environment = c.environment,
        LATERAL (SELECT CASE WHEN c.send_at > now() AND (c.started_at IS NULL OR c.customer_hours IS NOT NULL)
                             THEN 'scheduled'
                             WHEN NOT {SERVED.format(row="c")} THEN 'tenant_suspended'
                             WHEN n.id IS NULL THEN 'number_released'
                             WHEN n.connection_state <> 'connected' THEN 'number_not_connected' END) AS r (reason)
    WHERE c.completed_at IS NULL AND (c.lease_until IS NULL OR c.lease_until < now())
      AND c.waiting_for IS DISTINCT FROM r.reason
    ORDER BY c.id
    FOR NO KEY UPDATE OF c SKIP LOCKED
) AS w
WHERE b.id = w.id
"""  # noqa: S608 - only a condition is formatted in


def record_waiting() -> None:
    """Write the reason for waiting to each open batch that no runner holds. Skips batches that are locked."""
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_WAITING)


class BatchLeaseLost(Exception):
    """Raised when another runner has taken over the batch. This runner must not send its messages any more."""


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that this process runs under a lease."""

    id: UUID
    tenant_id: UUID
    environment: str
    phone_number_id: str
    rate_per_sec: int
    lease: UUID
    retries: int
    skip_opted_out: bool
    given_up: bool
    """Whether the batch waited too long or its number left the tenant. If so, its unsent items are skipped."""
    traceparent: str | None
    customer_hours: str | None = None
    """The customers' hours in which the batch is sent, as JSON (`sending/customer_hours.py`)."""

    @property
    def public_id(self) -> str:
        return ids.encode(ids.BATCH, self.id)


@dataclass(frozen=True, slots=True)
class ClaimedItem:
    """A claimed item: its place in the batch, and the bytes that the upstream receives."""

    idx: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Taken:
    """The items that one claim returned. Empty when nothing is left, the batch is cancelled, or its tenant is suspended
    (`suspended`).
    """

    items: list[ClaimedItem]
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message. `response` is JSON."""

    response: bytes = field(repr=False)
    accepted: bool = False
    http_status: int | None = None
    sent_at: datetime | None = None
    retryable: bool = False
    """Whether the message was certainly not sent and may succeed later."""
    retry_after: int | None = None
    """How many seconds later the message may succeed, if the upstream's answer shows it."""
    upstream_ms: float | None = None
    is_throttled: bool = False
    """Whether the upstream rejected the message because the number sends too fast."""
    token_problem: bool = False


Result = tuple[ClaimedItem, Outcome]


# For each number, claims the oldest open batch that nobody holds. Interrupted batches come first. Skips batches that
# wait for their time. A cancelled batch that is still open has interrupted items, and never waits. Also skips batches
# of a tenant that had the number before, because they would delay the batches of the new owner.
_CLAIM_BATCHES = """
WITH free AS MATERIALIZED (
    SELECT c.id,
        COALESCE(c.waiting_for = 'number_released'
                 OR c.waiting_since < now() - make_interval(secs => %(patience)s), false) AS given_up
    FROM messaging_batch c
    WHERE c.completed_at IS NULL AND (c.lease_until IS NULL OR c.lease_until < now())
      AND (c.waiting_for IS NULL OR c.lease_token IS NOT NULL OR c.status = 'cancelled'
           OR c.waiting_for = 'number_released'
           OR c.waiting_since < now() - make_interval(secs => %(patience)s))
      AND NOT EXISTS (
        SELECT FROM messaging_batch o
        WHERE o.phone_number_id = c.phone_number_id AND o.completed_at IS NULL AND o.id <> c.id
          AND (o.lease_token IS NOT NULL
               OR (o.id < c.id AND c.lease_token IS NULL AND o.tenant_id = c.tenant_id
                   AND o.environment = c.environment AND o.waiting_for IS DISTINCT FROM 'scheduled'))
      )
    ORDER BY c.id LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE messaging_batch b
SET lease_token = gen_random_uuid(), lease_until = now() + make_interval(secs => %(lease)s),
    leased_by = %(holder)s,
    started_at = CASE WHEN free.given_up THEN b.started_at ELSE COALESCE(b.started_at, now()) END
FROM free
WHERE b.id = free.id
RETURNING b.id, b.tenant_id, b.environment, b.phone_number_id, b.rate_per_sec, b.lease_token, b.retries,
    b.skip_opted_out, free.given_up, b.traceparent, b.customer_hours::text
"""

HOLDERS = """
SELECT DISTINCT leased_by FROM messaging_batch
WHERE completed_at IS NULL AND lease_until > now() AND leased_by IS NOT NULL
"""
_END_LEASES = """
UPDATE messaging_batch SET lease_until = now() - interval '1 microsecond'
WHERE completed_at IS NULL AND lease_until > now() AND leased_by = ANY(%s::bigint[])
"""

_RENEW = f"""
UPDATE messaging_batch b SET lease_until = now() + make_interval(secs => %(lease_seconds)s)
FROM tenants_tenant t
WHERE b.id = %(batch_id)s AND b.lease_token = %(lease)s AND b.completed_at IS NULL AND t.id = b.tenant_id
RETURNING b.status, {SERVED.format(row="b")}
"""  # noqa: S608 - only a condition is formatted in

_CLAIM_ITEMS = """
UPDATE messaging_batchitem i SET claimed_by = %(lease)s
FROM (
    SELECT idx FROM messaging_batchitem
    WHERE batch_id = %(batch_id)s AND idx >= %(first)s AND status = 'pending' AND claimed_by IS NULL
    ORDER BY idx LIMIT %(count)s
) AS next
WHERE i.batch_id = %(batch_id)s AND i.idx = next.idx
RETURNING i.idx, i.body
"""

_TAKE_OVER = """
UPDATE messaging_batchitem SET claimed_by = %(lease)s
WHERE batch_id = %(batch_id)s AND status = 'pending' AND claimed_by IS NOT NULL
RETURNING idx, body
"""

# The event of a result contains the body. So an item keeps its own body only if a retry may send it again.
_RESULTS = """
UPDATE messaging_batchitem i
SET status = r.status, http_status = r.http_status, wamid = r.wamid, response = r.response,
    event_id = r.event_id, sent_at = r.sent_at, body = CASE WHEN r.retryable THEN i.body ELSE '' END
FROM unnest(%(idx)s::int[], %(statuses)s::text[], %(http_statuses)s::int[], %(wamids)s::text[],
            %(responses)s::bytea[], %(event_ids)s::uuid[], %(sent_at)s::timestamptz[], %(retryable)s::bool[])
    AS r (idx, status, http_status, wamid, response, event_id, sent_at, retryable)
WHERE i.batch_id = %(batch_id)s AND i.idx = r.idx AND i.status = 'pending' AND i.claimed_by = %(lease)s
RETURNING i.idx
"""

_SKIP_UNSENT = """
UPDATE messaging_batchitem SET status = 'skipped', body = ''
WHERE batch_id = %s AND status = 'pending' AND claimed_by IS NULL
RETURNING message_ref
"""

_SKIP_OPTED_OUT = """
UPDATE messaging_batchitem SET status = 'skipped', skip_reason = 'opted_out', body = '', claimed_by = NULL
WHERE batch_id = %s AND idx = ANY(%s::int[]) AND status = 'pending'
RETURNING message_ref
"""

_REQUEUE_FAILED = """
UPDATE messaging_batchitem
SET status = 'pending', claimed_by = NULL, http_status = NULL, response = NULL, event_id = NULL, sent_at = NULL
WHERE batch_id = %s AND status = 'failed' AND body <> ''
"""

_SKIP_DUPLICATES = """
UPDATE messaging_batchitem item
SET status = 'skipped', body = '', claimed_by = NULL, http_status = NULL, response = NULL, event_id = NULL,
    sent_at = NULL, first_batch_id = other.batch_id, first_idx = other.idx
FROM unnest(%(items)s::int[], %(batches)s::uuid[], %(places)s::int[]) AS other (item, batch_id, idx)
WHERE item.batch_id = %(batch_id)s AND item.idx = other.item
"""


def end_leases_of_dead(dead_workers: DeadWorkers) -> None:
    """End the leases of workers that died, so that others can claim their batches. `dead_workers` finds them in
    `HOLDERS`.
    """
    with transaction.atomic():
        if dead := run(dead_workers.finding({})):
            with connection.cursor() as cursor:
                cursor.execute(_END_LEASES, [dead])


def claim_batches(limit: int, holder: int | None = None) -> list[Held]:
    """Lease open batches that may be sent and that nobody holds, oldest first, at most one for each number.

    `holder` is the registered worker that gets the leases.
    """
    record_waiting()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                _CLAIM_BATCHES,
                {
                    "lease": settings.BATCH_LEASE_SECONDS,
                    "holder": holder,
                    "limit": limit,
                    "patience": PATIENCE.total_seconds(),
                },
            )
            return [Held(*row) for row in cursor.fetchall()]
    except IntegrityError:
        return []  # another runner leased a batch of the same number first


def renew(held: Held) -> tuple[str, bool]:
    """Extend the lease to BATCH_LEASE_SECONDS from now. Returns the batch's status, and whether its tenant is served.

    Raises BatchLeaseLost.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _RENEW, {"batch_id": held.id, "lease": held.lease, "lease_seconds": settings.BATCH_LEASE_SECONDS}
        )
        row: tuple[str, bool] | None = cursor.fetchone()
    if row is None:
        raise BatchLeaseLost
    return row


def take(held: Held, *, first: int, count: int, country_code: str) -> Taken:
    """Claim the next items from place `first` on. Raises BatchLeaseLost.

    `country_code` is the country code of the batch's number. It is added to recipients without a country code.
    """
    with transaction.atomic():
        batch_status, is_served = renew(held)
        if not is_served:
            return Taken([], suspended=True)
        if batch_status != Batch.Status.QUEUED:
            return Taken([])
        while True:
            with connection.cursor() as cursor:
                cursor.execute(
                    _CLAIM_ITEMS, {"batch_id": held.id, "lease": held.lease, "first": first, "count": count}
                )
                claimed = sorted(
                    (ClaimedItem(idx, bytes(body)) for idx, body in cursor), key=lambda item: item.idx
                )
            items = claimed
            if held.skip_opted_out:
                items = _without_opted_out(held, claimed, country_code)
            # The caller ends the batch when nothing is returned. So if all claimed items were skipped, claim the next
            # items.
            if items or not claimed:
                return Taken(items)


def _without_opted_out(held: Held, claimed: Sequence[ClaimedItem], country_code: str) -> list[ClaimedItem]:
    """Skip the claimed items to customers who opted out, and return the others. Runs inside a transaction."""
    customers = {item.idx: customers_of(item.body, country_code=country_code) for item in claimed}
    stopped = opt_outs.among(
        tenant_id=held.tenant_id,
        environment=held.environment,
        phone_number_ids=[held.phone_number_id],
        customers=set().union(*customers.values()),
    )
    skipped = {
        idx for idx, own in customers.items() if any((held.phone_number_id, each) in stopped for each in own)
    }
    if skipped:
        with connection.cursor() as cursor:
            cursor.execute(_SKIP_OPTED_OUT, [held.id, list(skipped)])
            freed = [reference for (reference,) in cursor if reference is not None]
        _count_skipped(held.id, len(skipped))
        references.release(freed, tenant_id=held.tenant_id, environment=held.environment, batch_id=held.id)
    return [item for item in claimed if item.idx not in skipped]


def take_over(held: Held) -> list[ClaimedItem]:
    """Claim the interrupted items, which have a claim but no result. Raises BatchLeaseLost.

    Either an earlier runner left them, or this runner claimed them but lost the database's answer to the claim. While
    this runs, no message of this runner may be under way.
    """
    with transaction.atomic():
        renew(held)
        with connection.cursor() as cursor:
            cursor.execute(_TAKE_OVER, {"batch_id": held.id, "lease": held.lease})
            return [ClaimedItem(idx, bytes(body)) for idx, body in cursor]


def number_of(tenant_id: UUID, environment: str, phone_number_id: str) -> Sender:
    """A tenant's number with its current state. A number that the tenant no longer has is "disconnected"."""
    return sender(tenant_id=tenant_id, environment=environment, from_=phone_number_id) or Sender(
        phone_number_id=phone_number_id,
        waba_id="",
        token="",
        environment=environment,
        connection_state="disconnected",
        connection_detail="account_removed",
        digits="",
        throughput_level=None,
        coexistence=False,
    )


def rate_now(held: Held, number: Sender) -> int:
    """The batch's announced rate, or a lower rate if the number's throughput level has fallen since then."""
    return min(
        held.rate_per_sec,
        rate_of(throughput_level=number.throughput_level, coexistence=number.coexistence),
    )


def record(held: Held, number: Sender, results: Sequence[Result]) -> None:
    """Write results with their events in one transaction. Skips items for which the next holder has already stored a
    result.
    """
    events = {item.idx: _outbound(held, number, item, outcome) for item, outcome in results}
    with transaction.atomic():
        Batch.objects.select_for_update(no_key=True).only("id").get(pk=held.id)
        with connection.cursor() as cursor:
            cursor.execute(
                _RESULTS,
                {
                    "batch_id": held.id,
                    "lease": held.lease,
                    "idx": [item.idx for item, _ in results],
                    "statuses": ["accepted" if outcome.accepted else "failed" for _, outcome in results],
                    "http_statuses": [outcome.http_status for _, outcome in results],
                    "wamids": [events[item.idx].wamid for item, _ in results],
                    "responses": [outcome.response for _, outcome in results],
                    "event_ids": [events[item.idx].id for item, _ in results],
                    "sent_at": [outcome.sent_at for _, outcome in results],
                    "retryable": [outcome.retryable for _, outcome in results],
                },
            )
            counted = {idx for (idx,) in cursor}
            accepted = sum(outcome.accepted for item, outcome in results if item.idx in counted)
            cursor.execute(
                "UPDATE messaging_batch SET accepted = accepted + %s, failed = failed + %s WHERE id = %s",
                [accepted, len(counted) - accepted, held.id],
            )
        publish(tenant_id=held.tenant_id, events=[events[idx] for idx in sorted(counted)])
        if accepted:
            checklist.mark(tenant_id=held.tenant_id, step="test_message_sent")


def release(held: Held, unsent: Sequence[ClaimedItem]) -> None:
    """Release the unfinished batch. Also release the claims of the items `unsent`, which were certainly not sent.

    If its customers' hours are over, the batch waits until they begin again. A cancelled batch never waits: it ends, or
    is left to the next runner as interrupted if it has claimed items without a result.
    """
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=held.id)
        if batch.lease_token != held.lease:
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE messaging_batchitem SET claimed_by = NULL "
                "WHERE batch_id = %s AND idx = ANY(%s::int[]) AND status = 'pending' AND claimed_by = %s",
                [held.id, [item.idx for item in unsent], held.lease],
            )
        if batch.status == Batch.Status.CANCELLED:
            skip_unsent(batch)
            if batch.items.filter(status=BatchItem.Status.PENDING).exists():
                Batch.objects.filter(pk=held.id).update(lease_until=Now() - timedelta(microseconds=1))
            else:
                complete(batch)
            return
        until = closed_until(restored(held.customer_hours), now())
        waits = {} if until is None else {"send_at": until}
        Batch.objects.filter(pk=held.id).update(lease_token=None, lease_until=None, **waits)
    record_waiting()


def finish(held: Held) -> None:
    """End a batch that has nothing left to send. A batch that is not cancelled becomes `completed`."""
    with transaction.atomic():
        batch = Batch.objects.select_for_update(no_key=True).get(pk=held.id)
        if batch.lease_token == held.lease and batch.completed_at is None:
            if held.given_up:
                skip_unsent(batch)
            complete(batch)


def skip_unsent(batch: Batch, *, keeps_references: bool = False) -> None:
    """Mark the items without a claim as skipped, and release their references. Runs inside a transaction that
    has locked the batch's row.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SKIP_UNSENT, [batch.id])
        rows = cursor.fetchall()
    skipped = [reference for (reference,) in rows if reference is not None]
    _count_skipped(batch.id, len(rows))
    if keeps_references:
        return
    references.release(skipped, tenant_id=batch.tenant_id, environment=batch.environment, batch_id=batch.id)


def _count_skipped(batch_id: UUID, count: int) -> None:
    if count:
        Batch.objects.filter(pk=batch_id).update(skipped=F("skipped") + count)


def skip_failed_duplicates(batch: Batch) -> int:
    """Skip the failed items that still have their body, but whose `message_ref` another item has acquired, because
    their 30 days were over. Returns the number of items.

    Runs inside a transaction that has locked the batch's row.
    """
    failed = batch.items.filter(status=BatchItem.Status.FAILED, message_ref__isnull=False).exclude(body=b"")
    others = references.acquire(batch, failed.values_list("idx", "message_ref"))
    if others:
        with connection.cursor() as cursor:
            cursor.execute(
                _SKIP_DUPLICATES,
                {
                    "batch_id": batch.id,
                    "items": list(others),
                    "batches": [place.batch_id for place in others.values()],
                    "places": [place.idx for place in others.values()],
                },
            )
    return len(others)


def requeue_failed(batch: Batch) -> int:
    """Reset failed items to pending if they still have their body. Returns the number of items.

    Runs inside a transaction that has locked the batch's row.
    """
    with connection.cursor() as cursor:
        cursor.execute(_REQUEUE_FAILED, [batch.id])
        return int(cursor.rowcount)


def complete(batch: Batch) -> None:
    """Store the end of a batch and publish its event. Runs inside a transaction that has locked the batch's row."""
    if batch.status == Batch.Status.CANCELLED:
        skip_unsent(batch)
    else:
        batch.status = Batch.Status.COMPLETED
    batch.completed_at = now()
    batch.lease_token = batch.lease_until = batch.waiting_for = batch.waiting_since = None
    batch.save(
        update_fields=[
            "status",
            "completed_at",
            "lease_token",
            "lease_until",
            "waiting_for",
            "waiting_since",
        ]
    )
    publish(tenant_id=batch.tenant_id, events=[_completed(batch, batch.completed_at)])


def _completed(batch: Batch, at: datetime) -> NewEvent:
    number = sender(tenant_id=batch.tenant_id, environment=batch.environment, from_=batch.phone_number_id)
    data = {
        "id": batch.public_id,
        "status": batch.status,
        "total": batch.total,
        "accepted": batch.accepted,
        "failed": batch.failed,
        "skipped": batch.total - batch.accepted - batch.failed,
        "rate_per_sec": batch.rate_per_sec,
        "client_ref": batch.client_ref,
        "created_at": isoformat(batch.created_at),
        "started_at": isoformat(batch.started_at) if batch.started_at else None,
        "completed_at": isoformat(at),
    }
    return NewEvent(
        type="batch.completed",
        environment=batch.environment,
        dedupe_key=f"batch:{batch.public_id}{_round(batch.retries)}",
        data=orjson.dumps(data),
        waba_id=number.waba_id if number else None,
        phone_number_id=batch.phone_number_id,
        display_phone_number=number.digits or None if number else None,
    )


def _round(retries: int) -> str:
    """The suffix of dedupe keys after a retry of the batch. Each retry has its own suffix, and so its own events."""
    return f":{retries}" if retries else ""


def _outbound(held: Held, number: Sender, item: ClaimedItem, outcome: Outcome) -> NewEvent:
    return outbound_event(
        number=number,
        sent=item.body,
        response=outcome.response,
        http_status=outcome.http_status,
        dedupe_key=f"out:{held.public_id}:{item.idx}{_round(held.retries)}",
        batch_id=held.id,
        idx=item.idx,
        id=ids.uuid7(),
        upstream_ms=outcome.upstream_ms,
    )
