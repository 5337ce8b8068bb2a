"""Statements on open deliveries that several flows share: their targets, the release of claims, the endpoints with open
deliveries, and the retries of an endpoint that works again.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple, Protocol
from uuid import UUID

from django.conf import settings
from django.db import connection

from gateway.database.distribution import of_tenant, together
from gateway.database.statements import Statements, id_range, uuids
from gateway.monitoring.logs import type_alone

# --- The columns of an endpoint's row that say where and how to send. Claims read them together with the deliveries.


class StoredTarget(NamedTuple):
    """The stored columns of an endpoint that a delivery needs. Secrets, headers and credentials are ciphertexts."""

    url: str
    format: str
    secret: str
    previous_secret: str | None
    previous_secret_expires_at: datetime | None
    headers: str | None
    timeout_seconds: int | None
    keep_answers: bool = False
    """Signals of the former version lack this column and all later ones, so these have defaults."""
    credentials: str | None = None
    retry_schedule: str | None = None
    batch_events: int | None = None
    batch_milliseconds: int | None = None
    quiet_seconds: int | None = None

    def __repr__(self) -> str:
        return type_alone(self)


TARGET_COLUMNS = ", ".join(f"e.{name}" for name in StoredTarget._fields)
"""SQL: the columns of a `StoredTarget` from an endpoint `e`."""


# --- Release of claimed deliveries that were not sent: their leases end, so they are due again at once.


class Leased(Protocol):
    """A claimed delivery."""

    @property
    def id(self) -> UUID:
        """The delivery's id."""

    @property
    def tenant_id(self) -> UUID:
        """The tenant's id."""

    @property
    def claimed_at(self) -> datetime:
        """The database time of the claim."""


# If the lease expired and another worker has claimed the delivery since, that worker's lease stays.
_RELEASE = f"""
UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = NULL
WHERE {of_tenant("webhook_deliveries")} AND id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND status IN ('pending', 'failed') AND leased_until > now() AND leased_until <= %(leased_until)s
"""  # noqa: S608 - only conditions are formatted in


def releasing(deliveries: Iterable[Leased]) -> Statements[None]:
    """The statements that end the leases of unsent deliveries, so that these are due again at once."""
    lease = timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    for tenant_id, leased in together(deliveries, attrgetter("tenant_id")):
        ids = [each.id for each in leased]
        yield (
            _RELEASE,
            {
                "tenant_id": tenant_id,
                "ids": uuids(ids),
                "leased_until": max(each.claimed_at for each in leased) + lease,
                **id_range(ids),
            },
        )


# --- The endpoints with open deliveries, as a common table expression for claims and for monitoring.
#
# The expression skips from one endpoint id to the next in the partial index `delivery_due` (endpoint_id,
# next_attempt_at) WHERE status IN ('pending', 'failed'). So an endpoint costs one index probe, however many deliveries
# wait. Citus does not support recursion over all tenants, so on Citus each node reads its open deliveries.

_BY_INDEX = """
WITH RECURSIVE busy (endpoint_id, tenant_id, due_at) AS (
    (SELECT endpoint_id, tenant_id, next_attempt_at FROM webhook_deliveries WHERE status IN ('pending', 'failed')
     ORDER BY endpoint_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.tenant_id, next.next_attempt_at
    FROM busy CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.tenant_id, d.next_attempt_at FROM webhook_deliveries d
        WHERE d.status IN ('pending', 'failed') AND d.endpoint_id > busy.endpoint_id
        ORDER BY d.endpoint_id, d.next_attempt_at LIMIT 1
    ) AS next
)
"""
_BY_NODE = """
WITH busy (endpoint_id, tenant_id, due_at) AS MATERIALIZED (
    SELECT endpoint_id, tenant_id, min(next_attempt_at) FROM webhook_deliveries
    WHERE status IN ('pending', 'failed') GROUP BY endpoint_id, tenant_id
)
"""
BUSY = _BY_NODE if settings.DATABASE_IS_DISTRIBUTED else _BY_INDEX
"""`due_at` is when the endpoint's first open delivery is due."""


# --- Waiting deliveries of an endpoint that works again: their retries are due at once, whatever the schedule.

MOST_HURRIED = 5_000
"""The maximum number of deliveries that one call of `hurry` makes due. Those with the earliest retries come first, and
the others keep their times. The limit bounds the cost of the statement, which runs within a request.
"""

# Claimed deliveries stay with their worker. Locked rows are skipped, so the statement waits for no lock.
_HURRY = """
UPDATE webhook_deliveries SET next_attempt_at = now()
WHERE tenant_id = %(tenant_id)s AND id = ANY(ARRAY(
    SELECT id FROM webhook_deliveries
    WHERE tenant_id = %(tenant_id)s AND endpoint_id = %(endpoint_id)s
      AND status IN ('pending', 'failed') AND next_attempt_at > now() AND leased_until IS NULL
    ORDER BY next_attempt_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))
"""


def hurry(tenant_id: UUID, endpoint_id: UUID) -> None:
    """Make an endpoint's waiting deliveries due, inside the caller's transaction. The endpoint's caps and rate
    limit still apply.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HURRY, {"tenant_id": tenant_id, "endpoint_id": endpoint_id, "most": MOST_HURRIED})
