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
from webhooks import dispatcher_register, wake_up
from webhooks.delivery import monitoring
from webhooks.delivery.signals.signal_connection import SignalConnection
from webhooks.events import hand_over
from webhooks.events.hand_over import HandedOver

log = structlog.get_logger(__name__)

WAIT_SECONDS = 1.0
"""How long Valkey is asked to wait for a signal, and how often this dispatcher says that it is alive."""
ANSWER_SECONDS = 1.0
"""How much longer Valkey may take to answer."""
RETRY_SECONDS = 0.5
SIGNALS_A_TIME = 64
MOST_CPU = 0.7
"""Of a core, within the last second: beyond it other dispatchers get the signals, while they use less."""


def _waiting(name: str) -> tuple[Any, ...]:
    """The command that waits for signals: for this dispatcher's own, and for those that any takes."""
    keys = (dispatcher_register.own_signals(name), dispatcher_register.SIGNAL)
    return ("BLMPOP", WAIT_SECONDS, len(keys), *keys, "LEFT", "COUNT", SIGNALS_A_TIME)


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
        self._waiting = _waiting(self._name)
        self._client: Any = address.async_client(
            settings.REDIS_URL,
            # Answers alone: in the third version of the protocol the server may send other things between them.
            protocol=2,
            socket_connect_timeout=0.5,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
        )
        self._connection: SignalConnection | None = None
        self._id: int | None = None
        """The connection's id in Valkey; None where Valkey does not tell."""
        self._reported_at = -math.inf
        self._reported_room = False
        self._cpu_seconds = 0.0
        """That this process had used at the last report."""
        self._signals: Sequence[bytes] = ()
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()
        """The connection is lost, or closing and not waiting any more."""
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
        self._task = asyncio.create_task(self._listen())

    def heard(self) -> tuple[list[HandedOver], bool]:
        """The deliveries that were handed over since the last call, and whether to look for all that are due.

        Has it listen again, so a claim that follows misses nothing.
        """
        signals, self._signals = self._signals, ()
        self._wait()
        unpacked = [hand_over.unpacked(signal) for signal in signals]
        return [each for deliveries in unpacked for each in deliveries or ()], None in unpacked

    async def close(self) -> None:
        """End. What this dispatcher has not heard is signalled to another."""
        self._closing.set()
        await asyncio.to_thread(_leave, self._name, self._id)
        if self._connection is None or not self._connection.is_asked:
            self._ended.set()
        if self._task is not None:
            await self._task
        await self._client.aclose()
        if self._signals:
            await asyncio.to_thread(_pass_on, self._signals)

    async def _listen(self) -> None:
        """Keep a connection open."""
        while not self._closing.is_set():
            opened = None
            try:
                opened = await self._client.connection_pool.get_connection()
                await self._use(opened)
            except (*VALKEY_UNAVAILABLE, OSError) as error:
                log.debug("wake_up_unreachable", error=type(error).__name__)
            except Exception:
                # A listener that ended would leave the dispatcher with what it finds by looking.
                log.exception("wake_up_crashed")
            finally:
                self._connection = self._id = None
                if opened is not None:
                    await opened.disconnect(nowait=True)
                    await self._client.connection_pool.release(opened)
            self._reported_at = -math.inf
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._closing.wait()

    async def _use(self, opened: Any) -> None:
        """Wait for signals on a connection until it is lost or this listener is closing."""
        await opened.send_command("CLIENT", "ID")
        with contextlib.suppress(redis.exceptions.ResponseError):
            self._id = await opened.read_response()
        self._ended.clear()
        self._connection = SignalConnection(opened, on_answered=self._take, on_lost=self._ended.set)
        self._wait()
        if not self._closing.is_set():
            await self._ended.wait()

    def _wait(self) -> None:
        """Have Valkey wait for the next signals, unless it does, or the last ones were not heard.

        Says first, where that is due, that this dispatcher is alive.
        """
        connection = self._connection
        if connection is None or not connection.may_ask or self._signals or self._closing.is_set():
            return
        connection.ask([*self._reports(), self._waiting], seconds=WAIT_SECONDS + ANSWER_SECONDS)

    def _take(self, answers: Sequence[Any]) -> None:
        """What Valkey answered at last: the name of the list and the signals, or nothing when the wait was over."""
        if found := answers[-1]:
            self._signals = found[1]
        if self._closing.is_set():
            self._ended.set()
        elif found:
            self._on_signal()
        else:
            self._wait()

    def _reports(self) -> list[tuple[Any, ...]]:
        has_room = self._has_room()
        if time.monotonic() - self._reported_at < WAIT_SECONDS and has_room == self._reported_room:
            return []
        return [
            dispatcher_register.reporting(self._name, self._state(has_room=has_room)),
            monitoring.in_flight_report(self._name, self._in_flight()),
        ]

    def _state(self, *, has_room: bool) -> bytes:
        """What to report now, which is noted as reported."""
        moment, cpu_seconds = time.monotonic(), time.process_time()
        is_busy = cpu_seconds - self._cpu_seconds > MOST_CPU * (moment - self._reported_at)
        self._reported_at, self._reported_room, self._cpu_seconds = moment, has_room, cpu_seconds
        if not has_room:
            return dispatcher_register.FULL
        return dispatcher_register.BUSY if is_busy else dispatcher_register.ROOM


def _leave(name: str, connection_id: int | None) -> None:
    """Get no more signals, and end the wait that is under way."""
    try:
        dispatcher_register.leave(name)
        if connection_id is not None:
            valkey().client_unblock(connection_id)
    except VALKEY_UNAVAILABLE as error:
        log.warning("leave_missed", error=type(error).__name__)


def _pass_on(signals: Sequence[bytes]) -> None:
    wake_up.pass_on([each.packed() for signal in signals for each in hand_over.unpacked(signal) or ()])
