"""Outbound HTTP client: every request to an address that a customer chose goes through it.

Callers are webhook deliveries (thousands a second, from the dispatcher), verify pings, single replays and website
checks. It connects to public addresses only. The address is judged when the socket is opened, so DNS rebinding fails.
One deadline covers everything from the DNS look-up to the last byte of the answer. Memory is bounded whatever the
receiver sends. Whatever the receiver does, the result is an `Answer`, never an exception.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import Self, TypedDict, Unpack

from aiohappyeyeballs import start_connection
from asgiref.sync import async_to_sync

from gateway.database.transactions import leave_database
from gateway.http1 import AnswerTooLargeError, BrokenOffError, Origin, request_head, tls_context
from gateway.outbound import egress_proxy
from gateway.outbound.connection import HttpConnection, IdleConnections, connect
from gateway.outbound.dns import AddressInfo, Names, Resolve
from gateway.outbound.public_addresses import is_public
from gateway.outbound.receiver_answer import READ_LIMIT, Answer, Attempt, StaleError, UnknownNameError
from gateway.outbound.urls import InvalidUrlError, parse_url, validate_url

__all__ = ["Answer", "InvalidUrlError", "Outbound", "get_once", "post_once", "validate_url"]

# One delivery attempt: seconds, seconds, bytes.
CONNECT_TIMEOUT = 5.0
TOTAL_TIMEOUT = 15.0

_NEXT_ADDRESS_AFTER = 0.25
"""Seconds until a name's next address is tried beside the one that does not answer (RFC 8305)."""


class Limits(TypedDict, total=False):
    """Bounds of one request: time-outs in seconds, what is read of the answer's body in bytes."""

    connect_timeout: float
    total_timeout: float
    read_limit: int


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a URL leads, and what a request says of it."""

    origin: Origin
    path: str
    host: str


class Outbound:
    """A pool of connections to customers' addresses: an async context manager, for one event loop.

    `allow_private` lifts the guard (setting WEBHOOK_ALLOW_PRIVATE_NETWORKS); WEBHOOK_PROXY_URL names a proxy that all
    connections lead through. Requests at once are not limited here. A name's addresses are kept for `dns_seconds`, an
    idle connection for `keepalive` seconds. `resolve` and `tls` replace the system's resolver and certificates.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        dns_seconds: float = 30.0,
        keepalive: float = 15.0,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._proxy = egress_proxy.configured()
        self._tls = tls or tls_context()
        self._names = Names(resolve, dns_seconds)
        self._idle = IdleConnections(seconds=keepalive)
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._idle.close()
        await self._names.close()

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
        read_limit: int = READ_LIMIT,
    ) -> Answer:
        """POST `body`, at least once, to a URL that `validate_url` accepted. Redirects are not followed.

        When a connection kept from an earlier request turns out to have been closed by the receiver before
        any answer came, the request is made once more on a new connection, within the same deadline.
        """
        return await self._request("POST", url, body, headers, connect_timeout, total_timeout, read_limit)

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
        read_limit: int = READ_LIMIT,
    ) -> Answer:
        """GET a URL that `validate_url` accepted; otherwise as `post`."""
        return await self._request("GET", url, None, headers, connect_timeout, total_timeout, read_limit)

    async def _request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        connect_timeout: float,
        total_timeout: float,
        read_limit: int,
    ) -> Answer:
        attempt = Attempt()
        deadline = attempt.started + total_timeout
        try:
            target = _target(url)
            head = request_head(
                method,
                target.path,
                target.host,
                {"Accept": "*/*", **headers},
                body_bytes=None if body is None else len(body),
            )
            connection = self._idle.take(target.origin)
            while True:
                if connection is None:
                    connection = await self._connect(target.origin, attempt, connect_timeout, deadline)
                try:
                    await connection.exchange(
                        head, body or b"", attempt, read_limit=read_limit, deadline=deadline
                    )
                    break
                except StaleError:
                    if attempt.opened:
                        raise
                    connection = None
            self._idle.keep(target.origin, connection)
        except (OSError, InvalidUrlError, UnknownNameError, BrokenOffError, AnswerTooLargeError) as error:
            return attempt.answer(error)
        return attempt.answer(None)

    # --- Connections

    async def _connect(
        self, origin: Origin, attempt: Attempt, seconds: float, deadline: float
    ) -> HttpConnection:
        until = min(self._loop.time() + seconds, deadline)
        async with asyncio.timeout_at(until):
            addresses = await self._names.addresses(origin.host, origin.port)
            if self._proxy is None:
                sock = await start_connection(
                    addresses,
                    happy_eyeballs_delay=_NEXT_ADDRESS_AFTER,
                    socket_factory=partial(self._open_socket, attempt),
                )
        if self._proxy is not None:
            public = self._public(attempt, addresses)
            sock = await egress_proxy.open_tunnel(self._proxy, public, until=until)
        async with asyncio.timeout_at(until):
            return await connect(sock, origin, self._tls)

    def _open_socket(self, attempt: Attempt, address: AddressInfo) -> socket.socket:
        self._judge(attempt, address)
        family, kind, proto, _, _ = address
        return socket.socket(family, kind, proto)

    def _public(self, attempt: Attempt, addresses: Sequence[AddressInfo]) -> list[AddressInfo]:
        """Those of the addresses that may be called. Raises OSError when none may."""
        passed, refusal = [], None
        for address in addresses:
            try:
                self._judge(attempt, address)
            except OSError as error:
                refusal = error
            else:
                passed.append(address)
        if refusal is not None and not passed:
            raise refusal
        return passed

    def _judge(self, attempt: Attempt, address: AddressInfo) -> None:
        """The guard: every address that is about to be called, looked up or literal, comes through here.

        Raises OSError for one that is not public.
        """
        if not (self._allow_private or is_public(str(address[4][0]))):
            attempt.blocked = True
            raise OSError(errno.EACCES, "Address is not public")
        attempt.opened = True


@lru_cache(maxsize=4096)
def _target(url: str) -> _Target:
    """Raises `InvalidUrlError`."""
    parsed = parse_url(url)
    return _Target(
        Origin(parsed.raw_host or "", parsed.port or 0, parsed.scheme == "https"),
        parsed.raw_path_qs,
        parsed.host_port_subcomponent or "",
    )


def post_once(
    url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, **limits: Unpack[Limits]
) -> Answer:
    """`Outbound.post` for synchronous callers, on a connection of its own; never inside a transaction."""
    return _once(lambda outbound: outbound.post(url, body, headers, **limits), allow_private)


def get_once(
    url: str, headers: Mapping[str, str], *, allow_private: bool, **limits: Unpack[Limits]
) -> Answer:
    """`Outbound.get` for synchronous callers, on a connection of its own; never inside a transaction."""
    return _once(lambda outbound: outbound.get(url, headers, **limits), allow_private)


def _once(call: Callable[[Outbound], Awaitable[Answer]], allow_private: bool) -> Answer:
    async def run() -> Answer:
        async with Outbound(allow_private=allow_private) as outbound:
            return await call(outbound)

    leave_database()
    return async_to_sync(run)()
