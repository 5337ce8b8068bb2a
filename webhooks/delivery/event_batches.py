"""Several events in one request: claimed deliveries that wait until their request is full, or old enough.

They take no sender while they wait. A request is answered for all of its deliveries: each has its own outcome, and
what failed is tried again together, for as long as the attempts keep in step.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from webhooks.delivery.claim_statements import Claimed

MOST_BYTES = 1024 * 1024
"""Of the bodies in one request, beyond its first one."""


def fitting(deliveries: Sequence[Claimed]) -> int:
    """How many of a customer's deliveries one request holds, from the first on."""
    held = 0
    for place, delivery in enumerate(deliveries):
        held += delivery.size if place else 0
        if held > MOST_BYTES:
            return place
    return len(deliveries)


class EventBatches:
    """The waiting deliveries of one dispatcher; `send` is called with those that go out together."""

    def __init__(self, send: Callable[[list[Claimed]], None]) -> None:
        self._send = send
        self._waiting: dict[UUID, list[Claimed]] = {}
        """By endpoint."""
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Claimed) -> None:
        """Have a delivery sent, with others where its endpoint wants it. Probes and calls go alone."""
        shape = delivery.target.batch
        if shape is None or delivery.probe or delivery.is_urgent:
            self._send([delivery])
            return
        key = delivery.endpoint_id
        waiting = self._waiting.get(key)
        if waiting and fitting([*waiting, delivery]) <= len(waiting):
            self._send(self._waiting.pop(key))
            waiting = None
        if waiting is None:
            waiting = self._waiting[key] = []
            self._loop.call_later(shape.seconds, self._send_old, key, waiting)
        waiting.append(delivery)
        if len(waiting) >= shape.events:
            self._send(self._waiting.pop(key))

    def take_back(self) -> list[Claimed]:
        """All that wait; they are not sent any more."""
        waiting = [delivery for each in self._waiting.values() for delivery in each]
        self._waiting.clear()
        return waiting

    def _send_old(self, key: UUID, waiting: list[Claimed]) -> None:
        if self._waiting.get(key) is waiting:
            self._send(self._waiting.pop(key))
