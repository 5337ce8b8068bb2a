"""Deadlines of outbound calls: they cover the DNS look-up, connecting and the whole answer."""

import asyncio
import socket
from typing import Any

import pytest

from gateway.outbound.addresses import AddressInfo
from gateway.outbound.client import Outbound
from gateway.outbound.tests.receivers import (
    Behaviour,
    Connection,
    Serve,
)


async def hangs(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def drips_a_body(connection: Connection) -> None:
    await connection.request()
    await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await connection.answer(b"x")
        await asyncio.sleep(0.02)


async def drips_headers(connection: Connection) -> None:
    await connection.request()
    for byte in b"HTTP/1.1 200 OK\r\nX-Name: " + b"a" * 1000:
        await connection.answer(bytes([byte]))
        await asyncio.sleep(0.02)


async def continues_without_end(connection: Connection) -> None:
    await connection.request()
    while True:
        await connection.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [(hangs, None), (drips_a_body, 200), (drips_headers, None), (continues_without_end, None)],
)
async def test_the_deadline_covers_the_whole_answer(
    serve: Serve, client: Outbound, behaviour: Behaviour, status: int | None
) -> None:
    receiver = await serve(behaviour)

    answer = await client.post(receiver.url(), b"{}", {}, total_timeout=1)

    assert (answer.status, answer.error) == (status, "timeout")
    # Without a deadline, the pieces would take 20 seconds or longer.
    assert 990 <= answer.ms < 10_000
    async with asyncio.timeout(5):
        await receiver.gone.wait()


async def test_a_refusal_with_an_endless_body_is_still_a_refusal(serve: Serve, client: Outbound) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nso")
        await connection.gone()

    receiver = await serve(refuses)

    answer = await client.post(receiver.url(), b"{}", {}, total_timeout=1)

    assert (answer.status, answer.error, answer.body) == (500, "http_5xx", b"so")


async def test_a_receiver_that_does_not_read_holds_nothing(serve: Serve) -> None:
    opened: list[socket.socket] = []

    class Recording(Outbound):
        def _open_socket(self, *args: Any) -> socket.socket:
            opened.append(super()._open_socket(*args))
            return opened[-1]

    async def never_reads(connection: Connection) -> None:
        await asyncio.Event().wait()

    receiver = await serve(never_reads)

    async with Recording(allow_private=True) as client:
        answer = await client.post(receiver.url(), bytes(32 * 1024 * 1024), {}, total_timeout=0.3)

        assert (answer.status, answer.error) == (None, "timeout")
        async with asyncio.timeout(5):
            while any(sock.fileno() >= 0 for sock in opened):
                await asyncio.sleep(0)
        assert len(opened) == 1


async def test_the_deadline_covers_names(client: Outbound) -> None:
    async def hangs(host: str, port: int) -> list[AddressInfo]:
        await asyncio.Event().wait()
        raise AssertionError

    async with Outbound(allow_private=True, resolve=hangs) as outbound:
        total = await outbound.post("http://receiver.test/", b"", {}, total_timeout=0.1)
        connect = await outbound.post("http://receiver.test/", b"", {}, connect_timeout=0.1)

    assert (total.error, connect.error) == ("timeout", "timeout")
    assert max(total.ms, connect.ms) < 5000


async def test_connecting_has_a_deadline_of_its_own(serve: Serve, client: Outbound) -> None:
    async def never_shakes_hands(connection: Connection) -> None:
        await connection.gone()

    receiver = await serve(never_shakes_hands)

    answer = await client.post(receiver.url(scheme="https"), b"", {}, connect_timeout=0.2)

    assert answer.error == "timeout"
    assert answer.ms < 1500


async def test_cancelling_closes_the_connection(serve: Serve, client: Outbound) -> None:
    arrived = asyncio.Event()

    async def hangs_loudly(connection: Connection) -> None:
        await connection.request()
        arrived.set()
        await connection.gone()

    receiver = await serve(hangs_loudly)
    task = asyncio.ensure_future(client.post(receiver.url(), b"{}", {}))
    async with asyncio.timeout(5):
        await arrived.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with asyncio.timeout(5):
        await receiver.gone.wait()
