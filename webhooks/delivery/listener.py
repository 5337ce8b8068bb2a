"""Waits for wake-up signals on a thread, and tells the others that this dispatcher is alive."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from gateway.monitoring import metrics
from gateway.valkey import VALKEY_UNAVAILABLE, valkey
from webhooks import wake_up
from webhooks.delivery import monitoring
from webhooks.wake_up import Fresh, named_in

log = structlog.get_logger(__name__)

ALIVE_MILLISECONDS = 3_000
REPORT_SECONDS = 1.0
SIGNALS_A_TIME = 64


class Listener:
    """The signals for one dispatcher. `in_flight` counts its requests, for the figures that operators see.

    A wait lasts `poll_seconds` at most; without Valkey it lasts that long too, or until `stopping` is set.
    """

    def __init__(
        self, *, in_flight: Callable[[], int], poll_seconds: float, stopping: threading.Event
    ) -> None:
        self._in_flight = in_flight
        self._poll_seconds = poll_seconds
        self._stopping = stopping
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wake")
        self._waiting: asyncio.Future[list[bytes]] | None = None
        self._reported_at = 0.0
        self._is_closed = False

    @property
    def waiting(self) -> "asyncio.Future[list[bytes]]":
        """The wait that is under way."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().run_in_executor(
                self._thread, self._wait, self._in_flight()
            )
        return self._waiting

    def heard(self) -> tuple[list[Fresh], bool]:
        """The deliveries that were named since the last call, and whether to look for all that are due.

        Starts the next wait, so a claim that follows misses nothing.
        """
        named: list[Fresh] = []
        must_look = False
        if self._waiting is not None and self._waiting.done():
            for signal in self._waiting.result():
                fresh = named_in(signal)
                if fresh is None:
                    must_look = True
                else:
                    named += fresh
            self._waiting = None
        _ = self.waiting
        return named, must_look

    def close(self) -> None:
        """End without waiting for the wait that is under way; a signal that it still gets is given to another."""
        self._is_closed = True
        self._thread.shutdown(wait=False)

    def _wait(self, in_flight: int) -> list[bytes]:
        try:
            if time.monotonic() - self._reported_at >= min(REPORT_SECONDS, self._poll_seconds):
                self._reported_at = time.monotonic()
                monitoring.report_in_flight(self._name, in_flight)
                metrics.flush()
                valkey().set(wake_up.ALIVE, 1, px=ALIVE_MILLISECONDS)
            found = valkey().blmpop(
                self._poll_seconds, 1, wake_up.SIGNAL, direction="LEFT", count=SIGNALS_A_TIME
            )
            if found and self._is_closed:
                wake_up.wake()
            return list(found[1]) if found else []
        except VALKEY_UNAVAILABLE:
            self._stopping.wait(self._poll_seconds)
        except Exception:
            # A wait that ended at once would have the dispatcher look without a pause.
            log.exception("wake_up_crashed")
            self._stopping.wait(self._poll_seconds)
        return []
