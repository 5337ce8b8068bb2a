"""The kinds of destinations, and the open destinations of an event loop: one for each endpoint and its settings.

A destination is opened once for all its messages. A destination that fails is closed and opened again, so a broker's
outage fails only the attempts made during it.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from gateway.outbound.client import Answer, Outbound
from webhooks.destinations.interface import NO_CLIENT, REFUSED, TOO_LARGE, Destination, Message, failed
from webhooks.destinations.kafka import Kafka
from webhooks.destinations.rabbitmq import RabbitMq
from webhooks.destinations.s3 import S3
from webhooks.destinations.sqs import Sqs

KINDS: Mapping[str, type[Destination[Any]]] = {
    "sqs": Sqs,
    "s3": S3,
    "kafka": Kafka,
    "rabbitmq": RabbitMq,
}
MOST_OPEN = 500
"""The maximum number of open destinations of a dispatcher. Beyond this limit, the one that was opened
first is closed.
"""
CLOSE_SECONDS = 2.0
_KEEPS_OPEN = frozenset({None, REFUSED, TOO_LARGE})
_HEADERS = ("webhook-", "x-service-", "traceparent")
"""Prefixes of the headers that destinations get. Other headers concern HTTP."""


def kind_of(settings: tuple[Any, ...]) -> str:
    """The kind of destination that has these settings."""
    return next(kind for kind, each in KINDS.items() if isinstance(settings, each.SETTINGS))


class Connections:
    """The open destinations of one event loop."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._open: dict[tuple[UUID, Any], tuple[Destination[Any], asyncio.Task[None]]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, endpoint_id: UUID, settings: tuple[Any, ...], message: Message) -> Answer:
        """Send a message to an endpoint's destination within the message's time. Errors become an `Answer`."""
        began, at = time.monotonic(), (endpoint_id, settings)
        if at not in self._open:
            kind = KINDS[kind_of(settings)]
            if not kind.has_client():
                return failed(NO_CLIENT, began)
            if len(self._open) >= MOST_OPEN:
                self._drop(next(iter(self._open)))
            made = kind(settings, self._outbound)
            opening = asyncio.create_task(_opened(made, message.seconds))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._open[at] = made, opening
        destination, opening = entry = self._open[at]
        named = {name: text for name, text in message.headers.items() if name.lower().startswith(_HEADERS)}
        try:
            async with asyncio.timeout(message.seconds):
                # A sender that stops waiting must not cancel the opening for other senders.
                await asyncio.shield(opening)
                left = message.seconds - (time.monotonic() - began)
                answer = await destination.send(message._replace(headers=named, seconds=left))
        except asyncio.CancelledError:
            # A client library or another sender may have cancelled the opening or the sending. Only this sender's own
            # cancellation is raised.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            answer = failed("connection_error", began)
        except Exception as error:  # noqa: BLE001 - clients raise errors of their own
            answer = destination.failure(error, began)
        is_open = opening.done() and not opening.cancelled() and opening.exception() is None
        keeps = is_open and answer.error in _KEEPS_OPEN and destination.is_usable
        if not keeps and self._open.get(at) is entry:
            self._drop(at)
        return answer

    def _drop(self, at: tuple[UUID, Any]) -> None:
        destination, opening = self._open.pop(at)
        opening.cancel()
        closing = asyncio.create_task(_closed(destination))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Close all open destinations."""
        for at in list(self._open):
            self._drop(at)
        if self._closing:
            await asyncio.wait(self._closing)


async def _opened(destination: Destination[Any], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await destination.open()


async def _closed(destination: Destination[Any]) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await destination.close()
