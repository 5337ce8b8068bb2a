"""Senders of a dispatcher: they send claimed deliveries; one whose receiver is slow frees its place for others.

A request that waits long for its answer costs memory and little else, so it takes no sender from the others: another
sender replaces the one that waits. Otherwise a few hundred endpoints that hang would hold every sender of a worker
until their time-outs, and all other tenants' deliveries would wait for those.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from webhooks.delivery.caps.in_flight_caps import SLOW_MS, InFlight, InFlightCaps
from webhooks.delivery.claiming.claim_statements import Claimed

log = structlog.get_logger(__name__)

SLOW_SECONDS = SLOW_MS / 1000
"""A request that is not answered within this time is slow."""


@dataclass(slots=True, eq=False)
class Sending:
    """A claimed delivery that waits for a sender or is under way, and where it counts."""

    delivery: Claimed
    endpoint: InFlight
    tenant: InFlight
    since: float = 0.0
    """When a sender took it, on the loop's clock."""
    is_slow: bool = False


class Senders:
    """The senders of one dispatcher: `count` for requests that are not slow, and one more for each slow request.

    `send` sends a delivery, `on_end` is told of its end. `on_room` is called when slow requests have made room.
    """

    def __init__(
        self,
        caps: InFlightCaps,
        *,
        count: int,
        send: Callable[[Sending], Awaitable[None]],
        on_end: Callable[[Sending], None],
        on_room: Callable[[], None],
    ) -> None:
        self._caps = caps
        self._send, self._on_end, self._on_room = send, on_end, on_room
        self.open = 0
        """Deliveries that wait for a sender or are under way, without those that are slow."""
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Sending] = asyncio.Queue()
        self._quick: dict[Sending, None] = {}
        """Requests under way that are not slow, the oldest first."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._count = count
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """All that `put` was given and that has not ended."""
        return self.open + self._caps.slow

    def start(self) -> None:
        """Begin to send."""
        for _ in range(self._count):
            self._add_sender()

    def put(self, delivery: Claimed, endpoint: InFlight, tenant: InFlight) -> None:
        """Have the next free sender send a delivery."""
        self.open += 1
        self._waiting.put_nowait(Sending(delivery, endpoint, tenant))

    def take_back(self) -> list[Claimed]:
        """The deliveries that no sender has taken; they are not sent any more."""
        waiting = []
        while not self._waiting.empty():
            waiting.append(self._waiting.get_nowait().delivery)
            self.open -= 1
            self._waiting.task_done()
        return waiting

    async def finish(self) -> None:
        """Wait until everything is sent, then end."""
        await self._waiting.join()
        if self._look_timer is not None:
            self._look_timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _add_sender(self) -> None:
        task = self._loop.create_task(self._send_in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_in_turn(self) -> None:
        """Send one delivery after another, until one was slow: another sender has taken this one's place then."""
        is_replaced = False
        while not is_replaced:
            sending = await self._waiting.get()
            sending.since = self._loop.time()
            self._quick[sending] = None
            self._look_for_slow_within(SLOW_SECONDS)
            try:
                await self._send(sending)
            except Exception:
                # The lease runs out and the delivery is claimed again: an error here must not end the others.
                log.exception("delivery_crashed")
            finally:
                is_replaced = sending.is_slow
                if is_replaced:
                    self._caps.end_slow(sending.endpoint)
                else:
                    del self._quick[sending]
                    self.open -= 1
                self._on_end(sending)
                self._waiting.task_done()

    def _look_for_slow_within(self, seconds: float) -> None:
        # One timer for all: one for each request would be paid by each quick delivery.
        if self._look_timer is None:
            self._look_timer = self._loop.call_later(seconds, self._look_for_slow)

    def _look_for_slow(self) -> None:
        """Replace the senders whose requests have become slow, as long as more may wait."""
        self._look_timer = None
        moment, has_made_room = self._loop.time(), False
        for sending in list(self._quick):
            left = sending.since + SLOW_SECONDS - moment
            if left > 0 or not self._caps.begin_slow(sending.endpoint):
                self._look_for_slow_within(left if left > 0 else SLOW_SECONDS)
                break
            del self._quick[sending]
            sending.is_slow = has_made_room = True
            self.open -= 1
            self._add_sender()
        if has_made_room:
            self._on_room()
