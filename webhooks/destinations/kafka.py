"""Apache Kafka and brokers with its protocol, through aiokafka. Each event is a record, which all in-sync replicas
store.

Brokers name further brokers in their answers. So the client of deliveries opens every socket, and checks these
addresses like those in the settings. Records with the same key (the same customer, at an ordered endpoint) go to one
partition.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

from django.conf import settings

from gateway.http1 import tls_context
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer
from webhooks.destinations.bounded_reader import BoundedReader
from webhooks.destinations.interface import (
    REFUSED,
    TOO_LARGE,
    BrokerDestination,
    Message,
    failed,
    text_problem,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_SSL", "SSL")
_UNENCRYPTED = ("SASL_PLAINTEXT", "PLAINTEXT")
"""Allowed only if webhooks may use http too (WEBHOOK_ALLOW_HTTP)."""
MOST_ITERATIONS = 100_000
"""The maximum number of SCRAM iterations, which the broker chooses: 0.2 s of CPU. Kafka allows 4,096 to 16,384. The
client computes them in a thread that also has other work, and no time-out ends the computation.
"""


class KafkaSettings(NamedTuple):
    """A topic, the brokers to contact first, and the credentials."""

    bootstrap_servers: str
    topic: str
    security_protocol: str = "SASL_SSL"
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class Kafka(BrokerDestination[KafkaSettings]):
    """A Kafka topic as a destination."""

    SETTINGS = KafkaSettings
    CLIENT: ClassVar[str | None] = "aiokafka"
    BYTES_PER_SECOND = 65536.0
    """The client asks for the topic's metadata every five minutes, and ten times a second while the topic has no
    leader.
    """
    _producer: Any = None
    refusal: Exception | None = None
    """The error of the last broker that refused a connection. None once a broker has accepted a connection."""

    @classmethod
    def problem(cls, given: KafkaSettings) -> str | None:
        protocols = PROTOCOLS + (_UNENCRYPTED if settings.WEBHOOK_ALLOW_HTTP else ())
        if given.security_protocol not in protocols:
            return f"`security_protocol` must be one of {', '.join(PROTOCOLS)}."
        if given.sasl_mechanism not in MECHANISMS:
            return f"`sasl_mechanism` must be one of {', '.join(MECHANISMS)}."
        if given.security_protocol.startswith("SASL") and not (given.sasl_username and given.sasl_password):
            return f"`{given.security_protocol}` needs `sasl_username` and `sasl_password`."
        server = r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}"
        return text_problem(
            rf"{server}(?:,{server}){{0,9}}", bootstrap_servers=given.bootstrap_servers
        ) or text_problem(r"[A-Za-z0-9._-]{1,249}", topic=given.topic)

    @classmethod
    def address(cls, given: KafkaSettings) -> str:
        return f"kafka://{given.bootstrap_servers}/{given.topic}"

    async def open(self) -> None:
        from aiokafka import AIOKafkaProducer

        _open_by_us()
        given = self._settings
        # The producer's tasks copy this context, and so open their sockets through this destination.
        _opener.set(self)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=given.bootstrap_servers,
            client_id=settings.SERVICE_NAME,
            acks="all",
            request_timeout_ms=int(self.SECONDS * 1000),
            security_protocol=given.security_protocol,
            ssl_context=tls_context() if given.security_protocol.endswith("SSL") else None,
            sasl_mechanism=given.sasl_mechanism,
            sasl_plain_username=given.sasl_username,
            sasl_plain_password=given.sasl_password,
        )
        await self._producer.start()

    async def send(self, message: Message) -> Answer:
        from aiokafka.errors import MessageSizeTooLargeError

        began = time.monotonic()
        self.allowance.grant(len(message.body))
        try:
            await self._producer.send_and_wait(
                self._settings.topic,
                message.body,
                key=message.key.encode() if message.key else None,
                headers=[(name, value.encode()) for name, value in message.headers.items()],
            )
        except MessageSizeTooLargeError:
            return failed(TOO_LARGE, began)
        return failed(None, began)

    def failure(self, error: Exception, began: float) -> Answer:
        from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, RequestTimedOutError

        if isinstance(error, KafkaTimeoutError | RequestTimedOutError):
            error = TimeoutError()
        if isinstance(error, KafkaConnectionError):
            error = self.refusal or error
        if isinstance(error, KafkaError) and not isinstance(error, KafkaConnectionError):
            return failed(REFUSED, began, f"{type(error).__name__}: {error}")
        return super().failure(error, began)

    async def close(self) -> None:
        if self._producer is not None:
            try:
                await self._producer.stop()
            finally:
                await self._producer.client.close()


_opener: ContextVar[Kafka] = ContextVar("opener")
"""The destination through which a task opens its sockets. A task without a destination cannot open sockets."""


class _GuardedLoop:
    """The event loop on which aiokafka connects. It differs only in how it opens a socket."""

    def __init__(self, loop: Any, opener: Kafka) -> None:
        self._loop, self._opener = loop, opener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl.SSLContext | None
    ) -> Any:
        sock = await self._opener.socket(host, port)
        with contextlib.ExitStack() as unless_connected:
            unless_connected.callback(sock.close)
            name = host if ssl else None
            with self._opener.noting():
                made = await self._loop.create_connection(factory, sock=sock, ssl=ssl, server_hostname=name)
            unless_connected.pop_all()
        return made


def _open_by_us() -> None:
    """Replace aiokafka's connections by connections that use our sockets and readers. aiokafka has an option for the
    event loop, but none for these.
    """
    from aiokafka import client, conn
    from aiokafka.errors import AuthenticationFailedError, KafkaError

    class Connection(conn.AIOKafkaConnection):  # type: ignore[misc]
        async def connect(self) -> Any:
            opener = _opener.get()
            self._loop = _GuardedLoop(asyncio.get_running_loop(), opener)
            opener.refusal = None
            try:
                return await super().connect()
            except KafkaError as error:
                # The client tries the next broker. In the end it reports only that it reached none.
                opener.refusal = error
                raise

        def _create_reader_task(self) -> Any:
            self._reader: Any = BoundedReader(self._reader, _opener.get().allowance)
            return super()._create_reader_task()

        def authenticator_scram(self) -> Any:
            made = super().authenticator_scram()
            compute = made.create_salted_password

            def compute_at_most(salt: bytes, iterations: int) -> None:
                if iterations > MOST_ITERATIONS:
                    raise AuthenticationFailedError(
                        f"the broker asks for {iterations} iterations of SCRAM, the maximum is {MOST_ITERATIONS}"
                    )
                compute(salt, iterations)

            made.create_salted_password = compute_at_most
            return made

    async def create_conn(host: str, port: int, **given: Any) -> Any:
        made = Connection(host, port, **given)
        await made.connect()
        return made

    if client.create_conn is conn.create_conn:
        client.create_conn = create_conn
