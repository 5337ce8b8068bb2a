"""RabbitMQ and brokers with AMQP 0-9-1, through aiormq. Each event is a persistent message, which the broker confirms.

A message that reaches no queue is returned, and counts as refused. The client of deliveries opens the socket.
"""

import asyncio
import time
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urlsplit

from django.conf import settings

from gateway.http1 import tls_context
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer
from webhooks.destinations.bounded_reader import AmqpReader
from webhooks.destinations.interface import REFUSED, BrokerDestination, Message, failed, text_problem

LEAST_FRAME = 4096
"""The least number of bytes that a broker may allow for a frame (AMQP 0-9-1, 4.2.3). 0 is no limit. The client builds
all frames of a message at once, so a message would occupy the event loop if its frames were tiny.
"""
_NAME = r"[!-~ ]{0,255}"


class RabbitMqSettings(NamedTuple):
    """A virtual host, an exchange in it, and the credentials."""

    url: str
    username: str
    password: str
    exchange: str = ""
    routing_key: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class RabbitMq(BrokerDestination[RabbitMqSettings]):
    """A RabbitMQ exchange as a destination."""

    SETTINGS = RabbitMqSettings
    CLIENT: ClassVar[str | None] = "aiormq"
    BYTES_PER_SECOND = 64.0
    """Heartbeats have 8 bytes, and come twice a minute."""
    _connection: Any = None
    _channel: Any = None

    @classmethod
    def problem(cls, given: RabbitMqSettings) -> str | None:
        schemes = "amqps?" if settings.WEBHOOK_ALLOW_HTTP else "amqps"
        host = r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
        return text_problem(
            rf"{schemes}://{host}(?::[0-9]{{1,5}})?(?:/[A-Za-z0-9._~%-]{{0,255}})?", url=given.url
        ) or text_problem(_NAME, exchange=given.exchange, routing_key=given.routing_key)

    @classmethod
    def address(cls, given: RabbitMqSettings) -> str:
        parts = urlsplit(given.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path or '/'}#{given.exchange}"

    async def open(self) -> None:
        import aiormq

        given = self._settings
        scheme, _, rest = given.url.partition("://")
        user = f"{quote(given.username, safe='')}:{quote(given.password, safe='')}"
        transport: Any = _GuardedTransport(self)
        self._connection = aiormq.Connection(f"{scheme}://{user}@{rest}", transport_factory=transport)
        await self._connection.connect()
        frame_max = self._connection.connection_tune.frame_max
        if 0 < frame_max < LEAST_FRAME:
            raise aiormq.exceptions.AMQPError(f"the broker's frames have at most {frame_max} bytes")
        self._channel = await self._connection.channel(publisher_confirms=True)

    async def send(self, message: Message) -> Answer:
        from pamqp.commands import Basic

        began = time.monotonic()
        given = self._settings
        self.allowance.grant(len(message.body))
        await self._channel.basic_publish(
            message.body,
            exchange=given.exchange,
            routing_key=given.routing_key or message.headers["X-Service-Event-Type"],
            mandatory=True,
            properties=Basic.Properties(
                content_type="application/json", delivery_mode=2, headers=dict(message.headers)
            ),
        )
        return failed(None, began)

    def failure(self, error: Exception, began: float) -> Answer:
        from aiormq.exceptions import AMQPConnectionError, AMQPError, ConnectionClosed

        # These two types are network errors. Refusals of the broker have other types.
        if isinstance(error, AMQPError) and type(error) not in {AMQPConnectionError, ConnectionClosed}:
            return failed(REFUSED, began, f"{type(error).__name__}: {error}")
        return super().failure(error, began)

    @property
    def is_usable(self) -> bool:
        # The broker closes the channel after a message that it cannot accept.
        return self._channel is not None and not self._channel.is_closed

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class _GuardedTransport:
    """The interface through which aiormq connects: the method `create`."""

    def __init__(self, opener: RabbitMq) -> None:
        self._opener = opener

    async def create(self, url: Any, **_: Any) -> tuple[AmqpReader, asyncio.StreamWriter]:
        """Connect to the host in a URL."""
        sock = await self._opener.socket(url.host, url.port)
        is_tls = url.scheme == "amqps"
        try:
            with self._opener.noting():
                reader, writer = await asyncio.open_connection(
                    sock=sock,
                    ssl=tls_context() if is_tls else None,
                    server_hostname=url.host if is_tls else None,
                )
        except BaseException:
            sock.close()
            raise
        return AmqpReader(reader, self._opener.allowance), writer
