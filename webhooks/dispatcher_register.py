"""Register of the running dispatchers in Valkey: the first of them that has room gets each signal.

At a moderate rate a process that wakes with cold caches costs several times what its work does. So signals are not
spread: the first dispatcher gets them until it has no room or no CPU left, then the next one. A dispatcher that does
not take its signals within `PATIENCE_MILLISECONDS` is removed from the register while another has room, and any
dispatcher takes them. Each signal checks that, and so does each dispatcher once a second. One that was removed is
registered again, as the last, by its next report.

The scripts are sent whole: naming them by their hash (EVALSHA) saves 3 of the 42 µs of a signal, and a Valkey that
restarts would have to be given them again.
"""

from typing import Any, NamedTuple

from gateway.valkey.connection import valkey

SIGNAL = "deliveries:wake"
"""The list of signals that any dispatcher takes. The list of one dispatcher is this, a colon and its name."""
REGISTER = "deliveries:dispatchers"
"""The names of the dispatchers, in the order in which they came. This, a colon and a name is the state of that one: it
is gone when the dispatcher has not said for a while that it is alive."""
ROOM, BUSY, FULL = b"room", b"busy", b"full"
"""What a dispatcher says: it can be handed more; it can, but others should be asked first; it cannot."""
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
# one within a second), and whether the next ones may be handed over.
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
return {taken and 1 or 0, starts and 1 or 0, open and 1 or 0}
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
    """What became of a signal."""

    taken: bool
    """Whether the hand-overs were taken."""
    must_start: bool
    """Whether the caller must start a dispatcher."""
    has_room: bool
    """Whether the next deliveries may be handed over."""


def send(signals: list[bytes], *, looks: bool) -> Sent:
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
    return Sent(*map(bool, answer))


def own_signals(name: str) -> str:
    """The list of the signals that one dispatcher is to take."""
    return f"{SIGNAL}:{name}"


def reporting(name: str, state: bytes) -> tuple[Any, ...]:
    """The command by which a dispatcher says that it is alive, and takes others that are not off the register."""
    return ("EVAL", _REPORT, 2, SIGNAL, REGISTER, name, state, ALIVE_MILLISECONDS)


def leave(name: str) -> None:
    """Take a dispatcher that ends off the register; another takes its signals."""
    valkey().eval(_LEAVE, 2, SIGNAL, REGISTER, name)
