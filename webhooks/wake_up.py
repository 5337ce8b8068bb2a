"""Signals the dispatchers, after the commit, that deliveries are due. Keeps the register of running dispatchers.

A signal hands over a few fresh deliveries (`events/publish.py`), or asks a dispatcher to poll for due ones. A lost
request to poll costs half a second, because dispatchers poll that often, or five seconds while no delivery is open. A
worker runs a dispatcher from its start to its end, and starts another if the dispatcher fails (`gateway/role_loop.py`).
A lost hand-over waits until its lease ends. If its dispatcher died, this takes a second.

The running dispatchers are registered in Valkey, and the first one with room gets each signal. At a moderate rate,
waking a process with cold caches costs more than the work that it then does. So the first dispatcher gets all signals
until it lacks room or CPU, then the next one does. A dispatcher that does not take its signals within
`PATIENCE_MILLISECONDS` is removed from the register while another has room, and any dispatcher may take those signals.
Each signal checks for this, and so does each dispatcher once a second. A removed dispatcher's next report registers it
again, at the end.

The scripts are sent in full. Naming them by hash (EVALSHA) would save little, and after a restart Valkey would need
them again.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid4

import msgspec
import structlog
from django.db import connection

from gateway.database import transactions
from gateway.database.statements import run
from gateway.monitoring.logs import type_alone
from gateway.task_queue import enqueue
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from gateway.valkey.write_behind import Debounced
from webhooks.open_deliveries import releasing

SIGNAL = "deliveries:wake"
"""The key of the list of signals that any dispatcher may take. With a colon and a dispatcher's name appended, it is the
key of that dispatcher's own list.
"""
REGISTER = "deliveries:dispatchers"
"""The key of the dispatchers' names, in order of registration. With a colon and a dispatcher's name appended, it is the
key of that dispatcher's state, which expires when the dispatcher stops reporting.
"""
ROOM, BUSY, FULL = b"room", b"busy", b"full"
"""States that a dispatcher reports: it has room, it has room but prefers that others are signalled first, or it has no
room.
"""
ALIVE_MILLISECONDS = 3_000
PATIENCE_MILLISECONDS = 100
"""How long a dispatcher may take to receive a signal. A busy event loop needs less for one round."""
CALLED = "deliveries:called"
"""Set for a second by a wake-up, so that a burst of events starts one task rather than one for each event."""
CALL_MILLISECONDS = 1_000
SENT = "deliveries:sent"
"""With a colon and an id appended, the key that says whether the hand-overs of a call were accepted. The client
repeats a call whose answer is lost, and the repetition must not hand the same deliveries over again.
"""
SENT_MILLISECONDS = 10_000
MOST_SIGNALS = 256
"""The maximum number of hand-overs that wait for one dispatcher. Further ones are rejected."""
LOOK = b"look"
"""The signal that asks a dispatcher to poll for due deliveries. The scripts write it."""

# `own` is the list of one dispatcher. While `own:patience` exists, the signals in the list are not late.
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

# Accepts hand-overs (ARGV[6] and on) while a dispatcher is alive and few hand-overs wait. A list never gets two
# requests to poll in a row. Returns whether the hand-overs were accepted, whether the caller must start a dispatcher
# (none is running, and none was started within a second), and which dispatcher may get the next hand-overs.
_SEND = (
    _SCRIPT
    + """
local before = redis.call('GET', KEYS[4])
if before then return {tonumber(before), 0, false} end
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
    for i = 6, #ARGV do redis.call('RPUSH', to, ARGV[i]) end
end
if #ARGV > 5 then redis.call('SET', KEYS[4], taken and 1 or 0, 'PX', ARGV[5]) end
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
    """The result of a signal."""

    taken: bool
    """Whether the hand-overs were accepted."""
    must_start: bool
    """Whether the caller must start a dispatcher."""
    next: bytes | None
    """The dispatcher to which the next deliveries may be handed over."""


def send_signals(signals: list[bytes], *, looks: bool) -> Sent:
    """Signal the first dispatcher that has room."""
    answer: Any = valkey().eval(
        _SEND,
        4,
        SIGNAL,
        REGISTER,
        CALLED,
        f"{SENT}:{uuid4()}",
        CALL_MILLISECONDS,
        MOST_SIGNALS,
        PATIENCE_MILLISECONDS,
        int(looks),
        SENT_MILLISECONDS,
        *signals,
    )
    taken, starts, next_ = answer
    return Sent(bool(taken), bool(starts), next_)


def name_of(process: str, worker_id: int) -> str:
    """The name of a dispatcher: the process's name for operators, and the id under which its worker is registered."""
    return f"{process}#{worker_id}"


def worker_id(name: bytes) -> int | None:
    """The worker's id in a dispatcher's name. None for a name of the former version."""
    return int(name.rpartition(b"#")[2]) if b"#" in name else None


def own_signals(name: str) -> str:
    """The list of signals for one dispatcher."""
    return f"{SIGNAL}:{name}"


def report_script(name: str, state: bytes) -> tuple[Any, ...]:
    """The command that reports a dispatcher as alive, and removes late dispatchers from the register."""
    return ("EVAL", _REPORT, 2, SIGNAL, REGISTER, name, state, ALIVE_MILLISECONDS)


def unregister(name: str) -> None:
    """Remove an ending dispatcher from the register. Other dispatchers take its signals."""
    valkey().eval(_LEAVE, 2, SIGNAL, REGISTER, name)


log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.01
"""How often a process that publishes continuously may ask for a poll. Hand-overs are sent at once."""
MOST_HANDED_OVER = 64
"""The maximum number of deliveries in one signal."""


class Packed(NamedTuple):
    """A delivery to hand over: the facts needed to release it, and the content for the dispatcher."""

    id: UUID
    tenant_id: UUID
    claimed_at: datetime
    content: bytes

    def __repr__(self) -> str:
        return type_alone(self)


@dataclass(frozen=True, slots=True)
class Fresh:
    """The deliveries that a transaction created: those claimed for a hand-over, and whether there are others."""

    handed_over: Sequence[Packed] = ()
    has_unclaimed: bool = False
    is_urgent: bool = False
    """Whether calls are among the deliveries. Dispatchers accept calls even without room."""

    def __bool__(self) -> bool:
        return bool(self.handed_over) or self.has_unclaimed


class _Unsent:
    """The pending signals of this process. Any thread adds signals, and the debounced thread takes them."""

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
    """The dispatcher of the same process, if the process has both roles. Hand-overs to it do not go through Valkey."""

    @property
    def worker_id(self) -> int:
        """The worker that is named as the holder of the dispatcher's leases."""

    @property
    def has_room(self) -> bool:
        """Whether fresh deliveries may be handed to the dispatcher."""

    def hand_over(self, deliveries: Sequence[Packed], *, looks: bool) -> bool:
        """Hand deliveries over from any thread. `looks` asks for a poll. Returns False if the dispatcher is ending
        and accepts no hand-overs.
        """


_local: LocalDispatcher | None = None
_unsent = _Unsent()
_sending = threading.Lock()
_next: bytes | None = None
"""The dispatcher that had room at this process's last signal."""


def attach(dispatcher: LocalDispatcher | None) -> None:
    """Set the dispatcher of this process. None when it ends."""
    global _local
    _local = dispatcher


def may_hand_over() -> bool:
    """Whether a dispatcher has room: this process's own, or the one that was signalled last."""
    return (_local is not None and _local.has_room) or _next is not None


def next_dispatcher(*, urgent: bool = False) -> int | None:
    """The registered worker that will probably get the hand-over. None if unknown."""
    if _local is not None and (urgent or _local.has_room):
        return _local.worker_id
    return None if _next is None else worker_id(_next)


def reset() -> None:
    """Hand nothing over until the next signal finds a dispatcher with room."""
    global _next
    _next = None


def after_commit(fresh: Fresh | None = None) -> None:
    """Wake a dispatcher soon after the current transaction commits, or soon if there is no transaction.

    `fresh` are the deliveries that the transaction created. Without them the dispatcher polls.
    """
    transactions.after_commit(partial(soon, fresh or Fresh(has_unclaimed=True)))


def soon(fresh: Fresh) -> None:
    """Wake a dispatcher soon. For commits on connections other than Django's."""
    local = _local
    takes_over = local is not None and (local.has_room or fresh.is_urgent or not fresh.handed_over)
    if takes_over and local is not None and local.hand_over(fresh.handed_over, looks=fresh.has_unclaimed):
        return
    _unsent.add(fresh)
    _debounced.ask(hurry=bool(fresh.handed_over))


def wake() -> None:
    """Ask a dispatcher to poll for due deliveries. Start a dispatcher if none is running."""
    _send([], looks=True)


def pass_on(deliveries: Sequence[Packed]) -> None:
    """Send a new signal for deliveries that an ending dispatcher received but will not send."""
    _send(deliveries, looks=True)


def flush() -> None:
    """Send this process's pending signals now."""
    with _sending:
        handed_over, looks = _unsent.take()
        if handed_over or looks:
            _send(handed_over, looks=looks)


def _send(handed_over: Sequence[Packed], *, looks: bool) -> None:
    """Send a signal, and release the deliveries that no dispatcher accepts."""
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
    """End the leases of deliveries that were not handed over. If this fails, the leases run out."""
    try:
        run(releasing(handed_over))
    except Exception:
        log.exception("release_failed", rows=len(handed_over))
    finally:
        connection.close()


_debounced = Debounced(flush, seconds=LOOK_SECONDS)

# --- Signals to event streams, while any is open, that tenants have fresh events.
#
# A signal names tenants. It is sent while the publishing transaction runs, perhaps before its commit. So a process that
# receives the signal polls until that transaction has ended. A lost signal costs seconds, because streams also poll by
# themselves.
CHANNEL = "streams:fresh"
"""The channel of signals to event streams. A message is the ids of tenants, 16 bytes each, without separators."""
LISTENING = "streams:listening"
"""The key that is set while any process has open streams."""
ASK_SECONDS = 1.0
"""How often a publishing process checks whether streams are open. Without streams, this is the only cost of signals."""
SEND_SECONDS = 0.005


class _Signals:
    """The tenants that this process must still signal. Any thread adds tenants, and the debounced thread sends the
    signals.
    """

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
    """Signal soon that these tenants have fresh events. Does no I/O in the calling thread."""
    _signals.add(tenants)


def tenants_in(message: bytes) -> list[UUID]:
    """The tenants in a message of `CHANNEL`."""
    return [UUID(bytes=message[start : start + 16]) for start in range(0, len(message) // 16 * 16, 16)]
