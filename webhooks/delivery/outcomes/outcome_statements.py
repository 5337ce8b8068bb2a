"""The statements that record outcomes: in bulk, fenced by the attempt, with the endpoints' counters and circuits.

A result counts only if the delivery is still at the attempt that was claimed, so a late worker never overwrites
a newer one (docs/architecture.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import orjson
import structlog
from django.db import transaction

from gateway.database.outage import concerns_all
from gateway.database.statements import Statements, id_range, run, uuids
from gateway.outbound.client import Answer
from webhooks.delivery.outcomes import circuit_breaker
from webhooks.delivery.outcomes.attempt_log import KEPT_ATTEMPTS
from webhooks.delivery.outcomes.circuit_breaker import AttemptResult, EndpointCounters
from webhooks.delivery.outcomes.failed_answers import KEPT_ANSWERS
from webhooks.delivery.outcomes.retry import Decision
from webhooks.endpoints import lifecycle

log = structlog.get_logger(__name__)


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of an attempt; without an answer nothing was sent (`error` says why)."""

    delivery_id: UUID
    endpoint_id: UUID
    attempts_before: int
    decision: Decision
    answer: Answer | None = None
    log_entry: dict[str, Any] | None = None
    kept: dict[str, Any] | None = None
    """What is kept of the receiver's answer."""
    error: str | None = None
    probe: bool = False
    circuit_generation: int = 0
    """The one that the endpoint's circuit had at the claim (`circuit_breaker`)."""
    is_awaited: bool = False
    """Whether its customer's next event waits until this is recorded."""

    @property
    def is_success(self) -> bool:
        return self.decision.status == "delivered"

    @property
    def last_error(self) -> str | None:
        return self.answer.error if self.answer else self.error


# Primary keys, partitions pruned by the ids; the log keeps its newest entries, and `answers` has a few places in turn.
_DELIVERIES = """
UPDATE webhook_deliveries d
SET status = r.status,
    attempts = d.attempts + r.spent,
    next_attempt_at = now() + make_interval(secs => r.delay),
    leased_until = NULL,
    customer_key = CASE WHEN r.status IN ('pending', 'failed') THEN d.customer_key END,
    dead_at = CASE WHEN r.status = 'dead' THEN now() END,
    last_http_status = CASE WHEN r.spent = 1 THEN r.http_status ELSE d.last_http_status END,
    last_error = r.error,
    last_response_ms = CASE WHEN r.spent = 1 THEN r.ms ELSE d.last_response_ms END,
    attempt_log = CASE
        WHEN r.entry IS NULL THEN d.attempt_log
        WHEN jsonb_array_length(d.attempt_log) < %(kept)s THEN d.attempt_log || r.entry
        ELSE (d.attempt_log - 0) || r.entry
    END,
    answers = CASE
        WHEN r.kept IS NULL THEN d.answers
        ELSE coalesce(d.answers, '{}') || jsonb_build_object((r.attempts_before %% %(answers)s)::text, r.kept)
    END
FROM json_to_recordset(%(outcomes)s::json)
    AS r (id uuid, attempts_before int, status text, delay float8, http_status int, error text, ms int,
          entry jsonb, kept jsonb, spent int)
WHERE d.id = r.id AND d.id = ANY(%(ids)s::uuid[]) AND d.id BETWEEN %(first)s AND %(last)s
  AND d.attempts = r.attempts_before AND d.status IN ('pending', 'failed')
RETURNING d.id
"""

# In the order of their ids, so two workers never deadlock.
_LOCK_ENDPOINTS = """
SELECT id, consecutive_failures, failing_since, last_success_at, circuit_open_until, circuit_opened,
       circuit_generation, window_started_at, window_attempts, window_failures, now()
FROM webhooks_endpoint WHERE id = ANY(%s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_ENDPOINTS = """
UPDATE webhooks_endpoint e
SET consecutive_failures = r.consecutive_failures, failing_since = r.failing_since,
    last_success_at = r.last_success_at, circuit_open_until = r.open_until, circuit_opened = r.opened,
    circuit_generation = r.generation, window_started_at = r.window_started_at, window_attempts = r.window_attempts,
    window_failures = r.window_failures
FROM unnest(%s::uuid[], %s::int[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::int[],
            %s::int[], %s::timestamptz[], %s::int[], %s::int[])
    AS r (id, consecutive_failures, failing_since, last_success_at, open_until, opened, generation,
          window_started_at, window_attempts, window_failures)
WHERE e.id = r.id
"""


def record(outcomes: Sequence[Outcome]) -> int:
    """Write outcomes and what they say of their endpoints in one transaction; returns how many counted."""
    with transaction.atomic():
        counted = run(recording(outcomes))
        disable(run(judging(counted)))
    return len(counted)


def disable(endpoints_to_disable: Mapping[UUID, str]) -> None:
    """Disable the endpoints that outcomes gave up. When this fails, the next dead delivery asks again."""
    for endpoint_id, reason in endpoints_to_disable.items():
        try:
            with transaction.atomic():
                lifecycle.disable(endpoint_id=endpoint_id, reason=reason)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("disable_failed", endpoint_id=str(endpoint_id))


def recording(outcomes: Sequence[Outcome]) -> Statements[list[Outcome]]:
    """The statement that writes outcomes; returns those that count: the rest were overtaken."""
    rows = yield (
        _DELIVERIES,
        {
            "ids": uuids(outcome.delivery_id for outcome in outcomes),
            **id_range([outcome.delivery_id for outcome in outcomes]),
            "outcomes": orjson.dumps([_row(outcome) for outcome in outcomes]).decode(),
            "kept": KEPT_ATTEMPTS,
            "answers": KEPT_ANSWERS,
        },
    )
    if len(rows) == len(outcomes):
        return list(outcomes)
    counted = {delivery_id for (delivery_id,) in rows}
    return [outcome for outcome in outcomes if outcome.delivery_id in counted]


def _row(outcome: Outcome) -> dict[str, Any]:
    answer = outcome.answer
    return {
        "id": outcome.delivery_id,
        "attempts_before": outcome.attempts_before,
        "status": outcome.decision.status,
        "delay": outcome.decision.delay,
        "http_status": answer.status if answer else None,
        "error": outcome.last_error,
        "ms": answer.ms if answer else None,
        "entry": [outcome.log_entry] if outcome.log_entry else None,
        "kept": outcome.kept,
        "spent": 1 if answer else 0,
    }


def judging(outcomes: Iterable[Outcome]) -> Statements[dict[UUID, str]]:
    """The statements that write what outcomes say of their endpoints, for a transaction of their own.

    Returns the endpoints to disable, with the reasons.
    """
    by_endpoint: defaultdict[UUID, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.answer is not None:
            by_endpoint[outcome.endpoint_id].append(outcome)
    if not by_endpoint:
        return {}
    updated: list[tuple[UUID, EndpointCounters]] = []
    to_disable: dict[UUID, str] = {}
    for endpoint_id, *columns, at in (yield _LOCK_ENDPOINTS, [uuids(by_endpoint)]):
        outcomes = by_endpoint[endpoint_id]
        results = [
            AttemptResult(outcome.is_success, outcome.probe, outcome.circuit_generation)
            for outcome in outcomes
        ]
        counters = circuit_breaker.after(EndpointCounters(*columns), results, at)
        updated.append((endpoint_id, counters))
        if any(outcome.decision.gone for outcome in outcomes):
            to_disable[endpoint_id] = "gone"
        elif any(outcome.decision.status == "dead" for outcome in outcomes) and counters.hopeless(at):
            to_disable[endpoint_id] = "failing"
    yield (
        _ENDPOINTS,
        [
            uuids(endpoint_id for endpoint_id, _ in updated),
            [counters.consecutive_failures for _, counters in updated],
            [counters.failing_since for _, counters in updated],
            [counters.last_success_at for _, counters in updated],
            [counters.open_until for _, counters in updated],
            [counters.opened for _, counters in updated],
            [counters.generation for _, counters in updated],
            [counters.window_started_at for _, counters in updated],
            [counters.window_attempts for _, counters in updated],
            [counters.window_failures for _, counters in updated],
        ],
    )
    return to_disable
