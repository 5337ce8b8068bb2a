"""Receivers on loopback with many kinds of wrong behaviour, for the tests of outbound calls."""

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable

from gateway.outbound.addresses import AddressInfo, UnknownNameError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OK_AND_CLOSE = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


class Connection:
    """The receiver's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self) -> bytes:
        """The next request, head and body. Empty once the client is gone."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            return head + await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def answer(self, data: bytes = OK) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()

    async def gone(self) -> bool:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 20):
                pass
        return True


Behaviour = Callable[[Connection], Awaitable[None]]


class Receiver:
    """A server on loopback. `requests` and `connections` record what it received."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = Connection(reader, writer)
        plain_request = connection.request

        async def recorded() -> bytes:
            request = await plain_request()
            if request:
                self.requests.append(request)
            return request

        connection.request = recorded  # type: ignore[method-assign]
        try:
            await self.behaviour(connection)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.gone.set()
            writer.close()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


Serve = Callable[..., Awaitable[Receiver]]


async def answers_ok(connection: Connection) -> None:
    while await connection.request():
        await connection.answer()


def says(data: bytes) -> Behaviour:
    """A behaviour: answer one request with these bytes and close."""

    async def behaviour(connection: Connection) -> None:
        await connection.request()
        await connection.answer(data)

    return behaviour


class KnownNames:
    """A resolver that knows some names. Each look-up of a name returns the next of the name's answers."""

    def __init__(self, **names: list[list[str]]) -> None:
        self._names = {
            name: itertools.chain(found, itertools.repeat(found[-1])) for name, found in names.items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked.append(host)
        if host not in self._names:
            raise UnknownNameError
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                0,
                "",
                (address, port),
            )
            for address in next(self._names[host])
        ]
