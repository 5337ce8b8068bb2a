"""Records outcomes in bulk, with the endpoints' counters and circuits.

Outcomes wait while the database is unavailable. If it rejects one outcome, it still stores the others. The statements
are fenced by the attempt: a result counts only if the delivery is still at the claimed attempt. So a late worker never
overwrites a newer result (docs/architecture.md).
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import orjson
import structlog
from django.db import connection, transaction

from gateway.database.distribution import of_tenant, together
from gateway.database.statements import LoopConnection, Statements, id_range, run, uuids
from gateway.database.transactions import concerns_all, error_fields, is_outage
from gateway.outbound.client import Answer
from webhooks.delivery import monitoring
from webhooks.delivery.retries_and_attempt_log import KEPT_ANSWERS, KEPT_ATTEMPTS, Decision
from webhooks.destinations.interface import TOO_LARGE
from webhooks.endpoints import circuit_breaker, lifecycle
from webhooks.endpoints.circuit_breaker import AttemptResult, EndpointCounters

log = structlog.get_logger(__name__)


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of an attempt. If `answer` is None, nothing was sent, and `error` has the reason."""

    delivery_id: UUID
    tenant_id: UUID
    endpoint_id: UUID
    attempts_before: int
    decision: Decision
    answer: Answer | None = None
    log_entry: dict[str, Any] | None = None
    kept: dict[str, Any] | None = None
    """The stored part of the receiver's answer."""
    error: str | None = None
    probe: bool = False
    circuit_generation: int = 0
    """The generation of the endpoint's circuit when the delivery was claimed (`circuit_breaker`)."""
    is_awaited: bool = False
    """Whether the customer's next event waits for the record of this outcome."""
    is_single: bool = False
    """Whether the delivery is a single replay, whose caller receives the outcome."""
    shares_answer: bool = False
    """Whether another delivery of the same request represents the request in the endpoint's counters."""

    @property
    def is_success(self) -> bool:
        return self.decision.status == "delivered"

    @property
    def concerns_endpoint(self) -> bool:
        """Whether the attempt is a success or failure of the endpoint. A destination is not at fault if it rejects an
        event that is too large for it.
        """
        return self.answer is not None and self.last_error != TOO_LARGE

    @property
    def is_exhausted(self) -> bool:
        """Whether the delivery is given up and its tenant must be notified."""
        return self.decision.status == "dead" and not self.is_single

    @property
    def last_error(self) -> str | None:
        return self.answer.error if self.answer else self.error


# Finds the rows by primary key. The range of ids excludes partitions. The log keeps its newest entries, and `answers`
# has a few places that are overwritten in turn. Citus accepts `now()` neither within CASE nor together with a column,
# so the number of seconds is null where the result must be null.
_DELIVERIES = f"""
UPDATE webhook_deliveries d
SET status = r.status,
    attempts = d.attempts + r.spent,
    next_attempt_at = to_timestamp(extract(epoch FROM now())::float8 + r.delay),
    leased_until = NULL,
    customer_key = CASE WHEN r.status IN ('pending', 'failed') THEN d.customer_key END,
    dead_at = to_timestamp(extract(epoch FROM now())::float8 + r.dead),
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
        ELSE coalesce(d.answers, '{{}}') || r.kept
    END
FROM json_to_recordset(%(outcomes)s::json)
    AS r (id uuid, attempts_before int, status text, delay float8, http_status int, error text, ms int,
          entry jsonb, kept jsonb, spent int, dead float8)
WHERE {of_tenant("d")} AND d.id = r.id AND d.id = ANY(%(ids)s::uuid[])
  AND d.id BETWEEN %(first)s AND %(last)s
  AND d.attempts = r.attempts_before AND d.status IN ('pending', 'failed')
RETURNING d.id
"""  # noqa: S608 - only conditions are formatted in
# Stores each given-up delivery for a notice, in the statement that counts its outcome. Leaves out deliveries of
# notices, because each notice would cause the next.
_DELIVERIES_WITH_EXHAUSTED = f"""
WITH recorded AS ({_DELIVERIES.rstrip()}, d.endpoint_id, d.event_type), exhausted AS (
    INSERT INTO webhooks_exhausteddelivery (delivery_id, endpoint_id)
    SELECT id, endpoint_id FROM recorded
    WHERE id = ANY(%(exhausted)s::uuid[]) AND left(event_type, 8) <> 'webhook.'
)
SELECT id FROM recorded
"""  # noqa: S608 - only statements are formatted in

# Locks the rows in the order of their ids, so that two workers never deadlock.
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


_CIRCUITS = "SELECT id, circuit_generation, circuit_opened FROM webhooks_endpoint WHERE id = ANY(%s::uuid[])"


class Disabling(NamedTuple):
    """Why an endpoint is to be disabled, and the generation of its circuit when this was found."""

    reason: str
    generation: int


def record(outcomes: Sequence[Outcome]) -> int:
    """Write outcomes and update the health of their endpoints in one transaction. Returns how many were written."""
    with transaction.atomic():
        counted = run(recording(outcomes))
        disable(run(evaluating(counted)))
    return len(counted)


def disable(endpoints_to_disable: Mapping[UUID, Disabling]) -> None:
    """Disable endpoints after their outcomes. If this fails, the next dead delivery tries again."""
    for endpoint_id, (reason, generation) in endpoints_to_disable.items():
        try:
            with transaction.atomic():
                lifecycle.disable(endpoint_id=endpoint_id, reason=reason, generation=generation)
        except Exception as error:
            if concerns_all(error):
                raise
            log.exception("disable_failed", endpoint_id=str(endpoint_id))


def recording(outcomes: Sequence[Outcome]) -> Statements[list[Outcome]]:
    """The statements that write outcomes. Returns the outcomes that count: their deliveries are still at the
    claimed attempt.
    """
    outcomes = yield from _without_outdated_410(outcomes)
    rows: list[tuple[Any, ...]] = []
    for tenant_id, group in together(outcomes, attrgetter("tenant_id")):
        exhausted = [outcome.delivery_id for outcome in group if outcome.is_exhausted]
        rows += yield (
            _DELIVERIES_WITH_EXHAUSTED if exhausted else _DELIVERIES,
            {
                **({"exhausted": uuids(exhausted)} if exhausted else {}),
                "tenant_id": tenant_id,
                "ids": uuids(outcome.delivery_id for outcome in group),
                **id_range([outcome.delivery_id for outcome in group]),
                "outcomes": orjson.dumps([_row(outcome) for outcome in group]).decode(),
                "kept": KEPT_ATTEMPTS,
            },
        )
    if len(rows) == len(outcomes):
        return list(outcomes)
    counted = {delivery_id for (delivery_id,) in rows}
    return [outcome for outcome in outcomes if outcome.delivery_id in counted]


def _without_outdated_410(outcomes: Sequence[Outcome]) -> Statements[Sequence[Outcome]]:
    """The outcomes, with another decision for a 410 that came from an endpoint's former url, or before a passed ping.

    The delivery is then tried again at once, unless it is a single replay.
    """
    gone = {outcome.endpoint_id for outcome in outcomes if outcome.decision.gone}
    if not gone:
        return outcomes
    outdated = {
        outcome.delivery_id: Decision("dead") if outcome.is_single else Decision("failed", 0.0)
        for endpoint_id, generation, opened in (yield _CIRCUITS, [uuids(gone)])
        for outcome in outcomes
        if outcome.endpoint_id == endpoint_id
        and outcome.decision.gone
        and circuit_breaker.is_outdated(outcome.circuit_generation, generation=generation, opened=opened)
    }
    return [
        msgspec.structs.replace(outcome, decision=outdated.get(outcome.delivery_id, outcome.decision))
        for outcome in outcomes
    ]


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
        "kept": {str(outcome.attempts_before % KEPT_ANSWERS): outcome.kept} if outcome.kept else None,
        "spent": 1 if answer else 0,
        "dead": 0 if outcome.decision.status == "dead" else None,
    }


def evaluating(outcomes: Iterable[Outcome]) -> Statements[dict[UUID, Disabling]]:
    """The statements that update the health of endpoints from outcomes, to be run in a separate transaction.

    Returns the endpoints to disable.
    """
    by_endpoint: defaultdict[UUID, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.concerns_endpoint or outcome.probe:
            by_endpoint[outcome.endpoint_id].append(outcome)
    if not by_endpoint:
        return {}
    updated: list[tuple[UUID, EndpointCounters]] = []
    to_disable: dict[UUID, Disabling] = {}
    for endpoint_id, *columns, at in (yield _LOCK_ENDPOINTS, [uuids(by_endpoint)]):
        outcomes = by_endpoint[endpoint_id]
        results = [
            AttemptResult(
                outcome.is_success if outcome.concerns_endpoint else None,
                outcome.probe,
                outcome.circuit_generation,
            )
            for outcome in outcomes
            if not outcome.shares_answer
        ]
        counters = circuit_breaker.after(EndpointCounters(*columns), results, at)
        updated.append((endpoint_id, counters))
        if gone := [outcome.circuit_generation for outcome in outcomes if outcome.decision.gone]:
            to_disable[endpoint_id] = Disabling("gone", max(gone))
        elif any(
            outcome.decision.status == "dead" and outcome.concerns_endpoint for outcome in outcomes
        ) and counters.is_past_recovery(at):
            to_disable[endpoint_id] = Disabling("failing", counters.generation)
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


FLUSH_SECONDS = 0.2
"""How long the first outcome waits for others. A longer wait costs less, but repeats more deliveries after a crash."""
ENOUGH_ROWS = 32
"""With this many outcomes, the write begins at once. A crash repeats deliveries without a recorded outcome."""
FLUSH_ROWS = 500
EVALUATE_SECONDS = 1.0
"""How long successes wait until their endpoints' counters are written. Failures and probes are written at once."""
RETRY_SECONDS = 0.5
MOST_UNEVALUATED = 10_000
"""The maximum number of outcomes that wait for their endpoints' counters while the database is unavailable."""
PATIENCE_SECONDS = 15.0
"""How long outcomes wait for an unavailable database. Well within the lease."""


class Recorder:
    """Records the outcomes of one dispatcher. Run `run` until `finish` is called.

    `on_awaited` is called when an awaited outcome was recorded.
    """

    def __init__(self, *, on_awaited: Callable[[], None]) -> None:
        self._on_awaited = on_awaited
        self._outcomes: list[Outcome] = []
        self._ages: list[float] = []
        self._unevaluated: list[Outcome] = []
        """Recorded outcomes that the endpoints' counters do not include yet, in the order of recording."""
        self._evaluated_at = time.monotonic()
        self._evaluates_now = False
        """Whether `_unevaluated` contains a failure or a probe. These are counted at once."""
        self._database = LoopConnection()
        self._has_work = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._is_finishing = False

    def add(self, outcome: Outcome) -> None:
        """Queue an outcome. It is recorded soon."""
        self._outcomes.append(outcome)
        self._has_work.set()
        if outcome.is_awaited or len(self._outcomes) >= ENOUGH_ROWS:
            self._is_enough.set()

    def observe_age(self, seconds: float) -> None:
        """Count the age of a delivery at its first attempt."""
        self._ages.append(seconds)

    def finish(self) -> None:
        """Let `run` record the remaining outcomes and end."""
        self._is_finishing = True
        self._has_work.set()
        self._is_enough.set()

    async def run(self) -> None:
        """Record added outcomes, in batches."""
        while not (self._is_finishing and not self._outcomes):
            await self._has_work.wait()
            await self._until_enough()
            if self._ages:
                monitoring.AGE.observe(*self._ages)
                self._ages.clear()
            batch, self._outcomes = self._outcomes[:FLUSH_ROWS], self._outcomes[FLUSH_ROWS:]
            if not self._outcomes and not self._is_finishing:
                self._has_work.clear()
            if len(self._outcomes) < ENOUGH_ROWS and not self._is_finishing:
                self._is_enough.clear()
            if batch:
                await self._record(batch)
                if any(outcome.is_awaited for outcome in batch):
                    self._on_awaited()
            if self._must_evaluate():
                await self._evaluate()
        if self._unevaluated:
            await self._evaluate()
        await self._database.close()

    async def _until_enough(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._is_enough.wait()
        except TimeoutError:
            return

    async def _record(self, batch: list[Outcome]) -> None:
        """Write a batch. Retry while the database is unavailable. An outcome that is written twice counts once.

        Deliveries whose outcomes cannot be written are sent again when their leases run out (at least once).
        """
        _count(batch)
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        is_repeated = False
        while True:
            try:
                counted = await self._database.run_each(recording(batch))
                # The interrupted try may have written outcomes, and a repetition no longer finds their deliveries at
                # the claimed attempt.
                self._add_unevaluated(batch if is_repeated else counted)
                return
            except Exception as error:
                if concerns_all(error):
                    log.warning("record_failed", rows=len(batch), **error_fields(error))
                    if time.monotonic() > gives_up_at:
                        return
                    await asyncio.sleep(RETRY_SECONDS)
                    is_repeated = True
                    continue
                # The database rejects one of the outcomes. The others must not be lost with it.
                log.exception("outcomes_refused", error=type(error).__name__, rows=len(batch))
                await self._record_one_by_one(batch)
                return

    async def _record_one_by_one(self, batch: list[Outcome]) -> None:
        """Write each outcome of a rejected batch alone. If it is rejected again, write it without its log entry."""
        for outcome in batch:
            for attempt in (outcome, msgspec.structs.replace(outcome, log_entry=None, kept=None)):
                try:
                    self._add_unevaluated(await self._database.run_each(recording([attempt])))
                except Exception as error:
                    if concerns_all(error):
                        log.warning("record_failed", rows=1, **error_fields(error))
                        break
                    log.exception("outcome_refused", delivery_id=str(outcome.delivery_id))
                else:
                    break

    def _add_unevaluated(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes and not self._unevaluated:
            self._evaluate_later()
        self._unevaluated += outcomes
        for outcome in outcomes:
            if outcome.is_exhausted:
                monitoring.DEAD.add(label=outcome.last_error or "")
        self._evaluates_now |= any(outcome.probe or not outcome.is_success for outcome in outcomes)

    def _evaluate_later(self) -> None:
        asyncio.get_running_loop().call_later(EVALUATE_SECONDS, self._has_work.set)

    def _must_evaluate(self) -> bool:
        return bool(self._unevaluated) and (
            self._evaluates_now or time.monotonic() - self._evaluated_at >= EVALUATE_SECONDS
        )

    async def _evaluate(self) -> None:
        """Update the health of endpoints from outcomes. If the database is unavailable, the outcomes wait for the
        next call.
        """
        outcomes, self._unevaluated = self._unevaluated, []
        self._evaluates_now = False
        try:
            to_disable = await self._database.run(evaluating(outcomes))
        except Exception as error:
            if not is_outage(error):
                log.exception("outcomes_not_evaluated", rows=len(outcomes))
                return
            log.warning("evaluation_failed", rows=len(outcomes), **error_fields(error))
            self._unevaluated = outcomes[-MOST_UNEVALUATED:]
            self._evaluate_later()
            return
        self._evaluated_at = time.monotonic()
        if to_disable:
            await asyncio.to_thread(_disable, to_disable)


def _count(batch: Sequence[Outcome]) -> None:
    answers = [outcome.answer for outcome in batch if outcome.answer is not None]
    monitoring.SENT.add(sum(answer.ok for answer in answers))
    for answer in answers:
        if not answer.ok:
            monitoring.FAILED.add(label=answer.error or "")


def _disable(endpoints: Mapping[UUID, Disabling]) -> None:
    try:
        disable(endpoints)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("disable_failed", **error_fields(error))
    finally:
        connection.close()
