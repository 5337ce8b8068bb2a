"""A POST is sent once: no transport sends it again when a kept connection dies."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from gateway.upstream import blocking_client
from gateway.upstream.calls import AsyncPool, GraphCall, UpstreamUnreachable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class DyingServer:
    """Answers the first request of each connection, and closes the connection after receiving a second."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            for turn in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                if turn == 0:
                    writer.write(ANSWER)
                    await writer.drain()


@pytest.fixture
def server() -> Iterator[DyingServer]:
    dying = DyingServer()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> Any:
        listening = await asyncio.start_server(dying.handle, "127.0.0.1", 0)
        dying.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v25.0/1/messages"
        return listening

    def serve() -> None:
        listening = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        listening.close()
        loop.run_until_complete(listening.wait_closed())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert started.wait(30)
    yield dying
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


def call(server: DyingServer, body: bytes) -> GraphCall:
    return GraphCall("POST", server.url, {"Content-Type": "application/json"}, body)


async def test_the_asynchronous_pool_sends_a_message_once(server: DyingServer) -> None:
    async with AsyncPool(limit=1) as pool:
        assert (await pool.send(call(server, b"first"))).status == 200
        with pytest.raises(UpstreamUnreachable):
            await pool.send(call(server, b"second"))
    assert server.bodies == [b"first", b"second"]
    assert server.connections == 1, "the second went over the kept connection"


def test_a_thread_makes_a_call_once(server: DyingServer) -> None:
    assert blocking_client.send(call(server, b"first")).status == 200
    with pytest.raises(UpstreamUnreachable):
        blocking_client.send(call(server, b"second"))
    assert server.bodies == [b"first", b"second"]
    assert server.connections == 1, "the second went over the kept connection"
