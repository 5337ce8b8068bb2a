"""How deliveries reach a dispatcher: wake-up signals from publishers, and claims of due deliveries.

`Claimer` acquires leases on deliveries that were handed over or are due, and releases those that are not sent.
`WakeUpListener` receives the signals and reports that its dispatcher is alive.
"""

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import redis
import structlog
from django.conf import settings

from gateway.database.live_workers import GRACE_SECONDS, DeadWorkers, Registration
from gateway.database.statements import LoopConnection, Statements
from gateway.database.transactions import error_fields, is_outage
from gateway.valkey import connection
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from webhooks import wake_up
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
from webhooks.delivery.monitoring import IN_FLIGHT_KEY, IN_FLIGHT_SECONDS
from webhooks.events import publish
from webhooks.events.envelope import CALL_PREFIX
from webhooks.events.publish import HandedOver
from webhooks.open_deliveries import releasing
from webhooks.wake_up import Packed

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.5
"""The pause after a failed claim."""
PACE_SECONDS = 0.1
AHEAD_SECONDS = 0.25
"""Deliveries are claimed this long before a sender is free for them, at the senders' current rate. They wait in the
dispatcher while the next claim is under way. With slow receivers, few are claimed ahead.
"""


class DeliveryRate:
    """The smoothed number of deliveries that end per second. `ended` counts deliveries since the last measurement."""

    def __init__(self) -> None:
        self.ended = 0
        self._since = time.monotonic()
        self._rate = 0.0

    def ahead(self) -> int:
        """How many deliveries to claim beyond the number that can be sent now."""
        passed = time.monotonic() - self._since
        if passed >= PACE_SECONDS:
            self._rate = (self._rate + self.ended / passed) / 2
            self.ended = 0
            self._since += passed
        return int(self._rate * AHEAD_SECONDS)


class Claimer:
    """Claims deliveries for one caller at a time, on a separate database connection.

    A failed claim loses no delivery: those that it leased are claimed again when their leases end. The worker of
    `registration` holds the leases.
    """

    def __init__(self, caps: InFlightCaps, registration: Registration) -> None:
        self._caps = caps
        self._registration = registration
        self._dead_workers = DeadWorkers(registration, HOLDERS)
        # A crash of Postgres may lose a lease. The delivery is then claimed again (at least once).
        self._connection = LoopConnection(durable=False)
        self.clock: DatabaseClock | None = None
        """The database's clock. None before its first reading. Another dispatcher's lease cannot be compared
        without it.
        """
        self.must_look = True
        """Whether more may be due than was handed over. If so, the dispatcher polls as soon as it has room."""
        self.looked_at = 0.0
        self.is_quiet = False
        """Whether the last poll found no open delivery at all."""

    def take_at_once(self, handed_over: list[HandedOver]) -> list[Claimed] | None:
        """Take all deliveries without a statement. None if a statement is needed, or if a delivery exceeds a cap."""
        if (
            self.clock is None
            or any(each.envelope is None or self._is_anothers(each) for each in handed_over)
            or len(self._caps.within_caps(handed_over)) < len(handed_over)
        ):
            return None
        return taken_over(handed_over, self.clock, {})

    def take_call(self, call: HandedOver) -> list[Claimed]:
        """Take a call's delivery, whatever the caps. Empty when a statement is needed."""
        if self.clock is None or call.envelope is None or self._is_anothers(call):
            return []
        return taken_over([call], self.clock, {})

    def _is_anothers(self, delivery: HandedOver) -> bool:
        """Whether the lease of a delivery names another worker."""
        return delivery.leased_by is not None and delivery.leased_by != self._registration.id

    async def take_over(self, handed_over: list[HandedOver], room: int) -> list[Claimed]:
        """Take the deliveries that can be sent now. End the leases of the others, so that a poll finds them."""
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
        left = [each for each in handed_over if each.id not in taken_ids]
        if left:
            self.must_look |= len(taken) < len(within_caps)
            await self._run(self._connection.run_each, releasing(left))
        return taken

    async def look(self, room: int) -> list[Claimed]:
        """Poll for due deliveries and claim them. If nothing is due, this is a single statement."""
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
        """If a check is due, end the leases of dead workers, so that their deliveries are due again.

        Returns the seconds until the next check if a worker may be dead, otherwise None.
        """
        if not self._dead_workers.is_due:
            return None
        if await self._run(self._connection.run, ending_leases_of_dead(self._dead_workers)):
            self.must_look = True
        return GRACE_SECONDS if self._dead_workers.has_suspects else None

    async def release(self, waiting: Sequence[Claimed | HandedOver]) -> None:
        """End the leases of deliveries that were not sent. If this fails, the leases run out."""
        try:
            await self._connection.run(releasing(waiting))
        except Exception as error:
            if not is_outage(error):
                raise
            log.warning("release_failed", rows=len(waiting), **error_fields(error))

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _run(
        self, run: Callable[[Statements[Result]], Awaitable[Result]], statements: Statements[Result]
    ) -> Result | None:
        """Run a claim. None, after a pause, when the claim fails."""
        try:
            return await run(statements)
        except Exception as error:
            if is_outage(error):
                log.warning("claim_failed", **error_fields(error))
            else:
                # A failed claim must not stop the recorder, which has outcomes to store.
                log.exception("claim_crashed")
        self.must_look = True
        await asyncio.sleep(PAUSE_SECONDS)
        return None


# --- Wake-up signals, received on the dispatcher's loop.

WAIT_SECONDS = 1.0
"""How long Valkey waits for a signal, and how often this dispatcher reports that it is alive, in seconds."""
ANSWER_SECONDS = 1.0
"""How many seconds more than `WAIT_SECONDS` Valkey may take to answer."""
RETRY_SECONDS = 0.5
SIGNALS_A_TIME = 64
_CALL = f'"dedupe_key":"{CALL_PREFIX}'.encode()
"""The bytes by which a signal with a call is recognised."""
MOST_CPU = 0.7
"""A share of a core. If this process has used more since the last report, the dispatcher reports that others should be
signalled first.
"""


def _waiting(name: str) -> tuple[Any, ...]:
    """The command that waits for signals: for those to this dispatcher, and for those that any dispatcher may take."""
    keys = (wake_up.own_signals(name), wake_up.SIGNAL)
    return ("BLMPOP", WAIT_SECONDS, len(keys), *keys, "LEFT", "COUNT", SIGNALS_A_TIME)


class WakeUpListener:
    """Receives the signals for one dispatcher: `start`, then `receive` repeatedly, then `close`.

    `in_flight` returns the number of the dispatcher's requests in flight, for operators. `has_room` returns whether the
    dispatcher accepts hand-overs. `on_signal` is called for each signal. Until the dispatcher calls `receive`, later
    signals stay in Valkey, where another dispatcher may take them. The connection runs on the event loop, because a
    waiting thread would cost several thread switches per signal.
    """

    def __init__(
        self,
        *,
        worker_id: int,
        in_flight: Callable[[], int],
        has_room: Callable[[], bool],
        on_signal: Callable[[], None],
    ) -> None:
        self._in_flight, self._has_room, self._on_signal = in_flight, has_room, on_signal
        self._name = wake_up.name_of(f"{socket.gethostname()}:{os.getpid()}", worker_id)
        self._waiting = _waiting(self._name)
        self._client: Any = connection.async_client(
            settings.REDIS_URL,
            socket_connect_timeout=0.5,
            socket_timeout=WAIT_SECONDS + ANSWER_SECONDS,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
        )
        self._is_connected = False
        self._id: int | None = None
        """The id of the connection in Valkey. None if Valkey reports no id."""
        self._reported_at = -math.inf
        self._reported_room = False
        self._cpu_seconds = 0.0
        """CPU seconds that this process had used at its last report."""
        self._signals: Sequence[bytes] = ()
        self._own: list[HandedOver] = []
        """Deliveries that this process itself handed over."""
        self._own_look = False
        self._received = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_signals(self) -> bool:
        """Whether signals have arrived that `receive` has not returned yet."""
        return bool(self._signals or self._own or self._own_look)

    @property
    def has_calls(self) -> bool:
        """Whether a call is among the hand-overs that `receive` has not returned yet."""
        return any(each.is_urgent for each in self._own) or any(_CALL in signal for signal in self._signals)

    @property
    def is_connected(self) -> bool:
        """Whether the connection to Valkey works, so that signals arrive."""
        return self._is_connected

    def start(self) -> None:
        """Start listening."""
        self._task = asyncio.create_task(self._listen())

    def receive(self) -> tuple[list[HandedOver], bool]:
        """The deliveries handed over since the last call of this method, and whether to poll for all due deliveries.

        The listener then waits for further signals, so the claim that follows misses none.
        """
        signals, self._signals = self._signals, ()
        own, self._own = self._own, []
        own_look, self._own_look = self._own_look, False
        self._received.set()
        unpacked = [publish.unpacked(signal) for signal in signals]
        handed_over = [each for deliveries in unpacked for each in deliveries or ()]
        return own + handed_over, own_look or None in unpacked

    def take_in(self, deliveries: Sequence[Packed], looks: bool) -> None:
        """Receive a hand-over of this process itself, on the dispatcher's loop."""
        self._own += [publish.unpacked_one(each.content) for each in deliveries]
        self._own_look |= looks
        self._on_signal()

    async def close(self) -> None:
        """Stop. Signals that this dispatcher has not received go to another."""
        self._closing.set()
        self._received.set()
        await asyncio.to_thread(_leave, self._name, self._id)
        if self._task is not None:
            await self._task
        await self._client.aclose()
        signals, self._signals = self._signals, ()
        if signals:
            await asyncio.to_thread(_pass_on, signals)

    async def _listen(self) -> None:
        """Wait for signals until `close`, even after connection errors."""
        while not self._closing.is_set():
            try:
                await self._wait()
            except (*VALKEY_UNAVAILABLE, OSError) as error:
                if self._is_connected:
                    log.warning("wake_up_lost", error=type(error).__name__)
            except Exception:
                # Without the listener, the dispatcher would find deliveries only by polling.
                log.exception("wake_up_crashed")
            else:
                continue
            self._is_connected, self._id, self._reported_at = False, None, -math.inf
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._closing.wait()

    async def _wait(self) -> None:
        """Wait once for signals from Valkey, and then until `receive` has returned them.

        If a report is due, first report that this dispatcher is alive.
        """
        if self._id is None:
            with contextlib.suppress(redis.exceptions.ResponseError):
                self._id = await self._client.client_id()
        if reports := self._reports():
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in reports:
                    pipeline.execute_command(*command)
                await pipeline.execute()
        self._is_connected = True
        if found := await self._client.execute_command(*self._waiting):
            self._received.clear()
            self._signals = found[1]
            if not self._closing.is_set():
                self._on_signal()
                await self._received.wait()

    def _reports(self) -> list[tuple[Any, ...]]:
        has_room = self._has_room()
        if time.monotonic() - self._reported_at < WAIT_SECONDS and has_room == self._reported_room:
            return []
        return [
            wake_up.report_script(self._name, self._state(has_room=has_room)),
            ("SET", IN_FLIGHT_KEY + self._name, self._in_flight(), "EX", IN_FLIGHT_SECONDS),
        ]

    def _state(self, *, has_room: bool) -> bytes:
        """Return the state to report, and record it as the last report."""
        moment, cpu_seconds = time.monotonic(), time.process_time()
        is_busy = cpu_seconds - self._cpu_seconds > MOST_CPU * (moment - self._reported_at)
        self._reported_at, self._reported_room, self._cpu_seconds = moment, has_room, cpu_seconds
        if not has_room:
            return wake_up.FULL
        return wake_up.BUSY if is_busy else wake_up.ROOM


def _leave(name: str, connection_id: int | None) -> None:
    """Unregister the dispatcher, and end its wait in Valkey."""
    try:
        wake_up.unregister(name)
        if connection_id is not None:
            valkey().client_unblock(connection_id)
    except VALKEY_UNAVAILABLE as error:
        log.warning("leave_missed", error=type(error).__name__)


def _pass_on(signals: Sequence[bytes]) -> None:
    wake_up.pass_on([each.packed() for signal in signals for each in publish.unpacked(signal) or ()])
