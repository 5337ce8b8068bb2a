"""What holds back deliveries that wait: their endpoint's state, or an earlier event of the same customer.

Every answer that shows deliveries asks `with_holds` first, so that `last_error` and `next_attempt_at` are the truth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gateway.clock import now
from gateway.database.statements import bulk_cursor, uuids
from webhooks.models import Delivery, Endpoint

EARLIER_EVENT = "waits_for_earlier_event"
_Line = tuple[UUID, int | None]
"""An endpoint and one of its customers: to an ordered endpoint, their events go out one after another."""

# Written out: composing it would take longer than running it.
_ENDPOINTS = """
SELECT id, status, circuit_open_until, secret_unreadable_since IS NOT NULL FROM webhooks_endpoint
WHERE tenant_id = %s AND environment = %s
"""
# By the partial index `delivery_in_order`.
_FIRST = """
SELECT line.endpoint_id, line.customer_key, first.event_id, first.id, first.next_attempt_at
FROM unnest(%(endpoints)s::uuid[], %(customers)s::bigint[]) AS line (endpoint_id, customer_key)
CROSS JOIN LATERAL (
    SELECT event_id, id, status, next_attempt_at FROM webhook_deliveries d
    WHERE d.endpoint_id = line.endpoint_id AND d.customer_key = line.customer_key
      AND d.status IN ('pending', 'failed')
    ORDER BY d.event_id, d.id LIMIT 1
) AS first
WHERE first.status = 'failed'
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a delivery does not go out before `until`; null while nothing is planned."""

    error: str | None
    until: datetime | None


def with_holds(deliveries: Sequence[Delivery], *, tenant_id: UUID, environment: str) -> Sequence[Delivery]:
    """A tenant's deliveries. Those that are held back show by what, and until when; no row changes."""
    waiting = [delivery for delivery in deliveries if delivery.status in Delivery.OPEN]
    if not waiting:
        return deliveries
    by_endpoint = _of_endpoints(tenant_id, environment)
    first = _first_failed(waiting)
    for delivery in waiting:
        hold = by_endpoint.get(delivery.endpoint_id)
        if hold is None and (head := first.get((delivery.endpoint_id, delivery.customer_key))) is not None:
            event_id, delivery_id, until = head
            if (event_id, delivery_id) < (delivery.event_id, delivery.id):
                hold = Hold(EARLIER_EVENT, until)
        if hold is not None:
            _tell(delivery, hold)
    return deliveries


def _tell(delivery: Delivery, hold: Hold) -> None:
    due = delivery.next_attempt_at
    if hold.until is None or due is None or due <= hold.until:
        delivery.last_error = hold.error or delivery.last_error
        delivery.next_attempt_at = hold.until


def _of_endpoints(tenant_id: UUID, environment: str) -> Mapping[UUID, Hold]:
    """What holds back all deliveries of an endpoint; nothing for endpoints that get theirs."""
    found: dict[UUID, Hold] = {}
    moment = now()
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_ENDPOINTS, [tenant_id, environment])
        for endpoint_id, status, circuit_open_until, is_unreadable in cursor.fetchall():
            if status == Endpoint.Status.DISABLED:
                found[endpoint_id] = Hold("endpoint_disabled", None)
            elif status != Endpoint.Status.ACTIVE:
                found[endpoint_id] = Hold(None, None)
            elif circuit_open_until is not None and circuit_open_until > moment:
                error = "secret_unreadable" if is_unreadable else "circuit_open"
                found[endpoint_id] = Hold(error, circuit_open_until)
    return found


def _first_failed(waiting: Iterable[Delivery]) -> Mapping[_Line, tuple[UUID, UUID, datetime]]:
    """The oldest open delivery of each customer of ordered endpoints, where it failed and will be tried again."""
    lines = list(
        {
            (delivery.endpoint_id, delivery.customer_key)
            for delivery in waiting
            if delivery.customer_key is not None
        }
    )
    if not lines:
        return {}
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(
            _FIRST,
            {
                "endpoints": uuids(endpoint_id for endpoint_id, _ in lines),
                "customers": [customer_key for _, customer_key in lines],
            },
        )
        return {
            (endpoint_id, customer_key): (event_id, delivery_id, until)
            for endpoint_id, customer_key, event_id, delivery_id, until in cursor.fetchall()
        }
