"""The open event streams of a process, and their limits.

A listener is one open stream. It stores its place in the log, and the page that its client has not read yet. Each
listener needs a slot in Valkey. A tenant has a limited number of slots, and each key has one. The hub polls the event
log for all listeners together, and passes each listener its events.

A listener is due when its tenant has published events, when its client has read a full page, or when the poll found
events for it. Due listeners are polled together, a chunk of them in one statement. A signal can arrive before the
commit that it announces. So a listener stays due until all transactions that were open at its next poll have ended.
"""

import asyncio
import sys
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
from web.admission import Credential, still_admitted
from webhooks import stream, wake_up
from webhooks.stream import HEARTBEAT_SECONDS, Asked, Found, Position, Wanted, horizon

log = structlog.get_logger(__name__)

MOST_STREAMS = 3_000
"""The maximum number of streams of one process. Its other connections are for calls and notifications."""
STREAMS_PER_TENANT = 20
"""The maximum number of open event streams of a tenant."""
SLOT_SECONDS = 40
"""How long a slot is held without being renewed."""
CHUNK = 64
"""The maximum number of listeners in one statement. This and `stream.PAGE` limit the events in memory."""
POLL_CHUNK = 500
POLL_SECONDS, FALLBACK_POLL_SECONDS = 10.0, 0.5
"""Intervals of the poll: while the hub receives signals, and while it does not receive them."""
YOUNG_SECONDS = 3.0
"""How long a new stream is polled as often as without signals. Publishers notice the stream within a second."""
UNSETTLED_SECONDS, MOST_UNSETTLED_SECONDS, LONGER = 0.005, 0.1, 1.3
"""Pauses between checks of the horizon while transactions are open: the first, the longest, and their growth factor."""
AGAIN_SECONDS = 1.0
NOTIFY_SECONDS = 3.0
VALKEY_SECONDS = 0.5
"""How long a stream waits for a hanging Valkey: to connect, and for each response. The credentials of all streams are
checked every 30 seconds even if the renewal of each `KEEP_CHUNK` fails with a time-out.
"""
KEEP_SECONDS = 8.0
"""How often credentials are checked again, and slots in Valkey renewed. The streams of a revoked key end within
twice this time plus the lifetime of a cached key.
"""
KEEP_CHUNK = 200

ANY_LOOK, THIS_LOOK = sys.maxsize, sys.maxsize - 1
"""Values of `Listener.until` above every transaction: from a signal until the next poll begins, and until it has ended.
A signal during a poll may announce an event that this poll did not find.
"""


class Listener:
    """One open stream."""

    __slots__ = (
        "_full",
        "_sent_at",
        "after",
        "asked",
        "began_at",
        "credential",
        "ended",
        "entered",
        "environment",
        "id",
        "news",
        "page",
        "slot",
        "tenant_id",
        "until",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the connection's own name
        slot: str,
        credential: Credential,
        tenant_id: UUID,
        environment: str,
        asked: Asked,
        after: Position,
    ) -> None:
        self.id, self.slot, self.credential = id, slot, credential
        self.tenant_id, self.environment = tenant_id, environment
        self.asked = asked
        self.after = after
        """The place up to which the log was read. The listener has been given all events before this place."""
        self.page: list[Found] = []
        self.news = asyncio.Event()
        self.ended: str | None = None
        self.entered = False
        """Whether the listener has its slot, or requested a slot while Valkey was unavailable."""
        self.until: int | None = None
        """The listener is polled again until all transactions below this number have ended. None if no such
        transaction is open.
        """
        self._full = False
        self.began_at = self._sent_at = time.monotonic()

    @property
    def is_quiet(self) -> bool:
        """Whether the client has received nothing for so long that a heartbeat is due."""
        return time.monotonic() >= self._sent_at + HEARTBEAT_SECONDS

    def sent(self) -> None:
        """Record that something was sent to the client."""
        self._sent_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether the listener has no events and waits for some."""
        return not self.page and self.ended is None

    def hand(self, page: Sequence[Found]) -> None:
        """Give the listener the events after its place. After a full page, there may be more events."""
        self.after = page[-1].position
        self._full = len(page) == stream.PAGE
        self.page = [
            found for found in page if found.passes and self.asked.wants(found.type, found.phone_number_id)
        ]
        self.news.set()

    def drained(self) -> bool:
        """Record that the client has read the page. Returns whether more events may be waiting already."""
        self.page = []
        full, self._full = self._full, False
        return full

    def end(self, reason: str) -> None:
        """End the stream. A reason after the first is ignored."""
        self.ended = self.ended or reason
        self.news.set()


# A stream holds one of its tenant's slots, and the slot of its key. A newer stream of the key takes over the key's
# slot. One call renews all slots of a chunk.
_ENTER = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
local former = redis.call('GET', KEYS[2])
if former then redis.call('ZREM', KEYS[1], former) end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1] + ARGV[2], ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[4], 'EX', ARGV[2])
return 1
"""
_KEEP = """
local kept = {}
for place = 1, #KEYS / 2 do
    local tenant, key, id = KEYS[2 * place - 1], KEYS[2 * place], ARGV[2 + place]
    local holder = redis.call('GET', key)
    if holder and holder ~= id then
        kept[place] = 0
    else
        redis.call('ZADD', tenant, ARGV[1] + ARGV[2], id)
        redis.call('EXPIRE', tenant, ARGV[2])
        redis.call('SET', key, id, 'EX', ARGV[2])
        kept[place] = 1
    end
end
return kept
"""
_LEAVE = """
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
"""


class StreamSlots:
    """The slots, over one asynchronous connection. All methods raise `VALKEY_UNAVAILABLE`."""

    def __init__(self, valkey: Any) -> None:
        self._valkey = valkey

    async def acquire(self, listener: Listener) -> bool:
        """Acquire a slot and close the key's previous stream. False if the tenant is at its limit."""
        moment, most = int(time.time()), STREAMS_PER_TENANT
        return bool(
            await self._valkey.eval(
                _ENTER, 2, *_slot_names(listener), moment, SLOT_SECONDS, most, listener.id
            )
        )

    async def renew(self, listeners: Sequence[Listener]) -> list[bool]:
        """Renew the slots of these listeners. The result is False for each listener whose key has a newer stream."""
        names = [name for listener in listeners for name in _slot_names(listener)]
        values = [int(time.time()), SLOT_SECONDS, *(listener.id for listener in listeners)]
        return [bool(kept) for kept in await self._valkey.eval(_KEEP, len(names), *names, *values)]

    async def release(self, listener: Listener) -> None:
        """Release a slot. Safe to repeat."""
        await self._valkey.eval(_LEAVE, 2, *_slot_names(listener), listener.id)


def _slot_names(listener: Listener) -> tuple[str, str]:
    return f"streams:tenant:{listener.tenant_id}", f"streams:key:{listener.slot}"


class Hub:
    """The streams of one process, for one event loop."""

    def __init__(self) -> None:
        self._of_tenant: dict[UUID, set[Listener]] = {}
        self._by_slot: dict[str, Listener] = {}
        self._due: dict[Listener, None] = {}
        self._wake = asyncio.Event()
        self._is_subscribed = False
        self._said_at = -2 * NOTIFY_SECONDS
        self._settled = 0
        """All transactions below this number had ended at the last poll."""
        self._database, self._polling = LoopConnection(), LoopConnection()
        self._valkey: Any = connection.async_client(
            settings.REDIS_URL,
            socket_connect_timeout=VALKEY_SECONDS,
            socket_timeout=VALKEY_SECONDS,
            health_check_interval=30,
        )
        self._slots = StreamSlots(self._valkey)
        self._tasks = [
            # An empty context, because the context of a request would put that request's id in every log line.
            asyncio.create_task(work(), context=Context())
            for work in (self._poll_due, self._poll_all, self._receive, self._notify, self._keep, self._beat)
        ]

    async def enter(self, listener: Listener) -> None:
        """Add a stream, and end the previous stream of its key. The number of a tenant's streams is limited.

        Raises TooManyInFlight and ServiceUnavailable.
        """
        former = self._by_slot.get(listener.slot)
        mine = self._of_tenant.setdefault(listener.tenant_id, set())
        if len(mine) - (former is not None) >= STREAMS_PER_TENANT:
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
            log.warning("stream_slot_failed", error=type(error).__name__)
        listener.entered = True
        if time.monotonic() >= self._said_at + 2 * NOTIFY_SECONDS:
            await self._say_listening()
        self._ask(listener)

    async def leave(self, listener: Listener) -> None:
        """Remove a stream. Idempotent."""
        # A running poll may still have the stream, but never marks an ended stream as due again.
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
        """Record that a listener's client has read its page."""
        if listener.drained():
            self._due[listener] = None
        if listener in self._due:
            self._wake.set()

    def end_all(self, reason: str) -> None:
        """End all streams. Clients reconnect to another process."""
        for listener in self._all():
            listener.end(reason)

    async def close(self) -> None:
        """Close the connections and end the tasks of the hub."""
        ending = set(self._tasks)
        while ending:
            # Cancel repeatedly, because redis-py mistakes a cancellation that coincides with its own time-out for that
            # time-out.
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

    async def _poll_due(self) -> None:
        """Poll events for the due listeners, chunk by chunk, while any of them can accept events."""
        while True:
            chunk = [listener for listener in self._due if listener.is_idle][:CHUNK]
            if not chunk:
                await self._wake.wait()
                self._wake.clear()
                continue
            try:
                found = await self._poll_chunk(chunk)
                if not found and len(self._due) <= len(chunk) and self._due:
                    # The listeners are still due only because transactions are open.
                    await self._settle()
            except Exception as error:  # noqa: BLE001 - streams continue while the database is unavailable
                log.warning("stream_chunk_failed", error=type(error).__name__)
                if concerns_all(error):
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    await self._poll_one_by_one(chunk)

    async def _poll_one_by_one(self, listeners: Sequence[Listener]) -> None:
        """Poll separately for each listener of a failed chunk. End the listeners with an unreadable place or event."""
        for listener in listeners:
            try:
                await self._poll_chunk([listener])
            except Exception as error:
                if concerns_all(error):
                    return
                log.exception("stream_unreadable", tenant_id=str(listener.tenant_id))
                self._due.pop(listener, None)
                listener.end("failed")

    async def _settle(self) -> None:
        """Wait until a transaction that was open at the last poll has ended, or an event is published.

        Before that, another poll would find nothing more. A check of the horizon costs a fraction of a poll.
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

    async def _poll_chunk(self, listeners: Sequence[Listener]) -> bool:
        """Give each listener the events after its place. Returns whether any listener got events."""
        # Listeners of one tenant at the same place share one query.
        asked = dict.fromkeys(_wanted(listener) for listener in listeners)
        for listener in listeners:
            if listener.until == ANY_LOOK:
                listener.until = THIS_LOOK
        look = await self._database.run_each(stream.look(list(asked)))
        self._settled = look.horizon.settled
        pages = dict(zip(asked, look.pages, strict=True))
        for listener in listeners:
            page = pages[_wanted(listener)]
            # A listener that stays due goes behind the others in the queue.
            self._due.pop(listener, None)
            if listener.until == THIS_LOOK:
                listener.until = look.horizon.begun
            if listener.until is not None and look.horizon.settled >= listener.until:
                listener.until = None
            if listener.until is not None and listener.ended is None:
                self._due[listener] = None
            if page:
                listener.hand(page)
        return any(look.pages)

    async def _poll_all(self) -> None:
        """Poll all listeners at intervals, to make up for lost signals."""
        polled_at = time.monotonic()
        while True:
            await asyncio.sleep(FALLBACK_POLL_SECONDS)
            moment = time.monotonic()
            is_turn = not self._is_subscribed or moment >= polled_at + POLL_SECONDS
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
            except Exception as error:  # noqa: BLE001 - streams continue while the database is unavailable
                log.warning("stream_poll_failed", error=type(error).__name__)

    async def _with_news(self, listeners: Sequence[Listener]) -> Sequence[Listener]:
        """The listeners with new events. All listeners if the check fails, so that the poll finds the faulty one."""
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
                    self._is_subscribed = True
                    while True:
                        message = await channel.get_message(timeout=POLL_SECONDS)
                        if message is not None:
                            self._signalled(wake_up.tenants_in(message["data"]))
            except VALKEY_UNAVAILABLE as error:
                log.warning("stream_signals_missed", error=type(error).__name__)
            finally:
                self._is_subscribed = False
            await asyncio.sleep(AGAIN_SECONDS)

    def _signalled(self, tenants: Iterable[UUID]) -> None:
        for tenant_id in tenants:
            for listener in self._of_tenant.get(tenant_id, ()):
                self._ask(listener)

    async def _notify(self) -> None:
        """Notify publishers that a stream is open."""
        while True:
            if self._of_tenant:
                await self._say_listening()
            await asyncio.sleep(NOTIFY_SECONDS)

    async def _say_listening(self) -> None:
        self._said_at = time.monotonic()
        with suppress(*VALKEY_UNAVAILABLE):
            await self._valkey.set(wake_up.LISTENING, 1, px=int(3 * NOTIFY_SECONDS * 1000))

    async def _beat(self) -> None:
        """Wake the listeners whose clients need a heartbeat. One timer for all listeners costs less than a timer for
        each.
        """
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS / 15)
            for listener in self._all():
                if listener.is_quiet:
                    listener.news.set()

    async def _keep(self) -> None:
        """End the streams of invalid credentials and of keys that opened a newer stream. Renew the other slots."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            # A stream that still waits for its slot would look as if its key had opened a newer stream.
            entered = [listener for listener in self._all() if listener.entered]
            for start in range(0, len(entered), KEEP_CHUNK):
                chunk = entered[start : start + KEEP_CHUNK]
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
                    # A listener that has left may have released its slot before the renewal acquired the slot again.
                    for listener in going:
                        if listener.ended is not None:
                            await self._slots.release(listener)


def _wanted(listener: Listener) -> Wanted:
    return Wanted(listener.tenant_id, listener.environment, listener.after, listener.asked.filter_path)


def _too_many() -> TooManyInFlight:
    return TooManyInFlight(
        "This business has as many event streams open as it may.",
        details={"scope": "tenant", "limit": STREAMS_PER_TENANT},
    )
