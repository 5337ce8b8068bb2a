"""The connection to Valkey. Losing Valkey loses speed, never data: every caller has an answer without it."""

from functools import cache
from typing import Any

import redis
from django.conf import settings

from gateway.valkey import address

VALKEY_UNAVAILABLE = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ResponseError,
)
"""What callers catch: unreachable, too slow, or restarting (`LOADING …`)."""


@cache
def valkey() -> Any:
    """The process's client: pooled, thread-safe. A server that hangs makes a call fail after 4 seconds: the connection
    is made anew once, and its greeting waits as well.

    Typed loosely: redis-py declares every answer for its synchronous and its asynchronous client at once.
    """
    return address.client(
        settings.REDIS_URL,
        socket_connect_timeout=0.5,
        socket_timeout=1.0,
        health_check_interval=30,
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), 1),
    )
