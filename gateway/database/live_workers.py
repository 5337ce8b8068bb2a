"""Which workers live: a session of the database proves that a worker's process lives and that its leases hold.

The worker holds an advisory lock in an open transaction. When the process is killed, the kernel closes its connection.
Then Postgres, or a pooler in front of it, ends the transaction and frees the lock, so the worker's leases can end
early. A slow or suspended process keeps its connection and its leases. The open transaction has no snapshot and no
transaction id, so it does not delay vacuum.

A free lock alone proves nothing, because Postgres may have restarted or a connection was cut. A worker counts as dead
when its lock was free twice, `GRACE_SECONDS` apart. The worker that checks must have been registered all that time. A
worker that reconnects gets its lock again within a fraction of that time. A worker that wrongly counts as dead is like
a worker whose lease expired: the fences of deliveries and batch items still hold.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

import psycopg
import structlog
from django.db import connection

from gateway.database.statements import Statements

log = structlog.get_logger(__name__)

GRACE_SECONDS = 1.0
"""The time between two checks of a suspected worker. A worker that lost its connection reconnects in less time."""
SWEEP_SECONDS = 5.0
"""Interval at which a worker checks for dead workers."""
RETRY_SECONDS = 0.1
PATIENCE_SECONDS = 2.0
"""How long a starting worker waits for its registration. It then works without one."""

# No time-out ends this transaction. A vanished host is detected within 25 seconds.
_LAST = """
SELECT set_config(name, CASE WHEN name LIKE 'tcp%' THEN '5' ELSE '0' END, true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout',
               'tcp_keepalives_idle', 'tcp_keepalives_interval')
"""
_KEEP_ALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 4}
"""Settings of the client's side. They detect a cut connection, and keep an idle connection from being cut."""
# Sent without parameters: the extended protocol would leave a portal open, and with the portal a snapshot.
_HOLD = "SELECT pg_advisory_xact_lock({})"

# A shared lock, so that several workers can check at once. Until their transactions end, the checked worker cannot
# register.
_FREE = """
WITH holder (id) AS MATERIALIZED ({holders})
SELECT id FROM holder WHERE id IS DISTINCT FROM %(own)s::bigint AND pg_try_advisory_xact_lock_shared(id)
"""


class Registration:
    """The registration of one worker, on an event loop. Call `start`, then `close`."""

    def __init__(self) -> None:
        self.id = secrets.randbits(63)
        """The key of the lock. Leases name it as their holder."""
        self._held_since: float | None = None
        self._is_held = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def holder(self) -> int | None:
        """The holder to name in a lease. None while the lock is not held. A lease without a holder ends only when it
        expires.
        """
        return None if self._held_since is None else self.id

    @property
    def held_seconds(self) -> float:
        """How long the lock has been held without interruption."""
        return 0.0 if self._held_since is None else time.monotonic() - self._held_since

    async def start(self) -> None:
        """Start to register, with retries while the database is unavailable. Returns once the lock is held, or after
        PATIENCE_SECONDS.
        """
        self._task = asyncio.create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._is_held.wait()

    async def close(self) -> None:
        """End the registration."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self) -> None:
        while True:
            try:
                await self._hold()
            except (psycopg.Error, OSError) as error:
                log.warning("registration_lost", error=type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)

    async def _hold(self) -> None:
        """Hold the lock until the connection is lost."""
        parameters = {
            **connection.get_connection_params(),
            **_KEEP_ALIVE,
            "cursor_factory": psycopg.AsyncCursor,
        }
        connected = await psycopg.AsyncConnection.connect(**parameters)
        try:
            await connected.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            await connected.execute(_LAST)
            await connected.execute(_HOLD.format(self.id))
            self._held_since = time.monotonic()
            self._is_held.set()
            while True:
                await _readable(connected.fileno())
                await connected.execute("SELECT")
        finally:
            self._held_since = None
            await connected.close()


async def _readable(socket: int) -> None:
    """Wait until a socket is readable or closed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(socket)


class DeadWorkers:
    """Finds workers that died while they held leases. Each registered worker that can take over such leases has an
    instance.
    """

    def __init__(self, registration: Registration, holders: str) -> None:
        """`holders` is the SELECT, with named parameters, of the distinct holders of valid leases."""
        self._registration = registration
        self._free = _FREE.format(holders=holders)
        self._suspects: frozenset[int] = frozenset()
        self._suspected_at = 0.0
        self._next_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a check is due."""
        return self._registration.holder is not None and time.monotonic() >= self._next_at

    @property
    def has_suspects(self) -> bool:
        """Whether to check again after `GRACE_SECONDS`, because a worker may be dead."""
        return bool(self._suspects)

    def finding(self, values: Mapping[str, Any]) -> Statements[list[int]]:
        """The statements that find dead workers. They run in the transaction that ends the dead workers' leases."""
        moment = time.monotonic()
        self._next_at = moment + SWEEP_SECONDS
        rows = yield self._free, {**values, "own": self._registration.id}
        free = frozenset(holder for (holder,) in rows)
        if self._registration.held_seconds < moment - self._suspected_at:
            self._suspects = frozenset()
        dead = free & self._suspects if moment - self._suspected_at >= GRACE_SECONDS else frozenset()
        self._suspects, self._suspected_at = free - dead, moment
        if self._suspects:
            self._next_at = moment + GRACE_SECONDS
        if dead:
            log.warning("workers_dead", count=len(dead))
        return sorted(dead)
