"""Listener of wake-up signals: waits for them on the dispatcher's loop and says that this dispatcher is alive."""

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
import structlog
from django.conf import settings

from gateway.valkey import address
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from webhooks import wake_up
from webhooks.delivery import monitoring
from webhooks.events import hand_over
from webhooks.events.hand_over import HandedOver

log = structlog.get_logger(__name__)

ALIVE_MILLISECONDS = 3_000
WAIT_SECONDS = 1.0
"""How long Valkey is asked to wait for a signal, and how often this dispatcher says that it is alive."""
ANSWER_SECONDS = 1.0
"""How much longer Valkey may take to answer."""
RETRY_SECONDS = 0.5
SIGNALS_A_TIME = 64

_WAIT = ("BLMPOP", WAIT_SECONDS, 1, wake_up.SIGNAL, "LEFT", "COUNT", SIGNALS_A_TIME)


class WakeUpListener:
    """The signals for one dispatcher: `start`, then `heard` again and again, then `close`.

    `in_flight` counts the dispatcher's requests, for the figures that operators see; `has_room` says whether it can be
    handed more; `on_signal` is called when there is something to hear. What was signalled waits in Valkey, for another
    dispatcher too, until the last signals were heard. The connection is the listener's own: a thread that waits costs
    several changes of threads a signal.
    """

    def __init__(
        self,
        *,
        in_flight: Callable[[], int],
        has_room: Callable[[], bool],
        on_signal: Callable[[], None],
    ) -> None:
        self._in_flight, self._has_room, self._on_signal = in_flight, has_room, on_signal
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._client: Any = address.async_client(
            settings.REDIS_URL,
            socket_connect_timeout=0.5,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
        )
        self._connection: Any = None
        self._id: int | None = None
        """The connection's id in Valkey; None where Valkey does not tell."""
        self._reported_at = -math.inf
        self._reported_room = False
        self._signals: Sequence[bytes] = ()
        self._is_wanted = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_heard(self) -> bool:
        """Whether there is something to hear."""
        return bool(self._signals)

    @property
    def is_connected(self) -> bool:
        """Whether signals can be heard."""
        return self._connection is not None

    def start(self) -> None:
        """Begin to listen."""
        self._is_wanted.set()
        self._task = asyncio.create_task(self._listen())

    def heard(self) -> tuple[list[HandedOver], bool]:
        """The deliveries that were handed over since the last call, and whether to look for all that are due.

        Has it listen again, so a claim that follows misses nothing.
        """
        signals, self._signals = self._signals, ()
        self._is_wanted.set()
        unpacked = [hand_over.unpacked(signal) for signal in signals]
        return [each for deliveries in unpacked for each in deliveries or ()], None in unpacked

    async def close(self) -> None:
        """End. What this dispatcher has not heard is signalled to another."""
        self._closing.set()
        self._is_wanted.set()
        await asyncio.to_thread(_leave, self._id)
        if self._task is not None:
            await self._task
        await self._disconnect()
        await self._client.aclose()
        if self._signals:
            await asyncio.to_thread(_pass_on, self._signals)

    async def _listen(self) -> None:
        while await self._is_wanted.wait() and not self._closing.is_set():
            try:
                async with asyncio.timeout(WAIT_SECONDS + ANSWER_SECONDS):
                    signals = await self._next()
            except (*VALKEY_UNAVAILABLE, TimeoutError):
                await self._pause()
            except Exception:
                # A listener that ended would leave the dispatcher with what it finds by looking.
                log.exception("wake_up_crashed")
                await self._pause()
            else:
                if signals:
                    self._signals = signals
                    if not self._closing.is_set():
                        self._is_wanted.clear()
                    self._on_signal()

    async def _next(self) -> Sequence[bytes]:
        """The next signals; none when the wait is over. Says first, where that is due, that this one is alive."""
        if self._connection is None:
            await self._connect()
        connection = self._connection
        reports = self._reports()
        await connection.send_packed_command(connection.pack_commands([*reports, _WAIT]), check_health=False)
        for _ in reports:
            await connection.read_response()
        found = await connection.read_response(disable_decoding=True)
        return found[1] if found else ()

    def _reports(self) -> list[tuple[Any, ...]]:
        has_room = self._has_room()
        if time.monotonic() - self._reported_at < WAIT_SECONDS and has_room == self._reported_room:
            return []
        self._reported_at, self._reported_room = time.monotonic(), has_room
        room = wake_up.ROOM if has_room else wake_up.FULL
        return [
            ("SET", wake_up.ALIVE, room, "PX", ALIVE_MILLISECONDS),
            monitoring.in_flight_report(self._name, self._in_flight()),
        ]

    async def _connect(self) -> None:
        self._connection = await self._client.connection_pool.get_connection()
        await self._connection.send_command("CLIENT", "ID")
        with contextlib.suppress(redis.exceptions.ResponseError):
            self._id = await self._connection.read_response()

    async def _disconnect(self) -> None:
        connection, self._connection, self._id = self._connection, None, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._client.connection_pool.release(connection)

    async def _pause(self) -> None:
        await self._disconnect()
        self._reported_at = -math.inf
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS):
                await self._closing.wait()


def _leave(connection_id: int | None) -> None:
    """Another dispatcher says by itself that it is alive, within a second. Ends the wait that is under way."""
    try:
        valkey().delete(wake_up.ALIVE)
        if connection_id is not None:
            valkey().client_unblock(connection_id)
    except VALKEY_UNAVAILABLE as error:
        log.warning("leave_missed", error=type(error).__name__)


def _pass_on(signals: Sequence[bytes]) -> None:
    wake_up.pass_on([each.packed() for signal in signals for each in hand_over.unpacked(signal) or ()])
