"""Recorder of the request log: a bounded buffer, which a background thread writes in groups.

No call waits for it. The buffer is full when the database is unavailable or one tenant makes very many calls. Further
calls are then dropped and counted. A crash loses the calls of the last second.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import orjson
import structlog
from django.conf import settings
from django.db import connection

from gateway.api.access_log import FinishedCall
from gateway.database.statements import bulk_cursor
from gateway.database.transactions import concerns_all, error_fields, is_outage
from gateway.monitoring import metrics
from gateway.valkey.write_behind import Debounced

log = structlog.get_logger(__name__)

WRITE_SECONDS = 1.0
MOST_WAITING = 20_000
MOST_OF_ONE_TENANT = 4_000
"""Maximum number of one tenant's lines in the buffer. A tenant that repeats rejected calls loses only its own lines."""
GROUP = 500
LONGEST_METHOD = 16

unlogged = metrics.Counter("gateway_requests_unlogged_total", "Calls that the request log could not record.")

# The commit does not wait for the disk, because the log may lose its last second anyway.
_INSERT = """
INSERT INTO api_requests (id, tenant_id, environment, method, route, status, error_code, key_prefix, own_ms,
                          upstream_ms)
SELECT r.* FROM (SELECT set_config('synchronous_commit', 'off', true)) AS unhurried, json_to_recordset(%s::json) AS r (
    id uuid, tenant_id uuid, environment text, method text, route text, status int, error_code text, key_prefix text,
    own_ms float8, upstream_ms float8
)
"""


class Buffer:
    """Calls that wait to be written, usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[FinishedCall] = []
        self._of_tenant: Counter[UUID] = Counter()

    def add(self, call: FinishedCall, tenant_id: UUID) -> bool:
        """Add a call. Returns False when the buffer has no room."""
        with self._lock:
            if len(self._calls) >= MOST_WAITING or self._of_tenant[tenant_id] >= MOST_OF_ONE_TENANT:
                return False
            self._of_tenant[tenant_id] += 1
            self._calls.append(call)
            return True

    def take(self) -> list[FinishedCall]:
        """Remove and return all waiting calls, oldest first."""
        with self._lock:
            calls, self._calls = self._calls, []
            self._of_tenant.clear()
            return calls


_buffer = Buffer()


def record(call: FinishedCall) -> None:
    """Schedule a call to be written within about a second, unless the log is off."""
    tenant = call.caller.tenant
    if not settings.REQUEST_LOG_DAYS or tenant is None:
        return
    if _buffer.add(call, tenant.id):
        _writer.ask()
    else:
        unlogged.add()


def write() -> None:
    """Write the waiting calls. Drop and count the calls that cannot be written."""
    calls = _buffer.take()
    written = 0
    try:
        for start in range(0, len(calls), GROUP):
            written += _insert_group(calls[start : start + GROUP])
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("request_log_unavailable", dropped=len(calls) - written, **error_fields(error))
    finally:
        if written < len(calls):
            unlogged.add(len(calls) - written)
        metrics.flush()


def _insert_group(calls: Sequence[FinishedCall]) -> int:
    """Write a group in one statement. If the database rejects it, write each call alone. Returns how many it wrote."""
    try:
        _insert(calls)
    except Exception as error:
        if concerns_all(error):
            raise
        if len(calls) > 1:
            return sum(_insert_group([call]) for call in calls)
        log.exception("request_not_logged", route=calls[0].route)
        return 0
    return len(calls)


def _insert(calls: Sequence[FinishedCall]) -> None:
    try:
        with bulk_cursor(prepared=True) as cursor:
            cursor.execute(_INSERT, [orjson.dumps([_row(call) for call in calls]).decode()])
    finally:
        if not connection.in_atomic_block:
            connection.close()


def _row(call: FinishedCall) -> dict[str, object]:
    caller = call.caller
    assert caller.tenant is not None  # noqa: S101 - `record` keeps only calls on tenants
    return {
        "id": call.request_id,
        "tenant_id": caller.tenant.id,
        "environment": caller.effective_environment,
        "method": call.method[:LONGEST_METHOD],
        "route": call.route,
        "status": call.status,
        "error_code": call.error_code,
        "key_prefix": caller.key_prefix,
        "own_ms": call.own_ms,
        "upstream_ms": call.upstream_ms,
    }


_writer = Debounced(write, seconds=WRITE_SECONDS, collects=True)
