"""Health of an endpoint: why its deliveries wait, until when, and how it answered in the last hour.

Every figure is bounded: the work is the same with ten deliveries and with ten million.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db import connection

from gateway import ids
from gateway.clock import now
from webhooks.models import Endpoint

COUNTED_ROWS = 10_000
"""At most this many waiting deliveries of the endpoint are counted, and as many new ones of the tenant read."""

# Both by the partial index `delivery_due`. Retries lie behind what was never attempted, so the newest failure is among
# the last rows.
_WAITING = """
SELECT count(*), min(id::text)::uuid, min(next_attempt_at) FROM (
    SELECT id, next_attempt_at FROM webhook_deliveries WHERE endpoint_id = %s AND status IN ('pending', 'failed')
    ORDER BY next_attempt_at LIMIT %s
) AS waiting
"""
_LAST_FAILURE = """
SELECT last_error, last_http_status FROM (
    SELECT status, next_attempt_at, last_error, last_http_status FROM webhook_deliveries
    WHERE endpoint_id = %s AND status IN ('pending', 'failed') ORDER BY next_attempt_at DESC LIMIT %s
) AS latest WHERE status = 'failed' ORDER BY next_attempt_at DESC LIMIT 1
"""
# After the last attempt of a delivery, or a 410, none that waits tells the reason.
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
    """How the newest failed attempt ended."""

    error: str | None
    http_status: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Deliveries that wait for the endpoint, at most `COUNTED_ROWS` of them counted."""

    count: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class LastHour:
    """Deliveries of the last hour that were attempted, and how quickly the endpoint answered."""

    attempted: int
    success_share: float | None
    p50_ms: int | None
    p95_ms: int | None

    @property
    def success_percent(self) -> float | None:
        """The share that was delivered, for people."""
        return None if self.success_share is None else self.success_share * 100


@dataclass(frozen=True, slots=True)
class Health:
    """The member `health` of an endpoint. `retry_at` is when the next delivery of a failing one is tried."""

    state: Literal["healthy", "failing", "circuit_open"]
    since: datetime | None
    reason: Reason | None
    retry_at: datetime | None
    waiting: Waiting
    last_hour: LastHour


def health_of(endpoint: Endpoint) -> Health:
    """The health of an endpoint as stored now, in at most four bounded queries."""
    is_failing = endpoint.consecutive_failures > 0
    is_open = endpoint.circuit_open_until is not None
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [endpoint.id, COUNTED_ROWS])
        waiting, oldest, next_attempt_at = cursor.fetchone()
        hour_ago = ids.first_at(now() - timedelta(hours=1))
        cursor.execute(_LAST_HOUR, [endpoint.tenant_id, hour_ago, COUNTED_ROWS, endpoint.id])
        attempted, delivered, quantiles = cursor.fetchone()
        reason = None
        if endpoint.secret_unreadable_since is not None:
            reason = Reason("secret_unreadable", None)
        elif is_failing or is_open:
            cursor.execute(_LAST_FAILURE, [endpoint.id, COUNTED_ROWS])
            row = cursor.fetchone()
            if row is None:
                cursor.execute(_LAST_GIVEN_UP, [endpoint.tenant_id, COUNTED_ROWS, endpoint.id])
                row = cursor.fetchone()
            reason = Reason(*row) if row else None
    is_active = endpoint.status == Endpoint.Status.ACTIVE
    p50, p95 = quantiles or (None, None)
    return Health(
        state="circuit_open" if is_open else "failing" if is_failing else "healthy",
        since=endpoint.secret_unreadable_since or endpoint.failing_since,
        reason=reason,
        retry_at=endpoint.circuit_open_until or (next_attempt_at if is_failing and is_active else None),
        waiting=Waiting(waiting, ids.created_at(oldest) if oldest else None),
        last_hour=LastHour(attempted, round(delivered / attempted, 4) if attempted else None, p50, p95),
    )
