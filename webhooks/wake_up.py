"""Signals the dispatchers, after the commit, that deliveries are due; the register of those that run.

A signal hands over a few fresh deliveries (`events/publish.py`) or asks a dispatcher to look for what is due. Losing
a request to look costs half a second: dispatchers poll that often. While no delivery is open they poll every five
seconds, so it costs up to that. A worker has a dispatcher from its start to its end, and begins another one when it
fails (`gateway/loop_thread.py`). Losing a hand-over costs the lease; if its dispatcher died, a second.

The running dispatchers are registered in Valkey, and the first of them that has room gets each signal. At a moderate
rate a process that wakes with cold caches costs more than its work does. So signals are not spread: the first
dispatcher gets them until it has no room or no CPU left, then the next one. A dispatcher that does not take its
signals within `PATIENCE_MILLISECONDS` is removed from the register while another has room, and any dispatcher takes
them. Each signal checks that, and so does each dispatcher once a second. One that was removed is registered again, as
the last, by its next report.

The scripts are sent whole: naming them by their hash (EVALSHA) saves little, and a Valkey that restarts would have to
be given them again.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec
import structlog
from django.db import connection

from gateway.database import transactions
from gateway.database.statements import run
from gateway.task_queue import enqueue
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from gateway.valkey.write_behind import Debounced
from webhooks.delivery_rows import releasing

SIGNAL = "deliveries:wake"
"""The list of signals that any dispatcher takes. The list of one dispatcher is this, a colon and its name."""
REGISTER = "deliveries:dispatchers"
"""The names of the dispatchers, in the order in which they came. This, a colon and a name is the state of that one: it
is gone when the dispatcher has not said for a while that it is alive."""
ROOM, BUSY, FULL = b"room", b"busy", b"full"
"""States that a dispatcher reports: it has room; it has, but others should be asked first; it has none."""
ALIVE_MILLISECONDS = 3_000
PATIENCE_MILLISECONDS = 100
"""More than a loop that has much to do needs to come round."""
CALLED = "deliveries:called"
"""Set for a second by a wake-up: a burst of events sends for one task, not one each."""
CALL_MILLISECONDS = 1_000
MOST_SIGNALS = 256
"""Hand-overs that wait for one dispatcher; beyond it they are refused."""
LOOK = b"look"
"""The signal that asks a dispatcher to look for what is due. The scripts write it."""

# `own` is the list of a dispatcher. While it holds something, `own:patience` says that it may still be taken in time.
_SCRIPT = """
local signal, register = KEYS[1], KEYS[2]
local function own(name) return signal .. ':' .. name end
local function remove(name)
    redis.call('LREM', register, 0, name)
    redis.call('DEL', register .. ':' .. name)
    while redis.call('LMOVE', own(name), signal, 'LEFT', 'RIGHT') do end
end
local function state(name)
    local found = redis.call('GET', register .. ':' .. name)
    if not found then remove(name) end
    local is_late = redis.call('LLEN', own(name)) > 0 and redis.call('EXISTS', own(name) .. ':patience') == 0
    return found, is_late
end
"""

# Hand-overs (ARGV[5] and on) are taken while a dispatcher is alive and few wait; requests to look are never two in a
# row. Returns whether they were taken, whether the caller must start a dispatcher (none is running, and nobody started
# one within a second), and who may be handed the next ones.
_SEND = (
    _SCRIPT
    + """
local most, in_time, late, names_of_late = tonumber(ARGV[2]), {}, {}, {}
for _, name in ipairs(redis.call('LRANGE', register, 0, -1)) do
    local found, is_late = state(name)
    if found and redis.call('LLEN', own(name)) >= most then found = 'full' end
    local first_of = is_late and late or in_time
    if found and not first_of[found] then first_of[found] = name end
    if found and is_late then table.insert(names_of_late, name) end
    if found == 'room' and not is_late then break end
end
local open = in_time.room or in_time.busy
if open then
    for _, name in ipairs(names_of_late) do remove(name) end
else
    open = late.room or late.busy
end
local chosen = open or in_time.full or late.full
local to = chosen and own(chosen) or signal
if redis.call('EXISTS', to) == 0 then redis.call('SET', to .. ':patience', 1, 'PX', ARGV[3]) end
local taken = chosen and redis.call('LLEN', to) < most
if taken then
    for i = 5, #ARGV do redis.call('RPUSH', to, ARGV[i]) end
end
if (ARGV[4] == '1' or not taken) and redis.call('LINDEX', to, -1) ~= 'look' then
    redis.call('RPUSH', to, 'look')
end
local starts = not chosen and redis.call('SET', KEYS[3], 1, 'NX', 'PX', ARGV[1])
return {taken and 1 or 0, starts and 1 or 0, open or false}
"""
)

_REPORT = (
    _SCRIPT
    + """
for _, name in ipairs(redis.call('LRANGE', register, 0, -1)) do
    if name ~= ARGV[1] then
        local _, is_late = state(name)
        if is_late and ARGV[2] ~= 'full' then remove(name) end
    end
end
redis.call('SET', register .. ':' .. ARGV[1], ARGV[2], 'PX', ARGV[3])
if not redis.call('LPOS', register, ARGV[1]) then redis.call('RPUSH', register, ARGV[1]) end
return redis.status_reply('OK')
"""
)

_LEAVE = _SCRIPT + "remove(ARGV[1])"


class Sent(NamedTuple):
    """The outcome of a signal."""

    taken: bool
    """Whether the hand-overs were taken."""
    must_start: bool
    """Whether the caller must start a dispatcher."""
    next: bytes | None
    """The dispatcher to which the next deliveries may be handed over."""


def send_signals(signals: list[bytes], *, looks: bool) -> Sent:
    """Signal the first dispatcher that has room."""
    answer: Any = valkey().eval(
        _SEND,
        3,
        SIGNAL,
        REGISTER,
        CALLED,
        CALL_MILLISECONDS,
        MOST_SIGNALS,
        PATIENCE_MILLISECONDS,
        int(looks),
        *signals,
    )
    taken, starts, next_ = answer
    return Sent(bool(taken), bool(starts), next_)


def name_of(process: str, worker_id: int) -> str:
    """The name of a dispatcher: the process as operators see it, and the worker as which it is registered."""
    return f"{process}#{worker_id}"


def worker_id(name: bytes) -> int | None:
    """The worker of a dispatcher's name; those of the former version have none."""
    return int(name.rpartition(b"#")[2]) if b"#" in name else None


def own_signals(name: str) -> str:
    """The list of the signals that one dispatcher is to take."""
    return f"{SIGNAL}:{name}"


def report_script(name: str, state: bytes) -> tuple[Any, ...]:
    """The command by which a dispatcher says that it is alive, and takes others that are not off the register."""
    return ("EVAL", _REPORT, 2, SIGNAL, REGISTER, name, state, ALIVE_MILLISECONDS)


def unregister(name: str) -> None:
    """Take a dispatcher that ends off the register; another takes its signals."""
    valkey().eval(_LEAVE, 2, SIGNAL, REGISTER, name)


log = structlog.get_logger(__name__)

WAKE_SECONDS = 0.002
"""A process that publishes all the time signals at most once per this interval."""
MOST_HANDED_OVER = 64
"""Deliveries of one signal."""


class Packed(NamedTuple):
    """A delivery that is handed over: what must be known to take it back, and what the dispatcher gets."""

    id: UUID
    claimed_at: datetime
    content: bytes


@dataclass(frozen=True, slots=True)
class Fresh:
    """The deliveries that a transaction made: those that it claimed, and whether there are others."""

    handed_over: Sequence[Packed] = ()
    has_unclaimed: bool = False
    is_urgent: bool = False
    """Whether calls are among them: a dispatcher takes these without room as well."""

    def __bool__(self) -> bool:
        return bool(self.handed_over) or self.has_unclaimed


class _Unsent:
    """The pending signals of this process. Any thread adds; the debounced thread takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handed_over: list[Packed] = []
        self._looks = False

    def add(self, fresh: Fresh) -> None:
        with self._lock:
            self._handed_over += fresh.handed_over
            self._looks |= fresh.has_unclaimed

    def take(self) -> tuple[list[Packed], bool]:
        with self._lock:
            handed_over, self._handed_over = self._handed_over, []
            looks, self._looks = self._looks, False
        return handed_over, looks


class LocalDispatcher(Protocol):
    """The dispatcher of this very process, where roles share one: it is handed deliveries without Valkey."""

    @property
    def worker_id(self) -> int:
        """The holder that its leases name."""

    @property
    def has_room(self) -> bool:
        """Whether it may be handed fresh deliveries."""

    def hand_over(self, deliveries: Sequence[Packed], *, looks: bool) -> bool:
        """Hand deliveries over, from any thread, and ask for a look. False: it is ending and takes nothing."""


_local: LocalDispatcher | None = None
_unsent = _Unsent()
_next: bytes | None = None
"""The dispatcher that had room for more at the last signal of this process."""


def attach(dispatcher: LocalDispatcher | None) -> None:
    """Name the dispatcher of this process; None when it ends."""
    global _local
    _local = dispatcher


def may_hand_over() -> bool:
    """Whether a dispatcher has room: this process's own, or the one that was signalled last."""
    return (_local is not None and _local.has_room) or _next is not None


def next_dispatcher(*, urgent: bool = False) -> int | None:
    """The registered worker that is expected to get what is handed over; None while it is not known."""
    if _local is not None and (urgent or _local.has_room):
        return _local.worker_id
    return None if _next is None else worker_id(_next)


def reset() -> None:
    """Hand nothing over before a dispatcher was signalled again."""
    global _next
    _next = None


def after_commit(fresh: Fresh | None = None) -> None:
    """Wake a dispatcher soon after the current transaction commits; outside of one, soon.

    `fresh` are the deliveries that the transaction made; without them the dispatcher looks for what is due.
    """
    transactions.after_commit(partial(soon, fresh or Fresh(has_unclaimed=True)))


def soon(fresh: Fresh) -> None:
    """Wake a dispatcher soon, for what was committed on a connection other than Django's."""
    local = _local
    takes_over = local is not None and (local.has_room or fresh.is_urgent or not fresh.handed_over)
    if takes_over and local is not None and local.hand_over(fresh.handed_over, looks=fresh.has_unclaimed):
        return
    _unsent.add(fresh)
    _debounced.ask()


def wake() -> None:
    """Ask a dispatcher to look for what is due; starts one when none is running."""
    _send([], looks=True)


def pass_on(deliveries: Sequence[Packed]) -> None:
    """Signal once more what a dispatcher that ends was handed over."""
    _send(deliveries, looks=True)


def _send_unsent() -> None:
    handed_over, looks = _unsent.take()
    if handed_over or looks:
        _send(handed_over, looks=looks)


def _send(handed_over: Sequence[Packed], *, looks: bool) -> None:
    """Signal, and release the deliveries that no dispatcher accepts."""
    global _next
    signals = [
        msgspec.msgpack.encode(
            [msgspec.Raw(each.content) for each in handed_over[start : start + MOST_HANDED_OVER]]
        )
        for start in range(0, len(handed_over), MOST_HANDED_OVER)
    ]
    try:
        sent = send_signals(signals, looks=looks)
    except VALKEY_UNAVAILABLE as error:
        log.warning("wake_missed", error=type(error).__name__)
        sent = Sent(taken=False, must_start=False, next=None)
    _next = sent.next
    if handed_over and not sent.taken:
        _release(handed_over)
    if sent.must_start:
        enqueue("webhooks.tasks.deliver_due", expires=5)


def _release(handed_over: Sequence[Packed]) -> None:
    """End the leases of what was not handed over; if that fails, they run out."""
    try:
        run(releasing({each.id: each.claimed_at for each in handed_over}))
    except Exception:
        log.exception("release_failed", rows=len(handed_over))
    finally:
        connection.close()


_debounced = Debounced(_send_unsent, seconds=WAKE_SECONDS)

# --- Signals the event streams that a tenant has fresh events, while any stream is open.
#
# A signal names tenants and is sent beside the transaction that publishes, perhaps before its commit: a
# process that hears it looks until that transaction has ended. Losing a signal costs seconds: the streams
# look by themselves.
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
