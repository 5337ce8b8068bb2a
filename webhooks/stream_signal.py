"""Signals the event streams that a tenant has fresh events, while any stream is open.

A signal names tenants and is sent beside the transaction that publishes, perhaps before its commit: a process that
hears it looks until that transaction has ended. Losing a signal costs seconds: the streams look by themselves.
"""

import threading
import time
from collections.abc import Iterable
from uuid import UUID

import structlog

from gateway.threads.debounce import Debounced
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

CHANNEL = "streams:fresh"
"""Messages are the 16 bytes of each tenant's id, one after another."""
LISTENING = "streams:listening"
"""Set while some process has streams open."""
ASK_SECONDS = 1.0
"""How often a process that publishes asks whether anybody listens: without streams, signals cost nothing else."""
SEND_SECONDS = 0.005


class _Signals:
    """The tenants that this process has to name. Any thread adds; the debounced thread sends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenants: set[UUID] = set()
        self._listening = False
        self._asked_at = -ASK_SECONDS
        self._debounced = Debounced(self._send, seconds=SEND_SECONDS)

    def add(self, tenants: Iterable[UUID]) -> None:
        if not self._listening and time.monotonic() < self._asked_at + ASK_SECONDS:
            return
        with self._lock:
            self._tenants.update(tenants)
        self._debounced.ask()

    def _send(self) -> None:
        with self._lock:
            tenants, self._tenants = self._tenants, set()
        try:
            if time.monotonic() >= self._asked_at + ASK_SECONDS:
                self._asked_at = time.monotonic()
                self._listening = bool(valkey().exists(LISTENING))
            if self._listening and tenants:
                valkey().publish(CHANNEL, b"".join([tenant.bytes for tenant in tenants]))
        except VALKEY_UNAVAILABLE as error:
            log.warning("stream_signal_missed", error=type(error).__name__)


_signals = _Signals()


def fresh(tenants: Iterable[UUID]) -> None:
    """Signal soon that these tenants have fresh events. Does no I/O in the caller."""
    _signals.add(tenants)


def tenants_in(message: bytes) -> list[UUID]:
    """The tenants that a message of `CHANNEL` names."""
    return [UUID(bytes=message[start : start + 16]) for start in range(0, len(message) // 16 * 16, 16)]
