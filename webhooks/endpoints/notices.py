"""Operational events: notify a tenant of endpoints that fail, are disabled or have recovered, and of given-up
deliveries.

Each change of state causes one event, for the tenant's other endpoints, and one mail. The endpoint's
`told_failing_since` is the start of the failure about which the tenant was last notified. It is set and cleared in the
event's transaction, under a lock on the endpoint, so two processes cannot notify twice. Failed deliveries of
operational events are not reported, because each report would cause the next.

Given-up deliveries are reported together: an endpoint's event counts up to `MOST_EXHAUSTED` of them and names up to
`MOST_NAMED`. So an endpoint that rejects everything does not cause one event for each delivery.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest

from gateway import ids
from gateway.clock import isoformat, microseconds, now
from gateway.database.transactions import concerns_all
from tenants import mail
from tenants.tenant_status import served
from webhooks.endpoints.health import COUNTED_ROWS, Health, health_of
from webhooks.events.envelope import OPERATIONAL_TYPES, NewEvent
from webhooks.events.publish import publish
from webhooks.models import Endpoint, ExhaustedDelivery

log = structlog.get_logger(__name__)

FAILING_AFTER = timedelta(minutes=15)
"""How long an endpoint must be without a success before its tenant is notified."""
MOST_ENDPOINTS = 1_000
"""The maximum number of endpoints that are checked in one run."""

MOST_EXHAUSTED, MOST_NAMED = 1_000, 100
"""The maximum number of deliveries that one event counts, and the maximum number that it names."""
MOST_ROUNDS = 20
"""The maximum number of rounds in one run. The next run reports the remaining deliveries."""
MAIL_WINDOW = timedelta(hours=24)
"""How long an endpoint's given-up deliveries are counted together, and how long no other mail follows a mail."""

# The event's transaction deletes these rows, so each delivery is reported once.
_TAKE_EXHAUSTED = """
WITH taken AS (
    DELETE FROM webhooks_exhausteddelivery WHERE delivery_id IN (
        SELECT delivery_id FROM webhooks_exhausteddelivery WHERE endpoint_id = %s ORDER BY delivery_id LIMIT %s
    )
    RETURNING delivery_id
)
SELECT d.id, d.event_id, d.event_type, d.attempts, d.last_error, d.last_http_status
FROM webhook_deliveries d JOIN taken ON taken.delivery_id = d.id WHERE d.tenant_id = %s ORDER BY d.id
"""
# In the partial index `delivery_due`, retries come after deliveries that were never attempted, so failed deliveries are
# among the last rows. With a short retry schedule, no delivery waits for long, so given-up ones count too.
_FAILS_WITH_OTHERS = """
SELECT EXISTS (
    SELECT 1 FROM (
        SELECT status, event_type FROM webhook_deliveries
        WHERE tenant_id = %(tenant_id)s AND endpoint_id = %(endpoint_id)s AND status IN ('pending', 'failed')
        ORDER BY next_attempt_at DESC LIMIT %(rows)s
    ) AS latest WHERE status = 'failed' AND event_type <> ALL(%(operational)s)
) OR EXISTS (
    SELECT 1 FROM (
        SELECT endpoint_id, status, attempts, event_type, dead_at FROM webhook_deliveries
        WHERE tenant_id = %(tenant_id)s ORDER BY id DESC LIMIT %(rows)s
    ) AS newest
    WHERE endpoint_id = %(endpoint_id)s AND status = 'dead' AND attempts > 0 AND event_type <> ALL(%(operational)s)
      AND dead_at > coalesce(greatest(%(last_success_at)s::timestamptz, %(verified_at)s), '-infinity')
)
"""


def notify_changes() -> int:
    """Notify tenants of endpoints that have failed for 15 minutes and of endpoints that recovered.

    Beat calls this every half minute. Returns the number of endpoints. An error for one tenant does not affect other
    tenants.
    """
    by_tenant: defaultdict[UUID, list[Endpoint]] = defaultdict(list)
    # In random order, so that endpoints without notices do not always use up `MOST_ENDPOINTS`.
    for endpoint in _changed().order_by("?")[:MOST_ENDPOINTS]:
        by_tenant[endpoint.tenant_id].append(endpoint)
    notified = 0
    for tenant_id, endpoints in by_tenant.items():
        try:
            notified += _notify(tenant_id, endpoints)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("endpoint_notices_failed", tenant_id=str(tenant_id))
    return notified


def report_exhausted() -> int:
    """Notify tenants of given-up deliveries. Beat calls this every half minute. Returns the number of deliveries.

    An error at one endpoint does not affect other endpoints. Each endpoint gets one event in a round, so a large
    backlog of one endpoint does not delay other endpoints.
    """
    reported = 0
    for _ in range(MOST_ROUNDS):
        some = 0
        for endpoint_id in ExhaustedDelivery.objects.values_list("endpoint_id", flat=True).distinct():
            try:
                some += _report_exhausted(endpoint_id)
            except Exception as error:
                if concerns_all(error):
                    raise
                log.exception("exhausted_not_reported", endpoint_id=str(endpoint_id))
        if not some:
            break
        reported += some
    return reported


def _report_exhausted(endpoint_id: UUID) -> int:
    """Report an endpoint's given-up deliveries in one event, and in a mail if they reach its threshold. Skip
    deleted endpoints.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        rows = Endpoint.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
        endpoint = rows.filter(pk=endpoint_id).first()
        if endpoint is None:
            ExhaustedDelivery.objects.filter(endpoint_id=endpoint_id).delete()
            return 0
        cursor.execute(_TAKE_EXHAUSTED, [endpoint_id, MOST_EXHAUSTED, endpoint.tenant_id])
        if not (taken := cursor.fetchall()):
            return 0
        data = {"count": len(taken), "deliveries": [_named(*row) for row in taken[:MOST_NAMED]]}
        event = _event(endpoint, "webhook.delivery.exhausted", at=now(), data=data)
        publish(tenant_id=endpoint.tenant_id, events=[event])
        if endpoint.exhausted_since is None or now() - endpoint.exhausted_since >= MAIL_WINDOW:
            endpoint.exhausted_count, endpoint.exhausted_since = 0, now()
        threshold, before = endpoint.exhausted_mail_threshold, endpoint.exhausted_count
        # Without a threshold nothing counts, so that one that is set later can still be reached.
        endpoint.exhausted_count = 0 if threshold is None else before + len(taken)
        is_reached = threshold is not None and before < threshold <= endpoint.exhausted_count
        if is_reached:
            endpoint.exhausted_since = now()
        endpoint.save(update_fields=["exhausted_count", "exhausted_since"])
        if is_reached:
            mail.send_to_tenant(
                tenant=endpoint.tenant, template="deliveries_exhausted", context={"endpoint": endpoint}
            )
        return len(taken)


def _named(
    delivery_id: UUID, event_id: UUID, event_type: str, attempts: int, error: str | None, status: int | None
) -> dict[str, Any]:
    return {
        "id": ids.encode(ids.DELIVERY, delivery_id),
        "event_id": ids.encode(ids.EVENT, event_id),
        "event_type": event_type,
        "attempts": attempts,
        "last_error": error,
        "last_http_status": status,
    }


def disabled(endpoint: Endpoint, *, cause: str) -> None:
    """Notify the tenant that an endpoint was just disabled. Call this in the transaction that disables the
    endpoint, which holds its lock.
    """
    endpoint.told_failing_since = endpoint.told_failing_since or endpoint.failing_since or now()
    endpoint.save(update_fields=["told_failing_since"])
    moment = endpoint.disabled_at or now()
    data = {"since": _shown(endpoint.failing_since), "cause": cause}
    publish(tenant_id=endpoint.tenant_id, events=[_event(endpoint, "webhook.disabled", at=moment, data=data)])
    mail.send_to_tenant(
        tenant=endpoint.tenant, template="endpoint_disabled", context={"endpoint": endpoint, "reason": cause}
    )


def _changed() -> QuerySet[Endpoint]:
    """Endpoints whose tenants have not been notified of their new state. Leaves out tenants that are not served,
    because nothing is sent to their endpoints.
    """
    is_failing = Q(told_failing_since=None, failing_since__lte=now() - FAILING_AFTER)
    is_well = Q(failing_since=None, told_failing_since__lt=Greatest(F("last_success_at"), F("verified_at")))
    # A failure after a passed ping is a new one, even if it began before this check.
    is_well |= Q(failing_since__gte=F("verified_at"), told_failing_since__lt=F("verified_at"))
    rows = Endpoint.objects.filter(
        Q(failing_since__isnull=False) | Q(told_failing_since__isnull=False),
        served(),
        status=Endpoint.Status.ACTIVE,
    )
    return rows.filter(is_failing | is_well)


def _notify(tenant_id: UUID, endpoints: Sequence[Endpoint]) -> int:
    """Notify one tenant about these endpoints, in one transaction and with at most one mail of each kind."""
    health = {
        endpoint.id: health_of(endpoint)
        for endpoint in endpoints
        if endpoint.told_failing_since is not None or _fails_with_others(endpoint)
    }
    with transaction.atomic():
        rows = _changed().filter(pk__in=health).select_related("tenant").order_by("id")
        current = list(rows.select_for_update(of=("self",), no_key=True))
        failing = [endpoint for endpoint in current if endpoint.told_failing_since is None]
        well = [endpoint for endpoint in current if endpoint.told_failing_since is not None]
        publish(
            tenant_id=tenant_id,
            events=[_failing(endpoint, health[endpoint.id]) for endpoint in failing]
            + [_recovered(endpoint) for endpoint in well],
        )
        for template, those in (("endpoint_failing", failing), ("endpoint_recovered", well)):
            if those:
                mail.send_to_tenant(tenant=those[0].tenant, template=template, context={"endpoints": those})
        for endpoint in current:
            endpoint.told_failing_since = endpoint.failing_since if endpoint in failing else None
            endpoint.save(update_fields=["told_failing_since"])
    return len(current)


def _fails_with_others(endpoint: Endpoint) -> bool:
    """Whether a failed delivery, other than that of an operational event, waits for a retry, or was given up since the
    endpoint's last success.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _FAILS_WITH_OTHERS,
            {
                "tenant_id": endpoint.tenant_id,
                "endpoint_id": endpoint.id,
                "rows": COUNTED_ROWS,
                "operational": list(OPERATIONAL_TYPES),
                "last_success_at": endpoint.last_success_at,
                "verified_at": endpoint.verified_at,
            },
        )
        return bool(cursor.fetchone()[0])


def _failing(endpoint: Endpoint, health: Health) -> NewEvent:
    reason = health.reason
    data = {
        "since": _shown(endpoint.failing_since),
        "reason": {"error": reason.error, "http_status": reason.http_status} if reason else None,
        "waiting": {"count": health.waiting.count, "oldest": _shown(health.waiting.oldest)},
    }
    assert endpoint.failing_since is not None  # noqa: S101 - `_changed` selects by this column
    return _event(endpoint, "webhook.failing", at=endpoint.failing_since, data=data)


def _recovered(endpoint: Endpoint) -> NewEvent:
    since = endpoint.told_failing_since
    assert since is not None  # noqa: S101 - `_changed` selects by this column
    return _event(endpoint, "webhook.recovered", at=since, data={"since": _shown(since)})


def _event(endpoint: Endpoint, kind: str, *, at: Any, data: Mapping[str, Any]) -> NewEvent:
    """An event about an endpoint. The endpoint itself does not get it (`events/envelope.py`)."""
    subject = {"endpoint_id": str(endpoint.id), "url": endpoint.url, "uid": endpoint.uid}
    return NewEvent(
        type=kind,
        environment=endpoint.environment,
        dedupe_key=f"webhook:{endpoint.id}:{kind.partition('.')[2]}:{microseconds(at)}",
        data=orjson.dumps({**subject, **data}),
    )


def _shown(moment: Any) -> str | None:
    return isoformat(moment) if moment else None
