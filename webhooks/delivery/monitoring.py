"""Monitoring of the delivery engine: its section of `/v1/admin/health` and its metrics.

Its statements read partial indexes, so finished deliveries add nothing to their cost.
"""

from operator import itemgetter
from typing import Any

from django.db import connection
from rest_framework import serializers

from gateway.clock import isoformat, now
from gateway.database.distribution import of_tenant, together
from gateway.monitoring import admin_health, metrics
from gateway.monitoring.metrics import Counter, Histogram
from gateway.valkey.connection import valkey
from tenants.tenant_status import SERVED
from webhooks.models import Endpoint
from webhooks.open_deliveries import BUSY

CLAIMED = Counter("gateway_deliveries_claimed_total", "Deliveries claimed by dispatchers.")
RESCUED = Counter(
    "gateway_deliveries_rescued_total",
    "Deliveries claimed again because their lease ran out: a worker died, or Valkey lost a hand-over.",
)
SENT = Counter("gateway_delivery_attempts_total", "Attempts that a receiver accepted.")
FAILED = Counter("gateway_delivery_failures_total", "Attempts that failed, by error.", label="error")
DEAD = Counter("gateway_deliveries_dead_total", "Deliveries given up, by reason.", label="reason")
AGE = Histogram(
    "gateway_delivery_first_attempt_age_seconds", "Time from the creation of a delivery to its first attempt."
)

IN_FLIGHT_KEY = "deliveries:in_flight:"
IN_FLIGHT_SECONDS = 10
"""How long a dispatcher's report of its requests in flight stays valid. The report is stored under `IN_FLIGHT_KEY`,
followed by the dispatcher's name.
"""
COUNTED_ROWS = 10_000
"""The maximum number of retries that are counted for one endpoint. A larger backlog is shown as this number."""

HELD_ROWS = 200
"""The maximum number of due deliveries that are read at an ordered endpoint to find the first one that waits for no
earlier event.
"""

_BUSY = f"""{BUSY}
SELECT e.tenant_id, e.id, e.ordered
FROM busy
JOIN webhooks_endpoint e ON e.id = busy.endpoint_id AND e.status = 'active'
JOIN tenants_tenant t ON t.id = e.tenant_id AND {SERVED.format(row="e")}
"""  # noqa: S608 - only parts of statements are formatted in
# An open circuit and a rate limit hold back deliveries on purpose, however many dispatchers run. The conditions cost
# nothing, because the join has read the endpoint's row already.
_NOT_HELD_BACK = f"""{_BUSY}
WHERE e.circuit_open_until IS NULL
  AND (e.rate_per_second IS NULL OR e.paced_until IS NULL OR e.paced_until <= now())
"""
# The index that yields the busy endpoints also yields their due rows.
_RETRIES = f"""
SELECT coalesce(sum(due.rows), 0)::bigint, min(due.oldest)
FROM unnest(%(endpoints)s::uuid[]) AS busy (endpoint_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, min(next_attempt_at) AS oldest
    FROM (SELECT next_attempt_at FROM webhook_deliveries d
          WHERE {of_tenant("d")} AND d.endpoint_id = busy.endpoint_id
            AND d.status = 'failed' AND d.next_attempt_at <= now()
          ORDER BY d.next_attempt_at LIMIT %(rows)s) AS first
) due
"""  # noqa: S608 - only conditions are formatted in
# Deliveries that wait for an earlier event of the same customer do not count, because they cannot be claimed before
# that event is delivered or given up.
_OLDEST = f"""
SELECT min(due.oldest)
FROM unnest(%(endpoints)s::uuid[], %(ordered)s::bool[]) AS busy (endpoint_id, ordered)
CROSS JOIN LATERAL (
    SELECT next_attempt_at AS oldest
    FROM (SELECT d.* FROM webhook_deliveries d
          WHERE {of_tenant("d")} AND d.endpoint_id = busy.endpoint_id
            AND d.status IN ('pending', 'failed') AND d.next_attempt_at <= now()
          ORDER BY d.next_attempt_at LIMIT CASE WHEN busy.ordered THEN %(rows)s ELSE 1 END) AS first
    WHERE first.customer_key IS NULL OR NOT EXISTS (
        SELECT 1 FROM webhook_deliveries o
        WHERE {of_tenant("o")} AND o.endpoint_id = first.endpoint_id
          AND o.customer_key = first.customer_key
          AND o.status IN ('pending', 'failed') AND (o.event_id, o.id) < (first.event_id, first.id)
    )
    LIMIT 1
) due
"""  # noqa: S608 - only conditions are formatted in
_DEAD = (
    "SELECT count(*) FROM webhook_deliveries WHERE status = 'dead' AND dead_at > now() - interval '24 hours'"
)


def _circuits_open() -> int:
    return Endpoint.objects.filter(circuit_open_until__gt=now(), status=Endpoint.Status.ACTIVE).count()


def _secrets_unreadable() -> int:
    unreadable = Endpoint.objects.filter(secret_unreadable_since__isnull=False)
    return unreadable.filter(status=Endpoint.Status.ACTIVE).count()


@admin_health.register(
    retries_due=serializers.IntegerField(),
    oldest_due_retry_at=serializers.DateTimeField(allow_null=True),
    dead_24h=serializers.IntegerField(),
    endpoints_circuit_open=serializers.IntegerField(),
    endpoints_secret_unreadable=serializers.IntegerField(),
)
def _health() -> dict[str, Any]:
    """Due retries of active endpoints, deliveries that died within a day, and active endpoints that fail."""
    with connection.cursor() as cursor:
        counted = _of_busy(cursor, _BUSY, _RETRIES, COUNTED_ROWS)
        cursor.execute(_DEAD)
        (dead,) = cursor.fetchone()
    oldest = min((at for _, at in counted if at), default=None)
    return {
        "retries_due": sum(rows for rows, _ in counted),
        "oldest_due_retry_at": isoformat(oldest) if oldest else None,
        "dead_24h": dead,
        "endpoints_circuit_open": _circuits_open(),
        "endpoints_secret_unreadable": _secrets_unreadable(),
    }


def _of_busy(cursor: Any, endpoints_of: str, statement: str, rows: int) -> list[tuple[Any, ...]]:
    """The rows that a statement returns for the endpoints with open deliveries that `endpoints_of` selects."""
    cursor.execute(endpoints_of)
    found: list[tuple[Any, ...]] = []
    for tenant_id, busy in together(cursor.fetchall(), itemgetter(0)):
        endpoints, ordered = [row[1] for row in busy], [row[2] for row in busy]
        cursor.execute(
            statement, {"tenant_id": tenant_id, "endpoints": endpoints, "ordered": ordered, "rows": rows}
        )
        found += cursor.fetchall()
    return found


def _oldest_due_age() -> float:
    with connection.cursor() as cursor:
        found = _of_busy(cursor, _NOT_HELD_BACK, _OLDEST, HELD_ROWS)
    oldest = min((at for (at,) in found if at), default=None)
    return max(0.0, (now() - oldest).total_seconds()) if oldest else 0.0


def _in_flight() -> float:
    keys = list(valkey().scan_iter(IN_FLIGHT_KEY + "*"))
    return float(sum(int(value) for value in valkey().mget(keys) if value)) if keys else 0.0


metrics.gauge(
    "gateway_deliveries_oldest_due_age_seconds",
    "Age of the oldest delivery that is due and not yet claimed, without endpoints that are not active, are behind an "
    "open circuit, or have used up their rate.",
    _oldest_due_age,
)
metrics.gauge(
    "gateway_deliveries_in_flight",
    "Requests to receivers in flight, of all workers.",
    _in_flight,
    of_valkey=True,
)
metrics.gauge(
    "gateway_endpoints_secret_unreadable",
    "Active endpoints whose signing secret no key of ENCRYPTION_KEYS decrypts.",
    _secrets_unreadable,
)
metrics.gauge("gateway_endpoints_circuit_open", "Active endpoints behind an open circuit.", _circuits_open)
