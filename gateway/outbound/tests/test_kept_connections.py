"""Connections that are kept for the next request to the same receiver."""

import asyncio

import pytest

from gateway.http1 import new_tls_context
from gateway.outbound.client import Outbound
from gateway.outbound.connection import Attempt, HttpConnection
from gateway.outbound.tests.receivers import (
    OK,
    Connection,
    Serve,
    answers_ok,
)


async def test_connections_are_reused(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)

    for _ in range(5):
        assert (await client.post(receiver.url(), b"{}", {})).ok

    assert (receiver.connections, len(receiver.requests)) == (1, 5)


async def test_a_connection_serves_only_calls_with_its_own_tls_settings(
    serve: Serve, client: Outbound
) -> None:
    receiver, own, other = await serve(answers_ok), new_tls_context(), new_tls_context()
    for tls, connections in ((None, 1), (own, 2), (other, 3), (own, 3), (None, 3)):
        assert (await client.post(receiver.url(), b"{}", {}, tls=tls)).ok
        assert receiver.connections == connections


@pytest.mark.parametrize("at_once", [True, False], ids=["with the answer", "after it"])
async def test_an_answer_that_nobody_asked_for_is_not_the_next_one(
    serve: Serve, client: Outbound, at_once: bool
) -> None:
    wrong = b"HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n"
    closed = asyncio.Event()

    async def answers_twice(connection: Connection) -> None:
        first = receiver.connections == 1
        await connection.request()
        await connection.answer(OK + wrong if first and at_once else OK)
        if first and not at_once:
            await connection.answer(wrong)
        await connection.gone()
        closed.set()

    receiver = await serve(answers_twice)

    assert (await client.post(receiver.url(), b"{}", {})).status == 200
    async with asyncio.timeout(5):
        await closed.wait()
    assert (await client.post(receiver.url(), b"{}", {})).status == 200

    assert (receiver.connections, len(receiver.requests)) == (2, 2)


async def test_idle_connections_are_closed_after_a_while(serve: Serve) -> None:
    closed = asyncio.Semaphore(0)

    async def answers_until_closed(connection: Connection) -> None:
        await answers_ok(connection)
        closed.release()

    receiver, another = await serve(answers_until_closed), await serve(answers_until_closed)

    async with Outbound(allow_private=True, keepalive=0.2) as client:
        await asyncio.gather(*(client.post(receiver.url(), b"{}", {}) for _ in range(3)))
        for _ in range(30):
            # This connection is idle later, so it is closed later.
            await client.post(another.url(), b"{}", {})
        async with asyncio.timeout(5):
            for _ in range(4):
                await closed.acquire()
        assert (await client.post(receiver.url(), b"{}", {})).ok

    assert (receiver.connections, another.connections) == (4, 1)


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_a_kept_connection_that_was_closed_is_replaced(
    serve: Serve, client: Outbound, how: str
) -> None:
    """Several connections are kept, and all are closed when the next request arrives on one of them."""
    together = asyncio.Barrier(3)

    async def answers_once(connection: Connection) -> None:
        await connection.request()
        if receiver.connections <= 3 and len(receiver.requests) <= 3:
            await together.wait()
        await connection.answer()
        if await connection.request() and how == "resets":
            connection.reset()

    receiver = await serve(answers_once)
    first = await asyncio.gather(*(client.post(receiver.url(), b"{}", {}) for _ in range(3)))
    assert all(answer.ok for answer in first)
    assert receiver.connections == 3

    for _ in range(3):
        assert (await client.post(receiver.url(), b"again", {})).ok

    assert receiver.connections == 6
    assert len(receiver.requests) == 9
    assert all(request.endswith(b"again") for request in receiver.requests[3:])


async def test_a_large_body_is_sent_again_from_its_start(serve: Serve, client: Outbound) -> None:
    async def answers_once(connection: Connection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()

    receiver = await serve(answers_once)
    body = bytes(range(256)) * 8 * 1024  # 2 MiB
    await client.post(receiver.url(), b"{}", {})

    assert (await client.post(receiver.url(), body, {})).ok
    assert receiver.requests[-1].partition(b"\r\n\r\n")[2] == body


class SlowTransport(asyncio.Transport):
    """Takes everything, and lets the writer wait after each piece."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__()
        self.connection, self.taken, self.is_closed = connection, 0, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.taken += len(data)
        self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("pieces", [1, 8])
async def test_a_connection_with_a_body_that_was_not_sent_to_its_end_is_not_kept(pieces: int) -> None:
    """Its receiver would read the next request as the rest of the body."""
    connection = HttpConnection()
    transport = SlowTransport(connection)
    connection.connection_made(transport)
    body, deadline = b"x" * 2**21, asyncio.get_running_loop().time() + 20
    exchange = asyncio.ensure_future(
        connection.exchange(b"", body, Attempt(), read_limit=1024, deadline=deadline)
    )
    for piece in range(pieces):
        while transport.taken <= piece * len(body) // 8:
            await asyncio.sleep(0)
            connection.resume_writing()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await exchange
    assert connection.is_open is (transport.taken == len(body)) is (pieces == 8)


async def test_the_second_try_has_no_more_time_than_the_first(serve: Serve, client: Outbound) -> None:
    async def then_hangs(connection: Connection) -> None:
        await connection.request()
        if receiver.connections > 1:
            await connection.gone()
        await connection.answer()
        await connection.request()

    receiver = await serve(then_hangs)
    await client.post(receiver.url(), b"{}", {})

    answer = await client.post(receiver.url(), b"{}", {}, total_timeout=1)

    assert answer.error == "timeout"
    assert answer.ms < 3000
    assert receiver.connections == 2


async def test_no_second_try_once_an_answer_has_begun(serve: Serve, client: Outbound) -> None:
    async def breaks_off(connection: Connection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\n")

    receiver = await serve(breaks_off)
    await client.post(receiver.url(), b"{}", {})

    assert (await client.post(receiver.url(), b"{}", {})).error == "connection_error"
    assert len(receiver.requests) == 2
