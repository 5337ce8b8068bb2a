"""The time-out covers a whole call: an answer that stalls or comes too slowly after its first byte is a time-out too.

For a call from a thread, the time-out starts again with the body of the answer.
"""

import asyncio
import io
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import FileBody
from gateway.upstream.calls import AsyncPool, GraphCall, UpstreamUnreachable
from tests.raw_server import raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWERS = {
    "headers": (b"HTTP/1.1 200 OK\r\nX-Name: ", b"a"),
    "stalls": (OK + b"Content-Length: 1000\r\n\r\n{", b""),
    "drips": (OK + b"Content-Length: 1000\r\n\r\n", b" "),
    "drips-chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.fixture
def server() -> Iterator[str]:
    """A server whose answer depends on the path, at ten bytes a second."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        begin, piece = ANSWERS[head.split(b" ")[1].decode().removeprefix("/")]
        writer.write(begin)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.1)

    with raw_server(drip) as url:
        yield url


def over_the_asynchronous_pool(call: GraphCall) -> None:
    async def once() -> None:
        async with AsyncPool(limit=1) as pool:
            await pool.send(call)

    asyncio.run(once())


def from_a_thread(call: GraphCall) -> None:
    blocking_client.send(call)


def from_a_thread_with_a_file(call: GraphCall) -> None:
    blocking_client.send(replace(call, body=FileBody(io.BytesIO(b"{}"), length=2)))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("transport", [over_the_asynchronous_pool, from_a_thread, from_a_thread_with_a_file])
def test_an_answer_that_is_not_whole_in_time_is_a_time_out(
    server: str, settings: Any, transport: Any, answer: str
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 500
    began = time.monotonic()
    with pytest.raises(UpstreamUnreachable) as unreachable:
        transport(GraphCall("POST", f"{server}/{answer}", {}, b"{}"))
    assert unreachable.value.reason == "timeout"
    # Each wait for a piece is short. Without a deadline for the whole call, the call takes 100 seconds or never ends.
    assert time.monotonic() - began < 10
