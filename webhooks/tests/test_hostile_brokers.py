"""Brokers of tenants that attack the service: a broker's bytes cost little memory and little time of the event loop."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
from webhooks.destinations.kafka import MOST_ITERATIONS

MIB = 1024 * 1024
Script = Callable[[socket.socket], Iterator[bytes]]
"""The bytes that a broker sends. The script may read between them."""


class Outcome(NamedTuple):
    """What an attack achieved."""

    answer: Answer
    seconds: float
    most_bytes: int
    """The bytes that the service accepted from a connection, with those in the buffers of the operating system."""
    longest_pause: float
    """How long the event loop did nothing else, in seconds."""


def attack(
    kind: str,
    script: Script,
    *,
    given: Mapping[str, str] | None = None,
    body: bytes = b"{}",
    servers: int = 1,
) -> Outcome:
    """Send a message to a broker that follows a script on each of its connections, and then sends up to 64 MiB. The
    destination names the broker's address `servers` times.
    """
    accepted = [0]

    def serve(connection: socket.socket, number: int) -> None:
        connection.settimeout(5)
        with closing(connection), contextlib.suppress(OSError):
            for data in script(connection):
                connection.sendall(data)
                accepted[number] += len(data)
                if accepted[number] > 64 * MIB:
                    return
            connection.recv(65536)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(0)
                threading.Thread(target=serve, args=(connection, len(accepted) - 1), daemon=True).start()

    async def send(host: str) -> tuple[Answer, float, float]:
        to = kinds.KINDS[kind].SETTINGS(**{**settings(kind, host), **(given or {})})
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
            answer = await opened.send(UUID(int=0), to, Message(body, headers, None, 5.0))
            seconds = time.monotonic() - began
        watching.cancel()
        return answer, seconds, max(pauses)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        answer, seconds, pause = asyncio.run(send(",".join([host] * servers)))
    return Outcome(answer, seconds, max(accepted), pause)


def settings(kind: str, host: str) -> dict[str, str]:
    return {
        "kafka": {"bootstrap_servers": host, "topic": "t", "security_protocol": "PLAINTEXT"},
        "rabbitmq": {"url": f"amqp://{host}", "username": "u", "password": "p"},
    }[kind]


def kafka_log_in(connection: socket.socket, first: str) -> Iterator[bytes]:
    """Answer a client of Kafka until its log-in by SCRAM, with the server's first message after the nonce."""
    for answer in (
        struct.pack(">hiHHHHHH", 0, 2, 17, 0, 0, 36, 0, 0),
        struct.pack(">hih13s", 0, 1, 13, b"SCRAM-SHA-512"),
        None,
    ):
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        asked = connection.recv(size, socket.MSG_WAITALL)
        if answer is None:
            # The request is the client's first message alone, without the headers of Kafka.
            nonce = asked.rpartition(b"r=")[2]
            yield struct.pack(">i", len(nonce) + len(first) + 2) + b"r=" + nonce + first.encode()
        else:
            yield struct.pack(">i", len(answer) + 4) + asked[4:8] + answer


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
    for channel, answer in (
        (0, start),
        (0, tune),
        (0, commands.Connection.OpenOk()),
        (1, commands.Channel.OpenOk()),
        (1, commands.Confirm.SelectOk()),
    ):
        received = connection.recv(65536)
        if received == amqp(commands.Connection.TuneOk(2047, frame_max, 60)):
            connection.recv(65536)  # TuneOk has no answer. Open follows it.
        yield amqp(answer, channel)


@pytest.mark.parametrize(
    ("kind", "header"), [("kafka", struct.pack(">i", 2**31 - 1)), ("rabbitmq", b"\x01\0\0\xff\xff\xff\xfe")]
)
def test_an_answer_that_claims_gigabytes_is_not_read(kind: str, header: bytes) -> None:
    def script(_: socket.socket) -> Iterator[bytes]:
        yield header
        yield from endless(bytes(65536))

    got = attack(kind, script)
    assert got.answer.error == "connection_error"
    assert got.most_bytes < 16 * MIB
    assert got.seconds < 2


def test_an_answer_of_negative_length_gives_the_broker_no_allowance() -> None:
    """The client goes on with the next of the destination's brokers."""
    lengths = [-(2**31), 2**30]

    def script(_: socket.socket) -> Iterator[bytes]:
        length = lengths.pop(0)
        yield struct.pack(">i", length)
        if length > 0:
            yield from endless(bytes(65536))

    got = attack("kafka", script, servers=2)
    assert got.answer.error == "connection_error"
    assert lengths == []
    assert got.most_bytes < 16 * MIB


def test_a_returned_message_without_end_is_not_read() -> None:
    def script(connection: socket.socket) -> Iterator[bytes]:
        yield from handshake(connection)
        connection.recv(65536)
        returned = commands.Basic.Return(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="a")
        yield amqp(returned, 1) + amqp(ContentHeader(body_size=2**62), 1)
        yield from endless(amqp(ContentBody(bytes(65536)), 1))

    got = attack("rabbitmq", script)
    assert got.answer.error == "connection_error"
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
    assert got.answer.error == "connection_error"
    assert got.longest_pause < 0.5


def test_a_log_in_that_would_take_much_cpu_is_refused() -> None:
    def script(connection: socket.socket) -> Iterator[bytes]:
        yield from kafka_log_in(connection, ",s=c2FsdA==,i=5000000")

    user = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "u", "sasl_password": "p"}
    began = time.process_time()
    got = attack("kafka", script, given=user)
    assert (got.answer.error, b"iterations" in got.answer.body) == ("refused", True)
    assert time.process_time() - began < 1


def test_a_log_in_with_the_most_iterations_goes_on() -> None:
    final: list[bytes] = []

    def script(connection: socket.socket) -> Iterator[bytes]:
        yield from kafka_log_in(connection, f",s=c2FsdA==,i={MOST_ITERATIONS}")
        final.append(connection.recv(65536))
        connection.close()

    user = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "u", "sasl_password": "p"}
    attack("kafka", script, given=user)
    assert b"c=biws,r=" in final[0]


@pytest.mark.parametrize(("frame_max", "error"), [(9, "refused"), (4096, None), (0, None)])
def test_a_broker_whose_frames_are_tiny_is_refused(frame_max: int, error: str | None) -> None:
    """The client would build a million frames, before anything else happens."""

    def script(connection: socket.socket) -> Iterator[bytes]:
        yield from handshake(connection, frame_max)
        received = 0
        while received < MIB:
            received += len(connection.recv(65536))
        yield amqp(commands.Basic.Ack(delivery_tag=1), 1)

    got = attack("rabbitmq", script, body=bytes(MIB))
    assert (got.answer.error, b"frames" in got.answer.body) == (error, error is not None)
    assert got.longest_pause < 0.5
