"""Celery's connections to Valkey."""

import redis
from kombu.transport.redis import Channel

from gateway.valkey.connection import LeavesReplica


class _Connection(LeavesReplica, redis.Connection):
    pass


class _TlsConnection(LeavesReplica, redis.SSLConnection):
    pass


def leave_replicas() -> None:
    """Let Celery's connections leave a primary that has become a replica."""
    Channel.connection_class, Channel.connection_class_ssl = _Connection, _TlsConnection
