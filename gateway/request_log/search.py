"""Search of the request log: keyset pages, each of which walks a bounded number of calls (`bounded_walk`)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections

from gateway import ids
from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.database import replica
from gateway.database.bounded_walk import LAST_ID, MOST_WALKED, BoundedList, Page, Walk
from gateway.database.stored_rows import StoredRows
from gateway.request_log.models import ApiRequest

FILTERS: Mapping[str, str] = {
    "method": "method = %(method)s",
    "route": "route = %(route)s",
    "status": "status = %(status)s",
    "status_class": "status / 100 = %(status_class)s",
    "error_code": "error_code = %(error_code)s",
    "key_prefix": "key_prefix = %(key_prefix)s",
}
# A day's partition may be small: the primary key looks as good then, and passes by the calls of all others.
_CALLS = BoundedList(StoredRows(ApiRequest), plans_once=False)
_WALK = Walk("tenant_id = %(tenant_id)s AND environment = %(environment)s")


_BY_KEY = """
SELECT key_prefix, count(*) FROM (
    SELECT key_prefix FROM api_requests WHERE tenant_id = %s AND environment = %s AND id >= %s
    ORDER BY id DESC LIMIT %s
) AS walked GROUP BY key_prefix
"""


def counts_by_key(*, tenant_id: UUID, environment: str) -> dict[str, int]:
    """Calls of each key, by its prefix, among the newest `MOST_WALKED` of the last `REQUEST_LOG_DAYS`."""
    first = ids.first_at(_oldest(now()))

    def ask(alias: str) -> list[Any]:
        with connections[alias].cursor() as cursor:
            cursor.execute(_BY_KEY, [tenant_id, environment, first, MOST_WALKED])
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
) -> Page[ApiRequest]:
    """A tenant's calls of one environment in the last `REQUEST_LOG_DAYS`, newest first. `equal` is by `FILTERS`."""
    moment = now()
    first = max(_oldest(moment), begin or _oldest(moment))
    last = min(moment + timedelta(minutes=1), end or moment + timedelta(minutes=1))
    return replica.read(
        lambda alias: _CALLS.page(
            [_WALK],
            conditions=[FILTERS[name] for name in equal],
            parameters={"tenant_id": tenant_id, "environment": environment, **equal},
            first=ids.first_at(first),
            before=min(before or LAST_ID, ids.first_at(last)),
            limit=limit,
            using=alias,
        )
    )


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
