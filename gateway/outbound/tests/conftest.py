"""Fixtures of the outbound tests: receivers on loopback, and a client that may call them."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from aiodns import DNSResolver

from gateway.outbound import addresses
from gateway.outbound.client import Outbound
from gateway.outbound.tests.name_server import name_server
from gateway.outbound.tests.receivers import (
    Behaviour,
    Receiver,
    Serve,
)
from tests.certificates import self_signed


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            behaviour: Behaviour, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
        ) -> Receiver:
            receiver = Receiver(behaviour)
            tasks: set[asyncio.Task[None]] = set()

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.ensure_future(receiver.handle(reader, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_server(connected, host, port, ssl=tls)
            receiver.port = server.sockets[0].getsockname()[1]

            async def stop() -> None:
                server.close()
                for task in list(tasks):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

            stack.push_async_callback(stop)
            return receiver

        yield start


@pytest.fixture
async def client() -> AsyncIterator[Outbound]:
    async with Outbound(allow_private=True) as outbound:
        yield outbound


@pytest.fixture
def dns_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Resolve names with the tests' DNS server: `good*.test` is this machine, and `slow*` gets no answer."""
    with name_server() as address:
        monkeypatch.setattr(addresses, "DNSResolver", partial(DNSResolver, nameservers=[address]))
        yield


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and receiver.test, with its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
