"""Statements on delivery rows that several flows share."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from gateway.database.statements import Statements, id_range, uuids

# --- The columns of an endpoint's row that say where and how to send, read together with its deliveries.


class StoredTarget(NamedTuple):
    """As the database has them: secrets, headers and credentials are ciphertexts."""

    url: str
    format: str
    secret: str
    previous_secret: str | None
    previous_secret_expires_at: datetime | None
    headers: str | None
    timeout_seconds: int | None
    keep_answers: bool = False
    """This and what follows: not in signals of the former version."""
    credentials: str | None = None
    retry_schedule: str | None = None
    batch_events: int | None = None
    batch_milliseconds: int | None = None
    quiet_seconds: int | None = None


TARGET_COLUMNS = ", ".join(f"e.{name}" for name in StoredTarget._fields)
"""SQL: the columns of a `StoredTarget`, of an endpoint `e`."""


# --- Giving back claimed deliveries that were not tried: their leases end, so they are due again at once.

# By primary key; what another worker has claimed meanwhile, because the lease ran out, has a later lease and stays.
_RELEASE = """
UPDATE webhook_deliveries SET next_attempt_at = now(), leased_until = NULL
WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND status IN ('pending', 'failed') AND leased_until > now() AND leased_until <= %(leased_until)s
"""


def releasing(claimed_at: Mapping[UUID, datetime]) -> Statements[None]:
    """The statement that ends the leases of deliveries that were not tried: they are due again at once.

    `claimed_at` has the database time of each delivery's claim by its id.
    """
    lease = timedelta(seconds=settings.DELIVERY_LEASE_SECONDS)
    yield (
        _RELEASE,
        {
            "ids": uuids(claimed_at),
            "leased_until": max(claimed_at.values()) + lease,
            **id_range(claimed_at),
        },
    )


# --- Waiting deliveries of an endpoint that works again: their retries are due at once, whatever their
# schedule says.

MOST_HURRIED = 5_000
"""Of those whose retries are the next ones: it is one statement, inside a call. The others keep their times."""

# What a worker holds is left to it. A row that is being written is skipped, so nothing here waits for another lock.
_HURRY = """
UPDATE webhook_deliveries SET next_attempt_at = now()
WHERE id IN (
    SELECT id FROM webhook_deliveries
    WHERE endpoint_id = %s AND status IN ('pending', 'failed') AND next_attempt_at > now() AND leased_until IS NULL
    ORDER BY next_attempt_at LIMIT %s
    FOR UPDATE SKIP LOCKED
)
"""


def hurry(endpoint_id: UUID) -> None:
    """Make an endpoint's waiting deliveries due, inside the caller's transaction; they go out at its own speed."""
    with connection.cursor() as cursor:
        cursor.execute(_HURRY, [endpoint_id, MOST_HURRIED])


# --- Archives: what is made for one is due when the hour is over (`events/publish.py`), or once it fills an object.
ARCHIVED_EARLY = 1_000
"""Deliveries that wait for one archive until none waits for the hour's end."""

_WAITS = "d.status = 'pending' AND d.attempts = 0 AND d.leased_until IS NULL AND d.next_attempt_at > now()"
_HURRY_ARCHIVES = f"""
WITH full_one AS (
    SELECT e.id FROM webhooks_endpoint e
    WHERE e.kind = 's3' AND e.status = 'active' AND %(rows)s <= (
        SELECT count(*) FROM (
            SELECT FROM webhook_deliveries d WHERE d.endpoint_id = e.id AND {_WAITS} LIMIT %(rows)s
        ) AS waiting
    )
), early AS (
    SELECT d.id FROM full_one CROSS JOIN LATERAL (
        SELECT d.id FROM webhook_deliveries d WHERE d.endpoint_id = full_one.id AND {_WAITS}
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) d
)
UPDATE webhook_deliveries d SET next_attempt_at = now() FROM early WHERE d.id = early.id
"""  # noqa: S608 - only a condition is formatted in


def hurry_archives() -> int:
    """Make due what waits for archives that have enough for an object. Returns how many deliveries."""
    with connection.cursor() as cursor:
        cursor.execute(_HURRY_ARCHIVES, {"rows": ARCHIVED_EARLY, "most": MOST_HURRIED})
        rows: int = cursor.rowcount
    return rows


# --- The endpoints that have open deliveries, as a common table expression for claims and for monitoring.
#
# It skips from one endpoint id to the next in the partial index `delivery_due` (endpoint_id, next_attempt_at)
# WHERE status IN ('pending', 'failed'): an endpoint costs one index probe, however many deliveries it has
# waiting.

BUSY = """
WITH RECURSIVE busy (endpoint_id, due_at) AS (
    (SELECT endpoint_id, next_attempt_at FROM webhook_deliveries WHERE status IN ('pending', 'failed')
     ORDER BY endpoint_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.next_attempt_at
    FROM busy CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.next_attempt_at FROM webhook_deliveries d
        WHERE d.status IN ('pending', 'failed') AND d.endpoint_id > busy.endpoint_id
        ORDER BY d.endpoint_id, d.next_attempt_at LIMIT 1
    ) AS next
)
"""
"""`due_at` is when the endpoint's first open delivery is due."""
