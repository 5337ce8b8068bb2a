"""Hub of the event streams of a process: reads the event log for all listeners together and hands each its events.

A listener is due when its tenant published, when it has taken a full page, or when the poll found news for it. Due
listeners are looked for together, a chunk in one statement. A signal can come before the commit that it announces,
so a listener stays due until every transaction that had begun at the next look has ended.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings

from gateway.api.errors import ServiceUnavailable, TooManyInFlight
from gateway.database.statements import LoopConnection
from gateway.database.transactions import concerns_all
from gateway.valkey import connection
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from web import stream_listener
from web.admission import still_admitted
from web.stream_listener import HEARTBEAT_SECONDS, Listener, StreamSlots
from webhooks import stream, wake_up
from webhooks.stream import Wanted, horizon

log = structlog.get_logger(__name__)

MOST_STREAMS = 3_000
"""Streams of one process: its other connections are for calls and notifications."""
CHUNK = 64
"""Listeners of one look: with `reading.PAGE`, what a look may bring into memory."""
POLL_CHUNK = 500
POLL_SECONDS, DEAF_POLL_SECONDS = 10.0, 0.5
"""How often the hub polls: beside signals, and while it receives none."""
YOUNG_SECONDS = 3.0
"""For how long after its beginning a stream is polled as if no signal came: publishers notice it within a second."""
UNSETTLED_SECONDS, MOST_UNSETTLED_SECONDS, LONGER = 0.005, 0.1, 1.3
"""Pauses before the horizon is asked for again while transactions are open: the first, the longest, their growth."""
AGAIN_SECONDS = 1.0
NOTIFY_SECONDS = 3.0
KEEP_SECONDS = 8.0
"""How often credentials are checked again and slots in Valkey are renewed: a revoked key ends its streams within twice
this and the lifetime of a cached key."""
KEEP_CHUNK = 200

ANY_LOOK = -1


class Hub:
    """The streams of one process, for one event loop."""

    def __init__(self) -> None:
        self._of_tenant: dict[UUID, set[Listener]] = {}
        self._by_slot: dict[str, Listener] = {}
        self._due: dict[Listener, None] = {}
        self._wake = asyncio.Event()
        self._hears = False
        self._said_at = -2 * NOTIFY_SECONDS
        self._settled = 0
        """Transactions below it had ended at the last look."""
        self._database, self._polling = LoopConnection(), LoopConnection()
        self._valkey: Any = connection.async_client(
            settings.REDIS_URL, socket_connect_timeout=2.0, health_check_interval=30
        )
        self._slots = StreamSlots(self._valkey)
        self._tasks = [
            # Of no request's context: the first one's id would be on every line of the log.
            asyncio.create_task(work(), context=Context())
            for work in (self._look_around, self._poll, self._receive, self._notify, self._keep, self._beat)
        ]

    async def enter(self, listener: Listener) -> None:
        """Take a stream in. The newest of a key ends the one before; the streams of a tenant are bounded.

        Raises TooManyInFlight and ServiceUnavailable.
        """
        former = self._by_slot.get(listener.slot)
        mine = self._of_tenant.setdefault(listener.tenant_id, set())
        if len(mine) - (former is not None) >= stream_listener.STREAMS_PER_TENANT:
            raise _too_many()
        if sum(map(len, self._of_tenant.values())) >= MOST_STREAMS:
            raise ServiceUnavailable("This process has as many streams open as it can serve.")
        mine.add(listener)
        self._by_slot[listener.slot] = listener
        if former is not None:
            former.end("replaced")
        try:
            if not await self._slots.acquire(listener):
                await self.leave(listener)
                raise _too_many()
        except VALKEY_UNAVAILABLE as error:
            log.warning("stream_place_missed", error=type(error).__name__)
        if time.monotonic() >= self._said_at + 2 * NOTIFY_SECONDS:
            await self._say_listening()
        self._ask(listener)

    async def leave(self, listener: Listener) -> None:
        """Remove a stream. Idempotent."""
        # A look or a poll that is under way has it in hand: one that has ended is not put back among the due.
        listener.end("left")
        self._due.pop(listener, None)
        if self._by_slot.get(listener.slot) is listener:
            del self._by_slot[listener.slot]
        mine = self._of_tenant.get(listener.tenant_id)
        if mine is not None:
            mine.discard(listener)
            if not mine:
                del self._of_tenant[listener.tenant_id]
        with suppress(*VALKEY_UNAVAILABLE):
            await self._slots.release(listener)

    def drained(self, listener: Listener) -> None:
        """A listener's client has taken its page."""
        if listener.drained():
            self._due[listener] = None
        if listener in self._due:
            self._wake.set()

    def end_all(self, reason: str) -> None:
        """End every stream; clients come again, to another process."""
        for listener in self._all():
            listener.end(reason)

    async def close(self) -> None:
        """Release what the hub holds."""
        ending = set(self._tasks)
        while ending:
            # Again and again: redis-py takes a cancellation that meets its own time-out for the time-out.
            for task in ending:
                task.cancel()
            _, ending = await asyncio.wait(ending, timeout=0.5)
        await self._database.close()
        await self._polling.close()
        await self._valkey.aclose()

    def _all(self) -> list[Listener]:
        return [listener for mine in self._of_tenant.values() for listener in mine]

    def _ask(self, listener: Listener) -> None:
        if listener.ended is not None:
            return
        listener.until = ANY_LOOK
        self._due[listener] = None
        self._wake.set()

    async def _look_around(self) -> None:
        """Look for due listeners, chunk by chunk, for as long as there are any that can take events."""
        while True:
            chunk = [listener for listener in self._due if listener.is_idle][:CHUNK]
            if not chunk:
                await self._wake.wait()
                self._wake.clear()
                continue
            try:
                found = await self._look(chunk)
                if not found and len(self._due) <= len(chunk) and self._due:
                    # Only transactions that are still open keep them due.
                    await self._settle()
            except Exception as error:  # noqa: BLE001 - streams outlive a database that is away
                log.warning("stream_look_failed", error=type(error).__name__)
                if concerns_all(error):
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    await self._look_one_by_one(chunk)

    async def _look_one_by_one(self, listeners: Sequence[Listener]) -> None:
        """Look for each listener of a failed look alone: one whose place or event cannot be read ends alone."""
        for listener in listeners:
            try:
                await self._look([listener])
            except Exception as error:
                if concerns_all(error):
                    return
                log.exception("stream_unreadable", tenant_id=str(listener.tenant_id))
                self._due.pop(listener, None)
                listener.end("failed")

    async def _settle(self) -> None:
        """Wait until a transaction has ended that was open at the last look, or an event is published.

        Until then another look would find nothing more; to ask for the horizon costs a fraction of it.
        """
        pause = UNSETTLED_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            if self._wake.is_set():
                self._wake.clear()
                return
            if (await self._database.run_each(horizon())).settled > self._settled:
                return
            pause = min(LONGER * pause, MOST_UNSETTLED_SECONDS)

    async def _look(self, listeners: Sequence[Listener]) -> bool:
        """Hand each listener what follows its place; returns whether anybody got events."""
        # Listeners of one tenant that have heard the same are one question.
        asked = dict.fromkeys(_wanted(listener) for listener in listeners)
        look = await self._database.run_each(stream.look(list(asked)))
        self._settled = look.horizon.settled
        pages = dict(zip(asked, look.pages, strict=True))
        for listener in listeners:
            page = pages[_wanted(listener)]
            # Put back behind the others while it stays due.
            self._due.pop(listener, None)
            if listener.until == ANY_LOOK:
                listener.until = look.horizon.begun
            if listener.until is not None and look.horizon.settled >= listener.until:
                listener.until = None
            if listener.until is not None and listener.ended is None:
                self._due[listener] = None
            if page:
                listener.hand(page)
        return any(look.pages)

    async def _poll(self) -> None:
        """The net under signals that were lost: now and then every listener is asked for."""
        polled_at = time.monotonic()
        while True:
            await asyncio.sleep(DEAF_POLL_SECONDS)
            moment = time.monotonic()
            is_turn = not self._hears or moment >= polled_at + POLL_SECONDS
            if is_turn:
                polled_at = moment
            waiting = [
                listener
                for listener in self._all()
                if listener.is_idle and (is_turn or moment < listener.began_at + YOUNG_SECONDS)
            ]
            try:
                for start in range(0, len(waiting), POLL_CHUNK):
                    for listener in await self._with_news(waiting[start : start + POLL_CHUNK]):
                        self._ask(listener)
            except Exception as error:  # noqa: BLE001 - streams outlive a database that is away
                log.warning("stream_poll_failed", error=type(error).__name__)

    async def _with_news(self, listeners: Sequence[Listener]) -> Sequence[Listener]:
        """Those for which there is news; all, when one of them cannot be asked for: the look finds out which."""
        news = stream.with_news([_wanted(listener) for listener in listeners])
        try:
            return [listeners[place] for place in await self._polling.run_each(news)]
        except Exception as error:
            if concerns_all(error):
                raise
            log.warning("stream_poll_failed", error=type(error).__name__)
            return listeners

    async def _receive(self) -> None:
        """Wake the listeners of tenants that published."""
        while True:
            try:
                async with self._valkey.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(wake_up.CHANNEL)
                    self._hears = True
                    while True:
                        message = await channel.get_message(timeout=POLL_SECONDS)
                        if message is not None:
                            self._signalled(wake_up.tenants_in(message["data"]))
            except VALKEY_UNAVAILABLE as error:
                log.warning("stream_signals_missed", error=type(error).__name__)
            finally:
                self._hears = False
            await asyncio.sleep(AGAIN_SECONDS)

    def _signalled(self, tenants: Iterable[UUID]) -> None:
        for tenant_id in tenants:
            for listener in self._of_tenant.get(tenant_id, ()):
                self._ask(listener)

    async def _notify(self) -> None:
        """Notify the publishers that a stream is open."""
        while True:
            if self._of_tenant:
                await self._say_listening()
            await asyncio.sleep(NOTIFY_SECONDS)

    async def _say_listening(self) -> None:
        self._said_at = time.monotonic()
        with suppress(*VALKEY_UNAVAILABLE):
            await self._valkey.set(wake_up.LISTENING, 1, px=int(3 * NOTIFY_SECONDS * 1000))

    async def _beat(self) -> None:
        """Wake the listeners that have sent nothing for long: one clock for all costs less than one for each."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS / 15)
            for listener in self._all():
                if listener.is_quiet:
                    listener.news.set()

    async def _keep(self) -> None:
        """End the streams of ended credentials and of keys that listen elsewhere by now; keep the other places."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            everyone = self._all()
            for start in range(0, len(everyone), KEEP_CHUNK):
                chunk = everyone[start : start + KEEP_CHUNK]
                try:
                    admitted = await still_admitted([listener.credential for listener in chunk])
                except ServiceUnavailable:
                    continue
                for listener, is_admitted in zip(chunk, admitted, strict=True):
                    if not is_admitted:
                        listener.end("unauthorized")
                with suppress(*VALKEY_UNAVAILABLE):
                    going = [listener for listener in chunk if listener.ended is None]
                    for listener, is_kept in zip(going, await self._slots.renew(going), strict=True):
                        if not is_kept:
                            listener.end("replaced")


def _wanted(listener: Listener) -> Wanted:
    return Wanted(listener.tenant_id, listener.environment, listener.after, listener.asked.filter_path)


def _too_many() -> TooManyInFlight:
    most = stream_listener.STREAMS_PER_TENANT
    return TooManyInFlight(
        "This business has as many event streams open as it may.", details={"scope": "tenant", "limit": most}
    )
