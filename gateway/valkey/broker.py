"""Celery's connections to Valkey."""

from typing import Any

import redis
from kombu.transport.redis import Channel

from gateway.valkey.connection import LeavesReplica


class _Connection(LeavesReplica, redis.Connection):
    pass


class _TlsConnection(LeavesReplica, redis.SSLConnection):
    pass


_channel: Any = Channel
_parameters = _channel._connparams


def _of_open_connection(self: Any, *args: Any, **options: Any) -> Any:
    # A worker that loses Valkey closes its channel twice. If a message is unacknowledged, the second time looks for a
    # connection that is gone, and kombu 5.7 would end the worker with an AttributeError.
    if self.connection is None or self.connection.client is None:
        raise redis.exceptions.ConnectionError("The connection to the broker is closed.")
    return _parameters(self, *args, **options)


def adapt() -> None:
    """Let Celery's connections leave a primary that has become a replica, and end without an error after an outage."""
    _channel.connection_class, _channel.connection_class_ssl = _Connection, _TlsConnection
    _channel._connparams = _of_open_connection
