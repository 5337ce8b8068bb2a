"""Django's cache in Valkey. While Valkey is unavailable, each process uses its own memory.

After a failed call, a process does not call Valkey for `ALONE_SECONDS`. A log-in makes ten calls, and each call to a
hanging Valkey takes seconds to fail.

Used by the log-in and sign-up limits (allauth), by the admin's search and first page, and by the console's forms of API
keys and of answers with a file. Nothing here is authoritative. Without Valkey the limits apply to each process, so an
attacker's guesses are bounded by the limit times the number of processes.
"""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import orjson
import structlog
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.utils.functional import Promise

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

ALONE_SECONDS = 5.0
"""How long a process uses only its own memory after a failed call to Valkey."""


class JSONSerializer:
    """JSON instead of pickle, so that an attacker with access to Valkey cannot run code here.

    A value that JSON cannot represent raises TypeError, because it would be read back as another value.
    """

    def dumps(self, value: Any) -> bytes:
        return orjson.dumps(value, default=_text_of_lazy)

    def loads(self, data: bytes) -> Any:
        return orjson.loads(data)


def _text_of_lazy(value: object) -> str:
    if isinstance(value, Promise):
        return str(value)
    raise TypeError(type(value).__name__)


def _or_memory(name: str) -> Callable[..., Any]:
    def method(self: "ValkeyCache", *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() >= ValkeyCache.alone_until:
            try:
                return getattr(super(ValkeyCache, self), name)(*args, **kwargs)
            except VALKEY_UNAVAILABLE as error:
                ValkeyCache.alone_until = time.monotonic() + ALONE_SECONDS
                log.warning("cache_unavailable", error=type(error).__name__)
        return getattr(self.memory, name)(*args, **kwargs)

    return method


class _SharedClient(RedisCacheClient):
    """The client that the whole process uses. It can also find a primary through Sentinels."""

    def get_client(self, key: Any = None, *, write: bool = False) -> Any:
        return valkey()


class ValkeyCache(RedisCache):
    """Django's Redis cache, with the process's own memory as fallback."""

    alone_until: ClassVar = 0.0
    """A time of `time.monotonic`. The process shares it, because each thread has its own cache object."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        options = {"serializer": JSONSerializer, **params.get("OPTIONS", {})}
        super().__init__(server, {**params, "OPTIONS": options})
        self._class = _SharedClient
        self.memory = LocMemCache("without-valkey", {})

    add = _or_memory("add")
    get = _or_memory("get")
    set = _or_memory("set")
    touch = _or_memory("touch")
    delete = _or_memory("delete")
    incr = _or_memory("incr")
    has_key = _or_memory("has_key")
    clear = _or_memory("clear")
