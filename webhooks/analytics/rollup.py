"""Hourly figures: recounts each changed hour of a tenant from the message log and the deliveries.

Publishing inserts a note for each hour that it changes, so senders never wait for a counter. `roll_up`, called by beat,
gathers these notes and recounts the hours that are due, each in one transaction. A change that commits later has its
own note. The recount of a changed hour is delayed by 2 % of the hour's age, or by 5 % once the hour is two hours old.
So late statuses of a busy day cause a bounded number of recounts. An hour with open deliveries is recounted until they
end.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction

from gateway import ids
from gateway.clock import now
from gateway.database.partitions import delete_before
from gateway.database.transactions import concerns_all
from webhooks.models import Figure

log = structlog.get_logger(__name__)

RUN_SECONDS = 40.0
GATHERED_ROWS = 20_000
YOUNG_SECONDS, YOUNG_AGAIN_AFTER, AGAIN_AFTER = 7_200.0, 0.02, 0.05
"""How long a changed hour waits for its recount, as a share of its age. Young hours wait a smaller share."""
FAILED_AGAIN = timedelta(hours=1)
EXACT_SECONDS, STEP = 120, 1.05
"""Durations are counted in whole seconds up to two minutes, then in steps of 5 %."""
_LOCK = 0x6669_6775

_GATHER = """
WITH gathered AS (
    DELETE FROM figure_changes WHERE id = ANY(ARRAY(
        SELECT id FROM figure_changes ORDER BY id LIMIT %(rows)s FOR UPDATE SKIP LOCKED
    ))
    RETURNING tenant_id, environment, hour, noted_at
), aged AS (
    SELECT tenant_id, environment, hour, min(noted_at) AS since,
        greatest(0, extract(epoch FROM clock_timestamp()) - hour * 3600.0) AS age
    FROM gathered GROUP BY tenant_id, environment, hour
), due AS (
    INSERT INTO figures_due (tenant_id, environment, hour, due_at, since)
    SELECT tenant_id, environment, hour,
        clock_timestamp()
            + make_interval(secs => age * CASE WHEN age < %(young)s THEN %(soon)s ELSE %(again)s END),
        since
    FROM aged
    ON CONFLICT (tenant_id, environment, hour) DO UPDATE SET since = least(figures_due.since, excluded.since)
)
SELECT count(*) FROM gathered
"""
_NEXT = """
SELECT tenant_id, environment, hour, since FROM figures_due WHERE due_at <= clock_timestamp() ORDER BY due_at LIMIT 1
FOR UPDATE SKIP LOCKED
"""
_TAKE = "DELETE FROM figures_due WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND hour = %(hour)s"
_DELETE_ROWS = """
DELETE FROM figures
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND hour = %(hour)s
"""
_LATER = """
INSERT INTO figures_due (tenant_id, environment, hour, due_at, since)
VALUES (%(tenant_id)s, %(environment)s, %(hour)s, %(due_at)s, %(since)s) ON CONFLICT DO NOTHING
"""
_SECONDS = """
CASE WHEN {seconds} <= {exact} THEN {seconds}
ELSE floor({exact} * power({step}, floor(ln({seconds} / {exact}) / ln({step})))) END::bigint::text
"""


def _bucket(expression: str) -> str:
    return _SECONDS.format(
        seconds=f"greatest(0, floor({expression}))::numeric", exact=f"{EXACT_SECONDS}.0", step=STEP
    )


_AFTER = "extract(epoch FROM m.{column} - coalesce(m.accepted_at, m.sent_at))"
COUNT_MESSAGES = f"""
SELECT coalesce(m.phone_number_id, ''), coalesce(m.template, ''), m.direction, f.measure, f.value, count(*)
FROM messages m CROSS JOIN LATERAL (VALUES
    ('received', '', m.direction = 'inbound'),
    ('sent', '', m.direction = 'outbound'
        AND coalesce(m.accepted_at, m.sent_at, m.delivered_at, m.read_at) IS NOT NULL),
    ('delivered', '', m.direction = 'outbound' AND coalesce(m.delivered_at, m.read_at) IS NOT NULL),
    ('read', '', m.direction = 'outbound' AND m.read_at IS NOT NULL),
    ('failed', coalesce(m.error_code::text, ''), m.direction = 'outbound' AND m.failed_at IS NOT NULL),
    ('unknown', '', m.direction = 'outbound'
        AND coalesce(m.accepted_at, m.sent_at, m.delivered_at, m.read_at, m.failed_at) IS NULL),
    ('pricing', m.pricing_category, m.pricing_category IS NOT NULL),
    ('referral', left(m.referral_source_id, 40), m.referral_source_id IS NOT NULL),
    ('delivered_seconds', {_bucket(_AFTER.format(column="delivered_at"))},
        m.direction = 'outbound' AND m.delivered_at - coalesce(m.accepted_at, m.sent_at) IS NOT NULL),
    ('read_seconds', {_bucket(_AFTER.format(column="read_at"))},
        m.direction = 'outbound' AND m.read_at - coalesce(m.accepted_at, m.sent_at) IS NOT NULL)
) AS f (measure, value, holds)
WHERE m.tenant_id = %(tenant_id)s AND m.environment = %(environment)s AND m.month = %(month)s
  AND m.history IS NOT TRUE
  AND m.id >= %(first)s AND m.id < %(last)s AND f.holds
GROUP BY 1, 2, 3, 4, 5
"""  # noqa: S608 - only expressions of this module are formatted in
COUNT_DELIVERIES = f"""
SELECT '', '', 'webhook', f.measure, f.value, count(*)
FROM webhook_deliveries d CROSS JOIN LATERAL (VALUES
    ('delivered', '', d.status = 'delivered'),
    ('failed', '', d.status = 'dead'),
    ('open', '', d.status IN ('pending', 'failed')),
    ('delivered_ms', {_bucket("d.last_response_ms")}, d.status = 'delivered' AND d.last_response_ms IS NOT NULL)
) AS f (measure, value, holds)
WHERE d.tenant_id = %(tenant_id)s AND d.environment = %(environment)s AND NOT d.is_replay
  AND d.id >= %(first)s AND d.id < %(last)s AND f.holds
GROUP BY 1, 2, 3, 4, 5
"""  # noqa: S608 - only expressions of this module are formatted in
_STORE = """
INSERT INTO figures (phone_number_id, template, direction, measure, value, count, tenant_id, environment, hour)
SELECT counted.*, %(tenant_id)s, %(environment)s, %(hour)s FROM ({counts}) AS counted
"""


def roll_up(*, seconds: float = RUN_SECONDS) -> int:
    """Recount due hours, for some seconds. Returns how many were recounted. Only one process at a time recounts.

    An hour that cannot be counted is logged, and retried an hour later.
    """
    deadline = time.monotonic() + seconds
    counted = 0
    while time.monotonic() < deadline and _gather() == GATHERED_ROWS:
        pass
    while time.monotonic() < deadline:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            if not cursor.fetchone()[0]:
                return counted
            cursor.execute(_NEXT)
            due = cursor.fetchone()
            if due is None:
                return counted
            _count_or_put_off(*due)
        counted += 1
    return counted


def prune() -> int:
    """Delete the figures whose source rows are past retention. Returns the number of deleted rows."""
    oldest = now() - timedelta(days=settings.EVENT_METADATA_DAYS)
    return delete_before(Figure, "hour", hour_of(oldest))


def hour_of(moment: datetime) -> int:
    """The number of full hours between 1970 and a moment."""
    return int(moment.timestamp() // 3600)


def scope_of_hour(tenant_id: UUID, environment: str, hour: int) -> dict[str, Any]:
    """The parameters for counting an hour of a tenant."""
    begin = datetime.fromtimestamp(hour * 3600, UTC)
    first = ids.first_at(begin)
    return {
        "tenant_id": tenant_id,
        "environment": environment,
        "hour": hour,
        "first": first,
        "last": ids.first_at(begin + timedelta(hours=1)),
        "month": ids.month_of(first),
    }


def _gather() -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(
            _GATHER,
            {
                "rows": GATHERED_ROWS,
                "young": YOUNG_SECONDS,
                "soon": YOUNG_AGAIN_AFTER,
                "again": AGAIN_AFTER,
            },
        )
        return int(cursor.fetchone()[0])


def _count_or_put_off(tenant_id: UUID, environment: str, hour: int, since: datetime | None) -> None:
    scope = scope_of_hour(tenant_id, environment, hour)
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, scope)
        try:
            with transaction.atomic():
                _count(scope)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("hour_not_counted", tenant_id=str(tenant_id), hour=hour)
            cursor.execute(_LATER, {**scope, "due_at": now() + FAILED_AGAIN, "since": since})


def _count(scope: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_ROWS, scope)
        for counts in (COUNT_MESSAGES, COUNT_DELIVERIES):
            cursor.execute(_STORE.format(counts=counts), scope)
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM figures WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s"
            " AND hour = %(hour)s AND measure = 'open')",
            scope,
        )
        if cursor.fetchone()[0]:
            age = max(600.0, now().timestamp() - scope["hour"] * 3600)
            due_at = now() + timedelta(seconds=age * AGAIN_AFTER)
            cursor.execute(_LATER, {**scope, "due_at": due_at, "since": None})
