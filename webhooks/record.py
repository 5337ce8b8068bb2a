"""Recording outcomes: in bulk, fenced by the attempt that was claimed, with the endpoints' figures and circuits.

A result counts only if the delivery is still at the attempt that was claimed, so a late worker never overwrites
a newer one (architecture.md, Delivery engine).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.db import transaction

from gateway.outbound import Answer
from webhooks import circuit, endpoints
from webhooks.attempt import KEPT_ATTEMPTS
from webhooks.bulk import bulk_cursor
from webhooks.circuit import Figures, Result
from webhooks.schedule import Decision


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to; without an answer nothing was sent (`error` says why)."""

    delivery_id: UUID
    endpoint_id: UUID
    attempts_before: int
    decision: Decision
    answer: Answer | None = None
    log_entry: dict[str, Any] | None = None
    error: str | None = None
    probe: bool = False

    @property
    def last_error(self) -> str | None:
        return self.answer.error if self.answer else self.error


# Primary keys, partitions pruned by the ids; the log keeps its newest entries.
_DELIVERIES = """
UPDATE webhook_deliveries d
SET status = r.status,
    attempts = d.attempts + r.spent,
    next_attempt_at = now() + make_interval(secs => r.delay),
    leased_until = NULL,
    dead_at = CASE WHEN r.status = 'dead' THEN now() END,
    last_http_status = CASE WHEN r.spent = 1 THEN r.http_status ELSE d.last_http_status END,
    last_error = r.error,
    last_response_ms = CASE WHEN r.spent = 1 THEN r.ms ELSE d.last_response_ms END,
    attempt_log = CASE
        WHEN r.entry IS NULL THEN d.attempt_log
        WHEN jsonb_array_length(d.attempt_log) < %(kept)s THEN d.attempt_log || r.entry::jsonb
        ELSE (d.attempt_log - 0) || r.entry::jsonb
    END
FROM unnest(%(ids)s::uuid[], %(attempts)s::int[], %(statuses)s::text[], %(delays)s::float8[],
            %(http_statuses)s::int[], %(errors)s::text[], %(ms)s::int[], %(entries)s::text[], %(spent)s::int[])
    AS r (id, attempts_before, status, delay, http_status, error, ms, entry, spent)
WHERE d.id = r.id AND d.id = ANY(%(ids)s::uuid[])
  AND d.attempts = r.attempts_before AND d.status IN ('pending', 'failed')
RETURNING d.id
"""

# In the order of their ids, so two workers never wait for each other in a circle.
_LOCK_ENDPOINTS = """
SELECT id, consecutive_failures, failing_since, last_success_at, circuit_open_until, circuit_opened,
       window_started_at, window_attempts, window_failures, now()
FROM webhooks_endpoint WHERE id = ANY(%s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_ENDPOINTS = """
UPDATE webhooks_endpoint e
SET consecutive_failures = r.consecutive_failures, failing_since = r.failing_since,
    last_success_at = r.last_success_at, circuit_open_until = r.open_until, circuit_opened = r.opened,
    window_started_at = r.window_started_at, window_attempts = r.window_attempts,
    window_failures = r.window_failures
FROM unnest(%s::uuid[], %s::int[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::int[],
            %s::timestamptz[], %s::int[], %s::int[])
    AS r (id, consecutive_failures, failing_since, last_success_at, open_until, opened, window_started_at,
          window_attempts, window_failures)
WHERE e.id = r.id
"""


def record(outcomes: Sequence[Outcome]) -> int:
    """Write outcomes in one transaction; returns how many counted (the rest were overtaken)."""
    with transaction.atomic(), bulk_cursor() as cursor:
        cursor.execute(
            _DELIVERIES,
            {
                "ids": [outcome.delivery_id for outcome in outcomes],
                "attempts": [outcome.attempts_before for outcome in outcomes],
                "statuses": [outcome.decision.status for outcome in outcomes],
                "delays": [outcome.decision.delay for outcome in outcomes],
                "http_statuses": [outcome.answer.status if outcome.answer else None for outcome in outcomes],
                "errors": [outcome.last_error for outcome in outcomes],
                "ms": [outcome.answer.ms if outcome.answer else None for outcome in outcomes],
                "entries": [
                    orjson.dumps([outcome.log_entry]).decode() if outcome.log_entry else None
                    for outcome in outcomes
                ],
                "kept": KEPT_ATTEMPTS,
                "spent": [1 if outcome.answer else 0 for outcome in outcomes],
            },
        )
        counted = {delivery_id for (delivery_id,) in cursor.fetchall()}
        by_endpoint: defaultdict[UUID, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            if outcome.delivery_id in counted and outcome.answer is not None:
                by_endpoint[outcome.endpoint_id].append(outcome)
        if by_endpoint:
            _record_endpoints(cursor, by_endpoint)
    return len(counted)


def _record_endpoints(cursor: Any, by_endpoint: dict[UUID, list[Outcome]]) -> None:
    cursor.execute(_LOCK_ENDPOINTS, [list(by_endpoint)])
    updated: list[tuple[UUID, Figures]] = []
    for endpoint_id, *columns, at in cursor.fetchall():
        before = Figures(*columns)
        outcomes = by_endpoint[endpoint_id]
        results = [Result(outcome.decision.status == "delivered", outcome.probe) for outcome in outcomes]
        updated.append((endpoint_id, circuit.after(before, results, at)))
    cursor.execute(
        _ENDPOINTS,
        [
            [endpoint_id for endpoint_id, _ in updated],
            [figures.consecutive_failures for _, figures in updated],
            [figures.failing_since for _, figures in updated],
            [figures.last_success_at for _, figures in updated],
            [figures.open_until for _, figures in updated],
            [figures.opened for _, figures in updated],
            [figures.window_started_at for _, figures in updated],
            [figures.window_attempts for _, figures in updated],
            [figures.window_failures for _, figures in updated],
        ],
    )
    for endpoint_id, figures in updated:
        _disable_if_due(endpoint_id, figures, by_endpoint[endpoint_id], at)


def _disable_if_due(endpoint_id: UUID, figures: Figures, outcomes: Sequence[Outcome], at: datetime) -> None:
    gone = any(outcome.decision.gone for outcome in outcomes)
    died = any(outcome.decision.status == "dead" for outcome in outcomes)
    if gone or (died and figures.hopeless(at)):
        endpoints.disable(endpoint_id=endpoint_id, reason="gone" if gone else "failing")
