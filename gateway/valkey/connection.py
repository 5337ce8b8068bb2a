"""The connection to Valkey. Losing Valkey costs speed, never data: every caller works without it.

`REDIS_URL` names one server (`redis://`, `rediss://`, `unix://`), or Sentinels that know the current primary:

    sentinel://:password@first:26379,second:26379,third:26379/0?master=gateway

Valkey Cluster is not supported. Celery's transport and this package's scripts use several keys at once, and a cluster
stores these on different servers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from django.conf import settings

from gateway import embedded_addresses

SENTINEL_TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Sentinels, and the name, password and database of the primary that they monitor."""

    addresses: tuple[tuple[str, int], ...]
    master: str
    password: str | None = field(repr=False)
    database: int

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Parse an address. Raises ValueError without a `master`, or for a port that is not a number."""
        parts = urlsplit(url)
        credentials, _, hosts = parts.netloc.rpartition("@")
        master = parse_qs(parts.query).get("master")
        if not master:
            raise ValueError("A sentinel:// address needs ?master=NAME.")
        addresses = [host.rpartition(":") for host in hosts.split(",")]
        return cls(
            tuple((host, int(port)) for host, _, port in addresses),
            master[0],
            unquote(credentials.partition(":")[2]) or None,
            int(parts.path.strip("/") or 0),
        )


def is_sentinel(url: str) -> bool:
    """Whether an address names Sentinels."""
    return url.startswith("sentinel://")


class LeavesReplica:
    """A mixin for connections: closes a connection to a primary that has become a replica.

    The next connection goes to the new primary, if the address follows it. redis-py's connections of Sentinels do the
    same.
    """

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a response. Raises ConnectionError from a replica."""
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except redis.exceptions.ReadOnlyError as error:
            self.disconnect()  # type: ignore[attr-defined]
            raise redis.exceptions.ConnectionError("Valkey has become a replica.") from error


class _LeavesReplicaAsync:
    """`LeavesReplica` for an event loop."""

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a response. Raises ConnectionError from a replica."""
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except redis.exceptions.ReadOnlyError as error:
            await self.disconnect()  # type: ignore[attr-defined]
            raise redis.exceptions.ConnectionError("Valkey has become a replica.") from error


def _on(mixin: type, client: Any) -> Any:
    pool = client.connection_pool
    pool.connection_class = type("Connection", (mixin, pool.connection_class), {})
    return client


def client(url: str, **options: Any) -> Any:
    """A blocking client. `options` are the options of redis-py's connections."""
    if not is_sentinel(url):
        return _on(LeavesReplica, redis.Redis.from_url(url, **options))
    found = Sentinels.from_url(url)
    manager: Any = redis.sentinel.Sentinel(found.addresses, socket_timeout=SENTINEL_TIMEOUT_SECONDS)  # type: ignore[no-untyped-call]
    return manager.master_for(found.master, db=found.database, password=found.password, **options)


def async_client(url: str, **options: Any) -> Any:
    """A client for an event loop."""
    if not is_sentinel(url):
        return _on(_LeavesReplicaAsync, redis.asyncio.Redis.from_url(url, **options))
    found = Sentinels.from_url(url)
    manager: Any = redis.asyncio.sentinel.Sentinel(found.addresses, socket_timeout=SENTINEL_TIMEOUT_SECONDS)  # type: ignore[no-untyped-call]
    return manager.master_for(found.master, db=found.database, password=found.password, **options)


def celery_broker(url: str) -> tuple[str, dict[str, Any]]:
    """The address in Celery's form, and the options of Celery's transport."""
    if not is_sentinel(url):
        return embedded_addresses.celery_broker_url(url), {}
    found = Sentinels.from_url(url)
    password = f":{quote(found.password, safe='')}@" if found.password else ""
    nodes = [f"sentinel://{password}{host}:{port}/{found.database}" for host, port in found.addresses]
    return ";".join(nodes), {"master_name": found.master}


VALKEY_UNAVAILABLE = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ResponseError,
)
"""Errors that callers catch: unreachable, too slow, or restarting (`LOADING …`)."""


@cache
def valkey() -> Any:
    """The process's client: pooled, thread-safe. A call to a hanging server fails after 4 seconds, because the
    connection is opened twice and waits for the greeting each time.

    Loosely typed: redis-py declares every answer for its synchronous and its asynchronous client at once.
    """
    return client(
        settings.REDIS_URL,
        socket_connect_timeout=0.5,
        socket_timeout=1.0,
        health_check_interval=30,
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), 1),
    )


QUICK_SECONDS = 0.1
ALONE_SECONDS = 5.0


class LeavesHangingAlone(redis.retry.Retry):
    """Repeats once over a broken connection. After a time-out, every call of the process fails at once for
    `ALONE_SECONDS`.
    """

    alone_until: ClassVar = 0.0
    """A time of `time.monotonic`. The process shares it, because each connection has its own copy of this object."""

    def __init__(self) -> None:
        super().__init__(redis.backoff.NoBackoff(), 1, (redis.exceptions.ConnectionError,))

    def call_with_retry(self, do: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() < LeavesHangingAlone.alone_until:
            raise redis.exceptions.TimeoutError("Valkey did not answer a moment ago.")
        try:
            return super().call_with_retry(do, *args, **kwargs)
        except (redis.exceptions.TimeoutError, redis.sentinel.MasterNotFoundError):
            LeavesHangingAlone.alone_until = time.monotonic() + ALONE_SECONDS
            raise


@cache
def quick_valkey() -> Any:
    """The process's client for calls that a caller waits for, and that have a path without Valkey. A call to a hanging
    server fails after `QUICK_SECONDS`, and further calls at once.
    """
    return client(
        settings.REDIS_URL,
        socket_connect_timeout=QUICK_SECONDS,
        socket_timeout=QUICK_SECONDS,
        health_check_interval=30,
        retry=LeavesHangingAlone(),
    )
