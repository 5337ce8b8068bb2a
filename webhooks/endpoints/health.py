"""Health of an endpoint: why its deliveries wait, until when, and how it answered in the last hour.

Every count is bounded, so ten million deliveries take no more work than ten. A delivery may wait because of its
endpoint's state, or for an earlier event of the same customer. `with_holds` puts such a reason into `last_error` and
`next_attempt_at`: call it before deliveries are shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db import connection

from gateway import ids
from gateway.clock import now
from gateway.database.statements import bulk_cursor, uuids
from webhooks.events.envelope import URGENT_KEY
from webhooks.models import Delivery, Endpoint

EARLIER_EVENT = "waits_for_earlier_event"
_Line = tuple[UUID, int | None]
"""An ordered endpoint, and the key of a customer whose events are sent one after another."""

# Plain SQL, because composing the query with the ORM would take longer than executing it.
_ENDPOINTS = """
SELECT id, status, circuit_open_until, secret_unreadable_since IS NOT NULL, ordered FROM webhooks_endpoint
WHERE tenant_id = %s AND environment = %s
"""
# Uses the partial index `delivery_in_order`.
_FIRST = """
SELECT line.endpoint_id, line.customer_key, first.event_id, first.id, first.next_attempt_at
FROM unnest(%(endpoints)s::uuid[], %(customers)s::bigint[]) AS line (endpoint_id, customer_key)
CROSS JOIN LATERAL (
    SELECT event_id, id, status, next_attempt_at FROM webhook_deliveries d
    WHERE d.tenant_id = %(tenant_id)s AND d.endpoint_id = line.endpoint_id AND d.customer_key = line.customer_key
      AND d.status IN ('pending', 'failed')
    ORDER BY d.event_id, d.id LIMIT 1
) AS first
WHERE first.status = 'failed'
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a delivery is not sent before `until`. `until` is None if no attempt is planned."""

    error: str | None
    until: datetime | None


def with_holds(deliveries: Sequence[Delivery], *, tenant_id: UUID, environment: str) -> Sequence[Delivery]:
    """Set `last_error` and `next_attempt_at` of a tenant's held-back deliveries, in memory only."""
    waiting = [delivery for delivery in deliveries if delivery.status in Delivery.OPEN]
    if not waiting:
        return deliveries
    by_endpoint, ordered = _of_endpoints(tenant_id, environment)
    first = _first_failed(tenant_id, [each for each in waiting if each.endpoint_id in ordered])
    for delivery in waiting:
        hold = by_endpoint.get(delivery.endpoint_id)
        if hold is None and (head := first.get((delivery.endpoint_id, delivery.customer_key))) is not None:
            event_id, delivery_id, until = head
            if (event_id, delivery_id) < (delivery.event_id, delivery.id):
                hold = Hold(EARLIER_EVENT, until)
        if hold is not None:
            _notify(delivery, hold)
    return deliveries


def _notify(delivery: Delivery, hold: Hold) -> None:
    due = delivery.next_attempt_at
    if hold.until is None or due is None or due <= hold.until:
        delivery.last_error = hold.error or delivery.last_error
        delivery.next_attempt_at = hold.until


def _of_endpoints(tenant_id: UUID, environment: str) -> tuple[Mapping[UUID, Hold], AbstractSet[UUID]]:
    """The hold on all deliveries of an endpoint, by endpoint, and the ordered endpoints. Healthy endpoints have no
    hold.
    """
    found: dict[UUID, Hold] = {}
    ordered: set[UUID] = set()
    moment = now()
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_ENDPOINTS, [tenant_id, environment])
        for endpoint_id, status, circuit_open_until, is_unreadable, is_ordered in cursor.fetchall():
            if is_ordered:
                ordered.add(endpoint_id)
            if status == Endpoint.Status.DISABLED:
                found[endpoint_id] = Hold("endpoint_disabled", None)
            elif status != Endpoint.Status.ACTIVE:
                found[endpoint_id] = Hold(None, None)
            elif circuit_open_until is not None and circuit_open_until > moment:
                error = "secret_unreadable" if is_unreadable else "circuit_open"
                found[endpoint_id] = Hold(error, circuit_open_until)
    return found, ordered


def _first_failed(
    tenant_id: UUID, waiting: Iterable[Delivery]
) -> Mapping[_Line, tuple[UUID, UUID, datetime]]:
    """The first open delivery of each customer's line, if that delivery has failed and will be retried."""
    lines = list(
        {
            (delivery.endpoint_id, delivery.customer_key)
            for delivery in waiting
            if delivery.customer_key not in {None, URGENT_KEY}
        }
    )
    if not lines:
        return {}
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(
            _FIRST,
            {
                "tenant_id": tenant_id,
                "endpoints": uuids(endpoint_id for endpoint_id, _ in lines),
                "customers": [customer_key for _, customer_key in lines],
            },
        )
        return {
            (endpoint_id, customer_key): (event_id, delivery_id, until)
            for endpoint_id, customer_key, event_id, delivery_id, until in cursor.fetchall()
        }


COUNTED_ROWS = 10_000
"""The maximum number of waiting deliveries that are counted for an endpoint, and of recent deliveries that are read for
a tenant.
"""

# Both queries use the partial index `delivery_due`. In it, retries come after deliveries that were never attempted, so
# failures are among the last rows. The newest failure is not the last one, because the next attempt of a delivery that
# has failed often is hours later than that of others.
_WAITING = """
SELECT count(*), min(id::text)::uuid, min(next_attempt_at), min(next_attempt_at) FILTER (WHERE status = 'failed')
FROM (
    SELECT id, status, next_attempt_at FROM webhook_deliveries
    WHERE tenant_id = %s AND endpoint_id = %s AND status IN ('pending', 'failed')
    ORDER BY next_attempt_at LIMIT %s
) AS waiting
"""
_LAST_FAILURE = """
SELECT last_error, last_http_status FROM (
    SELECT status, next_attempt_at, last_error, last_http_status, attempt_log FROM webhook_deliveries
    WHERE tenant_id = %s AND endpoint_id = %s AND status IN ('pending', 'failed')
    ORDER BY next_attempt_at DESC LIMIT %s
) AS latest WHERE status = 'failed'
ORDER BY attempt_log -> -1 ->> 'at' DESC NULLS LAST, next_attempt_at DESC LIMIT 1
"""
# After the last attempt of a delivery, or a 410, the reason is found on the dead delivery, not on a waiting one.
_LAST_GIVEN_UP = """
SELECT last_error, last_http_status FROM (
    SELECT id, endpoint_id, status, attempts, last_error, last_http_status FROM webhook_deliveries
    WHERE tenant_id = %s ORDER BY id DESC LIMIT %s
) AS newest WHERE endpoint_id = %s AND status = 'dead' AND attempts > 0 ORDER BY id DESC LIMIT 1
"""
_LAST_HOUR = """
SELECT count(*), count(*) FILTER (WHERE status = 'delivered'),
       percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY last_response_ms)
FROM (
    SELECT endpoint_id, status, attempts, last_response_ms FROM webhook_deliveries
    WHERE tenant_id = %s AND id >= %s ORDER BY id DESC LIMIT %s
) AS newest WHERE endpoint_id = %s AND attempts > 0
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """The result of the newest failed attempt."""

    error: str | None
    http_status: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Deliveries that wait for the endpoint. At most `COUNTED_ROWS` are counted."""

    count: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class LastHour:
    """The attempted deliveries of the last hour, and the endpoint's response times."""

    attempted: int
    success_share: float | None
    p50_ms: int | None
    p95_ms: int | None

    @property
    def success_percent(self) -> float | None:
        """The percentage of attempted deliveries that were delivered. None without attempted deliveries."""
        return None if self.success_share is None else self.success_share * 100


@dataclass(frozen=True, slots=True)
class Health:
    """The member `health` of an endpoint. `retry_at` is the time of a failing endpoint's next attempt."""

    state: Literal["healthy", "failing", "circuit_open"]
    since: datetime | None
    reason: Reason | None
    retry_at: datetime | None
    waiting: Waiting
    last_hour: LastHour


def health_of(endpoint: Endpoint) -> Health:
    """The health of an endpoint, read in at most four bounded queries."""
    open_until = endpoint.circuit_open_until
    # Once its time is over, an open circuit holds nothing back: the next delivery is its probe.
    is_open = open_until is not None and open_until > now()
    is_failing = endpoint.consecutive_failures > 0 or open_until is not None
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [endpoint.tenant_id, endpoint.id, COUNTED_ROWS])
        waiting, oldest, next_attempt_at, next_retry_at = cursor.fetchone()
        if endpoint.ordered:
            # Deliveries behind the retry of an earlier event are due, but are sent only after it.
            next_attempt_at = next_retry_at or next_attempt_at
        hour_ago = ids.first_at(now() - timedelta(hours=1))
        cursor.execute(_LAST_HOUR, [endpoint.tenant_id, hour_ago, COUNTED_ROWS, endpoint.id])
        attempted, delivered, quantiles = cursor.fetchone()
        reason = None
        if endpoint.secret_unreadable_since is not None:
            reason = Reason("secret_unreadable", None)
        elif is_failing:
            cursor.execute(_LAST_FAILURE, [endpoint.tenant_id, endpoint.id, COUNTED_ROWS])
            row = cursor.fetchone()
            if row is None:
                cursor.execute(_LAST_GIVEN_UP, [endpoint.tenant_id, COUNTED_ROWS, endpoint.id])
                row = cursor.fetchone()
            reason = Reason(*row) if row else None
    is_active = endpoint.status == Endpoint.Status.ACTIVE
    retry_at = open_until if is_open else next_attempt_at if is_failing else None
    p50, p95 = quantiles or (None, None)
    return Health(
        state="circuit_open" if is_open else "failing" if is_failing else "healthy",
        since=endpoint.secret_unreadable_since or endpoint.failing_since,
        reason=reason,
        retry_at=retry_at if is_active else None,
        waiting=Waiting(waiting, ids.created_at(oldest) if oldest else None),
        last_hour=LastHour(attempted, round(delivered / attempted, 4) if attempted else None, p50, p95),
    )
