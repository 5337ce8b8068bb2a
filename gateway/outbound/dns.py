"""DNS for outbound calls: concurrent look-ups of a name are shared, and its addresses are cached for a while.

Names are resolved by c-ares (aiodns), which asks the servers of `/etc/resolv.conf` and reads `/etc/hosts`. The system's
`getaddrinfo` holds a thread for each name: with 32 threads, 40 names whose servers do not answer kept every other
customer's name waiting for their time-outs.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiodns import DNSResolver
from aiodns.error import ARES_ETIMEOUT, DNSError

from gateway.outbound.receiver_answer import UnknownNameError
from gateway.outbound.urls import InvalidUrlError

QUERY_SECONDS = 2.0
"""How long the first query of a look-up waits for an answer; the second waits twice as long."""
QUERIES = 2

_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` gives it."""
Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]
"""The addresses of a host and port; raises `UnknownNameError` when there are none, TimeoutError without an answer."""


class Names:
    """Addresses of host names for one event loop."""

    def __init__(self, resolve: Resolve | None, keep_seconds: float) -> None:
        self._resolve = resolve or self._query
        self._keep_seconds = keep_seconds
        self._found: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}
        self._resolver: DNSResolver | None = None

    async def addresses(self, host: str, port: int) -> list[AddressInfo]:
        """The addresses of a host, at least one; raises `UnknownNameError` or TimeoutError."""
        if literal := _literal(host, port):
            return [literal]
        key = host, port
        found = self._found.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._found[key] = loop.create_task(self._resolve_one(host, port))
            loop.call_later(self._keep_seconds, self._forget, key, found)
            found.add_done_callback(lambda task: self._forget_failure(key, task))
        # A caller that is cancelled must not cancel the look-up for the others.
        return await asyncio.shield(found)

    async def close(self) -> None:
        """Cancel every look-up that is under way."""
        for found in self._found.values():
            found.cancel()
        self._found.clear()
        if self._resolver is not None:
            await self._resolver.close()

    async def _resolve_one(self, host: str, port: int) -> list[AddressInfo]:
        found = await self._resolve(host, port)
        if not found:
            raise UnknownNameError
        return found

    async def _query(self, host: str, port: int) -> list[AddressInfo]:
        if self._resolver is None:
            self._resolver = DNSResolver(timeout=QUERY_SECONDS, tries=QUERIES)
        try:
            result = await self._resolver.getaddrinfo(host, port=port, type=socket.SOCK_STREAM)
        except DNSError as error:
            raise (TimeoutError if error.args[0] == ARES_ETIMEOUT else UnknownNameError) from error
        return [
            (node.family, node.socktype, node.protocol, "", (node.addr[0].decode(), *node.addr[1:]))
            for node in result.nodes
        ]

    def _forget(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if self._found.get(key) is found:
            del self._found[key]

    def _forget_failure(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if found.cancelled() or found.exception() is not None:
            self._forget(key, found)


def _literal(host: str, port: int) -> AddressInfo | None:
    """An address that is written out needs no look-up. Raises `InvalidUrlError` for one in an ambiguous form."""
    host = host.rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # A host that ends in a number is an address and never a name. Resolvers read its other forms differently:
        # 0177.0.0.1 is 127.0.0.1 for one and 177.0.0.1 for another.
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            raise InvalidUrlError("The host is an IP address in a form that is not followed.") from None
        return None
    if address.version == 4:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
