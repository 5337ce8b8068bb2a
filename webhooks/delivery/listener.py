"""Listener of wake-up signals: a thread that waits for them and tells the others that this dispatcher is alive."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from gateway.monitoring import metrics
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from webhooks import wake_up
from webhooks.delivery import monitoring
from webhooks.events import hand_over
from webhooks.events.hand_over import HandedOver

log = structlog.get_logger(__name__)

ALIVE_MILLISECONDS = 3_000
REPORT_SECONDS = 1.0
SIGNALS_A_TIME = 64


class WakeUpListener:
    """The signals for one dispatcher.

    `in_flight` counts its requests, for the figures that operators see; `has_room` says whether it can be handed more.
    A wait lasts `poll_seconds` at most; without Valkey it lasts that long too, or until `stopping` is set.
    """

    def __init__(
        self,
        *,
        in_flight: Callable[[], int],
        has_room: Callable[[], bool],
        poll_seconds: float,
        stopping: threading.Event,
    ) -> None:
        self._in_flight, self._has_room = in_flight, has_room
        self._poll_seconds = poll_seconds
        self._stopping = stopping
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wake")
        self._waiting: asyncio.Future[None] | None = None
        self._reported_at = 0.0
        self._reported_room = False
        self._lock = threading.Lock()
        self._signals: list[bytes] = []
        self._is_closed = False

    @property
    def waiting(self) -> "asyncio.Future[None]":
        """The wait that is under way."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().run_in_executor(
                self._thread, self._wait, self._in_flight(), self._has_room()
            )
        return self._waiting

    def heard(self) -> tuple[list[HandedOver], bool]:
        """The deliveries that were handed over since the last call, and whether to look for all that are due.

        Starts the next wait, so a claim that follows misses nothing.
        """
        if self._waiting is not None and self._waiting.done():
            self._waiting = None
        _ = self.waiting
        with self._lock:
            signals, self._signals = self._signals, []
        unpacked = [hand_over.unpacked(signal) for signal in signals]
        return [each for deliveries in unpacked for each in deliveries or ()], None in unpacked

    async def close(self) -> None:
        """End without waiting for the wait that is under way. What nobody has heard is signalled to another."""
        with self._lock:
            self._is_closed = True
            signals, self._signals = self._signals, []
        self._thread.shutdown(wait=False)
        await asyncio.to_thread(_leave, signals)

    def _wait(self, in_flight: int, has_room: bool) -> None:
        try:
            is_due = time.monotonic() - self._reported_at >= min(REPORT_SECONDS, self._poll_seconds)
            if is_due or has_room != self._reported_room:
                self._reported_at, self._reported_room = time.monotonic(), has_room
                monitoring.report_in_flight(self._name, in_flight)
                metrics.flush()
                room = wake_up.ROOM if has_room else wake_up.FULL
                valkey().set(wake_up.ALIVE, room, px=ALIVE_MILLISECONDS)
            found = valkey().blmpop(
                self._poll_seconds, 1, wake_up.SIGNAL, direction="LEFT", count=SIGNALS_A_TIME
            )
            if found:
                self._hear(found[1])
        except VALKEY_UNAVAILABLE:
            self._stopping.wait(self._poll_seconds)
        except Exception:
            # A wait that ended at once would have the dispatcher look without a pause.
            log.exception("wake_up_crashed")
            self._stopping.wait(self._poll_seconds)

    def _hear(self, signals: Sequence[bytes]) -> None:
        with self._lock:
            if not self._is_closed:
                self._signals += signals
                return
        _pass_on(signals)


def _leave(unheard: Sequence[bytes]) -> None:
    """Another dispatcher says by itself that it is alive, within a second."""
    try:
        valkey().delete(wake_up.ALIVE)
    except VALKEY_UNAVAILABLE as error:
        log.warning("leave_missed", error=type(error).__name__)
    if unheard:
        _pass_on(unheard)


def _pass_on(signals: Sequence[bytes]) -> None:
    wake_up.pass_on([each.packed() for signal in signals for each in hand_over.unpacked(signal) or ()])
