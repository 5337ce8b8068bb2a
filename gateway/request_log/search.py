"""Search of the request log: keyset pages, each of which walks a bounded number of a tenant's calls.

A rare error could lie behind millions of good calls. So a page ends after `WALK` calls even if few of them match, and
its cursor goes on from there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections

from gateway import ids
from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.database import replica
from gateway.request_log.models import ApiRequest

WALK = 10_000
FILTERS: Mapping[str, str] = {
    "method": "method = %s",
    "route": "route = %s",
    "status": "status = %s",
    "status_class": "status / 100 = %s",
    "error_code": "error_code = %s",
    "key_prefix": "key_prefix = %s",
}
_COLUMNS = "id, tenant_id, environment, method, route, status, error_code, key_prefix, own_ms, upstream_ms"
_SEARCH = """
WITH walked AS MATERIALIZED (
    SELECT {columns} FROM api_requests
    WHERE tenant_id = %s AND environment = %s AND id >= %s AND id < %s
    ORDER BY id DESC LIMIT %s
)
SELECT (SELECT count(*) FROM walked), (SELECT id FROM walked ORDER BY id LIMIT 1), found.*
FROM (SELECT) AS once
LEFT JOIN LATERAL (SELECT * FROM walked WHERE {condition} ORDER BY id DESC LIMIT %s) AS found ON true
"""


@dataclass(frozen=True, slots=True)
class CallPage:
    """Calls, newest first; `after` is the id after which the next page begins, None on the last."""

    rows: Sequence[ApiRequest]
    after: UUID | None


_BY_KEY = """
SELECT key_prefix, count(*) FROM (
    SELECT key_prefix FROM api_requests WHERE tenant_id = %s AND environment = %s AND id >= %s
    ORDER BY id DESC LIMIT %s
) AS walked GROUP BY key_prefix
"""


def counts_by_key(*, tenant_id: UUID, environment: str) -> dict[str, int]:
    """Calls of each key, by its prefix, among the newest `WALK` of the last `REQUEST_LOG_DAYS`."""
    first = ids.first_at(_oldest(now()))

    def ask(alias: str) -> list[Any]:
        with connections[alias].cursor() as cursor:
            cursor.execute(_BY_KEY, [tenant_id, environment, first, WALK])
            return list(cursor.fetchall())

    return {prefix: count for prefix, count in replica.read(ask) if prefix}


def search(
    *,
    tenant_id: UUID,
    environment: str,
    equal: Mapping[str, Any],
    begin: datetime | None = None,
    end: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> CallPage:
    """A tenant's calls of one environment in the last `REQUEST_LOG_DAYS`, newest first. `equal` is by `FILTERS`."""
    moment = now()
    first = max(_oldest(moment), begin or _oldest(moment))
    last = min(moment + timedelta(minutes=1), end or moment + timedelta(minutes=1))
    upper = ids.first_at(last)
    if before is not None:
        upper = min(upper, before)
    condition = " AND ".join(FILTERS[name] for name in equal) or "true"
    statement = _SEARCH.format(columns=_COLUMNS, condition=condition)
    parameters = [tenant_id, environment, ids.first_at(first), upper, WALK, *equal.values(), limit + 1]

    def ask(alias: str) -> list[Any]:
        with connections[alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    found = replica.read(ask)
    walked, farthest = found[0][:2]
    rows = [ApiRequest.from_db(None, _COLUMNS.split(", "), row[2:]) for row in found if row[2] is not None]
    if len(rows) > limit:
        return CallPage(rows[:limit], rows[limit - 1].id)
    return CallPage(rows, farthest if walked == WALK else None)


def find(*, tenant_id: UUID, environment: str, request_id: str) -> ApiRequest:
    """A tenant's call in one environment, by its request id. Raises NotFound."""
    key = ids.decode(ids.REQUEST, request_id)
    found = None
    if key is not None and key >= ids.first_at(_oldest(now())):
        found = ApiRequest.objects.for_environment(tenant_id, environment).filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _oldest(moment: datetime) -> datetime:
    return moment - timedelta(days=settings.REQUEST_LOG_DAYS)
