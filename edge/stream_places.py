"""Places of event streams in Valkey: a bounded number for each tenant and one for each key, over all processes.

A place that is not kept is free again after `PLACE_SECONDS`. Every method raises `VALKEY_UNAVAILABLE`.
"""

import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from edge.stream_listener import Listener

PLACE_SECONDS = 40

# A connection's place among those of its tenant, and that of its key, which the newest connection takes. All of a chunk
# are kept in one call: a call for each was a fifth of a core for 2,000 streams at rest.
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


class StreamPlaces:
    """The places, over one asynchronous connection."""

    def __init__(self, valkey: Any) -> None:
        self._valkey = valkey

    async def take(self, listener: Listener) -> bool:
        """Take a place for a new stream and end that of its key's former one; False: the tenant holds all of its."""
        moment, most = int(time.time()), settings.STREAMS_PER_TENANT
        return bool(
            await self._valkey.eval(_ENTER, 2, *_names(listener), moment, PLACE_SECONDS, most, listener.id)
        )

    async def keep(self, listeners: Sequence[Listener]) -> list[bool]:
        """Keep the places of these; False for each whose key listens elsewhere by now."""
        names = [name for listener in listeners for name in _names(listener)]
        values = [int(time.time()), PLACE_SECONDS, *(listener.id for listener in listeners)]
        return [bool(kept) for kept in await self._valkey.eval(_KEEP, len(names), *names, *values)]

    async def leave(self, listener: Listener) -> None:
        """Give a place back; twice does no harm."""
        await self._valkey.eval(_LEAVE, 2, *_names(listener), listener.id)


def _names(listener: Listener) -> tuple[str, str]:
    return f"streams:tenant:{listener.tenant_id}", f"streams:key:{listener.slot}"
