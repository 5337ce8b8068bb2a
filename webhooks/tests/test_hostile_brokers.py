"""Brokers of tenants that attack the service: a broker's bytes cost little memory and little time of the event loop."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from gateway.outbound.client import Answer, Outbound
from webhooks.destinations import kinds
from webhooks.destinations.interface import Message

MIB = 1024 * 1024
Script = Callable[[socket.socket], Iterator[bytes]]
"""The bytes that a broker sends. The script may read between them."""


class Outcome(NamedTuple):
    """What an attack achieved."""

    answers: list[Answer]
    seconds: float
    most_bytes: int
    """The bytes that the service accepted from a connection, with those in the buffers of the operating system."""
    longest_pause: float
    """How long the event loop did nothing else, in seconds."""


def attack(kind: str, script: Script, *, bodies: tuple[bytes, ...] = (b"{}",), **given: str) -> Outcome:
    """Send messages to a broker that follows a script on each of its connections, and then sends up to 64 MiB."""
    accepted = [0]

    def serve(connection: socket.socket, number: int) -> None:
        connection.settimeout(5)
        with closing(connection), contextlib.suppress(OSError):
            for data in script(connection):
                connection.sendall(data)
                accepted[number] += len(data)
                if accepted[number] > 64 * MIB:
                    return
            while connection.recv(65536):
                pass

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(0)
                threading.Thread(target=serve, args=(connection, len(accepted) - 1), daemon=True).start()

    async def send(host: str) -> tuple[list[Answer], float, float]:
        to = kinds.KINDS[kind].SETTINGS(**settings(kind, host), **given)
        pauses = [0.0]

        async def watch() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                pauses.append(time.monotonic() - began)

        watching = asyncio.create_task(watch())
        began = time.monotonic()
        async with Outbound(allow_private=True) as outbound, aclosing(kinds.Connections(outbound)) as opened:
            headers = {"X-Service-Event-Type": "message.inbound"}
            answers = [
                await opened.send(UUID(int=0), to, Message(body, headers, None, 5.0)) for body in bodies
            ]
            seconds = time.monotonic() - began
        watching.cancel()
        return answers, seconds, max(pauses)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        answers, seconds, pause = asyncio.run(send(f"127.0.0.1:{listener.getsockname()[1]}"))
    return Outcome(answers, seconds, max(accepted), pause)


def settings(kind: str, host: str) -> dict[str, str]:
    return {
        "kafka": {"bootstrap_servers": host, "topic": "t", "security_protocol": "PLAINTEXT"},
        "rabbitmq": {"url": f"amqp://{host}", "username": "u", "password": "p"},
    }[kind]


def endless(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


def amqp(method: Frame | ContentHeader | ContentBody, channel: int = 0) -> bytes:
    return frame.marshal(method, channel)


def handshake(connection: socket.socket, frame_max: int = 131_072) -> Iterator[bytes]:
    """Accept a client of RabbitMQ, until its channel confirms messages."""
    capabilities: Any = {"publisher_confirms": True, "basic.nack": True}
    start = commands.Connection.Start(server_properties={"capabilities": capabilities}, mechanisms="PLAIN")
    tune = commands.Connection.Tune(channel_max=2047, frame_max=frame_max, heartbeat=60)
    for answers in (
        [start],
        [tune],
        [commands.Connection.OpenOk()],
        [commands.Channel.OpenOk()],
        [commands.Confirm.SelectOk()],
    ):
        # TuneOk and Open come together or one after the other.
        received = connection.recv(65536)
        if received.startswith(b"\x01\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x1f") and len(received) == 20:
            connection.recv(65536)
        channel = 1 if isinstance(answers[0], commands.Channel.OpenOk | commands.Confirm.SelectOk) else 0
        yield b"".join(amqp(each, channel) for each in answers)


@pytest.mark.parametrize(
    ("kind", "header"), [("kafka", struct.pack(">i", 2**31 - 1)), ("rabbitmq", b"\x01\0\0\xff\xff\xff\xfe")]
)
def test_an_answer_that_claims_gigabytes_is_not_read(kind: str, header: bytes) -> None:
    def script(_: socket.socket) -> Iterator[bytes]:
        yield header
        yield from endless(bytes(65536))

    got = attack(kind, script)
    assert [answer.error for answer in got.answers] == ["connection_error"]
    assert got.most_bytes < 16 * MIB
    assert got.seconds < 2


def test_a_returned_message_without_end_is_not_read() -> None:
    def script(connection: socket.socket) -> Iterator[bytes]:
        yield from handshake(connection)
        connection.recv(65536)
        returned = commands.Basic.Return(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="a")
        yield amqp(returned, 1) + amqp(ContentHeader(body_size=2**62), 1)
        yield from endless(amqp(ContentBody(bytes(65536)), 1))

    got = attack("rabbitmq", script)
    assert [answer.error for answer in got.answers] == ["connection_error"]
    assert got.most_bytes < 16 * MIB
    assert got.seconds < 2


def test_a_large_table_does_not_stop_the_event_loop() -> None:
    """The client copies the rest of a table for each of its entries."""

    def script(_: socket.socket) -> Iterator[bytes]:
        table = b"\0V" * 400_000
        start = (
            struct.pack(">HHBBI", 10, 10, 0, 9, len(table))
            + table
            + struct.pack(">I5sI5s", 5, b"PLAIN", 5, b"en_US")
        )
        yield struct.pack(">BHI", 1, 0, len(start)) + start + b"\xce"

    got = attack("rabbitmq", script)
    assert [answer.error for answer in got.answers] == ["connection_error"]
    assert got.longest_pause < 0.5
