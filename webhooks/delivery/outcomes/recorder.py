"""Records outcomes in bulk on the dispatcher's loop, through database outages and around rows that are refused."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import msgspec
import structlog
from django.db import connection

from gateway.database.outage import DATABASE_UNAVAILABLE, concerns_all
from gateway.database.statements import LoopConnection
from webhooks.delivery import monitoring
from webhooks.delivery.outcomes.outcome_statements import Outcome, disable, judging, recording

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.2
"""How long the first outcome waits for others. Recorded later, it costs less, and more is sent twice after a crash."""
FLUSH_ROWS = 500
JUDGE_SECONDS = 1.0
"""How long successes wait until their endpoints' counters are written. A failure or a probe is written at once."""
RETRY_SECONDS = 0.5
MOST_UNJUDGED = 10_000
"""Outcomes that are kept for a database that is away."""
PATIENCE_SECONDS = 15.0
"""How long outcomes wait for a database that is away; well within the lease."""


class Recorder:
    """The outcomes of one dispatcher. `run` until `finish`. `on_awaited`: an awaited one was recorded."""

    def __init__(self, *, on_awaited: Callable[[], None]) -> None:
        self._on_awaited = on_awaited
        self._outcomes: list[Outcome] = []
        self._ages: list[float] = []
        self._unjudged: list[Outcome] = []
        """Recorded outcomes that their endpoints' counters do not have yet, in their order."""
        self._judged_at = time.monotonic()
        self._judges_now = False
        """Whether one of them is a failure or a probe, which is written at once."""
        self._database = LoopConnection()
        self._has_work = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._is_finishing = False

    def add(self, outcome: Outcome) -> None:
        """Have an outcome recorded soon."""
        self._outcomes.append(outcome)
        self._has_work.set()
        if outcome.is_awaited or len(self._outcomes) >= FLUSH_ROWS:
            self._is_enough.set()

    def observe_age(self, seconds: float) -> None:
        """Count the age of a delivery at its first attempt."""
        self._ages.append(seconds)

    def finish(self) -> None:
        """Let `run` record what is left and end."""
        self._is_finishing = True
        self._has_work.set()
        self._is_enough.set()

    async def run(self) -> None:
        """Record what is added, in batches."""
        while not (self._is_finishing and not self._outcomes):
            await self._has_work.wait()
            await self._until_enough()
            if self._ages:
                monitoring.AGE.observe(*self._ages)
                self._ages.clear()
            batch, self._outcomes = self._outcomes[:FLUSH_ROWS], self._outcomes[FLUSH_ROWS:]
            if not self._outcomes and not self._is_finishing:
                self._has_work.clear()
            if len(self._outcomes) < FLUSH_ROWS and not self._is_finishing:
                self._is_enough.clear()
            if batch:
                await self._record(batch)
                if any(outcome.is_awaited for outcome in batch):
                    self._on_awaited()
            if self._must_judge():
                await self._judge()
        if self._unjudged:
            await self._judge()
        await self._database.close()

    async def _until_enough(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._is_enough.wait()
        except TimeoutError:
            return

    async def _record(self, batch: list[Outcome]) -> None:
        """Write a batch, again and again while the database is away: what is written twice counts once.

        What cannot be written in the end is delivered again when its lease runs out (at least once).
        """
        _count(batch)
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._add_unjudged(await self._database.run_each(recording(batch)))
                return
            except Exception as error:
                if concerns_all(error):
                    log.warning("record_failed", error=type(error).__name__, rows=len(batch))
                    if time.monotonic() > gives_up_at:
                        return
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                # The database refuses one of the outcomes: the others must not be lost with it.
                log.exception("outcomes_refused", error=type(error).__name__, rows=len(batch))
                await self._record_one_by_one(batch)
                return

    async def _record_one_by_one(self, batch: list[Outcome]) -> None:
        """Write each outcome of a refused batch alone; one that is refused again is written without its log."""
        for outcome in batch:
            for attempt in (outcome, msgspec.structs.replace(outcome, log_entry=None, kept=None)):
                try:
                    self._add_unjudged(await self._database.run_each(recording([attempt])))
                except Exception as error:
                    if concerns_all(error):
                        log.warning("record_failed", error=type(error).__name__, rows=1)
                        break
                    log.exception("outcome_refused", delivery_id=str(outcome.delivery_id))
                else:
                    break

    def _add_unjudged(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes and not self._unjudged:
            self._judge_later()
        self._unjudged += outcomes
        self._judges_now |= any(outcome.probe or not outcome.is_success for outcome in outcomes)

    def _judge_later(self) -> None:
        asyncio.get_running_loop().call_later(JUDGE_SECONDS, self._has_work.set)

    def _must_judge(self) -> bool:
        return bool(self._unjudged) and (
            self._judges_now or time.monotonic() - self._judged_at >= JUDGE_SECONDS
        )

    async def _judge(self) -> None:
        """Write what outcomes say of their endpoints. A database that is away is asked again with the next ones."""
        outcomes, self._unjudged = self._unjudged, []
        self._judges_now = False
        try:
            to_disable = await self._database.run(judging(outcomes))
        except DATABASE_UNAVAILABLE as error:
            log.warning("judge_failed", error=type(error).__name__, rows=len(outcomes))
            self._unjudged = outcomes[-MOST_UNJUDGED:]
            self._judge_later()
            return
        except Exception:
            log.exception("outcomes_not_judged", rows=len(outcomes))
            return
        self._judged_at = time.monotonic()
        if to_disable:
            await asyncio.to_thread(_disable, to_disable)


def _count(batch: Sequence[Outcome]) -> None:
    answers = [outcome.answer for outcome in batch if outcome.answer is not None]
    monitoring.SENT.add(sum(answer.ok for answer in answers))
    for answer in answers:
        if not answer.ok:
            monitoring.FAILED.add(label=answer.error or "")


def _disable(endpoints: Mapping[UUID, str]) -> None:
    try:
        disable(endpoints)
    except DATABASE_UNAVAILABLE as error:
        log.warning("disable_failed", error=type(error).__name__)
    finally:
        connection.close()
