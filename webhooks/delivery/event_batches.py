"""Several events in one request: claimed deliveries wait until their request is full or has waited long enough.

Waiting deliveries occupy no sender. The answer to a request counts for each of its deliveries, which have outcomes of
their own. Failed ones are retried together while their attempt numbers are the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from webhooks.delivery.claim_statements import Claimed

MOST_BYTES = 1024 * 1024
"""Most bytes of bodies in one request. The first body does not count."""


def fitting(deliveries: Sequence[Claimed]) -> int:
    """How many of these deliveries fit one request, from the first on."""
    held = 0
    for place, delivery in enumerate(deliveries):
        held += delivery.size if place else 0
        if held > MOST_BYTES:
            return place
    return len(deliveries)


class EventBatches:
    """The waiting deliveries of one dispatcher. `send` is called with the deliveries of one request."""

    def __init__(self, send: Callable[[list[Claimed]], None]) -> None:
        self._send = send
        self._waiting: dict[UUID, list[Claimed]] = {}
        """Waiting deliveries by endpoint."""
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Claimed) -> None:
        """Send a delivery, together with others where its endpoint asks for it. Probes and calls go alone."""
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
        """Remove and return all waiting deliveries."""
        waiting = [delivery for each in self._waiting.values() for delivery in each]
        self._waiting.clear()
        return waiting

    def _send_old(self, key: UUID, waiting: list[Claimed]) -> None:
        if self._waiting.get(key) is waiting:
            self._send(self._waiting.pop(key))
