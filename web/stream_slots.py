"""Slots of open event streams in Valkey: a limited number for each tenant and one for each key.

A slot that is not renewed is free after `SLOT_SECONDS`.
"""

import time
from collections.abc import Sequence
from typing import Any

from web.stream_listener import Listener

SLOT_SECONDS = 40
STREAMS_PER_TENANT = 20
"""Most open event streams of a tenant."""

# A connection has a slot among those of its tenant and the slot of its key, which the newest connection takes over. One
# call renews all slots of a chunk.
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
            await self._valkey.eval(_ENTER, 2, *_names(listener), moment, SLOT_SECONDS, most, listener.id)
        )

    async def renew(self, listeners: Sequence[Listener]) -> list[bool]:
        """Renew the slots of these listeners. The result is False for each listener whose key has a newer stream."""
        names = [name for listener in listeners for name in _names(listener)]
        values = [int(time.time()), SLOT_SECONDS, *(listener.id for listener in listeners)]
        return [bool(kept) for kept in await self._valkey.eval(_KEEP, len(names), *names, *values)]

    async def release(self, listener: Listener) -> None:
        """Release a slot. Safe to repeat."""
        await self._valkey.eval(_LEAVE, 2, *_names(listener), listener.id)


def _names(listener: Listener) -> tuple[str, str]:
    return f"streams:tenant:{listener.tenant_id}", f"streams:key:{listener.slot}"
