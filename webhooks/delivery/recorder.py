"""Records outcomes in bulk on the dispatcher's loop, through database outages and around rows that are refused."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import structlog
from django.db import connection

from gateway.database.outage import DATABASE_UNAVAILABLE
from gateway.database.statements import LoopConnection
from webhooks.delivery import monitoring
from webhooks.delivery.record import Outcome, disable, recording

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.1
"""How long the first outcome waits for others. Recorded later, it costs less, and more is sent twice after a crash."""
FLUSH_ROWS = 500
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 15.0
"""How long outcomes wait for a database that is away; well within the lease."""


class Recorder:
    """The outcomes of one dispatcher. `run` until `finish`."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        self._ages: list[float] = []
        self._database = LoopConnection()
        self._has_work = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._is_finishing = False

    def add(self, outcome: Outcome) -> None:
        """Have an outcome recorded soon."""
        self._outcomes.append(outcome)
        self._has_work.set()
        if len(self._outcomes) >= FLUSH_ROWS:
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
        await self._database.close()

    async def _until_enough(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._is_enough.wait()
        except TimeoutError:
            return

    async def _record(self, batch: list[Outcome]) -> None:
        """Write a batch, again and again while the database is away: what is written twice counts once (record.py).

        What cannot be written in the end is delivered again when its lease runs out (at least once).
        """
        _count(batch)
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                recorded = await self._database.run(recording(batch))
                break
            except DATABASE_UNAVAILABLE as error:
                log.warning("record_failed", error=type(error).__name__, rows=len(batch))
                if time.monotonic() > gives_up_at:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:
                # The database refuses one of the outcomes: the others must not be lost with it.
                log.exception("outcomes_refused", error=type(error).__name__, rows=len(batch))
                await self._record_one_by_one(batch)
                return
        if recorded.to_disable:
            await asyncio.to_thread(_disable, recorded.to_disable)

    async def _record_one_by_one(self, batch: list[Outcome]) -> None:
        """Write each outcome of a refused batch alone; one that is refused again is written without its log."""
        for outcome in batch:
            for attempt in (outcome, replace(outcome, log_entry=None, kept=None)):
                try:
                    recorded = await self._database.run(recording([attempt]))
                except DATABASE_UNAVAILABLE as error:
                    log.warning("record_failed", error=type(error).__name__, rows=1)
                    break
                except Exception:
                    log.exception("outcome_refused", delivery_id=str(outcome.delivery_id))
                else:
                    if recorded.to_disable:
                        await asyncio.to_thread(_disable, recorded.to_disable)
                    break


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
