"""The claimer of a dispatcher: takes what was handed over, looks for what is due, gives back what is not sent."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from gateway.database.registration import GRACE_SECONDS, DeadWorkers, Registration
from gateway.database.statements import LoopConnection, Statements
from gateway.database.transactions import DATABASE_UNAVAILABLE
from webhooks.delivery.caps import InFlightCaps
from webhooks.delivery.claim_statements import (
    HOLDERS,
    Claimed,
    DatabaseClock,
    claiming,
    ending_leases_of_dead,
    finding_ready,
    taken_over,
    taking_over,
)
from webhooks.delivery_rows import giving_back
from webhooks.events.publish import HandedOver

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.5
"""After a claim that failed."""
PACE_SECONDS = 0.1
AHEAD_SECONDS = 0.25
"""How far claims run ahead of the senders: by what is sent in this time at the present pace. Claimed deliveries wait
in the dispatcher while the next claim is under way; when receivers are slow, few do."""


class DeliveryRate:
    """Deliveries that end in a second, smoothed. Whoever ends one counts it in `ended`."""

    def __init__(self) -> None:
        self.ended = 0
        self._since = time.monotonic()
        self._rate = 0.0

    def ahead(self) -> int:
        """How many deliveries to claim beyond those that can be sent now."""
        passed = time.monotonic() - self._since
        if passed >= PACE_SECONDS:
            self._rate = (self._rate + self.ended / passed) / 2
            self.ended = 0
            self._since += passed
        return int(self._rate * AHEAD_SECONDS)


class Claimer:
    """Serves one caller at a time, on a database connection of its own.

    A claim that fails takes nothing: what it may have claimed is claimed again when its lease runs out. Leases are
    bound to `registration`.
    """

    def __init__(self, caps: InFlightCaps, registration: Registration) -> None:
        self._caps = caps
        self._registration = registration
        self._dead_workers = DeadWorkers(registration, HOLDERS)
        # A lease that a crash of Postgres forgets is claimed again: at least once.
        self._connection = LoopConnection(durable=False)
        self.clock: DatabaseClock | None = None
        """The database's clock, once it was read: before, no lease that others gave can be judged."""
        self.must_look = True
        """Whether more may be due than was handed over: then the dispatcher looks as soon as there is room."""
        self.looked_at = 0.0
        self.is_quiet = False
        """Whether no delivery at all was open at the last look."""

    def take_at_once(self, handed_over: list[HandedOver]) -> list[Claimed] | None:
        """Take all without a statement; None when it needs one, or a choice among them."""
        if (
            self.clock is None
            or any(each.envelope is None or self._is_anothers(each) for each in handed_over)
            or len(self._caps.within_caps(handed_over)) < len(handed_over)
        ):
            return None
        return taken_over(handed_over, self.clock, {})

    def _is_anothers(self, delivery: HandedOver) -> bool:
        """Whether the lease of a delivery names another worker."""
        return delivery.leased_by is not None and delivery.leased_by != self._registration.id

    async def take_over(self, handed_over: list[HandedOver], room: int) -> list[Claimed]:
        """The deliveries that can be sent now; the leases of the others end, so that a look finds them."""
        within_caps = self._caps.within_caps(handed_over)
        fitting = within_caps[: max(0, room)]
        taken: list[Claimed] = []
        if fitting and self.clock is not None:
            taken = (
                await self._run(
                    self._connection.run_each, taking_over(fitting, self.clock, self._registration.holder)
                )
                or []
            )
        taken_ids = {each.id for each in taken}
        left = {each.id: each.claimed_at for each in handed_over if each.id not in taken_ids}
        if left:
            self.must_look |= len(taken) < len(within_caps)
            await self._run(self._connection.run_each, giving_back(left))
        return taken

    async def look(self, room: int) -> list[Claimed]:
        """Claim what is due; a lone statement finds that nothing is."""
        self.must_look = False
        ready = await self._run(self._connection.run_each, finding_ready())
        self.looked_at = time.monotonic()
        if ready is None:
            return []
        self.clock = DatabaseClock.at(ready.at)
        self.is_quiet = ready.is_quiet
        if not ready.endpoints:
            return []
        asked = self._caps.room(room)
        found = await self._run(self._connection.run, claiming(ready, asked, self._registration.holder))
        if found is None:
            return []
        self._caps.close(found.closed)
        self.must_look |= self._caps.note_unserved(found.unserved, asked)
        return found.deliveries

    async def take_over_from_dead(self) -> float | None:
        """End the leases of workers that died, when it is time to look for some: what they held is due again.

        Returns after how many seconds to look again, where some may have died.
        """
        if not self._dead_workers.is_due:
            return None
        if await self._run(self._connection.run, ending_leases_of_dead(self._dead_workers)):
            self.must_look = True
        return GRACE_SECONDS if self._dead_workers.has_suspects else None

    async def give_back(self, waiting: Sequence[Claimed | HandedOver]) -> None:
        """End the leases of what was not sent; if that fails, they run out."""
        try:
            await self._connection.run(giving_back({each.id: each.claimed_at for each in waiting}))
        except DATABASE_UNAVAILABLE as error:
            log.warning("give_back_failed", error=type(error).__name__, rows=len(waiting))

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _run(
        self, run: Callable[[Statements[Result]], Awaitable[Result]], statements: Statements[Result]
    ) -> Result | None:
        """Run a claim; None when it failed, after a pause."""
        try:
            return await run(statements)
        except DATABASE_UNAVAILABLE as error:
            log.warning("claim_failed", error=type(error).__name__)
        except Exception:
            # What cannot be claimed must not end the recording of what was sent.
            log.exception("claim_crashed")
        self.must_look = True
        await asyncio.sleep(PAUSE_SECONDS)
        return None
