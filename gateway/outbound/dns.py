"""The addresses of host names: looked up once for all who ask at the same time, and kept for a while."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gateway.outbound.answer import UnknownNameError

_THREADS = 32

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` gives it."""
Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]
"""The addresses of a host and port; raises OSError when there are none."""


class Names:
    """What an event loop asks for addresses.

    The system's resolver runs on threads of its own: names that hang must not use up the loop's few threads.
    """

    def __init__(self, resolve: Resolve | None, keep_seconds: float) -> None:
        self._resolve = resolve or self._by_the_system
        self._keep_seconds = keep_seconds
        self._found: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="outbound-dns")

    async def addresses(self, host: str, port: int) -> list[AddressInfo]:
        """Where a host is, at least one address; raises `UnknownNameError`."""
        if literal := _literal(host, port):
            return [literal]
        key = host, port
        found = self._found.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._found[key] = loop.create_task(self._ask(host, port))
            loop.call_later(self._keep_seconds, self._forget, key, found)
            found.add_done_callback(lambda task: self._forget_failure(key, task))
        # Who stops waiting does not take the answer away from the others.
        return await asyncio.shield(found)

    def close(self) -> None:
        """Not waited for: a look-up that hangs must not hold up a caller whose deadline has passed."""
        for found in self._found.values():
            found.cancel()
        self._found.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise UnknownNameError from error
        if not found:
            raise UnknownNameError
        return found

    async def _by_the_system(self, host: str, port: int) -> list[AddressInfo]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)

    def _forget(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if self._found.get(key) is found:
            del self._found[key]

    def _forget_failure(self, key: tuple[str, int], found: asyncio.Task[list[AddressInfo]]) -> None:
        if found.cancelled() or found.exception() is not None:
            self._forget(key, found)


def _literal(host: str, port: int) -> AddressInfo | None:
    """An address that is written out needs no look-up."""
    host = host.rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)


def _look_up(host: str, port: int) -> list[AddressInfo]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG))
    except UnicodeError as error:
        raise OSError("Not a host name") from error
