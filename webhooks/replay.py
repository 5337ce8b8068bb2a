"""Replays: a single delivery immediately, or all of an endpoint's deliveries in a time range in the background.

A request stores the ids of all matching deliveries in chunks, so later changes do not alter the set. The transaction
that deletes a chunk creates its deliveries, so a crash neither loses nor doubles a delivery. An endpoint's chunks are
released one by one, and only while it has few open deliveries (decision "Webhooks to customers").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Min
from django.db.models.functions import Now

from gateway import ids
from gateway.api import query
from gateway.api.errors import Conflict, InvalidRequest, NotFound, TooManyInFlight
from gateway.clock import isoformat, now
from gateway.database import transactions
from gateway.database.transactions import concerns_all
from gateway.monitoring import metrics
from gateway.task_queue import enqueue
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from tenants import tenant_status
from tenants.models import Tenant
from webhooks import wake_up
from webhooks.delivery.recorder import Outcome, record
from webhooks.delivery.retries_and_attempt_log import Decision, decide, kept, log_entry
from webhooks.endpoints import lifecycle
from webhooks.events import envelope
from webhooks.events.envelope import CUSTOMER_KEY, WANTED
from webhooks.models import EXPUNGED, Delivery, Endpoint, ReplayChunk
from webhooks.requests import signed_request
from webhooks.requests.credentials import call_once
from webhooks.requests.signed_request import delivery_span, note_answer

log = structlog.get_logger(__name__)

MISSED = "missed"
STATUSES = (*Delivery.Status.values, MISSED)
DEFAULT_STATUSES = (Delivery.Status.FAILED, Delivery.Status.DEAD)
PER_SECOND = 100
"""The maximum number of deliveries that an endpoint's replays release per second."""
MOST_WAITING = 500
"""Replays of an endpoint wait while it has this many open deliveries that are due or were due before."""
RELEASE = "webhooks.tasks.release_replays"
RELEASE_SECONDS = 0.9
"""Seconds from one release to the next, slightly less than the time between two chunks. If a release is lost, beat
replaces it within 30 seconds.
"""
_NEXT, _NEXT_MILLISECONDS = "replays:next", 800


def replay_delivery(*, tenant_id: UUID, environment: str, delivery_id: UUID) -> Delivery:
    """Send a delivery's event again now, with the endpoint's current secrets. Returns the new delivery.

    The new delivery has a single attempt and is then delivered or dead. Raises NotFound for another tenant's delivery,
    for a deleted endpoint and for a body past retention (details.reason `endpoint_deleted`, `payload_expired`). Raises
    Conflict while the first attempt of that delivery is in flight, for an endpoint that is not active, for a tenant
    that is not served, and for an endpoint whose secret, headers or credentials cannot be read.
    """
    source = Delivery.objects.for_environment(tenant_id, environment).filter(pk=delivery_id).first()
    if source is None:
        raise NotFound("There is no such delivery.")
    endpoints = Endpoint.objects.for_environment(tenant_id, environment).select_related("tenant")
    endpoint = endpoints.filter(pk=source.endpoint_id).first()
    if endpoint is None:
        raise NotFound("The endpoint of this delivery was deleted.", details={"reason": "endpoint_deleted"})
    _require_active(endpoint)
    if not tenant_status.is_served(endpoint.tenant, environment):
        raise Conflict("The business is not served now: its deliveries wait until it is active.")
    if _in_flight(source):
        raise Conflict("The first attempt of this delivery is in flight.")
    found = envelope.load([source.event_id], tenant_id=tenant_id).get(source.event_id)
    if found is None:
        raise NotFound("The body of this event is past retention.", details={"reason": "payload_expired"})
    at = now()
    target = signed_request.target_of(endpoint, at=at)
    replay = Delivery(
        tenant_id=tenant_id,
        environment=environment,
        endpoint_id=endpoint.id,
        event_id=source.event_id,
        event_type=source.event_type,
        is_replay=True,
        replay_of=source.id,
    )
    outcome = _attempt(replay, endpoint, found, target, at=at)
    # Stored only with its outcome. An open row would be sent again by a dispatcher if this process died.
    with transaction.atomic():
        replay.save(force_insert=True)
        record([outcome])
    replay.refresh_from_db()
    return replay


def _attempt(
    replay: Delivery,
    endpoint: Endpoint,
    event: envelope.Envelope,
    target: signed_request.Target,
    *,
    at: datetime,
) -> Outcome:
    body = signed_request.body_of([event], target)
    with delivery_span(
        event,
        delivery_id=replay.id,
        endpoint_id=endpoint.id,
        tenant_id=replay.tenant_id,
        event_type=replay.event_type,
        attempt=1,
    ) as span:
        answer = call_once(
            endpoint.id,
            target.credentials,
            endpoint.url,
            body,
            signed_request.delivery_headers(
                target,
                delivery_id=replay.id,
                message_id=event.id,
                event_type=replay.event_type,
                attempt=1,
                timestamp=int(at.timestamp()),
                body=body,
                traceparent=span.traceparent,
            ),
            total_timeout=target.timeout,
        )
        note_answer(span, answer)
    if not answer.concerns_receiver:
        return Outcome(
            delivery_id=replay.id,
            tenant_id=replay.tenant_id,
            endpoint_id=endpoint.id,
            attempts_before=0,
            decision=Decision("dead"),
            error=answer.error,
            is_single=True,
        )
    return Outcome(
        delivery_id=replay.id,
        tenant_id=replay.tenant_id,
        endpoint_id=endpoint.id,
        attempts_before=0,
        decision=decide(answer, attempt=1, steps=()),
        answer=answer,
        log_entry=log_entry(answer, isoformat(at)),
        kept=kept(answer, isoformat(at), keeps_success=target.keeps_answers),
        circuit_generation=endpoint.circuit_generation,
        is_single=True,
    )


def _in_flight(delivery: Delivery) -> bool:
    """Whether a worker holds the lease of the first attempt, by the database's clock."""
    own = Delivery.objects.for_tenant(delivery.tenant_id)
    return own.filter(
        pk=delivery.pk, status=Delivery.Status.PENDING, attempts=0, leased_until__gt=Now()
    ).exists()


def _require_active(endpoint: Endpoint) -> None:
    lifecycle.require_webhook(endpoint)
    if endpoint.status != Endpoint.Status.ACTIVE:
        raise Conflict(f"The endpoint is {endpoint.status}: nothing is sent to it until it is active.")


# Only original deliveries match, not their replays. Otherwise each repetition of a request would double the number. A
# delivery with an open replay is not replayed a second time. Events without a body are left out, because their
# deliveries could only die.
_MATCHING = """
SELECT id FROM webhook_deliveries
WHERE tenant_id = %(tenant_id)s AND id >= %(first)s AND id < %(last)s AND endpoint_id = %(endpoint_id)s
  AND status = ANY(%(statuses)s) AND replay_of IS NULL
  AND id NOT IN (SELECT replay_of FROM webhook_deliveries
                 WHERE tenant_id = %(tenant_id)s AND endpoint_id = %(endpoint_id)s
                   AND status IN ('pending', 'failed') AND is_replay AND replay_of IS NOT NULL)
  AND (%(event_types)s::text[] IS NULL OR event_type = ANY(%(event_types)s))
  AND NOT EXISTS (SELECT 1 FROM events event
                  WHERE event.tenant_id = %(tenant_id)s AND event.id = webhook_deliveries.event_id
                    AND starts_with(event.dedupe_key, %(expunged)s))
"""

_ENDPOINT = """
WITH e AS MATERIALIZED (
    SELECT id, format, event_types, waba_ids, phone_number_ids, statuses, filter_path
    FROM webhooks_endpoint WHERE id = %(endpoint_id)s
)
"""
# Deliveries are created with their event or later. So the deliveries of the range's events were created at or after the
# beginning of the range.
_DATA = """(SELECT body FROM event_payloads p WHERE p.tenant_id = %(tenant_id)s
            AND p.expires_on = event.payload_expires_on AND p.id = event.id)"""
_MISSED = f"""{_ENDPOINT}
SELECT event.id FROM events event CROSS JOIN e
WHERE event.tenant_id = %(tenant_id)s AND event.environment = %(environment)s
  AND event.id >= %(first)s AND event.id < %(last)s AND {WANTED.format(event="event", data=_DATA)}
  AND (%(event_types)s::text[] IS NULL OR event.type = ANY(%(event_types)s))
  AND NOT starts_with(event.dedupe_key, %(expunged)s)
  AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d
                  WHERE d.tenant_id = %(tenant_id)s AND d.id >= %(first)s
                    AND d.event_id = event.id AND d.endpoint_id = %(endpoint_id)s)
"""  # noqa: S608 - no value is formatted in

# Allows one request of a tenant at a time. Two at once would queue the same rows twice, and each may read a long range.
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('replay:' || %s::text, 0))"

# Skips deliveries that already wait in a chunk.
_FRESH = """
WITH queued AS MATERIALIZED (
    SELECT unnest(source_ids) AS id FROM webhooks_replaychunk
    WHERE endpoint_id = %(endpoint_id)s AND missed = %(missed)s
)
SELECT id FROM ({matching}) AS matching WHERE id NOT IN (SELECT id FROM queued)
"""

_COUNT = """
WITH fresh AS ({fresh}) SELECT count(*), (SELECT id FROM fresh ORDER BY id LIMIT 1) FROM fresh
"""

_CUT = """
WITH numbered AS (
    SELECT id, (row_number() OVER (ORDER BY id) - 1) / %(rows)s AS chunk FROM ({fresh}) AS fresh
)
INSERT INTO webhooks_replaychunk (endpoint_id, missed, source_ids, due_at)
SELECT %(endpoint_id)s, %(missed)s, array_agg(id ORDER BY id), now() + make_interval(secs => chunk)
FROM numbered GROUP BY chunk ORDER BY chunk
RETURNING cardinality(source_ids), source_ids[1]
"""


@dataclass(frozen=True, slots=True)
class Queued:
    """The matches of a request: how many deliveries or missed events, and the creation time of the oldest."""

    count: int
    oldest: datetime | None

    @property
    def expected_seconds(self) -> int:
        """The minimum number of seconds that the release takes."""
        return -(-self.count // PER_SECOND)


def replay_endpoint(
    *,
    tenant_id: UUID,
    environment: str,
    endpoint_id: UUID,
    begin: datetime,
    end: datetime,
    statuses: Sequence[str] = DEFAULT_STATUSES,
    event_types: Sequence[str] | None = None,
    is_preview: bool = False,
) -> Queued:
    """Replay each of the endpoint's deliveries that has one of the statuses and was created at or after `begin` and
    before `end`.

    The status `missed` selects events for which no delivery to the endpoint was ever created. Deliveries whose replay
    is already queued, events past retention and events whose bodies were deleted are left out. A preview only counts.
    Raises InvalidRequest for a range that ends before it begins or is longer than the tenant's retention, NotFound for
    another tenant's endpoint, and Conflict for an inactive one. Raises TooManyInFlight while another replay request of
    the tenant runs.
    """
    endpoint = lifecycle.find(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
    retention = timedelta(days=Tenant.objects.values_list("retention_days", flat=True).get(pk=tenant_id))
    query.check_span(begin, end)
    if end - begin > retention:
        raise InvalidRequest.of(
            to=f"The range must not be longer than the retention ({retention.days} days)."
        )
    _require_active(endpoint)
    begin = max(begin, now() - retention)
    if begin >= end:
        return Queued(0, None)
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": environment,
        "endpoint_id": endpoint_id,
        "first": ids.first_at(begin),
        "last": ids.first_at(end),
        "statuses": [status for status in statuses if status != MISSED],
        "event_types": list(event_types) if event_types is not None else None,
        "rows": PER_SECOND,
        "expunged": EXPUNGED,
    }
    statement = _COUNT if is_preview else _CUT
    count, oldest = 0, None
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_ALONE, [tenant_id])
        if not cursor.fetchone()[0]:
            raise TooManyInFlight("Another replay request of this business is being worked on.")
        for matching, missed in ((_MATCHING, False), (_MISSED, True)):
            if missed and MISSED not in statuses:
                continue
            cursor.execute(
                statement.format(fresh=_FRESH.format(matching=matching)), {**values, "missed": missed}
            )
            for rows, first in cursor.fetchall():
                count += rows
                oldest = min(filter(None, (oldest, first)), default=None)
    if count and not is_preview:
        transactions.after_commit(_release_soon)
    return Queued(count, ids.created_at(oldest) if oldest else None)


_RELEASE_DELIVERIES = f"""
INSERT INTO webhook_deliveries (id, tenant_id, environment, endpoint_id, event_id, event_type, status, attempts,
                                next_attempt_at, attempt_log, is_replay, replay_of, customer_key)
SELECT new.id, s.tenant_id, s.environment, s.endpoint_id, s.event_id, s.event_type, 'pending', 0, now(), '[]',
       true, s.id, {CUSTOMER_KEY.format(event="event")}
FROM unnest(%(new_ids)s::uuid[], %(source_ids)s::uuid[]) AS new (id, source_id)
JOIN webhook_deliveries s ON s.tenant_id = %(tenant_id)s AND s.id = new.source_id
CROSS JOIN (VALUES (%(ordered)s)) AS e (ordered)
LEFT JOIN events event ON event.tenant_id = %(tenant_id)s AND event.id = s.event_id
WHERE s.tenant_id = %(tenant_id)s AND s.id = ANY(%(source_ids)s::uuid[])
"""  # noqa: S608 - no value is formatted in

_RELEASE_MISSED = f"""
INSERT INTO webhook_deliveries (id, tenant_id, environment, endpoint_id, event_id, event_type, status, attempts,
                                next_attempt_at, attempt_log, is_replay, customer_key)
SELECT new.id, event.tenant_id, event.environment, %(endpoint_id)s, event.id, event.type, 'pending', 0, now(),
       '[]', true, {CUSTOMER_KEY.format(event="event")}
FROM unnest(%(new_ids)s::uuid[], %(source_ids)s::uuid[]) AS new (id, source_id)
JOIN events event ON event.tenant_id = %(tenant_id)s AND event.id = new.source_id
CROSS JOIN (VALUES (%(ordered)s)) AS e (ordered)
WHERE event.tenant_id = %(tenant_id)s AND event.id = ANY(%(source_ids)s::uuid[])
"""  # noqa: S608 - no value is formatted in

# Deliveries whose first attempt is not due yet do not count, because replays do not wait for the end of an archive's
# hour.
_WAITING = """
SELECT count(*) FROM (
    SELECT 1 FROM webhook_deliveries
    WHERE tenant_id = %s AND endpoint_id = %s AND status IN ('pending', 'failed')
      AND (next_attempt_at <= now() OR leased_until IS NOT NULL OR attempts > 0 OR is_replay)
    LIMIT %s
) AS open
"""


def release_due() -> int:
    """Turn the next chunk of each replaying endpoint into deliveries, unless enough of the endpoint's deliveries wait
    already. Returns how many deliveries were made.

    Calling it more often than once a second does no harm, because each chunk has its own due time.
    """
    released = 0
    for endpoint_id in ReplayChunk.objects.values_list("endpoint_id", flat=True).annotate(Min("id")):
        try:
            released += _release_one(endpoint_id)
        except Exception as error:
            if concerns_all(error):
                raise
            # The chunk stays. Other endpoints' replays continue.
            log.exception("replay_release_failed", endpoint_id=str(endpoint_id))
    if released:
        wake_up.wake()
    return released


def _release_soon() -> None:
    enqueue(RELEASE, expires=5)


def release_again_soon() -> None:
    """Queue the next release while chunks are left. Only one release is queued, even if several workers call this."""
    if not ReplayChunk.objects.exists():
        return
    try:
        is_first = valkey().set(_NEXT, 1, nx=True, px=_NEXT_MILLISECONDS)
    except VALKEY_UNAVAILABLE as error:
        log.warning("replay_not_continued", error=type(error).__name__)
        return
    if is_first:
        enqueue(RELEASE, countdown=RELEASE_SECONDS, expires=5)


def _has_room(cursor: Any, tenant_id: UUID, endpoint_id: UUID) -> bool:
    """Whether an endpoint has so few open deliveries that more of its replays may be released."""
    cursor.execute(_WAITING, [tenant_id, endpoint_id, MOST_WAITING])
    return bool(cursor.fetchone()[0] < MOST_WAITING)


def _release_one(endpoint_id: UUID) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        # The endpoint's row is the lock: two releases of one endpoint at once could exceed the limit.
        endpoint = (
            Endpoint.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
            .filter(pk=endpoint_id, status=Endpoint.Status.ACTIVE)
            .first()
        )
        if endpoint is None:
            return 0
        if not _has_room(cursor, endpoint.tenant_id, endpoint_id):
            return 0
        chunk = ReplayChunk.objects.filter(endpoint_id=endpoint_id, due_at__lte=Now()).order_by("id").first()
        if chunk is None:
            return 0
        cursor.execute(
            _RELEASE_MISSED if chunk.missed else _RELEASE_DELIVERIES,
            {
                "tenant_id": endpoint.tenant_id,
                "endpoint_id": endpoint_id,
                "ordered": endpoint.ordered,
                "source_ids": chunk.source_ids,
                "new_ids": [ids.uuid7() for _ in chunk.source_ids],
            },
        )
        released: int = cursor.rowcount
        chunk.delete()
    return released


def _oldest_due_age() -> float:
    """The age of the oldest due chunk, without endpoints whose chunks have to wait."""
    due = ReplayChunk.objects.filter(due_at__lte=Now(), endpoint__status=Endpoint.Status.ACTIVE)
    by_endpoint = due.values_list("endpoint__tenant_id", "endpoint_id").annotate(oldest=Min("due_at"))
    with connection.cursor() as cursor:
        waiting = by_endpoint.order_by("oldest")
        oldest = next((at for *endpoint, at in waiting if _has_room(cursor, *endpoint)), None)
    return max(0.0, (now() - oldest).total_seconds()) if oldest else 0.0


metrics.gauge(
    "gateway_replay_chunks_waiting",
    "Chunks of replays that are still to be released.",
    ReplayChunk.objects.count,
)
metrics.gauge(
    "gateway_replays_oldest_due_age_seconds",
    "Age of the oldest due chunk of a replay, without endpoints that are not active or have many open deliveries.",
    _oldest_due_age,
)
