"""The batch runner: one in each process with the role `batches`. It sends all batches that the process holds, and all
scheduled messages that are due.

It starts with the process (`gateway/__main__.py`), and has an event loop for messages and threads for the database and
for Valkey. It ends when it is stopped or has been idle for LINGER_SECONDS; `gateway/role_loop.py` then starts the next
one. After a crash nothing is lost or sent twice: the leases end with the runner's registration, and another runner
continues. It reports claimed items without a result as `outcome_unknown`.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog
from django.db import close_old_connections, connection

from gateway.database.live_workers import DeadWorkers, Registration
from gateway.database.transactions import error_fields, is_outage
from gateway.monitoring import tracing
from gateway.upstream.calls import AsyncPool
from messaging.batches import held_batch
from messaging.batches.held_batch import Held
from messaging.batches.scheduled_sender import ScheduledSends
from messaging.batches.sender import BatchRun

log = structlog.get_logger(__name__)

BATCHES_AT_ONCE = 64
"""How many batches one process runs. Other batches go to other workers, or wait."""
MESSAGES_AT_ONCE = 768
"""How many messages one process may have under way. Each needs a connection, and the usual limit of open files is
1,024.
"""
DATABASE_THREADS = 3
POLL_SECONDS = 1.0
"""How often a runner polls for scheduled messages and, while it runs batches, for further batches."""
QUIET_POLL_SECONDS = 5.0
"""How often an idle runner polls without a signal. The poll finds batches whose number was connected again or whose
runner crashed.
"""
LINGER_SECONDS = 300.0
"""How long a runner stays idle before it ends and closes its database connection."""

Value = TypeVar("Value")

_stopping = threading.Event()
_lock = threading.Lock()
_current: "Runner | None" = None


def run() -> bool:
    """Run `work` on a new event loop. Returns whether to start another runner."""
    return asyncio.run(work())


async def work() -> bool:
    """Run batches until none has come for LINGER_SECONDS. If this process already has a runner, only wake that runner.

    Returns whether to start another runner: True after a run, unless the process is stopping.
    """
    global _current
    with _lock:
        if _stopping.is_set():
            return False
        if _current is not None:
            _current.look()
            return False
        _current = runner = Runner()
    try:
        await runner.run()
    finally:
        with _lock:
            _current = None
    return not _stopping.is_set()


def stop() -> None:
    """Stop the runner. It finishes and records the messages under way, and releases all others."""
    _stopping.set()
    with _lock:
        if _current is not None:
            _current.look()


def _leave(runner: "Runner") -> bool:
    """Whether the runner may end. It may not if a poll has been requested."""
    global _current
    with _lock:
        if runner.asked:
            runner.asked = False
            return False
        _current = None
        return True


class Runner:
    """Claims batches and runs each as an asyncio task."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MESSAGES_AT_ONCE)
        self.running: set[asyncio.Task[None]] = set()
        self.woken = asyncio.Event()
        self.asked = False
        self.registration = Registration()
        self.dead_workers = DeadWorkers(self.registration, held_batch.HOLDERS)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.turns = ThreadPoolExecutor(4, thread_name_prefix="turns")
        self.database = [ThreadPoolExecutor(1, thread_name_prefix="batch") for _ in range(DATABASE_THREADS)]

    @property
    def stopping(self) -> bool:
        return _stopping.is_set()

    def look(self) -> None:
        """Request a poll for batches. Callable from any thread that holds `_lock`."""
        self.asked = True
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.woken.set)

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.registration.start()
        try:
            async with AsyncPool(limit=MESSAGES_AT_ONCE) as pool:
                scheduled = ScheduledSends(self, pool)
                ran_at, claims_at = time.monotonic(), 0.0
                while True:
                    was_woken = self.woken.is_set()
                    self.woken.clear()
                    batch_is_due = await scheduled.look()
                    if was_woken or batch_is_due or self.running or time.monotonic() >= claims_at:
                        self._start(await self._claim(), pool)
                        has_suspects = self.dead_workers.has_suspects
                        claims_at = time.monotonic() + (POLL_SECONDS if has_suspects else QUIET_POLL_SECONDS)
                    if self.running or scheduled.is_busy:
                        ran_at = time.monotonic()
                    elif self.stopping or (time.monotonic() - ran_at >= LINGER_SECONDS and _leave(self)):
                        return
                    await self._until_woken(POLL_SECONDS)
        finally:
            await self.registration.close()
            for executor in self.database:
                await self.loop.run_in_executor(executor, _close_connection)
            for executor in (*self.database, self.turns):
                executor.shutdown(wait=False)

    async def in_database(self, lane: int, call: Callable[..., Value], *values: Any) -> Value:
        """Call a function that uses the database, in a thread, with the caller's context. Calls in the same lane take
        turns.
        """
        assert self.loop is not None  # noqa: S101 - only tasks of the running loop call this
        in_context = contextvars.copy_context().run
        return await self.loop.run_in_executor(
            self.database[lane % DATABASE_THREADS], in_context, _with_fresh_connection, call, *values
        )

    async def _claim(self) -> list[Held]:
        room = BATCHES_AT_ONCE - len(self.running)
        if self.stopping or room <= 0:
            return []
        try:
            if self.dead_workers.is_due:
                await self.in_database(0, held_batch.end_leases_of_dead, self.dead_workers)
            return await self.in_database(0, held_batch.claim_batches, room, self.registration.holder)
        except Exception as error:
            if not is_outage(error):
                raise
            log.warning("batches_not_claimed", **error_fields(error))
            return []

    def _start(self, batches: list[Held], pool: AsyncPool) -> None:
        for held in batches:
            task = asyncio.create_task(self._run(held, pool))
            self.running.add(task)
            task.add_done_callback(self._ended)

    async def _run(self, held: Held, pool: AsyncPool) -> None:
        attributes = {"gateway.tenant.id": str(held.tenant_id), "gateway.batch.id": held.public_id}
        with tracing.span("run batch", "consumer", parent=held.traceparent, attributes=attributes):
            await BatchRun(self, pool, held).run()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self.woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease expires and another runner continues. An error in one batch must not end the others.
            log.error("batch_crashed", exc_info=error)

    async def _until_woken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        except TimeoutError:
            return


def _close_connection() -> None:
    """Close the database connection of the calling thread."""
    connection.close()


def _with_fresh_connection(call: Callable[..., Value], *values: Any) -> Value:
    close_old_connections()
    try:
        return call(*values)
    except Exception as error:
        if is_outage(error):
            connection.close()
        raise
